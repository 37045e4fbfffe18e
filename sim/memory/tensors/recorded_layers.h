/* The tensors that a recorded job's expert layers allocate in one step of one pipeline stage, in the order of its passes: those of
 * bare layers (sim/memory/tensors/bare_layers.h), forward and backward apart, with the rows of each micro-batch. It is what a recording is
 * aligned with (sim/memory/tensors/snapshot_steps.h). */
#ifndef SPW_SIM_MEMORY_TENSORS_RECORDED_LAYERS_H
#define SPW_SIM_MEMORY_TENSORS_RECORDED_LAYERS_H

#include "sim/memory/allocator/event_list.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/model/model.h"
#include "sim/schemes/scheme.h"

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */
typedef struct spw_recorded_layers spw_recorded_layers;

/* shape: of a micro-batch; its layers are those of the model. */
SPW_MUST_CHECK spw_status spw_recorded_layers_create(const spw_megatron_shape *shape,
                                                     const spw_pipeline *pipeline, const spw_model *model,
                                                     size_t stage, spw_recorded_layers **out);
void spw_recorded_layers_destroy(spw_recorded_layers *layers); /* NULL is fine */

/* Overwrites `list` with the births of a step; layers are numbered as the model's. rows [layers][micro_batches], of the model's MoE
 * layers; `layers` of them stand for all in turn. */
SPW_MUST_CHECK spw_status spw_recorded_layers_step(spw_recorded_layers *layers, const spw_rank_rows *rows,
                                                   size_t count, spw_event_list *list);
/* The same with `received` rows in every layer and micro-batch. */
SPW_MUST_CHECK spw_status spw_recorded_layers_even(spw_recorded_layers *layers, uint64_t received,
                                                   spw_event_list *list);

#endif
