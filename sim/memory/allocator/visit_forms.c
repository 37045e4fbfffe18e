#include "sim/memory/allocator/visit_forms.h"

#include "base/grow.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/event_visit.h"

#include <string.h>

enum { MOST_FORMS = 256 };

/* --- Which events are visits --- */

/* other [events]: the death of each birth, the birth of each death; SIZE_MAX: it is not in the list. */
static void pair_event(const spw_event_list *list, size_t i, size_t *born, size_t *other) {
    size_t *at = &born[list->event[i].slot];
    other[i] = SIZE_MAX;
    if (!list->event[i].born && *at > 0) {
        other[i] = *at - 1;
        other[*at - 1] = i;
    }
    *at = list->event[i].born ? i + 1 : 0;
}

/* Those among which births have their deaths have them there again. */
static void pair_repeated(const spw_event_list *list, const spw_list_repeat *r, size_t *born, size_t *other) {
    for (size_t k = 0; k < r->events; k++) {
        const size_t at = other[r->of + k] - r->of;
        if (at < r->events)
            other[r->begin + k] = r->begin + at;
        else
            pair_event(list, r->begin + k, born, other);
    }
}

static spw_status find_others(const spw_event_list *list, size_t *other) {
    const spw_list_repeat *r = list->repeat, *end = r + list->repeats;
    size_t slots = 0, *born = NULL;
    for (size_t i = 0; i < list->events; i++)
        slots = list->event[i].slot >= slots ? (size_t)list->event[i].slot + 1 : slots;
    const spw_status status = SPW_ALLOC(slots, &born); /* 1 + the event; 0: nothing is there */
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < list->events;) {
        if (r != end && r->begin == i) {
            pair_repeated(list, r, born, other);
            i += r++->events;
        } else {
            pair_event(list, i++, born, other);
        }
    }
    spw_free(born);
    return SPW_OK;
}

/* Behind the last event of the visit that begins there; `begin`: none does. */
static size_t end_of_visit(const spw_event_list *list, const size_t *other, size_t begin) {
    const bool backward = list->event[begin].backward;
    size_t end = begin + 1;
    for (size_t i = begin; i < end; i++) {
        if (other[i] == SIZE_MAX || other[i] < begin || list->event[i].backward != backward) return begin;
        if (other[i] >= end) end = other[i] + 1;
        if (end - begin > SPW_VISIT_EVENTS) return begin;
    }
    return end;
}

/* --- Their forms --- */

/* A list whose visits are found. */
typedef struct finding {
    spw_event_list *list;
    const size_t *other;
    const spw_size_law *law;
    size_t laws;
    size_t repeats,
        known; /* those that are behind it or that it is in, and the next visit that the last of these repeats */
} finding;

/* Is an event of that law of size k? bytes: of those of the size that do not change. */
static bool is_of_size(const spw_visit_form *form, size_t k, const spw_memory_event *e,
                       const spw_size_law *law, uint64_t bytes) {
    const spw_size_law *of = &form->law[k];
    if (e->stream != form->stream[k]) return false;
    return law == NULL ? of->count == SPW_NO_COUNT && e->bytes == bytes
                       : of->count == law->count && of->unit == law->unit;
}

/* Is what changes in a visit of one cell, too? *cell: an event that changes; NULL: there was none yet. */
static bool is_of_cell(const spw_memory_event *e, const spw_size_law *law, const spw_memory_event **cell) {
    if (law == NULL) return true;
    if (*cell == NULL) *cell = e;
    return e->layer == (*cell)->layer && e->micro_batch == (*cell)->micro_batch;
}

static size_t size_of(const spw_memory_event *e, size_t at, const spw_size_law *law, spw_visit_form *form) {
    size_t k = 0;
    while (k < form->sizes && !is_of_size(form, k, e, law, form->bytes[k])) k++;
    if (k < form->sizes || k == SPW_VISIT_SIZES) return k;
    form->first[k] = (uint16_t)at;
    form->stream[k] = e->stream;
    form->births[k] = 0;
    form->law[k] = law != NULL ? *law : (spw_size_law){0, SPW_NO_COUNT};
    form->bytes[k] = e->bytes;
    if (law != NULL)
        form->changing[form->changings++] = (spw_visit_changing){law->unit, (uint8_t)k, law->count};
    form->sizes++;
    return k;
}

/* The form of a visit, its events behind those of the others; false: it has too many sizes, too much at once, or changes with several
 * cells. */
