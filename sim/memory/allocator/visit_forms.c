#include "sim/memory/allocator/visit_forms.h"

#include "base/grow.h"
#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/event_visit.h"

#include <string.h>

enum { MOST_FORMS = 256, MOST_TOPS = 32 };

/* --- Which events are visits --- */

/* other [events]: the death of each birth, the birth of each death; SIZE_MAX: it is not in the list. */
static spw_status find_others(const spw_event_list *list, size_t *other) {
    size_t slots = 0, *born = NULL;
    for (size_t i = 0; i < list->events; i++)
        slots = list->event[i].slot >= slots ? (size_t)list->event[i].slot + 1 : slots;
    const spw_status status = SPW_ALLOC(slots, &born); /* 1 + the event; 0: nothing is there */
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < list->events; i++) {
        size_t *at = &born[list->event[i].slot];
        other[i] = SIZE_MAX;
        if (!list->event[i].born && *at > 0) {
            other[i] = *at - 1;
            other[*at - 1] = i;
        }
        *at = list->event[i].born ? i + 1 : 0;
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
    const uint16_t *law;
    size_t laws;
} finding;

static uint16_t law_of(const finding *f, const spw_memory_event *event) {
    return event->kind < f->laws && event->layer != SPW_NO_MOE_LAYER ? f->law[event->kind] : SPW_NO_LAW;
}

/* Do they stay of equal bytes when bytes change? */
static bool are_alike(const finding *f, const spw_memory_event *a, const spw_memory_event *b) {
    const uint16_t law = law_of(f, a);
    return a->bytes == b->bytes && a->stream == b->stream && law_of(f, b) == law &&
           (law == SPW_NO_LAW || (a->layer == b->layer && a->micro_batch == b->micro_batch));
}

static size_t size_of(const finding *f, size_t begin, size_t at, spw_visit_form *form) {
    const spw_memory_event *first = f->list->event + begin;
    size_t k = 0;
    while (k < form->sizes && !are_alike(f, &first[form->first[k]], &first[at])) k++;
    if (k < form->sizes || k == SPW_VISIT_SIZES) return k;
    form->first[k] = (uint16_t)at;
    form->stream[k] = first[at].stream;
    form->births[k] = 0;
    if (law_of(f, &first[at]) != SPW_NO_LAW) {
        form->changing[form->changings++] = (uint8_t)k;
        form->changes_of |= UINT32_C(1) << k;
    }
    form->sizes++;
    return k;
}

