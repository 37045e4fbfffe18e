/* Tensors in the order in which a framework allocates and frees them. From one list come the bytes live at any time,
 * the saved bytes, the peak, what it is made of, and, through the allocator, what is reserved. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_EVENT_LIST_H
#define SPW_SIM_MEMORY_ALLOCATOR_EVENT_LIST_H

#include "base/status.h"
#include "sim/memory/allocator/allocator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a tensor is: name, bytes as a formula, and where that was read. */
typedef struct spw_tensor_kind {
    const char *name, *formula, *source;
} spw_tensor_kind;

enum { SPW_TENSOR_KINDS = 96, SPW_NO_MOE_LAYER = UINT16_MAX };

/* A tensor is born or dies. `slot` names it among the live ones; a later tensor may have the same. */
typedef struct spw_memory_event {
    uint64_t bytes; /* requested, not rounded */
    uint32_t slot;
    uint16_t kind, layer; /* layer: among the model's MoE layers; SPW_NO_MOE_LAYER: none is at work */
    bool born, backward;
    bool optimizer : 1;   /* in the optimizer's step, which has no micro-batch */
    bool earlier : 1;     /* dies, and was born in the step before: nothing, in the first step */
    uint8_t stream;       /* on which it is allocated, below SPW_ALLOCATOR_STREAMS */
    uint32_t micro_batch; /* of the pass; 0 where there is one */
} spw_memory_event;

/* A cell is a layer in a micro-batch, which has so many counts of something: of rows, say. */
enum { SPW_CELL_COUNTS = 3, SPW_NO_COUNT = SPW_CELL_COUNTS };

/* Bytes that change: so many for each of a count of the event's cell. Of SPW_NO_COUNT they do not. */
typedef struct spw_size_law {
    uint64_t unit;
    uint8_t count;
} spw_size_law;

/* An event of no visit whose bytes change. */
typedef struct spw_own_event {
    uint32_t event, micro_batch;
    uint16_t kind, layer;
} spw_own_event;

/* What is behind a mark, up to the next one. */
typedef struct spw_mark_shape {
    uint64_t number;   /* of what does not change */
    size_t visit, own; /* the first of its visits, and of its own events */
} spw_mark_shape;

/* Events that repeat those from `of` on: which are born and die together is the same. */
typedef struct spw_list_repeat {
    size_t begin, events, of;
} spw_list_repeat;

/* Births of a visit, in bytes as the allocator rounds them. */
typedef struct spw_visit_sum {
    uint64_t bytes, most; /* all together, and what may be given beside; of one */
} spw_visit_sum;

/* What some sizes of a visit are together. */
typedef struct spw_visit_total {
    spw_visit_sum small, large; /* of the first stream */
    uint64_t number;            /* of its events of small requests */
    uint64_t classes;           /* two bits a size: visit_forms.h */
    bool others;                /* blocks of other streams */
    bool too_much;              /* of one size */
} spw_visit_total;

/* Events from `begin` to before `end`, among which everything that is born dies, and nothing else does. */
typedef struct spw_event_visit {
    uint32_t begin, end;
    uint16_t form; /* visit_forms.h */
    bool backward; /* all of it */
    uint16_t layer;
    uint32_t micro_batch;            /* the cell of what changes in it, */
    uint64_t count[SPW_CELL_COUNTS]; /* which has so many */
    int64_t first, later;            /* live before it, in the first step and in a later one */
    /* by spw_event_list_outline(): */
    bool outlined;         /* false: it is replayed event by event */
    bool spread;           /* all events are there, with their bytes */
    uint16_t plan;         /* of its form */
    uint32_t size;         /* the first of its sizes among those of all visits */
    spw_visit_total total; /* of its sizes; of bytes that change no less than they are */
    uint64_t requested;    /* live at most */
    uint64_t most;         /* allocated, at most: where no block is cut */
} spw_event_visit;

/* The peak of a list alone. */
typedef struct spw_list_top {
    int64_t bytes;
    size_t event; /* SIZE_MAX: nothing is above the beginning */
} spw_list_top;
/* In the first step, in a later one. */
typedef struct spw_list_tops {
    spw_list_top first, later;
} spw_list_tops;

/* Numbers of what fitted into free blocks of a small pool; 0: of nothing. */
enum { SPW_VISITS_KNOWN = 4096 };
typedef struct spw_visits_known {
    uint64_t number[SPW_VISITS_KNOWN];
} spw_visits_known;

typedef struct spw_visit_forms spw_visit_forms; /* visit_forms.h */

typedef struct spw_event_list {
    spw_memory_event *event;
    size_t events, capacity;
    size_t *mark; /* events before each mark, rising: where a pass ends */
    size_t marks, mark_capacity;
    bool *again; /* [marks] spw_event_list_find_again(); NULL: nobody asked, and every mark is looked at */
    spw_event_visit *visit; /* [visits] spw_event_list_find_visits(), by begin */
    size_t visits, visit_room;
    spw_visits_known *
        fits; /* spw_event_list_remember(), of this list and those before it in its place; NULL: nobody asked */
    spw_visit_forms *forms; /* of the visits */
    bool counted;           /* bytes change by laws */
    spw_own_event *own;     /* [owns] by event, where they do */
    size_t owns, own_room;
    spw_mark_shape *shape;   /* [marks] what is behind each, where they do */
    spw_list_tops outside;   /* of visits, where they do and there are no own events */
    spw_list_repeat *repeat; /* [repeats] by begin: spw_event_list_repeat() */
    size_t repeats, repeat_room;
    const spw_memory_event *from; /* of a copy: the events of its visits; NULL: they are its own */
} spw_event_list;