static bool describe(const finding *f, size_t begin, spw_visit_form *form, spw_visit_event *event) {
    const spw_memory_event *cell = NULL;
    form->number = form->events;
    form->sizes = form->changings = form->changes = form->plans = form->most_live = 0;
    size_t live = 0;
    for (size_t i = 0; i < form->events; i++) {
        const spw_memory_event *e = &f->list->event[begin + i];
        const spw_size_law *law = spw_law_of(f->law, f->laws, e);
        const size_t birth = e->born ? i : f->other[begin + i] - begin,
                     size = e->born ? size_of(e, i, law, form) : event[birth].size;
        if (size == SPW_VISIT_SIZES || e->stream >= SPW_ALLOCATOR_STREAMS || !is_of_cell(e, law, &cell))
            return false;
        event[i] = (spw_visit_event){(uint16_t)birth, (uint8_t)size, e->born};
        form->births[size] = (uint16_t)(form->births[size] + e->born);
        live += e->born ? 1 : SIZE_MAX;
        if (live > SPW_VISIT_PLACES) return false;
        if (live > form->most_live) form->most_live = live;
        form->number = (form->number ^ (birth << 16 | size << 8 | (uint64_t)e->stream << 1 | e->born)) *
                       SPW_VISIT_FACTOR;
        form->number ^= form->number >> 32;
    }
    return true;
}

static bool is_covered(const uint16_t *some, const uint16_t *all, size_t sizes) {
    bool covered = true;
    for (size_t k = 0; k < sizes; k++) covered = covered && some[k] <= all[k];
    return covered;
}

/* What is live at once of each size. */
typedef struct top {
    uint16_t live[SPW_VISIT_SIZES];
} top;

/* Where less has been live of every size, it is not the most. tops: SPW_VISIT_TOPS + 1: there are too many. */
static size_t add_top(top *all, size_t tops, size_t sizes, const top *now) {
    size_t kept = 0;
    for (size_t t = 0; t < tops; t++)
        if (is_covered(now->live, all[t].live, sizes)) return tops;
    for (size_t t = 0; t < tops; t++)
        if (!is_covered(all[t].live, now->live, sizes)) all[kept++] = all[t];
    if (kept < SPW_VISIT_TOPS) all[kept] = *now;
    return kept + 1;
}

/* From each top to the next. What falls comes first, so that nothing between them is more than the next. */
static bool add_changes(const top *all, size_t tops, spw_visit_form *form) {
    static const top none = {{0}};
    for (size_t t = 0; t < tops; t++) {
        const top *before = t > 0 ? &all[t - 1] : &none;
        for (int rises = 0; rises <= 1; rises++) {
            for (size_t k = 0; k < form->sizes; k++) {
                const int change = all[t].live[k] - before->live[k];
                if (change == 0 || (change > 0) != (rises == 1)) continue;
                if (form->changes == SPW_VISIT_CHANGES) return false;
                form->change[form->changes++] = (spw_visit_change){(uint8_t)k, (int8_t)change};
            }
        }
    }
    return true;
}

static bool find_tops(spw_visit_form *form, const spw_visit_event *event) {
    top all[SPW_VISIT_TOPS], now = {{0}};
    size_t tops = 0;
    for (size_t i = 0; i < form->events; i++) {
        if (i > 0 && event[i - 1].born && !event[i].born) tops = add_top(all, tops, form->sizes, &now);
        if (tops > SPW_VISIT_TOPS) return false;
        now.live[event[i].size] = (uint16_t)(now.live[event[i].size] + (event[i].born ? 1 : -1));
    }
    return add_changes(all, tops, form);
}

/* Has the visit that form? Its births of a size stay of equal bytes, as those of the visit of which the form is do; of what does not
 * change these are the same, where other bytes change. */
static bool has_form(const finding *f, size_t begin, const spw_visit_form *form) {
    const spw_memory_event *first = f->list->event + begin, *cell = NULL;
    const spw_visit_event *event = f->list->forms->event + form->event;
    bool has = true;
    for (size_t i = 0; i < form->events && has; i++) {
        const spw_memory_event *e = &first[i];
        const size_t k = event[i].size;
        const spw_size_law *law = spw_law_of(f->law, f->laws, e);
        const uint64_t bytes = f->laws > 0 ? form->bytes[k] : first[form->first[k]].bytes;
        has = e->born == event[i].born &&
              (e->born ? is_of_size(form, k, e, law, bytes) && is_of_cell(e, law, &cell)
                       : f->other[begin + i] == begin + event[i].birth);
    }
    return has;
}

/* Which form the visit has; MOST_FORMS: none that is listed. */
static spw_status form_of(const finding *f, size_t begin, size_t end, size_t *out) {
    spw_visit_forms *all = f->list->forms;
    spw_status status = SPW_OK;
    *out = MOST_FORMS;
    for (size_t i = all->forms; i-- > 0 && *out == MOST_FORMS;)
        if (all->form[i].events == end - begin && has_form(f, begin, &all->form[i])) *out = i;
    if (*out < MOST_FORMS || all->forms == MOST_FORMS) return SPW_OK;
    SPW_TRY(SPW_GROW(all->forms, all->forms + 1, &all->form_room, &all->form));
    SPW_TRY(SPW_GROW(all->events, all->events + end - begin, &all->event_room, &all->event));
    spw_visit_form *form = &all->form[all->forms];
    form->event = all->events;
    form->events = end - begin;
    if (!describe(f, begin, form, all->event + form->event) || !find_tops(form, all->event + form->event))
        return SPW_OK;
    all->events += form->events;
    *out = all->forms++;

cleanup:
    return status;
}

