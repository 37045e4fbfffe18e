/* The tensors of bare Megatron-Core MoE layers, `x + MoELayer(RMSNorm(x))`, one forward and one backward a
 * step: all-to-all dispatcher, PyTorch permutation, experts in bf16 (grouped, or one after the other), router in fp32, data parallelism with
 * fp32 main_grad. Every layer has its own rows: M received and N sent (after drops, with padding).
 *
 * Read in NVIDIA/Megatron-LM d98e8a64, megatron/core/transformer/moe: moe_layer.py (MoELayer.forward: which names hold
 * which tensors), token_dispatcher.py (MoEAlltoAllTokenDispatcher), moe_utils.py (permute, unpermute,
 * sort_chunks_by_idxs, topk_routing_with_score_function, apply_router_token_dropping), experts.py
 * (TEGroupedMLP.forward, SequentialMLP.forward); what autograd keeps and in which order it runs is PyTorch's. The layer
 * itself is described once, in sim/schemes/megatron/megatron_alltoall.c, and comes from there under SPW_FLAVOUR_TORCH; here stands
 * what is around it: the process, the norm and the residual. */
#ifndef SPW_SIM_MEMORY_TENSORS_BARE_LAYERS_H
#define SPW_SIM_MEMORY_TENSORS_BARE_LAYERS_H

#include "base/status.h"
#include "sim/memory/allocator/event_list.h"

/* Megatron's recompute_modules. */
typedef enum spw_recompute { SPW_RECOMPUTE_NONE, SPW_RECOMPUTE_MOE_ACT, SPW_RECOMPUTE_MOE } spw_recompute;

typedef struct spw_megatron_shape {
    size_t layers, tokens, top_k, experts, experts_per_rank, hidden, ffn; /* tokens: of one rank */
    size_t model_hidden;  /* of what the router reads, where rows of experts are narrower; 0: hidden */
    bool plain;           /* experts of two matrices, without a gate */
    size_t expert_tensor; /* ranks that share an expert, ffn is the part of one; 0 counts as 1 */
    size_t capacity;      /* slots of an expert and source rank; 0 = dropless */
    bool padded;          /* to capacity: needs capacity */
    bool sorted;          /* rows arrive in the order of the experts: HybridEP's dispatch permutes */
    bool unread;          /* the host never reads how many rows arrived */
    bool graphed;         /* the whole step is one CUDA graph: no launch waits for the host */
    bool sequential;      /* experts one after the other; not with recompute moe_act */
    spw_recompute recompute;
    double product_gain; /* fp8: how much faster the experts' products are than in bf16; 0 counts as 1 */
} spw_megatron_shape;

enum { SPW_MEGATRON_SEQUENTIAL_EXPERTS = 1024 };

typedef struct spw_bare_layers spw_bare_layers;

/* SPW_EARG when a shape is empty, too large, or padded without capacity. */
SPW_MUST_CHECK spw_status spw_bare_layers_create(const spw_megatron_shape *shape, spw_bare_layers **out);
void spw_bare_layers_destroy(spw_bare_layers *s); /* NULL is fine */
size_t spw_bare_layers_slots(const spw_bare_layers *s);

/* Overwrites `list` with what happens before the first step: weights, gradients, inputs, workspaces. */
SPW_MUST_CHECK spw_status spw_bare_layers_begin(spw_bare_layers *bare, spw_event_list *list);
/* Rows of one rank, layer by layer. */
typedef struct spw_megatron_rows {
    const uint64_t *received, *sent; /* [layers] */
    const uint64_t *of_expert; /* [layers][experts_per_rank], their sum is `received`; sequential only */
    const uint64_t
        *held; /* [layers] with expert_tensor: rows of all who share the experts; NULL: those received */
} spw_megatron_rows;

/* Overwrites `list` with one step. A step leaves what the dispatcher keeps until the next step replaces it. */
SPW_MUST_CHECK spw_status spw_bare_layers_step(spw_bare_layers *bare, const spw_megatron_rows *rows,
                                               spw_event_list *list);

/* The same without a list, for recompute none and moe_act, in requested bytes above a step's beginning, while what
 * the dispatcher keeps has the size it had (e = experts_per_rank):
 *   saved(l)    = 2 M (H + 3F) + 4 M + 4 T H + 12 T E + 4 T K + 4 T + 128    (moe_act: H + 2F)
 *                 padded: 4 T E + 8 N instead of 12 T E
 *   S(l)        = saved(1) + ... + saved(l)
 *   forward(l)  = S(l) - 2 T H + 4 M + max(2H (N + 3M), 2H (2N + 2M), 2H (2N + M + T))
 *   backward(l) = S(l) + 4 e F H + 2 (H - F) M + (2 T H if l < layers)  (moe_act: 2 H M)
 * It holds while these moments are the largest, which they are for N = T K, ffn <= hidden / 2, more than one expert a rank
 * and a few rows a layer. */
typedef struct spw_megatron_bytes {
    uint64_t after_forward_bytes, forward_bytes, backward_bytes, peak_bytes;
} spw_megatron_bytes;
spw_megatron_bytes spw_megatron_closed_form(const spw_megatron_shape *shape, const uint64_t *received,
                                            const uint64_t *sent);

#endif
