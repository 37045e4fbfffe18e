#include "sim/memory/allocator/event_list.h"

#include "base/grow.h"
#include "base/memory.h"
#include "sim/memory/allocator/event_visit.h"
#include "sim/memory/allocator/visit_forms.h"

#include <stdlib.h>
#include <string.h>

spw_status spw_event_list_reserve(spw_event_list *list, size_t capacity) {
    if (capacity <= list->capacity) return SPW_OK;
    const spw_status status = SPW_RESIZE(capacity, &list->event);
    if (status == SPW_OK) list->capacity = capacity;
    return status;
}

spw_status spw_event_list_grow(spw_event_list *list) {
    return spw_event_list_reserve(list, list->capacity == 0 ? 256 : 2 * list->capacity);
}

spw_status spw_event_list_mark(spw_event_list *list) {
    if (list->marks == list->mark_capacity) {
        const size_t capacity = list->mark_capacity == 0 ? 64 : 2 * list->mark_capacity;
        const spw_status status = SPW_RESIZE(capacity, &list->mark);
        if (status != SPW_OK) return status;
        list->mark_capacity = capacity;
    }
    list->mark[list->marks++] = list->events;
    return SPW_OK;
}

spw_status spw_event_list_repeat(spw_event_list *list, size_t begin, size_t end,
                                 const spw_list_shift *shift) {
    const size_t events = end - begin;
    spw_status status = SPW_OK;
    while (list->capacity - list->events < events) SPW_TRY(spw_event_list_grow(list));
    SPW_TRY(SPW_GROW(list->repeats, list->repeats + 1, &list->repeat_room, &list->repeat));
    list->repeat[list->repeats++] = (spw_list_repeat){list->events, events, begin};
    spw_memory_event *to = list->event + list->events;
    for (size_t i = 0; i < events; i++) {
        to[i] = list->event[begin + i];
        to[i].slot += to[i].slot >= shift->from ? shift->slots : 0;
        to[i].layer = shift->layer;
        to[i].micro_batch = shift->micro_batch;
    }
    list->events += events;

cleanup:
    return status;
}

/* Those of no visit; the others are asked for one by one. */
static void copy_outside(const spw_event_list *from, spw_event_list *to) {
    size_t begin = 0;
    for (size_t v = 0; v <= from->visits; v++) {
        const size_t end = v < from->visits ? from->visit[v].begin : from->events;
        for (size_t i = begin; i < end; i++) to->event[i] = from->event[i];
        if (v == from->visits) break;
        begin = from->visit[v].end;
        to->visit[v].spread = false;
    }
    to->from = from->from != NULL ? from->from : from->event;
}

static spw_status copy_visits(const spw_event_list *from, spw_event_list *to) {
    spw_status status = SPW_OK;
    if (from->visits > 0) {
        SPW_TRY(SPW_RESIZE(from->visits, &to->visit));
        memcpy(to->visit, from->visit, from->visits * sizeof *to->visit);
        SPW_TRY(spw_visit_forms_copy(from->forms, &to->forms));
        to->visits = to->visit_room = from->visits;
    }
    if (!from->counted) return SPW_OK;
    if (from->owns > 0) {
        SPW_TRY(SPW_RESIZE(from->owns, &to->own));
        memcpy(to->own, from->own, from->owns * sizeof *to->own);
        to->owns = to->own_room = from->owns;
    }
    SPW_TRY(SPW_ALLOC(from->marks, &to->shape));
    if (from->marks > 0) memcpy(to->shape, from->shape, from->marks * sizeof *to->shape);
    to->counted = true;
    to->outside = from->outside;

cleanup:
    return status;
}

/* In the room that is there, where it suffices. */
spw_status spw_event_list_copy(const spw_event_list *from, spw_event_list *to) {
    spw_status status = SPW_OK;
    if (to->capacity < from->events || to->mark_capacity < from->marks) {
        spw_event_list_destroy(to);
        SPW_TRY(SPW_RESIZE(from->events, &to->event));
        to->capacity = from->events;
        SPW_TRY(SPW_RESIZE(from->marks, &to->mark));
        to->mark_capacity = from->marks;
    }
    spw_event_list_clear(to);
    SPW_TRY(copy_visits(from, to));
    if (from->counted)
        copy_outside(from, to);
    else if (from->events > 0)
        memcpy(to->event, from->event, from->events * sizeof *to->event);
    if (from->marks > 0) memcpy(to->mark, from->mark, from->marks * sizeof *to->mark);
    to->events = from->events;
    to->marks = from->marks;

cleanup:
    return status;
}

