#include "sim/model/config/model_synonyms.h"

#include <string.h>

/* Names of one number, ours first. Sources: configurations of transformers 5.24, vLLM, SGLang, MLX-LM, Megatron-Core and NeMo. */
enum { NAMES = 16 };
static const char *const meanings[][NAMES] = {
    {"num_experts", "n_routed_experts", "num_local_experts", "num_routed_experts", "moe_num_experts",
     "num_moe_experts", "n_experts", "moe_n_experts", "expert_num", "num_routed_expert"},
    {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
     "top_k_experts", "num_activated_experts", "n_activated_experts", "moe_router_topk",
     "num_selected_experts", "router_topk", "router_top_k", "expert_top_k"},
    {"moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
     "expert_hidden_dim", "expert_hidden_size", "moe_hidden_dim", "moe_intermediate_dim", "moe_ffn_dim",
     "expert_dim", "routed_expert_intermediate_size", "moe_inter_dim"},
    {"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts",
     "n_shared_expert"},
    {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
     "shared_experts_intermediate_size", "shared_intermediate_size", "shared_expert_dim", "share_expert_dim",
     "moe_shared_intermediate_size", "shared_expert_ffn_hidden_size"},
    {"dense_intermediate_size", "intermediate_size_mlp", "dense_ffn_hidden_size", "intermediate_size_dense"},
    {"intermediate_size", "ffn_hidden_size", "ffn_dim", "d_ff", "inter_dim"},
    {"first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "first_k_dense", "n_dense_layers",
     "num_first_dense_layers", "first_moe_layer", "moe_first_layer"},
    {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"},
    {"moe_layer_freq", "moe_layer_frequency"},
    {"num_hidden_layers", "num_layers", "n_layers", "n_layer"},
    {"hidden_size", "d_model", "n_embd", "dim", "model_dim"},
    {"num_attention_heads", "n_heads", "n_head", "num_heads"},
    {"num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_attention_groups", "num_query_groups"},
    {"head_dim", "attention_head_dim", "kv_channels", "head_size"},
    {"vocab_size", "n_vocab", "num_vocab"},
    {"n_group", "num_expert_group", "num_expert_groups", "moe_router_num_groups"},
    {"topk_group", "num_limited_groups", "moe_router_group_topk"},
    {"moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size"},
    {"index_n_heads", "indexer_n_heads", "indexer_num_heads"},
    {"index_head_dim", "indexer_head_dim"},
    {"full_attention_interval", "layer_group_size"},
    {"hc_mult", "hc_count"},
    {"zero_expert_num", "num_zero_experts"},
};

static void remember(const spw_reading *in, const char *name) {
    spw_reading_used *used = in->used;
    if (used != NULL && used->count < SPW_READING_USED && !spw_reading_was_meant(in, name))
        used->name[used->count++] = name;
}

bool spw_reading_was_meant(const spw_reading *in, const char *name) {
    for (size_t i = 0; in->used != NULL && i < in->used->count; i++)
        if (strcmp(in->used->name[i], name) == 0) return true;
    return false;
}

static bool is_among(const char *const names[NAMES], const char *key) {
    for (size_t i = 0; i < NAMES && names[i] != NULL; i++)
        if (strcmp(names[i], key) == 0) return true;
    return false;
}

const json_t *spw_reading_meant(const spw_reading *in, const char *key, const char **spelled) {
    const spw_attention_kind *kind = spw_attention_said(in);
    for (size_t s = 0; s < sizeof meanings / sizeof *meanings; s++) {
        if (!is_among(meanings[s], key)) continue;
        for (size_t i = 0; i < NAMES && meanings[s][i] != NULL; i++) {
            const char *const name = meanings[s][i];
            const json_t *value = spw_reading_at(in->root, name);
            if (value == NULL || strcmp(name, key) == 0 || spw_family_reads(in->family, kind, name)) continue;
            remember(in, name);
            *spelled = name;
            return value;
        }
    }
    return NULL;
}

bool spw_reading_means_again(const spw_reading *in, const char *key, const json_t *value) {
    const spw_attention_kind *kind = spw_attention_said(in);
    for (size_t s = 0; s < sizeof meanings / sizeof *meanings; s++) {
        if (!is_among(meanings[s], key)) continue;
        for (size_t i = 0; i < NAMES && meanings[s][i] != NULL; i++) {
            const json_t *other = spw_reading_at(in->root, meanings[s][i]);
            if (other != NULL && strcmp(meanings[s][i], key) != 0 && json_equal(other, value) &&
                (spw_family_reads(in->family, kind, meanings[s][i]) ||
                 spw_reading_was_meant(in, meanings[s][i])))
                return true;
        }
    }
    return false;
}
