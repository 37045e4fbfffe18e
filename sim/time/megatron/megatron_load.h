/* What the schemes of Megatron-Core give each rank to do in a layer, as sim/time/megatron/megatron_time.h sees it. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_LOAD_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_LOAD_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/schemes/network.h"
#include "sim/time/megatron/megatron_time.h"

#include <stdbool.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */
typedef struct spw_counts spw_counts;
typedef struct spw_group_rows spw_group_rows; /* sim/schemes/traffic.h */

const char *
spw_megatron_unmeasured(spw_megatron_dispatcher dispatcher); /* what a note says; NULL: measured */

/* What a group does in one layer, by rank: load [shape->ranks], scratch [spw_megatron_load_scratch(shape)]; rows: of
 * spw_group_rows_of(). */
size_t spw_megatron_load_scratch(const spw_layer_shape *shape);
void spw_megatron_load_of(const spw_megatron_coefficients *c, const spw_routed_group *routed,
                          const spw_flow *flow, const spw_group_rows *rows, double *scratch,
                          spw_megatron_load *load);

/* The loads of one layer, [groups][ranks of the shape], where the experts of one rank get `imbalance` times the mean; 1 is
 * balanced. groups: as in spw_routing_load_stated.
 * SPW_ECONFIG as spw_routing_load_stated, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_load_stated(const spw_megatron_coefficients *c, const spw_point *point,
                                                   double imbalance, size_t groups, spw_megatron_load *load);

/* What the busiest port of the network takes, where the ranks of a group send to other nodes. */
void spw_megatron_load_slow(const spw_network *network, size_t ranks, spw_megatron_load *load);

#endif
