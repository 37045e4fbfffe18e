/* The step time of one row of a replay: the load of every layer, then a timeline a step, then their mean. */
#ifndef SPW_SIM_REPLAY_REPLAY_TIME_H
#define SPW_SIM_REPLAY_REPLAY_TIME_H

#include "base/status.h"
#include "sim/routing/counts.h"
#include "sim/time/compiled_time.h"
#include "sim/time/routing_load.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

typedef struct spw_replay_time {
    const spw_time_stack *stack;
    const spw_job *job;
    const spw_scheme *scheme;
    size_t sequences, layers, steps;
    double imbalance;
    spw_routing_layer *load; /* [layers] of the step under way */
    spw_routing_layer stated;
    spw_timeline sum; /* over the steps done */
} spw_replay_time;

/* All borrowed. `layers` of the replay. imbalance >= 1: the loads are those of a stated imbalance, whatever the flows; 0: of
 * the flows. */
SPW_MUST_CHECK spw_status spw_replay_time_create(const spw_time_stack *stack, const spw_job *job,
                                                 const spw_scheme *scheme, size_t sequences, size_t layers,
                                                 double imbalance, spw_replay_time *out);
void spw_replay_time_destroy(spw_replay_time *time); /* a zeroed one is fine */

void spw_replay_time_begin(spw_replay_time *time); /* a step */
void spw_replay_time_layer(spw_replay_time *time, size_t layer, const spw_layer_shape *shape,
                           const spw_counts *counts, size_t group, const spw_flow *flow,
                           const spw_traffic *traffic);
SPW_MUST_CHECK spw_status spw_replay_time_end(spw_replay_time *time);

/* The mean over the steps, and the step with every expert chosen alike. */
SPW_MUST_CHECK spw_status spw_replay_time_finish(spw_replay_time *time, spw_timeline *mean,
                                                 double *balanced_step_s);

#endif