bool spw_memory_event_is_equal(const spw_memory_event *a, const spw_memory_event *b) {
    return a->bytes == b->bytes && a->slot == b->slot && a->kind == b->kind && a->layer == b->layer &&
           a->born == b->born && a->backward == b->backward && a->optimizer == b->optimizer &&
           a->stream == b->stream && a->micro_batch == b->micro_batch;
}

bool spw_event_list_is_equal(const spw_event_list *a, const spw_event_list *b) {
    bool equal = a->events == b->events;
    for (size_t i = 0; i < a->events && equal; i++)
        equal = spw_memory_event_is_equal(&a->event[i], &b->event[i]);
    return equal;
}

static void forget_again(spw_event_list *list) {
    spw_free(list->again);
    list->again = NULL;
}

void spw_event_list_clear(spw_event_list *list) {
    list->events = list->marks = list->repeats = 0;
    forget_again(list);
    spw_event_list_forget_visits(list);
}

void spw_event_list_destroy(spw_event_list *list) {
    spw_free(list->event);
    spw_free(list->mark);
    spw_free(list->again);
    spw_free(list->repeat);
    spw_event_list_forget_visits(list);
    spw_free(list->fits);
    *list = (spw_event_list){.events = 0};
}

spw_list_peak spw_event_list_peak(const spw_event_list *list) {
    spw_list_peak peak = {.peak_event = SIZE_MAX};
    int64_t live = 0;
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *event = &list->event[i];
        live += spw_event_change(event);
        int64_t *most = event->backward ? &peak.backward_bytes : &peak.forward_bytes;
        if (live > *most) *most = live;
        if (!event->backward) peak.after_forward_bytes = live;
        if (live > peak.peak_bytes) {
            peak.peak_bytes = live;
            peak.peak_event = i;
        }
    }
    return peak;
}

void spw_event_list_waterfall(const spw_event_list *list, const spw_list_peak *peak,
                              int64_t bytes[SPW_TENSOR_KINDS]) {
    memset(bytes, 0, SPW_TENSOR_KINDS * sizeof *bytes);
    if (peak->peak_event == SIZE_MAX) return;
    for (size_t i = 0; i <= peak->peak_event; i++)
        bytes[list->event[i].kind] += spw_event_change(&list->event[i]);
}

/* --- Through the allocator --- */

/* A state at a mark of the list under way. */
typedef struct seen {
    uint64_t state; /* 0: of this one only the sums were looked at */
    uint64_t requested, allocated, reserved, retries;
    size_t event;
} seen;

/* After so many whole states of which none was there before, a list has none that is. */
enum { MOST_LOOKS = 12 };

static bool same_event(const spw_memory_event *a, const spw_memory_event *b) {
    return a->bytes == b->bytes && a->slot == b->slot && a->born == b->born && a->stream == b->stream;
}

/* How often the `length` events before `at` follow it again. */
static size_t repeats(const spw_event_list *list, size_t at, size_t length) {
    size_t same = 0;
    while (at + same < list->events && same_event(&list->event[at + same], &list->event[at + same - length]))
        same++;
    return same / length;
}

static bool same_sums(const seen *a, const seen *b) {
    return a->requested == b->requested && a->allocated == b->allocated && a->reserved == b->reserved &&
           a->retries == b->retries;
}

static bool has_sums(const seen *known, size_t knowns, const seen *now) {
    for (size_t k = 0; k < knowns; k++)
        if (same_sums(&known[k], now)) return true;
    return false;
}

/* The events that can be left out at a mark. */
static size_t left_out(const spw_event_list *list, seen *known, size_t knowns, const seen *now) {
    for (size_t k = knowns; k-- > 0 && now->state != 0;) {
        const size_t length = now->event - known[k].event;
        if (known[k].state != now->state || known[k].retries != now->retries || length == 0) continue;
        spw_event_list_spread(list);
        return repeats(list, now->event, length) * length;
    }
    known[knowns] = *now;
    return 0;
}

static uint64_t add_number(uint64_t number, uint64_t bytes, uint64_t rest) {
    bytes *= UINT64_C(0x9e3779b97f4a7c15);
    return (number + (bytes ^ bytes >> 29) + rest * UINT64_C(0xd1b54a32d192ed03)) * UINT64_C(0x100000001b3);
}

