/* Seconds of the collectives of tensor and context parallelism: bytes out of one GPU (sim/traffic/step_traffic.h) at the rate of
 * exchanges where the group sits on one node, else at the NIC's, and one latency a collective. In a network of several levels
 * (docs/network.md) all groups are rings at once: the level whose busiest port takes longest takes the NIC's place, and the
 * latency of the highest level that a ring crosses is added. No run stands behind them. */
#ifndef SPW_SIM_TIME_MEGATRON_GRID_TIME_H
#define SPW_SIM_TIME_MEGATRON_GRID_TIME_H

#include "sim/schemes/point.h"

typedef struct spw_megatron_coefficients spw_megatron_coefficients; /* sim/machine/megatron_coefficients.h */

typedef struct spw_grid_seconds {
    double forward, all;
} spw_grid_seconds;

typedef struct spw_grid_time {
    spw_grid_seconds tensor, context; /* of all layers, a micro-batch */
    spw_grid_seconds ends;            /* embedding, head and loss, a micro-batch */
    double gradients;                 /* of replicated parameters, a step */
} spw_grid_time;

/* All 0 where the job has no such parallelism. */
SPW_MUST_CHECK spw_status spw_grid_time_of(const spw_megatron_coefficients *coefficients,
                                           const spw_point *point, spw_grid_time *out);

#endif
