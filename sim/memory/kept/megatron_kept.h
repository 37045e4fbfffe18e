/* What a whole model holds under Megatron-Core beside the lists of its layers: what norms keep, the last norm at the loss, cuBLAS's
 * workspaces, and what modules keep by name until their next forward pass (docs/schemes.md, section 7.19). Nothing elsewhere. */
#ifndef SPW_SIM_MEMORY_KEPT_MEGATRON_KEPT_H
#define SPW_SIM_MEMORY_KEPT_MEGATRON_KEPT_H

#include "sim/schemes/scheme.h"
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */
typedef struct spw_stage spw_stage;         /* sim/weights/stage.h */

/* Are the layers of TransformerEngine, on a GPU on which what it holds was measured or read? */
bool spw_megatron_has_te(const spw_job *job, const spw_scheme *scheme);

/* Bytes of one layer with an attention of queries, keys and values, while it waits: 1 / rms of its two norms, and what norms of
 * queries and keys read beside what attention keeps anyhow. */
double spw_megatron_norms_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *shape);

/* Bytes of one MoE layer from its backward pass to its next forward pass, where it runs again: its input and output. */
double spw_megatron_left_by_layer(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *shape);

/* Workspaces of cuBLAS that PyTorch has for the threads of the forward pass and of autograd. */
void spw_pytorch_workspaces_add(spw_footprint *footprint, const spw_job *job);

void spw_megatron_kept_add(spw_footprint *footprint, const spw_job *job, const spw_scheme *scheme,
                           const spw_stage *stage, const spw_layer_shape *shape);

#endif
