#include "sim/input/model_family.h"

#include <string.h>

/* --- Families: what a model_type implies without saying so in its config.json. Sources: transformers,
 * src/transformers/models/<model_type>/modeling_*.py and configuration_*.py --- */

#define DEEPSEEK \
    .experts = {"n_routed_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}, .attention = SPW_ATTENTION_MLA, .rule = SPW_FIRST_DENSE, \
    .shared_count = true

static const spw_family families[] = {
    {.model_type = "deepseek_v2", DEEPSEEK},
    {.model_type = "deepseek_v3", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "kimi_k2", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "qwen2_moe",
     .experts = {"num_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = SPW_SPARSE_STEP,
     .shared_width = true,
     .qkv_bias = true,
     .no_output_bias = true},
    {.model_type = "qwen3_moe",
     .experts = {"num_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = SPW_SPARSE_STEP,
     .qk_norm = true,
     .qk_norm_per_head = true},
    {.model_type = "mixtral",
     .experts = {"num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .rule = SPW_ALL_LAYERS},
    {.model_type = "olmoe",
     .experts = {"num_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .rule = SPW_ALL_LAYERS,
     .qk_norm = true},
    {.model_type = "gpt_oss",
     .experts = {"num_local_experts", "num_experts"},
     .top_k = {"num_experts_per_tok", "experts_per_token"},
     .expert_ffn = {"intermediate_size"},
     .rule = SPW_ALL_LAYERS,
     .expert_bias = true,
     .router_bias = true,
     .attention_sinks = true,
     .layer_period = 2},
    /* Not of Hugging Face: any model made of the parts above, named key by key. */
    {.model_type = "generic",
     .experts = {"num_experts", "n_routed_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok", "experts_per_token"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = SPW_ANY_RULE,
     .shared_count = true},
};

/* --- Keys --- */

#define KEY(name, field, low, high, needed) PART_KEY(SPW_ANY_PART, name, field, low, high, needed)
#define PART_KEY(of, name, field, low, high, needed) \
    { (name), offsetof(spw_raw_config, field), (low), (high), (needed), (of) }

const spw_key_row spw_common_keys[] = {
    KEY("num_hidden_layers", layers, 1, SPW_MODEL_MAX_LAYERS, true),
    KEY("hidden_size", hidden, 1, SPW_MODEL_WIDEST, true),
    KEY("vocab_size", vocab, 1, SPW_MODEL_WIDEST, true),
    KEY("num_attention_heads", heads, 1, 65535, true),
    KEY("intermediate_size", ffn, 1, SPW_MODEL_WIDEST, false),
    PART_KEY(SPW_SHARED_COUNT, "n_shared_experts", shared_experts, 0, SPW_MODEL_MOST_EXPERTS, false),
    PART_KEY(SPW_SHARED_WIDTH, "shared_expert_intermediate_size", shared_ffn, 0, SPW_MODEL_WIDEST, false),
    PART_KEY(SPW_BY_FIRST, "first_k_dense_replace", first_dense, 0, SPW_MODEL_MAX_LAYERS, false),
    PART_KEY(SPW_BY_FIRST, "moe_layer_freq", layer_freq, 1, SPW_MODEL_MAX_LAYERS, false),
    PART_KEY(SPW_BY_STEP, "decoder_sparse_step", sparse_step, 1, SPW_MODEL_MAX_LAYERS, false),
    KEY("n_group", groups, 1, SPW_MODEL_MOST_EXPERTS, false),
    KEY("topk_group", groups_kept, 1, SPW_MODEL_MOST_EXPERTS, false),
    {.key = NULL}};

/* Read by name. */
static const struct {
    const char *key;
    spw_family_part part;
} word_keys[] = {{"attention_bias", SPW_ANY_PART},
                 {"tie_word_embeddings", SPW_ANY_PART},
                 {"scoring_func", SPW_ANY_PART},
                 {"topk_method", SPW_ANY_PART},
                 {"mlp_only_layers", SPW_BY_STEP}};

const spw_key_row spw_gqa_keys[] = {KEY("num_key_value_heads", kv_heads, 1, 65535, false),
                                    KEY("head_dim", head_dim, 1, SPW_MODEL_WIDEST, false),
                                    {.key = NULL}};

const spw_key_row spw_mla_keys[] = {KEY("q_lora_rank", q_lora_rank, 1, SPW_MODEL_WIDEST, false),
                                    KEY("kv_lora_rank", kv_lora_rank, 1, SPW_MODEL_WIDEST, true),
                                    KEY("qk_nope_head_dim", nope_dim, 1, SPW_MODEL_WIDEST, true),
                                    KEY("qk_rope_head_dim", rope_dim, 1, SPW_MODEL_WIDEST, true),
                                    KEY("v_head_dim", v_head_dim, 1, SPW_MODEL_WIDEST, true),
                                    {.key = NULL}};

bool spw_family_has(const spw_family *f, spw_family_part one) {
    return one == SPW_ANY_PART || (one == SPW_SHARED_COUNT && f->shared_count) ||
           (one == SPW_SHARED_WIDTH && f->shared_width) ||
           (one == SPW_BY_FIRST && (f->rule == SPW_FIRST_DENSE || f->rule == SPW_ANY_RULE)) ||
           (one == SPW_BY_STEP && (f->rule == SPW_SPARSE_STEP || f->rule == SPW_ANY_RULE));
}

static bool is_row(const spw_key_row *row, const char *key, const spw_family *f) {
    for (; row->key != NULL; row++) {
        if (strcmp(row->key, key) == 0) return f == NULL || spw_family_has(f, row->part);
    }
    return false;
}

static bool is_name(const char *const names[SPW_MODEL_KEYS], const char *key) {
    for (size_t i = 0; i < SPW_MODEL_KEYS && names[i] != NULL; i++) {
        if (strcmp(names[i], key) == 0) return true;
    }
    return false;
}

/* Whether a model of this family, with this attention, reads the key. */
bool spw_family_reads(const spw_family *f, bool latent, const char *key) {
    for (size_t i = 0; i < sizeof word_keys / sizeof *word_keys; i++) {
        if (strcmp(word_keys[i].key, key) == 0) return spw_family_has(f, word_keys[i].part);
    }
    return is_row(spw_common_keys, key, f) || is_row(latent ? spw_mla_keys : spw_gqa_keys, key, f) ||
           is_name(f->experts, key) || is_name(f->top_k, key) || is_name(f->expert_ffn, key) ||
           (f->qkv_bias && strcmp(key, "qkv_bias") == 0);
}

/* Whether some model reads it. */
bool spw_any_family_reads(const char *key) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (spw_family_reads(&families[i], false, key) || spw_family_reads(&families[i], true, key))
            return true;
    }
    return false;
}

const spw_family *spw_family_at(size_t i) {
    return i < sizeof families / sizeof *families ? &families[i] : NULL;
}

const spw_family *spw_family_find(const char *model_type) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(model_type, families[i].model_type) == 0) return &families[i];
    }
    return NULL;
}