/* The form of a visit, its events behind those of the others; false: it has too many sizes, or too much at once. */
static bool describe(const finding *f, size_t begin, spw_visit_form *form, spw_visit_event *event) {
    form->number = form->events;
    form->sizes = form->changings = form->changes = form->plans = form->most_live = 0;
    form->changes_of = 0;
    size_t live = 0;
    for (size_t i = 0; i < form->events; i++) {
        const spw_memory_event *e = &f->list->event[begin + i];
        const size_t birth = e->born ? i : f->other[begin + i] - begin,
                     size = e->born ? size_of(f, begin, i, form) : event[birth].size;
        if (size == SPW_VISIT_SIZES || e->stream >= SPW_ALLOCATOR_STREAMS) return false;
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

/* Where less has been live of every size, it is not the most. tops: MOST_TOPS + 1: there are too many. */
static size_t add_top(top *all, size_t tops, size_t sizes, const top *now) {
    size_t kept = 0;
    for (size_t t = 0; t < tops; t++)
        if (is_covered(now->live, all[t].live, sizes)) return tops;
    for (size_t t = 0; t < tops; t++)
        if (!is_covered(all[t].live, now->live, sizes)) all[kept++] = all[t];
    if (kept < MOST_TOPS) all[kept] = *now;
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
    top all[MOST_TOPS], now = {{0}};
    size_t tops = 0;
    for (size_t i = 0; i < form->events; i++) {
        if (i > 0 && event[i - 1].born && !event[i].born) tops = add_top(all, tops, form->sizes, &now);
        if (tops > MOST_TOPS) return false;
        now.live[event[i].size] = (uint16_t)(now.live[event[i].size] + (event[i].born ? 1 : -1));
    }
    return add_changes(all, tops, form);
}

/* Has the visit that form? Its births of a size stay of equal bytes, as those of the visit of which the form is do. */
static bool has_form(const finding *f, size_t begin, const spw_visit_form *form) {
    const spw_memory_event *first = f->list->event + begin;
    const spw_visit_event *event = f->list->forms->event + form->event;
    bool has = true;
    for (size_t i = 0; i < form->events && has; i++) {
        const spw_memory_event *e = &first[i];
        const size_t size = event[i].size;
        has = e->born == event[i].born &&
              (e->born ? e->stream == form->stream[size] && are_alike(f, &first[form->first[size]], e) &&
                             (law_of(f, e) != SPW_NO_LAW) == (form->changes_of >> size & 1)
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

static spw_status add_visit(const finding *f, size_t begin, size_t end) {
    spw_event_list *list = f->list;
    size_t form = 0;
    spw_status status = form_of(f, begin, end, &form);
    if (status != SPW_OK || form == MOST_FORMS) return status;
    status = SPW_GROW(list->visits, list->visits + 1, &list->visit_room, &list->visit);
    if (status == SPW_OK)
        list->visit[list->visits++] = (spw_event_visit){.begin = (uint32_t)begin,
                                                        .end = (uint32_t)end,
                                                        .form = (uint16_t)form,
                                                        .backward = list->event[begin].backward,
                                                        .spread = true};
    return status;
}

spw_status spw_event_list_find_visits(spw_event_list *list, const uint16_t *law, size_t laws) {
    size_t *other = NULL;
    spw_status status = SPW_OK;
    spw_event_list_forget_visits(list);
    if (list->events >= UINT32_MAX) return SPW_OK;
    SPW_TRY(SPW_RESIZE(list->events, &other)); /* of which all is written first */
    SPW_TRY(find_others(list, other));
    SPW_TRY(SPW_ALLOC(1, &list->forms));
    const finding found = {list, other, law, laws};
    for (size_t i = 0; i < list->events;) {
        const size_t end = end_of_visit(list, other, i);
        if (end > i) SPW_TRY(add_visit(&found, i, end));
        i = end > i ? end : i + 1;
    }

cleanup:
    spw_free(other);
    return status;
}

static spw_status add_own(spw_event_list *list, size_t event) {
    const spw_memory_event *e = &list->event[event];
    const spw_status status = SPW_GROW(list->owns, list->owns + 1, &list->own_room, &list->own);
    if (status == SPW_OK)
        list->own[list->owns++] =
            (spw_own_event){e->bytes, (uint32_t)event, e->micro_batch, e->kind, e->layer};
    return status;
}

/* Of what does not change behind each mark, up to the next one. */
static spw_status find_shape(const finding *f) {
    spw_event_list *list = f->list;
    const spw_status status = SPW_ALLOC(list->marks, &list->shape);
    size_t own = 0;
    for (size_t m = 0; m < list->marks && status == SPW_OK; m++) {
        const size_t end = m + 1 < list->marks ? list->mark[m + 1] : list->events;
        uint64_t number = end - list->mark[m];
        for (size_t i = list->mark[m]; i < end; i++) {
            const spw_memory_event *e = &list->event[i];
            if (law_of(f, e) == SPW_NO_LAW) number = (number ^ e->bytes) * SPW_VISIT_FACTOR;
            number = (number ^ ((uint64_t)e->slot << 1 | e->born)) * SPW_VISIT_FACTOR;
            number ^= number >> 32;
        }
        while (own < list->owns && list->own[own].event < list->mark[m]) own++;
        list->shape[m] = (spw_mark_shape){number, own};
    }
    return status;
}

spw_status spw_event_list_find_own(spw_event_list *list, const uint16_t *law, size_t laws) {
    const finding f = {list, NULL, law, laws};
    size_t v = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < list->events;) {
        if (v == list->visits || list->visit[v].begin != i) {
            if (law_of(&f, &list->event[i]) != SPW_NO_LAW) SPW_TRY(add_own(list, i));
            i++;
            continue;
        }
        const spw_visit_form *form = &list->forms->form[list->visit[v].form];
        list->visit[v].own = (uint32_t)list->owns;
        for (size_t c = 0; c < form->changings; c++)
            SPW_TRY(add_own(list, i + form->first[form->changing[c]]));
        i = list->visit[v++].end;
    }
    SPW_TRY(find_shape(&f));

cleanup:
    return status;
}

void spw_event_visit_spread(const spw_event_list *list, size_t visit) {
    spw_event_visit *v = &list->visit[visit];
    const spw_visit_form *form = &list->forms->form[v->form];
    const spw_visit_event *event = list->forms->event + form->event;
    spw_memory_event *to = list->event + v->begin;
    if (v->spread) return;
    for (size_t c = 0; c < form->changings; c++)
        to[form->first[form->changing[c]]].bytes = list->own[v->own + c].bytes;
    for (size_t i = 0; i < form->events; i++) to[i].bytes = to[form->first[event[i].size]].bytes;
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
    list->visits = list->visit_room = list->owns = list->own_room = 0;
}
