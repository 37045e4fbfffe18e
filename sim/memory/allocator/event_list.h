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

/* An event whose bytes change: of no visit, or the first of a size of one. */
typedef struct spw_own_event {
    uint64_t bytes;
    uint32_t event, micro_batch;
    uint16_t kind, layer;
} spw_own_event;

/* What is behind a mark, up to the next one. */
typedef struct spw_mark_shape {
    uint64_t number; /* of what does not change */
    size_t own;      /* the first of its events among those whose bytes change */
} spw_mark_shape;

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
    /* by spw_event_list_outline(): */
    bool outlined;                /* false: it is replayed event by event */
    bool spread;                  /* all events have their bytes */
    uint16_t plan;                /* of its form */
    uint32_t size;                /* the first of its sizes among those of all visits */
    uint32_t own;                 /* the first of its sizes that change among list->own */
    spw_visit_total fixed, total; /* of the sizes that do not change; of all */
    uint64_t requested;           /* live at most */
    uint64_t most;                /* allocated, at most: where no block is cut */
} spw_event_visit;

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
    spw_own_event *own; /* [owns] spw_event_list_find_own(), by event; NULL: of all events bytes are read */
    size_t owns, own_room;
    spw_mark_shape *shape; /* [marks] with own: what is behind each */
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
/* Overwrites `to`. */
SPW_MUST_CHECK spw_status spw_event_list_copy(const spw_event_list *from, spw_event_list *to);
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

/* Of these the peak alone. */
typedef struct spw_list_top {
    int64_t bytes;
    size_t event; /* SIZE_MAX: nothing is above the beginning */
} spw_list_top;
/* Of a list that is outlined: in the first step, in a later one. */
typedef struct spw_list_tops {
    spw_list_top first, later;
} spw_list_tops;
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
 * the list changes in more than bytes. law [laws]: where bytes change, events of kinds of one law stay of equal bytes, if they are of one
 * layer and micro-batch; those of other kinds, of SPW_NO_LAW and of SPW_NO_MOE_LAYER do not change. */
enum { SPW_NO_LAW = UINT16_MAX };
SPW_MUST_CHECK spw_status spw_event_list_find_visits(spw_event_list *list, const uint16_t *law, size_t laws);
/* Of a list with visits, by the same laws: finds the events of which the bytes change, which are read from list->own from now on. Those of
 * the others follow from these, and are written here where they are asked for, once the list is outlined. */
SPW_MUST_CHECK spw_status spw_event_list_find_own(spw_event_list *list, const uint16_t *law, size_t laws);
void spw_event_list_spread(const spw_event_list *list);
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
