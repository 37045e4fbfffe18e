/* Lists whose bytes change by laws: what follows from these once, for all counts, and what a visit takes with some. */
#include "sim/memory/allocator/visit_forms.h"

#include "base/grow.h"
#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/event_visit.h"

/* --- Forms --- */

/* What the sizes that do not change are together, and from which counts on one of the others is too much. */
static void count_sizes(spw_visit_form *form) {
    spw_visit_size size[SPW_VISIT_SIZES];
    form->fixed = (spw_visit_total){.number = form->number};
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++) form->limit[r] = UINT64_MAX;
    for (size_t k = 0; k < form->sizes; k++)
        if (form->law[k].count == SPW_NO_COUNT)
            spw_visit_add_size(form, k, form->bytes[k], size, &form->fixed);
    for (size_t c = 0; c < form->changings; c++) {
        const spw_visit_changing *changing = &form->changing[c];
        uint64_t *limit = &form->limit[changing->count];
        if (changing->unit > 0 && SPW_VISIT_BYTES / changing->unit < *limit)
            *limit = SPW_VISIT_BYTES / changing->unit;
    }
}

/* Is a no more than b, whatever is counted? */
static bool is_below(const spw_visit_line *a, const spw_visit_line *b) {
    bool below = a->fixed <= b->fixed;
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++) below = below && a->by[r] <= b->by[r];
    return below;
}

static void add_top(const spw_visit_line *line, spw_visit_form *form) {
    size_t kept = 0;
    for (size_t t = 0; t < form->tops; t++)
        if (is_below(line, &form->top[t])) return;
    for (size_t t = 0; t < form->tops; t++)
        if (!is_below(&form->top[t], line)) form->top[kept++] = form->top[t];
    form->top[kept++] = *line;
    form->tops = kept;
}

/* As many as the form has tops of sizes at most, which are fewer than there is room for. */
static void count_tops(spw_visit_form *form) {
    spw_visit_line live = {.fixed = 0};
    form->tops = 0;
    for (size_t i = 0; i < form->changes; i++) {
        const spw_visit_change *change = &form->change[i];
        const spw_size_law *law = &form->law[change->size];
        if (law->count == SPW_NO_COUNT)
            live.fixed += (uint64_t)change->rise * form->bytes[change->size];
        else if (law->unit <= SPW_VISIT_BYTES) /* else there is a limit of nothing at all */
            live.by[law->count] += (uint64_t)change->rise * law->unit;
        if (change->rise > 0 && (i + 1 == form->changes || form->change[i + 1].rise < 0))
            add_top(&live, form);
    }
}

static void count_form(spw_visit_form *form) {
    count_sizes(form);
    if (!form->fixed.too_much) count_tops(form);
}

/* --- Plans --- */

/* Counts with which a size has the class that it has in the plan; on other streams these differ by pools, too. */
static void limit_counts(const spw_visit_form *form, const spw_visit_changing *changing,
                         spw_visit_plan *plan) {
    const spw_size_class class = spw_class_of(plan->classes, changing->size);
    const uint64_t small = changing->unit == 0
                               ? UINT64_MAX
                               : (form->stream[changing->size] == 0 ? SPW_SMALL_REQUEST : 0) / changing->unit;
    uint64_t *least = &plan->least[changing->count], *most = &plan->most[changing->count];
    if (class == SPW_SIZE_NONE && changing->unit > 0) *most = 0;
    if (class != SPW_SIZE_NONE && *least == 0) *least = 1;
    if (class == SPW_SIZE_SMALL && small < *most) *most = small;
    if (class == SPW_SIZE_LARGE && small + 1 > *least) *least = small + 1;
}

static void add_sums(const spw_visit_form *form, const spw_visit_changing *changing, uint64_t beside,
                     spw_visit_sums *sums) {
    const uint64_t births = form->births[changing->size],
                   up = changing->unit % SPW_BLOCK_SMALLEST > 0 ? SPW_BLOCK_SMALLEST - 1 : 0;
    sums->bytes.fixed += births * (up + beside);
    sums->bytes.by[changing->count] += births * changing->unit;
    spw_raise_to(&sums->most.by[changing->count], changing->unit);
}

/* The sizes that change, those of the small pool first. */
static void sort_changing(const spw_visit_form *form, spw_visit_plan *plan) {
    size_t sorted = 0;
    for (int small = 1; small >= 0; small--) {
        for (size_t c = 0; c < form->changings; c++)
            if ((spw_class_of(plan->classes, form->changing[c].size) == SPW_SIZE_SMALL) == (small == 1))
                plan->changing[sorted++] = form->changing[c];
        if (small == 1) plan->smalls = sorted;
    }
}