SPW_MUST_CHECK spw_status spw_event_list_reserve(spw_event_list *list, size_t capacity);
SPW_MUST_CHECK spw_status spw_event_list_grow(spw_event_list *list); /* room for one event more */
/* Field by field: an event that is copied whole is written and read once more, which took longer than what it was made of. */
SPW_MUST_CHECK static inline spw_status spw_event_list_append(spw_event_list *list, spw_memory_event event) {
    if (list->events == list->capacity) {
        const spw_status status = spw_event_list_grow(list);
        if (status != SPW_OK) return status;
    }
    spw_memory_event *to = &list->event[list->events++];
    to->bytes = event.bytes;
    to->slot = event.slot;
    to->kind = event.kind;
    to->layer = event.layer;
    to->born = event.born;
    to->backward = event.backward;
    to->optimizer = event.optimizer;
    to->earlier = event.earlier;
    to->stream = event.stream;
    to->micro_batch = event.micro_batch;
    return SPW_OK;
}
SPW_MUST_CHECK spw_status spw_event_list_mark(spw_event_list *list); /* here */
/* Slots from `from` on become others, and all of it is of a cell. */
typedef struct spw_list_shift {
    uint32_t from, slots; /* so much further */
    uint32_t micro_batch;
    uint16_t layer;
} spw_list_shift;
/* Appends the events from `begin` to before `end` once more, which are of one cell. What changes by a law has the bytes of that one until
 * it is outlined. */
SPW_MUST_CHECK spw_status spw_event_list_repeat(spw_event_list *list, size_t begin, size_t end,
                                                const spw_list_shift *shift);
/* Overwrites `to`. Where bytes change by laws, events of visits stay those of `from`, which is to be there as long, until they are
 * asked for. */
SPW_MUST_CHECK spw_status spw_event_list_copy(const spw_event_list *from, spw_event_list *to);
static inline int64_t spw_event_change(const spw_memory_event *event) {
    return event->born ? (int64_t)event->bytes : -(int64_t)event->bytes;
}
bool spw_memory_event_is_equal(const spw_memory_event *a, const spw_memory_event *b);
bool spw_event_list_is_equal(const spw_event_list *a, const spw_event_list *b); /* events alone */
void spw_event_list_clear(spw_event_list *list);
void spw_event_list_destroy(spw_event_list *list); /* leaves an empty list */

/* Requested bytes above those live when the list begins; tensors of earlier lists that die count down. */
typedef struct spw_list_peak {
    int64_t after_forward_bytes, forward_bytes, backward_bytes, peak_bytes; /* maxima are at least 0 */
    size_t peak_event; /* the event after which the peak is reached */
} spw_list_peak;
spw_list_peak spw_event_list_peak(const spw_event_list *list);

/* Of a list whose bytes change by laws, once it is outlined: its peak. */
spw_list_tops spw_event_list_tops(const spw_event_list *list);

/* The peak by kind: bytes[kind] over all layers. They sum to peak_bytes. */
void spw_event_list_waterfall(const spw_event_list *list, const spw_list_peak *peak,
                              int64_t bytes[SPW_TENSOR_KINDS]);

/* What the allocator says of one list. */
typedef struct spw_list_replay {
    spw_allocator_stats before, after_forward, after; /* peaks of `after` are those of this list */
    bool refused;                                     /* out of memory; the list was left there */
    size_t refused_event;                             /* where, if so */
    bool unsure; /* what was called sure was never live: what is allocated may peak lower than `after` says */
    size_t repeated; /* events that were left out, as what they do was seen before */
} spw_list_replay;
/* live [slots]: what every slot holds, carried from list to list; begins as SPW_ALLOCATION_EMPTY. */
SPW_MUST_CHECK spw_status spw_event_list_replay(const spw_event_list *list, spw_allocator *allocator,
                                                spw_allocation *live, spw_list_replay *out);
/* Finds which marks are followed, up to the next one, by what follows another mark, too: only there can anything be left out below. Of a
 * list that is replayed several times it is worth while to ask once; it holds until the list changes. */
SPW_MUST_CHECK spw_status spw_event_list_find_again(spw_event_list *list);
/* Finds visits, most of which leave the allocator as it was and are replayed at less cost below, once they are outlined. They hold until
 * the list changes in more than bytes. law [laws]: of events of a kind below `laws`, but those of SPW_NO_MOE_LAYER. Where there are laws,
 * what changes in a visit is of one cell, and bytes follow from list->visit[].count, but those of own events, which are to be written; of
 * the events of visits they are written where they are asked for, once the list is outlined. */
SPW_MUST_CHECK spw_status spw_event_list_find_visits(spw_event_list *list, const spw_size_law *law,
                                                     size_t laws);
void spw_event_list_spread(const spw_event_list *list); /* asks for all */
/* What the visits take; it holds until bytes change. */
SPW_MUST_CHECK spw_status spw_event_list_outline(spw_event_list *list);
/* From now on it is noted which small requests of visits fitted. It outlives spw_event_list_clear(). */
SPW_MUST_CHECK spw_status spw_event_list_remember(spw_event_list *list);
/* The same answer, sooner: where the allocator and the slots are at a mark as they were at an earlier one, and the events since are
 * those that follow, these can only do the same again; they are left out, as often as they repeat. sure: so many bytes will be live at
 * once, above those at the beginning (spw_event_list_tops()), so that what is allocated peaks as high at least, and what stays below is
 * not looked at closely; 0: nobody knows. */
SPW_MUST_CHECK spw_status spw_event_list_replay_cycles(const spw_event_list *list, spw_allocator *allocator,
                                                       spw_allocation *live, size_t slots, uint64_t sure,
                                                       spw_list_replay *out);

#endif
