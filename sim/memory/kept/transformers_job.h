/* Jobs whose whole step is known tensor by tensor: scheme transformers on one GPU, or with DDP or FSDP2 over all of
 * them. */
#ifndef SPW_SIM_MEMORY_KEPT_TRANSFORMERS_JOB_H
#define SPW_SIM_MEMORY_KEPT_TRANSFORMERS_JOB_H

#include "sim/memory/tensors/transformers_step.h"
#include "sim/schemes/point.h"

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;         /* sim/weights/stage.h */

/* Is it a whole model of grouped-query or latent attention without biases, or of Nemotron-H, Qwen3-Next or Kimi Linear, under one GPU,
 * DDP or FSDP2 alone, remat none or full, Adam, no master weights, all trained or adapters alone? Then *out (NULL: only asked) is its process; the model is the
 * job's. Else the job is counted by the sum of its components, and `why` (NULL: not asked) says what is not. */
bool spw_transformers_is_listed(const spw_point *point, spw_transformers_shape *out, const char **why);
/* Of a job that is counted by its components, what uneven shards of experts add, and PEFT's ParamWrapper where adapters stand beside
 * experts. */
void spw_transformers_add_wrapped(spw_footprint *f, const spw_job *job, const spw_stage *stage);
/* Which of transformers' modules a model is made of: the fields of the shape that follow from it alone. */
void spw_transformers_set_laws(const spw_model *model, spw_transformers_shape *out);

/* The footprint of such a job: one component a kind of tensor, as they are where the step holds most. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_transformers_footprint(const spw_transformers_shape *shape, spw_footprint *out);

#endif
