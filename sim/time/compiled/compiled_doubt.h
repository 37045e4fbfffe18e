/* How far the step times of compiled programs may be off (docs/validation_time.md, "Intervals").
 *
 *   low  = step x exp(-sqrt(width^2 + sum over coefficients of fast^2))
 *   high = step x exp(+sqrt(width^2 + sum over coefficients of slow^2))
 *   width^2 = half_width^2 + unseen x half_width_unseen^2 + elsewhere x half_width_elsewhere^2
 *
 * fast and slow: the logarithm of what the step becomes when one coefficient moves by two standard deviations either way.
 * Coefficients that were fitted stay: half_width is what their fit leaves. Those that no run decides move by the
 * uncertainty that the stack states. Where a ring is longer than any that was seen, the step may be as short as with the longest
 * that was, since a library cuts long rings into trees: its logarithm is added on the low side. Of exchanges between nodes alltoall_share and serial_share move where the size of the groups
 * or the cluster is not of the fitted tables: the fit saw one size only. */
#ifndef SPW_SIM_TIME_COMPILED_COMPILED_DOUBT_H
#define SPW_SIM_TIME_COMPILED_COMPILED_DOUBT_H

#include "sim/machine/time_stack.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

/* What of a job the tables do not have. */
typedef struct spw_compiled_far {
    size_t unseen;    /* kinds of schemes, expert-parallel sizes, batches */
    size_t elsewhere; /* models, clusters, sequence lengths, policies, splits, precisions */
    bool network;     /* the size or the cluster is among them */
    double
        seen_ring_s; /* the step if its rings were no longer than any that was seen, as a library may cut them; 0: they are not */
} spw_compiled_far;

/* Seconds of the same step with other coefficients; NAN when it has none. */
typedef double (*spw_compiled_step)(const void *problem, const spw_time_stack *stack);

/* Sets low_s and high_s of a finished timeline, whose stack is `stack`. */
void spw_compiled_doubt(const spw_time_stack *stack, const spw_compiled_far *far, spw_compiled_step step,
                        const void *problem, spw_timeline *out);

#endif
