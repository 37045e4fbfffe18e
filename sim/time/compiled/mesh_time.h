/* What the groups of MaxText's mesh axes tensor and context exchange in a step, as the time of a compiled program takes it: bytes out
 * of one GPU and hops of rings (sim/traffic/step_traffic.h, sim/traffic/weight_families.h). No run stands behind it. */
#ifndef SPW_SIM_TIME_COMPILED_MESH_TIME_H
#define SPW_SIM_TIME_COMPILED_MESH_TIME_H

#include "sim/schemes/point.h"
#include "sim/traffic/step_items.h"
#include "sim/traffic/weight_families.h"

/* Is it such a job, whose collectives are described? Remat full, no pipeline. */
bool spw_mesh_time_covers(const spw_job *job);

/* The collectives of one purpose, SPW_PURPOSE_TENSOR or SPW_PURPOSE_CONTEXT. A group that one node holds uses its link; of one that
 * spans nodes every GPU's bytes go by its NIC, less what neighbours of a node pass on. */
SPW_MUST_CHECK spw_status spw_mesh_time_traffic(const spw_point *point, spw_purpose purpose,
                                                spw_weight_traffic *out);

#endif