/* What is behind a mark, up to the next one, where bytes change by laws. */
static uint64_t number_counted(const spw_event_list *list, size_t mark, size_t step) {
    const spw_mark_shape *shape = &list->shape[mark],
                         end = mark + 1 < list->marks ? shape[1]
                                                      : (spw_mark_shape){0, list->visits, list->owns};
    uint64_t number = shape->number;
    for (size_t v = shape->visit; v < end.visit; v++)
        for (size_t r = 0; r < SPW_CELL_COUNTS && list->forms->form[list->visit[v].form].changings > 0; r++)
            number = add_number(number, list->visit[v].count[r], r);
    for (size_t i = shape->own; i < end.own; i += step)
        number = add_number(number, list->event[list->own[i].event].bytes, 0);
    return number;
}

/* A number of what is behind a mark: of its events, or of what changes and of what does not, of every `step`th. The factors are odd; only
 * the sum waits for the event before. */
static uint64_t number_behind(const spw_event_list *list, size_t mark, size_t step) {
    if (list->counted) return number_counted(list, mark, step);
    const size_t begin = list->mark[mark], end = mark + 1 < list->marks ? list->mark[mark + 1] : list->events;
    uint64_t number = end - begin;
    for (size_t i = begin; i < end; i += step) {
        const spw_memory_event *e = &list->event[i];
        number = add_number(number, e->bytes, (uint64_t)e->slot << 1 | e->born);
    }
    return number;
}

/* Which of the numbers, of which those that are unlike the others already stay so, stand there more than once. first [places, a power of
 * two of at least twice the marks]: where a number stands first, 1 + its mark; 0: none. */
static void find_repeated(const uint64_t *number, size_t *first, size_t places, bool *again, size_t marks) {
    memset(first, 0, places * sizeof *first);
    for (size_t m = 0; m < marks; m++) {
        const bool open = again[m];
        size_t at = (number[m] ^ number[m] >> 32) & (places - 1);
        while (first[at] != 0 && number[first[at] - 1] != number[m]) at = (at + 1) & (places - 1);
        again[m] = false;
        if (first[at] == 0)
            first[at] = 1 + m;
        else if (open)
            again[m] = again[first[at] - 1] = true;
    }
}

/* By some of the events; where these are the same, by all. */
spw_status spw_event_list_find_again(spw_event_list *list) {
    enum { SOME = 7 };
    uint64_t *number = NULL;
    size_t *first = NULL, places = 2;
    spw_status status = SPW_OK;
    forget_again(list);
    if (list->marks == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(list->marks, &number));
    while (places < 2 * list->marks) places *= 2;
    SPW_TRY(SPW_ALLOC(places, &first));
    SPW_TRY(SPW_ALLOC(list->marks, &list->again));
    for (size_t m = 0; m < list->marks; m++) {
        number[m] = number_behind(list, m, SOME);
        list->again[m] = true;
    }
    find_repeated(number, first, places, list->again, list->marks);
    for (size_t m = 0; m < list->marks; m++)
        if (list->again[m]) number[m] = number_behind(list, m, 1);
    find_repeated(number, first, places, list->again, list->marks);

cleanup:
    spw_free(number);
    spw_free(first);
    return status;
}

/* Where a replay is. */
typedef struct cursor {
    size_t event, mark, visit; /* the next ones */
    bool forward;              /* was the last event */
} cursor;

/* Most events are of the pass of the one before. */
static inline void note_forward(bool backward, const spw_allocator *allocator, cursor *at,
                                spw_list_replay *out) {
    if (at->forward != backward) return;
    if (backward) out->after_forward = spw_allocator_get_stats(allocator);
    at->forward = !backward;
}

/* Up to there, or to where the device is out of memory. */
static spw_status replay_events(const spw_event_list *list, size_t end, spw_allocator *allocator,
                                spw_allocation *live, cursor *at, spw_list_replay *out) {
    const spw_memory_event *event = list->event + at->event, *last = list->event + end;
    spw_status status = SPW_OK;
    for (; event != last && status == SPW_OK; event++) {
        spw_allocation *held = &live[event->slot];
        note_forward(event->backward, allocator, at, out);
        if (!event->born) {
            status = spw_allocator_free(allocator, *held);
            held->block = SPW_ALLOCATION_EMPTY;
            continue;
        }
        status = spw_allocator_allocate(allocator, event->stream, event->bytes, held);
        if (status == SPW_OK && held->block == SPW_ALLOCATION_REFUSED) {
            out->refused = true;
            out->refused_event = (size_t)(event - list->event);
            break;
        }
    }
    at->event = (size_t)(event - list->event);
    return status;
}

