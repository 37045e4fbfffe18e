/* What modules of Megatron-Core that run again in the backward pass (sim/job/recipe/remat_modules.h) take from what a layer keeps
 * beside its routed experts (docs/schemes.md, section 7.3; NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/
 * transformer_layer.py, multi_latent_attention.py, moe/moe_layer.py, tensor_parallel/random.py CheckpointWithoutOutput). */
#ifndef SPW_SIM_MEMORY_KEPT_REPEATED_MODULES_H
#define SPW_SIM_MEMORY_KEPT_REPEATED_MODULES_H

#include "sim/schemes/scheme.h"
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

/* Bytes of one layer on one GPU in one micro-batch, of what section 7.4 lists. */
typedef struct spw_repeated_modules {
    double
        attention; /* gone while the layer waits, and still when its MoE layer or dense FFN runs backward */
    double moe, dense; /* gone while a layer with and without experts waits: its FFN has it again */
} spw_repeated_modules;

spw_repeated_modules spw_repeated_modules_of(const spw_job *job, const spw_layer_shape *shape);

/* Is the backward pass of attention a moment of this job? Where it holds its scores, and where its queries, keys and values come
 * back for it. */
bool spw_attention_is_moment(const spw_job *job);
/* Of the latter, what is live in it of its own layer; adds nothing else where. */
void spw_repeated_modules_add(spw_footprint *footprint, const spw_job *job, const spw_layer_shape *shape);

#endif
