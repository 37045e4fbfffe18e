/* Jobs whose memory is known tensor by tensor: bare Megatron-Core layers, as they were measured. */
#ifndef SPW_SIM_MEMORY_KEPT_MEGATRON_JOB_H
#define SPW_SIM_MEMORY_KEPT_MEGATRON_JOB_H

#include "sim/job/job_words.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/schemes/point.h"

#include <stdbool.h>

/* Is it model_part expert_layers with megatron-alltoall, in bf16 with fp32 gradients, without alignment? Then *out is its
 * layers: remat none, moe_act, or moe; `selective` has no attention here and is none, `full` is moe. Of remat names that
 * only compiled programs know there is none. */
bool spw_megatron_job_layers(const spw_point *point, spw_megatron_shape *out);

/* The expert layers of a job that was recorded whole (sim/memory/tensors/snapshot_steps.h), whatever else it trains. SPW_ECONFIG: another
 * scheme than megatron-alltoall, or a remat of which there is no list. */
SPW_MUST_CHECK spw_status spw_megatron_recorded_layers(const spw_point *point, spw_megatron_shape *out);

#endif