static spw_status add_visit(const finding *f, size_t begin, size_t end, size_t form) {
    spw_event_list *list = f->list;
    const spw_status status = SPW_GROW(list->visits, list->visits + 1, &list->visit_room, &list->visit);
    if (status != SPW_OK) return status;
    const spw_visit_form *of = &list->forms->form[form];
    const spw_memory_event *cell =
        &list->event[begin + (of->changings > 0 ? of->first[of->changing[0].size] : 0)];
    list->visit[list->visits++] = (spw_event_visit){.begin = (uint32_t)begin,
                                                    .end = (uint32_t)end,
                                                    .form = (uint16_t)form,
                                                    .backward = list->event[begin].backward,
                                                    .layer = cell->layer,
                                                    .micro_batch = cell->micro_batch,
                                                    .spread = true};
    return SPW_OK;
}

/* The first visit of those from there on. */
static size_t visit_from(const spw_event_list *list, size_t event) {
    size_t low = 0, high = list->visits;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (list->visit[middle].begin < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The visit that is repeated from there on; NULL: none is, or not all of it. */
static const spw_event_visit *repeated_visit(finding *f, size_t begin) {
    const spw_event_list *list = f->list;
    for (; f->repeats < list->repeats && list->repeat[f->repeats].begin <= begin; f->repeats++)
        f->known = visit_from(list, list->repeat[f->repeats].of);
    const spw_list_repeat *r = f->repeats > 0 ? &list->repeat[f->repeats - 1] : NULL;
    if (r == NULL || begin - r->begin >= r->events) return NULL;
    const size_t of = begin - r->begin + r->of;
    while (f->known < list->visits && list->visit[f->known].begin < of) f->known++;
    const spw_event_visit *v = &list->visit[f->known];
    const bool changes = list->event[begin].layer != SPW_NO_MOE_LAYER;
    return f->known < list->visits && v->begin == of && v->end <= r->of + r->events &&
                   (list->event[of].layer != SPW_NO_MOE_LAYER) == changes
               ? v
               : NULL;
}

/* Gives the end of the visit that begins there; `begin`: none does. */
static spw_status next_visit(finding *f, size_t begin, size_t *end) {
    const spw_event_visit *known = repeated_visit(f, begin);
    size_t form = 0;
    if (known != NULL) {
        *end = begin + known->end - known->begin;
        return add_visit(f, begin, *end, known->form);
    }
    *end = end_of_visit(f->list, f->other, begin);
    if (*end == begin) return SPW_OK;
    const spw_status status = form_of(f, begin, *end, &form);
    return status == SPW_OK && form < MOST_FORMS ? add_visit(f, begin, *end, form) : status;
}

/* --- What else is to be known where bytes change --- */

static spw_status add_own(spw_event_list *list, size_t event) {
    const spw_memory_event *e = &list->event[event];
    const spw_status status = SPW_GROW(list->owns, list->owns + 1, &list->own_room, &list->own);
    if (status == SPW_OK)
        list->own[list->owns++] = (spw_own_event){(uint32_t)event, e->micro_batch, e->kind, e->layer};
    return status;
}

/* Of what does not change in a visit, its slots but few. */
static uint64_t visit_number(const spw_event_list *list, const spw_event_visit *v) {
    const spw_visit_form *form = &list->forms->form[v->form];
    uint64_t number = (uint64_t)(form - list->forms->form) + 1;
    for (size_t k = 0; k < form->sizes; k++)
        number = (number ^ list->event[v->begin + form->first[k]].slot) * SPW_VISIT_FACTOR;
    return number;
}

static uint64_t event_number(const spw_memory_event *e, bool changes) {
    const uint64_t number = changes ? 0 : e->bytes * SPW_VISIT_FACTOR;
    return number ^ ((uint64_t)e->slot << 1 | e->born);
}

/* A list that is gone through from event to event, and from visit to visit. */
typedef struct walk {
    size_t event, visit, mark;
    uint64_t number; /* of what is behind the last mark */
} walk;

/* Marks that stand there, or in the visit before. */
static void pass_marks(spw_event_list *list, walk *at) {
    for (; at->mark < list->marks && list->mark[at->mark] <= at->event; at->mark++) {
        if (at->mark > 0) list->shape[at->mark - 1].number = at->number;
        list->shape[at->mark] = (spw_mark_shape){.visit = at->visit, .own = list->owns};
        at->number = 0;
    }
}

static spw_status look_outside(spw_event_list *list, const spw_size_law *law, size_t laws) {
    walk at = {.event = 0};
    spw_status status = SPW_OK;
    list->counted = true;
    SPW_TRY(SPW_ALLOC(list->marks, &list->shape));
    while (at.event < list->events) {
        const bool visited = at.visit < list->visits && list->visit[at.visit].begin == at.event;
        const spw_memory_event *e = &list->event[at.event];
        const bool changes = !visited && spw_law_of(law, laws, e) != NULL;
        pass_marks(list, &at);
        if (changes) SPW_TRY(add_own(list, at.event));
        at.number ^= visited ? visit_number(list, &list->visit[at.visit]) : event_number(e, changes);
        at.number *= SPW_VISIT_FACTOR;
        at.number ^= at.number >> 32;
        at.event = visited ? list->visit[at.visit++].end : at.event + 1;
    }
    pass_marks(list, &at);
    if (list->marks > 0) list->shape[list->marks - 1].number = at.number;

cleanup:
    return status;
}

/* --- All --- */

spw_status spw_event_list_find_visits(spw_event_list *list, const spw_size_law *law, size_t laws) {
    size_t *other = NULL;
    spw_status status = SPW_OK;
    spw_event_list_spread(list);
    spw_event_list_forget_visits(list);
    if (list->events >= UINT32_MAX) return SPW_OK;
    SPW_TRY(SPW_RESIZE(list->events, &other));
    SPW_TRY(find_others(list, other));
    SPW_TRY(SPW_ALLOC(1, &list->forms));
    finding f = {.list = list, .other = other, .law = law, .laws = laws};
    for (size_t i = 0; i < list->events;) {
        size_t end = i;
        SPW_TRY(next_visit(&f, i, &end));
        i = end > i ? end : i + 1;
    }
    if (laws > 0) SPW_TRY(look_outside(list, law, laws));

cleanup:
    spw_free(other);
    return status;
}

void spw_event_visit_spread(const spw_event_list *list, size_t visit) {
    spw_event_visit *v = &list->visit[visit];
    const spw_visit_form *form = &list->forms->form[v->form];
    const spw_visit_event *event = list->forms->event + form->event;
    spw_memory_event *to = list->event + v->begin;
    uint64_t bytes[SPW_VISIT_SIZES];
    if (v->spread) return;
    if (list->from != NULL) memcpy(to, list->from + v->begin, form->events * sizeof *to);
    for (size_t k = 0; k < form->sizes; k++) bytes[k] = form->bytes[k];
    for (size_t c = 0; c < form->changings; c++) {
        const spw_visit_changing *changing = &form->changing[c];
        bytes[changing->size] = spw_saturated_product(changing->unit, v->count[changing->count]);
    }
    for (size_t i = 0; i < form->events; i++) to[i].bytes = bytes[event[i].size];
    v->spread = true;
}

void spw_event_list_spread(const spw_event_list *list) {
    for (size_t v = 0; v < list->visits; v++) spw_event_visit_spread(list, v);
}

/* --- Their life --- */

void spw_visit_forms_destroy(spw_visit_forms *forms) {
    if (forms == NULL) return;
    spw_free(forms->form);
    spw_free(forms->event);
    spw_free(forms->step);
    spw_free(forms->size);
    spw_free(forms);
}

/* Plans and bytes are found anew. */
spw_status spw_visit_forms_copy(const spw_visit_forms *from, spw_visit_forms **out) {
    spw_visit_forms *to = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &to));
    SPW_TRY(SPW_GROW(0, from->forms, &to->form_room, &to->form));
    SPW_TRY(SPW_GROW(0, from->events, &to->event_room, &to->event));
    if (from->forms > 0) memcpy(to->form, from->form, from->forms * sizeof *to->form);
    if (from->events > 0) memcpy(to->event, from->event, from->events * sizeof *to->event);
    to->forms = from->forms;
    to->events = from->events;
    for (size_t i = 0; i < to->forms; i++) to->form[i].plans = 0;
    *out = to;
    to = NULL;

cleanup:
    spw_visit_forms_destroy(to);
    return status;
}

spw_status spw_event_list_remember(spw_event_list *list) {
    return list->fits != NULL ? SPW_OK : SPW_ALLOC(1, &list->fits);
}

void spw_event_list_forget_visits(spw_event_list *list) {
    spw_free(list->visit);
    spw_free(list->own);
    spw_free(list->shape);
    spw_visit_forms_destroy(list->forms);
    list->visit = NULL;
    list->own = NULL;
    list->shape = NULL;
    list->forms = NULL;
    list->from = NULL;
    list->counted = false;
    list->visits = list->visit_room = list->owns = list->own_room = 0;
}
