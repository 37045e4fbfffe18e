/* The exchanges of one MoE layer as XLA compiles them: which collectives, how many and how large, forward
 * and backward. Of a ragged all-to-all T K rows, the balanced average, since its sizes are known only at run
 * time. And what XLA gathers beside them: indices of the top-k scatter of dense, the slots of all GPUs for its
 * peeled layout. Seen in notebooks_data/compiled/maxtext_collectives.csv, programs of DeepSeek-V3 (sigmoid
 * router) and Mixtral (softmax); nothing in the sources asks for the indices. */
#ifndef SPW_SIM_TRAFFIC_STEP_EXCHANGES_H
#define SPW_SIM_TRAFFIC_STEP_EXCHANGES_H

#include "sim/schemes/point.h"
#include "sim/traffic/step_items.h"

/* Appends to `out` the items of a scheme that XLA compiles; none for an exchange by library call. */
void spw_step_exchanges_add(const spw_point *point, spw_step_traffic *out);

/* Appends them; nothing without such parallelism. The group sizes of `out` are set. */
void spw_grid_traffic_add(const spw_point *point, spw_step_traffic *out);

#endif
