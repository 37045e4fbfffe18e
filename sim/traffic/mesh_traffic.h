/* The collectives that a step has for MaxText's mesh axes tensor and context, as XLA makes them of one layer
 * (notebooks_data/compiled/mesh_axes.csv; docs/step_traffic.md). */
#ifndef SPW_SIM_TRAFFIC_MESH_TRAFFIC_H
#define SPW_SIM_TRAFFIC_MESH_TRAFFIC_H

#include "sim/schemes/point.h"
#include "sim/traffic/step_items.h"

/* Appends them. SPW_ECONFIG where XLA was not asked: remat policies other than none and full, and MLA with tensor. */
SPW_MUST_CHECK spw_status spw_mesh_traffic_add(const spw_point *point, spw_step_traffic *out);

/* Does XLA gather the router's whole input for its gradient? */
bool spw_mesh_gathers_router(const spw_job *job);

/* The collectives of dense's scatter of the top-k weights, in the place of those of a job without these axes. */
void spw_mesh_indices_add(const spw_job *job, const spw_layer_shape *shape, spw_step_traffic *out);

#endif