static void count_plan(const spw_visit_form *form, spw_visit_plan *plan) {
    plan->small_sums = plan->large_sums = (spw_visit_sums){.bytes = {.fixed = 0}};
    plan->small_sums.bytes.fixed = form->fixed.small.bytes;
    plan->small_sums.most.fixed = form->fixed.small.most;
    plan->large_sums.bytes.fixed = form->fixed.large.bytes;
    plan->large_sums.most.fixed = form->fixed.large.most;
    plan->others = form->fixed.others;
    sort_changing(form, plan);
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++) {
        plan->least[r] = 0;
        plan->most[r] = form->limit[r];
    }
    for (size_t c = 0; c < form->changings; c++) {
        spw_visit_changing *changing = &plan->changing[c];
        const spw_size_class class = spw_class_of(plan->classes, changing->size);
        const size_t stream = form->stream[changing->size];
        changing->pool =
            (uint8_t)spw_pool_of(stream, class == SPW_SIZE_LARGE && stream == 0 ? UINT64_MAX : 0);
        limit_counts(form, changing, plan);
        plan->others = plan->others || (stream > 0 && class != SPW_SIZE_NONE);
        if (class == SPW_SIZE_LARGE) add_sums(form, changing, SPW_SMALL_REQUEST, &plan->large_sums);
        if (class == SPW_SIZE_SMALL) add_sums(form, changing, 0, &plan->small_sums);
    }
}

/* --- Visits --- */

static bool is_within(const spw_visit_plan *plan, const uint64_t *count) {
    bool within = true;
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++)
        within = within && count[r] >= plan->least[r] && count[r] <= plan->most[r];
    return within;
}

/* A plan that is not there; SPW_VISIT_PLANS: there are too many. */
static spw_status add_plan(spw_visit_forms *all, const spw_event_visit *v, size_t *out) {
    spw_visit_form *form = &all->form[v->form];
    const size_t plans = form->plans;
    spw_visit_size size[SPW_VISIT_SIZES];
    spw_visit_total total = {.number = 0};
    for (size_t k = 0; k < form->sizes; k++) {
        const spw_size_law *law = &form->law[k];
        const uint64_t bytes = law->count == SPW_NO_COUNT ? form->bytes[k] : law->unit * v->count[law->count];
        spw_visit_add_size(form, k, bytes, size, &total);
    }
    const spw_status status = spw_visit_plan_of(all, v->form, total.classes, size, out);
    if (status == SPW_OK && form->plans > plans) count_plan(form, &form->plan[plans]);
    return status;
}

/* That of the counts before, in most cases. */
static spw_status find_plan(spw_visit_forms *all, const spw_event_visit *v, size_t *out) {
    const spw_visit_form *form = &all->form[v->form];
    size_t p = v->plan;
    if (p >= form->plans || !is_within(&form->plan[p], v->count))
        for (p = 0; p < form->plans && !is_within(&form->plan[p], v->count);) p++;
    *out = p;
    return p < form->plans ? SPW_OK : add_plan(all, v, out);
}

static spw_visit_sum sum_at(const spw_visit_sums *sums, const uint64_t *count) {
    spw_visit_sum sum = {spw_visit_line_at(&sums->bytes, count), sums->most.fixed};
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++)
        spw_raise_to(&sum.most, spw_visit_bytes(sums->most.by[r] * count[r]));
    return sum;
}

/* Of other streams the pool follows from the bytes. */
static inline uint64_t take_size(const spw_visit_changing *changing, const uint64_t *count,
                                 spw_visit_size *size) {
    const uint64_t bytes = spw_visit_bytes(changing->unit * count[changing->count]);
    size[changing->size] = (spw_visit_size){bytes, changing->pool};
    return bytes;
}

/* Its sizes that change, and what it is together; the other sizes are there. */
static void take_counts(const spw_visit_form *form, const spw_visit_plan *plan, spw_visit_size *size,
                        spw_event_visit *v) {
    const spw_visit_changing *changing = plan->changing, *large = changing + plan->smalls,
                             *end = changing + form->changings;
    spw_visit_total *total = &v->total;
    uint64_t number = form->fixed.number;
    for (; changing != large; changing++) {
        const uint64_t bytes = take_size(changing, v->count, size);
        number = (number ^ (bytes << 5 | changing->size)) * SPW_VISIT_FACTOR;
    }
    for (; changing != end; changing++) {
        const uint64_t bytes = take_size(changing, v->count, size);
        if (changing->pool > SPW_SMALL_POOL)
            size[changing->size].pool = (uint8_t)spw_pool_of(form->stream[changing->size], bytes);
    }
    total->number = number;
    total->small = sum_at(&plan->small_sums, v->count);
    total->large = sum_at(&plan->large_sums, v->count);
    total->classes = plan->classes;
    total->others = plan->others;
    v->most = v->requested + form->most_live * SPW_BLOCK_SMALLEST + plan->large.most_live * SPW_SMALL_REQUEST;
}

