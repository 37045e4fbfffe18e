/* What a search keeps of the points that it replayed: the best, and those that no other beats. */
#ifndef SPW_SIM_PLAN_SEARCH_FRONT_H
#define SPW_SIM_PLAN_SEARCH_FRONT_H

#include "sim/plan/search_reasons.h"
#include "sim/plan/search_space.h"
#include "sim/replay/result.h"

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
    double most_bytes; /* that it may need; INFINITY: not known */
    spw_device_budget budget;
    uint64_t step_tokens;  /* of all GPUs */
    double turn_sequences; /* spw_search_turn_sequences() */
} spw_search_point;

/* What a GPU has before it at a time, the pipeline's empty turns included: sequences / (micro-batches + pipeline - 1). It stands for
 * the speed of points without a time: more sequences of a micro-batch are faster, more micro-batches alone are not. */
double spw_search_turn_sequences(size_t sequences, size_t micro_batches, size_t pipeline);

/* What is known of a point before it is replayed. */
typedef struct spw_search_bound {
    size_t gpus;
    uint64_t step_tokens;
    double turn_sequences;
    spw_memory_kind kind;
    bool may_surely_fit;
    uint64_t least_bytes;     /* it needs no less */
    double tokens_per_s_most; /* of a GPU; it is no faster; INFINITY: not known */
} spw_search_bound;

/* On as many GPUs a larger batch counts as faster only where its tokens/s are more than so many times a smaller one's: it changes how
 * a model learns, which no figure here has. */
static const double SPW_SEARCH_EQUAL_SPEED = 1.01;

enum { SPW_SEARCH_FRONT = 2048 };
typedef struct spw_search_front {
    bool fewest_gpus;       /* the best has the fewest GPUs, then the most speed */
    bool found, found_sure; /* is there a best one, and one that surely fits? */
    spw_search_point best, best_sure;
    spw_search_point fastest; /* `best` before spw_search_front_settle() */
    spw_search_point point[SPW_SEARCH_FRONT];
    size_t points, lost; /* lost: were not kept for want of room; the best is never among them */
} spw_search_front;

/* Of two points: with a time before without; one that surely fits before one that may not; the fewest GPUs where these are asked for; then more tokens/s of a GPU, or more
 * sequences at a time where there is no time; then fewer GPUs; then the smaller batch; then less memory; then fewer
 * drops; then the first of the space. Below 0: a is better. */
int spw_search_compare(const spw_search_front *front, const spw_search_point *a, const spw_search_point *b);

/* Takes a point that keeps to every budget. It joins the front unless another is as good in memory, speed, drops, GPUs, batch and
 * certainty to fit and better in one, and those that it beats so leave: what may not fit beats nothing that surely fits. A larger batch of as many GPUs is as good in speed from SPW_SEARCH_EQUAL_SPEED
 * on. Points are compared whose memory is of one kind and that both have a time, or both have none. Of points of a scheme that are
 * alike in every figure the first of the space stays. */
void spw_search_front_take(spw_search_front *front, const spw_search_point *point);

/* After the last point: the best, and the best that surely fits, give way to the smallest batch of the front on as many GPUs that is
 * as fast to within SPW_SEARCH_EQUAL_SPEED. The best is the front's first then; the others stay in their order behind it. */
void spw_search_front_settle(spw_search_front *front);

/* The next below a point: of the front's on as many GPUs the fastest that is no faster; NULL: there is none, or no time. `chance`, 0 to 1:
 * that the point is the faster of the two (spw_pace_faster()); NAN without a next. */
const spw_search_point *spw_search_front_next(const spw_search_front *front, const spw_search_point *point,
                                              double *chance);

/* Is a point of the front as good as anything that a point of this bound can be, and better in one? Then that point can be neither
 * the best nor in front, nor the best of those that surely fit. timed: it has a time. */
bool spw_search_front_beats(const spw_search_front *front, const spw_search_bound *bound, bool timed);

#endif
