/* What Megatron-Core's dispatchers share: router, capacity, alignment, and the experts between dispatch and combine
 * (fc1 [rows, 2 F], activation times router weight [rows, F], fc2 [rows, H]). docs/schemes.md, section 5.
 * Tensors stand under the names of their list, in the order in which PyTorch allocates and frees them; read in
 * NVIDIA/Megatron-LM megatron/core/transformer/moe (moe_layer.py, moe_utils.py, experts.py TEGroupedMLP, SequentialMLP);
 * what autograd keeps and in which order it runs is PyTorch's. Only SPW_FLAVOUR_TORCH has what lives within one call of the
 * router and the weight gradients (in a footprint these are a component of their own). */
#ifndef SPW_SIM_SCHEMES_MEGATRON_MEGATRON_LAYER_H
#define SPW_SIM_SCHEMES_MEGATRON_MEGATRON_LAYER_H

#include "sim/schemes/layer_builder.h"
#include "sim/schemes/list.h"
#include "sim/schemes/padded_rows.h"

typedef struct spw_layer_builder spw_layer_builder;

/* --- Parts of a layer --- */

/* logits, probs and routing_map; chosen_probs where the router is not one fused kernel. */
void spw_megatron_layer_router(spw_layer_builder *b, bool fused);
/* SPW_FLAVOUR_TORCH: what the router holds while it drops what is over `capacity` (of spw_megatron_capacity). */
void spw_megatron_layer_drop(spw_layer_builder *b, const spw_layer_shape *shape, size_t capacity);
void spw_megatron_layer_router_gradient(spw_layer_builder *b,
                                        bool fused); /* from d_probs to d_logits, and no further */

typedef struct spw_megatron_experts {
    const spw_layer_shape *shape;
    spw_rows rows; /* of their tensors */
    bool padded;   /* the expert module pads its rows, into copies of sorted_rows and sorted_probs */
} spw_megatron_experts;

/* fc1_input and row_probs, where a dispatcher makes them itself. */
void spw_megatron_layer_take(spw_layer_builder *b, const char *step, spw_rows rows);
/* What of them nobody holds after the experts: both in the forward pass; fc1_input where an fp8 copy is kept instead. */
void spw_megatron_layer_taken(spw_layer_builder *b, const char *step, const spw_layer_shape *shape);
/* To fc2_output, or to unpadded_rows where they pad. Remat moe_act computes the activation again. Where
 * shape.sequential_experts their outputs wait in a list until all are joined. With an fp8 recipe (shape.fp8_copies) each
 * product reads copies of its operand: NAME_fp8 row by row, and NAME_fp8_t column by column or transposed, which the
 * gradient of the weights needs. Where there is one copy both read NAME_fp8. */
void spw_megatron_layer_experts(spw_layer_builder *b, spw_megatron_experts x);
/* What of them waits for the backward pass goes to pages of another buffer, and comes back. */
void spw_megatron_layer_stash(spw_layer_builder *b, spw_megatron_experts x);
void spw_megatron_layer_reload(spw_layer_builder *b, spw_megatron_experts x);
/* Of fine-grained offloading, around a pass that keeps (begins, ends) and around the backward pass: shape.offload's inputs
 * are the host's from the end of their product to the backward pass before. */
void spw_megatron_layer_begins(spw_layer_builder *b, spw_megatron_experts x);
void spw_megatron_layer_ends(spw_layer_builder *b, spw_megatron_experts x);
/* From the gradient of that to the gradient of what the experts took: d_fc1_input and d_row_probs, or d_sorted_rows and
 * d_sorted_probs. */
void spw_megatron_layer_experts_gradient(spw_layer_builder *b, spw_megatron_experts x);

/* --- Options --- */

extern const char *const spw_megatron_policies[]; /* probs, position */
extern const char *const spw_megatron_aligns[];   /* none, 16, 32, 128, 256 */

#define SPW_MEGATRON_CAPACITY_OPTIONS \
    {"capacity_factor", \
     0.0, \
     1e6, \
     0.0, \
     false, \
     "slots of an expert and rank as a multiple of the balanced load of the rank; 0 = dropless", \
     NULL}, \
    { \
        "policy", 0.0, 0.0, 0.0, false, "who keeps its slot: the most probable, or the first", \
            spw_megatron_policies \
    }
#define SPW_MEGATRON_ALIGN_OPTION \
    { \
        "align", 0.0, 0.0, 0.0, false, \
            "rows of an expert are padded to a multiple: none for bf16, 16 for fp8, 32 for mxfp8, 128 for " \
            "fp4 and " \
            "more for other kernels", \
            spw_megatron_aligns \
    }

/* C = ceil(T K / E f), over the whole micro-batch of a rank; SIZE_MAX: nothing is dropped, as C > T or f = 0. */
size_t spw_megatron_capacity(const spw_scheme *scheme, const spw_layer_shape *shape);
/* spw_scheme_routing.worst_factor: all tokens of a rank may choose the same expert, E / K. */
double spw_megatron_worst_factor(const spw_scheme *scheme, const spw_layer_shape *shape);
size_t spw_megatron_align(const spw_scheme *scheme); /* 1: none */

/* Fields of the scheme type. An expert keeps C choices of each rank: by policy probs those of greatest weight, ties to
 * the earlier token; by policy position the earliest. */
spw_drop_rule spw_megatron_drop_rule(const spw_scheme *scheme);
spw_status spw_megatron_keep(const spw_scheme *scheme, const spw_layer_shape *shape,
                             const spw_choices *choices, uint8_t *kept);

/* Sets rows and dropped 0. */
void spw_megatron_flow_begin(const spw_routed_group *routed, spw_flow *out);

#endif
