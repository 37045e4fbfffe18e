/* Families of models: what a model_type implies, and which keys of a config.json are read for it. */
#ifndef SPW_SIM_INPUT_MODEL_FAMILY_H
#define SPW_SIM_INPUT_MODEL_FAMILY_H

#include "sim/input/model.h"

enum { SPW_MODEL_KEYS = 3, SPW_MODEL_WIDEST = 1 << 24, SPW_MODEL_MOST_EXPERTS = 65535 };

typedef enum spw_sparse_rule {
    SPW_ALL_LAYERS,
    SPW_FIRST_DENSE,
    SPW_SPARSE_STEP,
    SPW_ANY_RULE
} spw_sparse_rule;

typedef struct spw_family {
    const char *model_type;
    const char *experts[SPW_MODEL_KEYS], *top_k[SPW_MODEL_KEYS],
        *expert_ffn[SPW_MODEL_KEYS]; /* names of the keys, the first that is there counts */
    spw_attention attention;
    spw_sparse_rule rule;
    bool shared_count;   /* n_shared_experts of the routed width each */
    bool shared_width;   /* shared_expert_intermediate_size, with a gate */
    bool qkv_bias;       /* always; else attention_bias says */
    bool no_output_bias; /* attention_bias does not reach the output projection */
    bool sigmoid_router; /* with a selection bias, unless scoring_func and topk_method say otherwise */
    bool qk_norm, qk_norm_per_head, expert_bias, router_bias, attention_sinks;
    size_t layer_period; /* of unlike layers, where layer_types is absent; 0 counts as 1 */
} spw_family;

typedef struct spw_raw_config {
    int64_t layers, hidden, vocab, heads, kv_heads, head_dim, experts, top_k, expert_ffn, ffn;
    int64_t shared_experts, shared_ffn, first_dense, layer_freq, sparse_step, groups, groups_kept;
    int64_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_head_dim;
} spw_raw_config;

/* Parts that only some families have; their keys are read, and may be there, in those alone. */
typedef enum spw_family_part {
    SPW_ANY_PART = 0,
    SPW_SHARED_COUNT = 1,
    SPW_SHARED_WIDTH = 2,
    SPW_BY_FIRST = 4,
    SPW_BY_STEP = 8,
} spw_family_part;

typedef struct spw_key_row {
    const char *key;
    size_t offset;
    int64_t minimum, maximum;
    bool required;
    spw_family_part part;
} spw_key_row;

/* Ended by a row without a key. */
extern const spw_key_row spw_common_keys[], spw_gqa_keys[], spw_mla_keys[];

/* NULL: no such model_type. */
const spw_family *spw_family_find(const char *model_type);
/* The i-th family, NULL behind the last. */
const spw_family *spw_family_at(size_t i);

bool spw_family_has(const spw_family *family, spw_family_part part);
/* Whether a model of this family, with latent attention or without, reads the key; whether any model does. */
bool spw_family_reads(const spw_family *family, bool latent, const char *key);
bool spw_any_family_reads(const char *key);

#endif