/* From the event on: the first mark that is to be looked at; SIZE_MAX: there is none. */
static size_t mark_from(const spw_event_list *list, size_t event, cursor *at) {
    while (at->mark < list->marks &&
           (list->mark[at->mark] < event || (list->again != NULL && !list->again[at->mark])))
        at->mark++;
    return at->mark < list->marks ? list->mark[at->mark] : SIZE_MAX;
}

/* Where the next visit begins. */
static inline size_t next_visit(const spw_event_list *list, const cursor *at) {
    return at->visit < list->visits ? list->visit[at->visit].begin : SIZE_MAX;
}

/* From where it is on, when events were left out. */
static size_t visit_from(const spw_event_list *list, cursor *at) {
    while (next_visit(list, at) < at->event) at->visit++;
    return next_visit(list, at);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void begin_replay(spw_allocator *allocator, uint64_t sure, spw_list_replay *out) {
    *out = (spw_list_replay){.refused = false};
    spw_allocator_reset_peaks(allocator);
    out->before = out->after_forward = spw_allocator_get_stats(allocator);
    spw_allocator_expect(allocator, sure);
}

/* What was seen at marks since events were left out. */
typedef struct seen_marks {
    seen *known;
    size_t knowns, looks;
} seen_marks;

/* At a mark. Leaves events out that repeat others. */
static void look_at_mark(const spw_event_list *list, const spw_allocator *allocator,
                         const spw_allocation *live, size_t slots, seen_marks *marks, cursor *at,
                         spw_list_replay *out) {
    const spw_allocator_stats s = spw_allocator_get_stats(allocator);
    seen now = {0, s.requested_bytes, s.allocated_bytes, s.reserved_bytes, s.retries, at->event};
    if (marks->looks < MOST_LOOKS && has_sums(marks->known, marks->knowns, &now)) {
        now.state = spw_allocator_state(allocator, live, slots);
        marks->looks++;
    }
    const size_t skipped = left_out(list, marks->known, marks->knowns, &now);
    out->repeated += skipped;
    marks->knowns = skipped > 0 ? 0 : marks->knowns + 1;
    if (skipped > 0) marks->looks = 0;
    at->event += skipped;
    at->mark++;
}

spw_status spw_event_list_replay_cycles(const spw_event_list *list, spw_allocator *allocator,
                                        spw_allocation *live, size_t slots, uint64_t sure,
                                        spw_list_replay *out) {
    const bool visits = slots > 0 && spw_event_visit_can(allocator);
    seen_marks marks = {.known = NULL};
    cursor at = {.visit = visits ? 0 : list->visits};
    spw_status status = SPW_OK;
    begin_replay(allocator, sure, out);
    if (!visits) spw_event_list_spread(list);
    if (list->marks > 0 && slots > 0) SPW_TRY(SPW_RESIZE(list->marks, &marks.known));
    size_t mark = marks.known != NULL ? mark_from(list, 0, &at) : SIZE_MAX, next = visit_from(list, &at);
    while (at.event < list->events && !out->refused) {
        if (at.event == mark) {
            look_at_mark(list, allocator, live, slots, &marks, &at, out);
            mark = mark_from(list, at.event + 1, &at);
            next = visit_from(list, &at);
        }
        if (at.event == next) {
            const size_t visit = at.visit++;
            next = next_visit(list, &at);
            note_forward(list->visit[visit].backward, allocator, &at, out);
            if (spw_event_visit_replay(list, visit, allocator)) {
                at.event = list->visit[visit].end;
                if (mark < at.event) mark = mark_from(list, at.event, &at);
                continue;
            }
            spw_event_visit_spread(list, visit);
        }
        SPW_TRY(replay_events(list, smaller(smaller(mark, next), list->events), allocator, live, &at, out));
    }
    if (at.forward) out->after_forward = spw_allocator_get_stats(allocator);
    out->after = spw_allocator_get_stats(allocator);
    out->unsure = out->after.requested_peak_bytes < out->before.requested_bytes + sure;

cleanup:
    spw_free(marks.known);
    return status;
}

spw_status spw_event_list_replay(const spw_event_list *list, spw_allocator *allocator, spw_allocation *live,
                                 spw_list_replay *out) {
    return spw_event_list_replay_cycles(list, allocator, live, 0, 0, out);
}
