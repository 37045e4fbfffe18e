/* What a search keeps of the points that it replayed: the best, and those that no other beats. */
#ifndef SPW_SIM_REPLAY_SEARCH_FRONT_H
#define SPW_SIM_REPLAY_SEARCH_FRONT_H

#include "sim/replay/result.h"
#include "sim/replay/search_reasons.h"
#include "sim/replay/search_space.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A point that was replayed. */
typedef struct spw_search_point {
    size_t order;                         /* its place among the points of the space */
    size_t value[SPW_SEARCH_DIMENSIONS];  /* of the job */
    size_t gpus, fsdp, sequences, scheme; /* scheme: position in the plan's list */
    spw_memory_kind kind;
    spw_verdict verdict;
    bool timed, surely_fits;
    double reserved_bytes, reserved_low_bytes, reserved_high_bytes; /* 0: no allocator was replayed */
    spw_search_outside outside; /* what its time or memory rests on beyond what was fitted */
    uint64_t peak_bytes, low_bytes, high_bytes, budget_bytes;
    spw_step_span step;
    double tokens_per_s_per_gpu, tokens_per_s_low, tokens_per_s_high; /* 0 without a time */
    spw_pace pace;                                                    /* the same */
    spw_result_drops drops;
    spw_balanced_figures balanced;
    uint64_t step_tokens; /* of all GPUs */
} spw_search_point;

/* What is known of a point before it is replayed. */
typedef struct spw_search_bound {
    size_t gpus, sequences;
    spw_memory_kind kind;
    bool may_surely_fit;
    uint64_t least_bytes;     /* it needs no less */
    double tokens_per_s_most; /* of a GPU; it is no faster; INFINITY: not known */
} spw_search_bound;

enum { SPW_SEARCH_FRONT = 2048 };
typedef struct spw_search_front {
    bool fewest_gpus;       /* the best has the fewest GPUs, then the most speed */
    bool found, found_sure; /* is there a best one, and one that surely fits? */
    spw_search_point best, best_sure;
    spw_search_point point[SPW_SEARCH_FRONT];
    size_t points, lost; /* lost: were not kept for want of room; the best is never among them */
} spw_search_front;

/* Of two points: with a time before without; the fewest GPUs where these are asked for; then more tokens/s of a GPU, or more
 * sequences where there is no time; then less memory; then fewer GPUs; then the first of the space. Below 0: a is better. */
int spw_search_compare(const spw_search_front *front, const spw_search_point *a, const spw_search_point *b);

/* Takes a point that keeps to every budget. It joins the front unless another is as good in memory, speed, drops and GPUs and
 * better in one, and those that it beats so leave. Points are compared whose memory is of one kind and that both have a time, or
 * both have none. */
void spw_search_front_take(spw_search_front *front, const spw_search_point *point);

/* The next below a point: of the front's on as many GPUs the fastest that is no faster; NULL: there is none, or no time. `chance`, 0 to 1:
 * that the point is the faster of the two (spw_pace_faster()); NAN without a next. */
const spw_search_point *spw_search_front_next(const spw_search_front *front, const spw_search_point *point,
                                              double *chance);

/* Is a point of the front as good as anything that a point of this bound can be, and better in one? Then that point can be neither
 * the best nor in front, nor the best of those that surely fit. timed: it has a time. */
bool spw_search_front_beats(const spw_search_front *front, const spw_search_bound *bound, bool timed);

#endif
