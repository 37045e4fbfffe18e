/* Attention that forms its scores, heads x S x S numbers of a sequence, as Megatron-Core does without TransformerEngine and flash
 * attention (its local spec; NVIDIA/Megatron-LM d98e8a64 megatron/core/transformer/dot_product_attention.py and
 * fusions/fused_softmax.py with the softmax of PyTorch in fp32). Bytes of one layer on one GPU in one micro-batch; its input,
 * a carry, is not among them (docs/schemes.md, section 7.4). */
#ifndef SPW_SIM_MEMORY_KEPT_UNFUSED_ATTENTION_H
#define SPW_SIM_MEMORY_KEPT_UNFUSED_ATTENTION_H

#include "sim/schemes/scheme.h"
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

typedef struct spw_unfused_attention {
    double scores;   /* numbers: p heads / TP x S^2 */
    size_t elements; /* that a token keeps from the forward to the backward pass, beside the scores */
} spw_unfused_attention;

spw_unfused_attention spw_unfused_attention_of(const spw_job *job, const spw_layer_shape *shape);

/* Numbers of fp32 and bf16 that the softmax keeps: its result, and that in bf16 for the product with the values. */
enum { SPW_SCORES_KEPT = 4 + 2 };

/* What a process holds beside its state from its first layer on, and what is live while the softmax of the stage's last layer
 * runs backward, the other layers' saved tensors aside. */
void spw_unfused_attention_add(spw_footprint *footprint, const spw_job *job, const spw_layer_shape *shape);

#endif