/* Of all sizes of a new visit, which keep their bytes. */
static void take_fixed(const spw_visit_form *form, spw_visit_size *size) {
    for (size_t k = 0; k < form->sizes; k++) {
        const uint64_t bytes = spw_visit_bytes(form->bytes[k]);
        size[k] = (spw_visit_size){bytes, (uint8_t)spw_pool_of(form->stream[k], bytes)};
    }
}

/* Without counts that are too much. again: only these have changed. */
static spw_status outline_counted(spw_visit_forms *all, spw_event_visit *v, bool again) {
    const spw_visit_form *form = &all->form[v->form];
    spw_visit_size *size = all->size + v->size;
    size_t plan = 0;
    bool too_much = form->fixed.too_much;
    if (again && form->changings == 0) return SPW_OK;
    if (!again) take_fixed(form, size);
    if (form->changings > 0) v->spread = false;
    v->outlined = false;
    v->requested = 0;
    for (size_t r = 0; r < SPW_CELL_COUNTS; r++) too_much = too_much || v->count[r] > form->limit[r];
    if (too_much) return SPW_OK;
    for (size_t t = 0; t < form->tops; t++)
        spw_raise_to(&v->requested, spw_visit_line_at(&form->top[t], v->count));
    const spw_status status = find_plan(all, v, &plan);
    if (status != SPW_OK || plan == SPW_VISIT_PLANS) return status;
    v->plan = (uint16_t)plan;
    take_counts(form, &form->plan[plan], size, v);
    v->outlined = v->total.small.bytes + v->total.large.bytes <= SPW_VISIT_BYTES;
    return SPW_OK;
}

/* Room for the sizes of all visits. */
static spw_status reserve_sizes(spw_event_list *list) {
    size_t sizes = 0;
    for (size_t i = 0; i < list->visits; i++) {
        list->visit[i].size = (uint32_t)sizes;
        sizes += list->forms->form[list->visit[i].form].sizes;
    }
    return SPW_RESIZE(sizes, &list->forms->size);
}

/* --- Lists --- */

static void raise_top(spw_list_top *top, int64_t bytes, size_t event) {
    if (bytes > top->bytes || (bytes == top->bytes && event < top->event && top->event != SIZE_MAX))
        *top = (spw_list_top){bytes, event};
}

/* Of a top that a visit reaches, of which the first event is known: where in it. */
static void find_top(const spw_event_list *list, spw_list_top *top) {
    const spw_event_visit *v = list->visit;
    int64_t live = 0;
    while (v < list->visit + list->visits && v->begin < top->event) v++;
    if (v == list->visit + list->visits || v->begin != top->event) return;
    spw_event_visit_spread(list, (size_t)(v - list->visit));
    for (size_t i = v->begin; live < (int64_t)v->requested; i++) {
        live += spw_event_change(&list->event[i]);
        top->event = i;
    }
}

/* Beside visits, each of which leaves as much as it found, and learns it. Deaths of what the step before has left are not in the first step. */
static spw_list_tops top_outside(const spw_event_list *list) {
    spw_list_tops tops = {{0, SIZE_MAX}, {0, SIZE_MAX}};
    int64_t first = 0, later = 0;
    spw_event_visit *v = list->visit, *end = v + list->visits;
    for (size_t i = 0; i < list->events;) {
        if (v != end && v->begin == i) {
            v->first = first;
            v->later = later;
            i = v++->end;
            continue;
        }
        const int64_t change = spw_event_change(&list->event[i]);
        first += list->event[i].earlier ? 0 : change;
        later += change;
        raise_top(&tops.first, first, i);
        raise_top(&tops.later, later, i);
        i++;
    }
    return tops;
}

spw_list_tops spw_event_list_tops(const spw_event_list *list) {
    spw_list_tops tops = list->outside;
    for (size_t i = 0; i < list->visits; i++) {
        const spw_event_visit *v = &list->visit[i];
        raise_top(&tops.first, v->first + (int64_t)v->requested, v->begin);
        raise_top(&tops.later, v->later + (int64_t)v->requested, v->begin);
    }
    find_top(list, &tops.first);
    find_top(list, &tops.later);
    return tops;
}

/* Of a list that was outlined before only counts have changed, and bytes of its own events. */
spw_status spw_event_list_outline(spw_event_list *list) {
    const bool again = list->visits > 0 && list->forms->size != NULL;
    spw_status status = SPW_OK;
    if (list->visits > 0 && !again) {
        SPW_TRY(reserve_sizes(list));
        for (size_t i = 0; i < list->forms->forms && list->counted; i++) count_form(&list->forms->form[i]);
    }
    for (size_t i = 0; i < list->visits; i++) {
        spw_event_visit *v = &list->visit[i];
        SPW_TRY(list->counted ? outline_counted(list->forms, v, again) : spw_visit_outline(list, v));
    }
    if (list->counted && (!again || list->owns > 0)) list->outside = top_outside(list);

cleanup:
    return status;
}
