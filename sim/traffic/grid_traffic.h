/* Collectives of tensor, sequence and context parallelism in Megatron-Core (docs/step_traffic.md). Read in
 * NVIDIA/Megatron-LM d98e8a64 megatron/core: tensor_parallel/layers.py, tensor_parallel/cross_entropy.py,
 * transformer/multi_latent_attention.py, distributed/finalize_model_grads.py, ssm/gated_delta_net, and of
 * transformer/experimental_attention_variant absorbed_mla.py and dsa.py; norms over all heads in NVIDIA-NeMo/Megatron-Bridge
 * 067f987d models/minimax_m2/minimax_m2_provider.py; the ring of context parallelism in NVIDIA/TransformerEngine d0067d0d context_parallel.py, AttnFuncWithCPAndKVP2P (point to point, the default): keys and values
 * go on CP - 1 times forward; backward they do again, and so do their gradients, one turn later. */
#ifndef SPW_SIM_TRAFFIC_GRID_TRAFFIC_H
#define SPW_SIM_TRAFFIC_GRID_TRAFFIC_H

#include "sim/schemes/point.h"
#include "sim/traffic/step_items.h"

/* Appends them; nothing without such parallelism. The group sizes of `out` are set. */
void spw_grid_traffic_add(const spw_point *point, spw_step_traffic *out);

#endif
