/* Dispatchers that send a token once a rank: Megatron's flex dispatcher with DeepEP, HybridEP or NCCL EP (docs/schemes.md,
 * sections 5.4 and 5.7) and Primus' with DeepEP of Primus-Turbo (3.5). */
#ifndef SPW_SIM_SCHEMES_MEGATRON_MEGATRON_DEEPEP_H
#define SPW_SIM_SCHEMES_MEGATRON_MEGATRON_DEEPEP_H

#include "sim/schemes/megatron/megatron_layer.h"

typedef enum spw_megatron_deepep_kind {
    SPW_MEGATRON_DEEPEP,         /* rows that arrive [U, H], PyTorch's permutation */
    SPW_MEGATRON_HYBRIDEP,       /* the kernel permutes: rows [M, H] arrive */
    SPW_MEGATRON_HYBRIDEP_FIXED, /* into as many rows as a rank may hold */
    SPW_MEGATRON_HYBRIDEP_STASH, /* and what the backward pass needs waits in pages of a pool */
    SPW_MEGATRON_NCCLEP,         /* NCCL EP: the same without a limit */
    SPW_MEGATRON_NCCLEP_FIXED,   /* and within one */
    SPW_MEGATRON_PRIMUS,         /* received for the worst case [R T, H], fused permutation */
    SPW_MEGATRON_PRIMUS_FIXED,   /* and permuted into R T K rows */
    SPW_MEGATRON_DEEPEP_KINDS
} spw_megatron_deepep_kind;

void spw_megatron_deepep_layer(spw_megatron_deepep_kind kind, const spw_layer_shape *shape,
                               spw_layer_builder *builder);

/* A dispatched row carries int64 indices and fp32 weights of its choices (4.2); HybridEP's the weights of all experts of
 * the node. What comes back is summed over the experts of the rank. PyTorch repeats the whole layer. */
size_t spw_megatron_deepep_exchanges(spw_megatron_deepep_kind kind, const spw_layer_shape *shape,
                                     spw_exchange out[SPW_SCHEME_EXCHANGES]);

/* Wire U; rows 0, dropped 0 and, without keep(), every limit what is routed. */
void spw_megatron_deepep_flow(const spw_routed_group *routed, spw_flow *out);

#endif
