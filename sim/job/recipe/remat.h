/* What a remat policy keeps of the forward pass, beside the input of every layer. The names and what each
 * of them saves: AI-Hypercomputer/maxtext src/maxtext/layers/decoders.py get_remat_policy, checkpoint_name
 * calls of the layers; NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py recompute_modules
 * (docs/schemes.md, section 7.3). */
#ifndef SPW_SIM_JOB_RECIPE_REMAT_H
#define SPW_SIM_JOB_RECIPE_REMAT_H

#include "sim/job/job_words.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/model/model.h"

#include <stdbool.h>

/* Elements a token that the policy keeps over so many layers, of which moe_layers have experts: query, key and value projections; out_proj;
 * context; mlpwi_0 and mlpwi_1 of shared experts and dense layers. mlpwo of those is linear and needed by
 * nothing, so it is never kept. 0 for none and full. */
size_t spw_remat_token_elements(const spw_model *model, size_t layers, size_t moe_layers, spw_remat remat);

/* A tree of MaxText: how many of a MoE layer's products [rows, F] carry the name mlpwi, behind capacity masks and behind
 * grouped GEMMs, and how many [rows, H] the name mlpwo. Products that a policy lists are kept of every layer. nested_scans: a
 * model of this level or below is a checkpoint a layer, not one a period of unlike layers: Gemma 4 from 1 on, Qwen3-Next from 2. dense_layouts: those of scheme dense that it has, the
 * first without a flag; NULL: any. routed_gradients: a sorted ring gives the routing weights gradients, by a twelfth grouped product.
 * sorted_buffer: a ring with a buffer_factor is refused unless it sorts (types.py, validate_ragged_buffer_factor). */
typedef struct spw_remat_tree {
    const char *name;
    unsigned dense_ffn, grouped_ffn, hidden;
    unsigned nested_scans;
    const char *dense_layouts;
    bool routed_gradients, sorted_buffer;
    const char *source;
} spw_remat_tree;
/* SPW_ECONFIG lists the trees. */
SPW_MUST_CHECK spw_status spw_remat_tree_find(const char *name, const spw_remat_tree **out);
/* Is every layer of the model a checkpoint of its own, though its layers are unlike? */
bool spw_remat_scans_alone(const spw_remat_tree *tree, const spw_model *model);
/* SPW_ECONFIG for a policy that the tree does not have: none, and Megatron-Core's. */
SPW_MUST_CHECK spw_status spw_remat_tree_check(const spw_remat_tree *tree, spw_remat remat);

/* Tensors of [buffer rows, F] and [buffer rows, H] that each MoE layer keeps. */
typedef struct spw_remat_expert_tensors {
    unsigned ffn, hidden;
} spw_remat_expert_tensors;
spw_remat_expert_tensors spw_remat_experts(const spw_remat_tree *tree, bool dense, spw_remat remat);

/* What of the attention and of the other FFNs a policy keeps of every layer. */
typedef struct spw_remat_names {
    bool qkv, out, context, wi;
} spw_remat_names;
spw_remat_names spw_remat_keeps(spw_remat remat);

/* MaxText's policies whose tensors wait in the host's memory: of these programs that XLA compiles are described, no times. */
bool spw_remat_is_offloaded(spw_remat remat);

/* Every layer keeps what the backward pass of its attention and of its shared expert or dense FFN needs, but for what
 * Megatron's modules repeat: none and these. */
bool spw_remat_keeps_layers(spw_remat remat);
/* Every MoE layer keeps what its routed experts' backward pass needs, so that nothing of it runs twice. `moe_act` keeps
 * all but the output of the activation. */
bool spw_remat_keeps_experts(spw_remat remat);
/* torchtitan's selective_op: every layer keeps outputs of a list of operations and runs the others again. */
bool spw_remat_keeps_operations(spw_remat remat);
bool spw_remat_is_megatron(spw_remat remat); /* a name that only Megatron-Core knows */
/* One of those, or none or full, which it has as well. */
bool spw_remat_goes_with_megatron(spw_remat remat);

#endif
