/* The components of a footprint that are weights, gradients and optimizer state, whole or gathered for the layers at work. */
#ifndef SPW_SIM_MEMORY_LIVE_FOOTPRINT_STATE_H
#define SPW_SIM_MEMORY_LIVE_FOOTPRINT_STATE_H

#include "sim/memory/kept/component.h"

/* What a stage holds from step to step, and its gradients. Gradient buffers of Megatron stay from step to step; those of a
 * compiled step are its own. */
SPW_MUST_CHECK spw_status spw_footprint_add_state(spw_footprint *footprint, const spw_job *job,
                                                  const spw_stage *stage);
/* Bare expert layers under data parallelism: nothing is sharded but the experts, and there is no optimizer. */
void spw_footprint_add_expert_layers(spw_footprint *footprint, const spw_job *job,
                                     const spw_parameters *parameters, const spw_layer_shape *shape);
/* The sharded weights of the layers at work. all_experts: of every expert, not of the rank's own. */
void spw_footprint_add_gathered(spw_footprint *footprint, const spw_job *job, const spw_stage *stage,
                                bool all_experts);
/* Gradients of weights that the scheme's list has at the moments at which they are there: 3 e H F. */
double spw_footprint_listed_gradients(const spw_layer_shape *shape);
/* FSDP2's gradients, of so many bytes in `all`: a unit's are there when its first backward pass of the step has ended. */
void spw_footprint_make_by_units(spw_footprint *footprint, const spw_job *job, const spw_stage *stage,
                                 uint64_t all, bool sharded);
/* Units of FSDP2: a layer with experts, a dense layer, the head. The head's gradients are the first to be reduced. Gradients that
 * the list of the scheme has (shape.weight_gradients) are left to it. */
void spw_footprint_add_fsdp2(spw_footprint *footprint, const spw_job *job, const spw_stage *stage,
                             const spw_layer_shape *shape);
/* Behind all that the loss adds: at the fullest moment of torchtitan's own, with logits in fp32, the head has no gradient yet. */
void spw_footprint_settle_head(spw_footprint *footprint);
/* With replicas: the outputs of reduce-scatters, which stay until the backward pass of the micro-batch ends: the head's, a component;
 * what each layer leaves behind, in footprint->keeps. */
void spw_footprint_add_summed(spw_footprint *footprint, const spw_job *job, const spw_stage *stage);

#endif
