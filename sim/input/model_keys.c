#include "sim/input/model_keys.h"

#include <math.h>
#include <string.h>

/* Keys of Hugging Face's configurations that hold no parameters. */
static const char *const quiet[] = {
    /* how the file, its tokens and its weights are handled */
    "architectures",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "ep_size",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "model_type",
    "pad_token_id",
    "pretraining_tp",
    "quantization_config",
    "return_dict",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "attn_implementation",
    "audio_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "for_llm_compressor",
    "image_token_id",
    "is_composition",
    "num_logits_to_keep",
    "num_return_sequences",
    "problem_type",
    "sep_token_id",
    "use_bfloat16",
    "video_token_id",
    "vision_end_token_id",
    "vision_start_token_id",
    /* positions are rotary: an angle, no table of weights */
    "model_max_length",
    "original_max_position_embeddings",
    "sliding_window_pattern",
    "initial_context_length",
    "max_position_embeddings",
    "partial_rotary_factor",
    "rope_interleave",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_dim",
    /* numbers of an operation that has its weights by other keys */
    "attention_dropout",
    "clip_qkv",
    "hidden_act",
    "hidden_dropout",
    "initializer_range",
    "logits_soft_cap",
    "norm_topk_prob",
    "resid_pdrop",
    "rms_norm_eps",
    "routed_scaling_factor",
    "swiglu_alpha",
    "swiglu_limit",
    "attn_pdrop",
    "embd_pdrop",
    "embedding_dropout",
    "expert_dropout",
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "moe_renormalize",
    "output_dropout",
    "residual_multiplier",
    "routing_scaling_factor",
    "index_share_for_mtp_iteration",
    "index_topk",
    "indexer_rope_interleave",
    "full_attn_alpha_factor",
    "linear_attn_alpha_factor",
    "mlp_alpha_factor",
    /* the loss, and what the router adds to it */
    "aux_loss_alpha",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "seq_aux",
    /* how far attention looks, and in which layers */
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
    /* latent attention has no such projections: the sizes are there for other code */
    "head_dim",
    "num_key_value_heads",
    "qk_head_dim",
};

static const char *const mtp[] = {"num_nextn_predict_layers", "mtp_num_layers", "num_mtp_layers",
                                  "mtp_num_hidden_layers", "num_mtp_modules"};

static bool is_among(const char *const *list, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i], key) == 0) return true;
    }
    return false;
}

/* Layers that attend, all of them or the last so many tokens; a layer of another kind has other weights. */
static const char *const attends[] = {"full_attention", "sliding_attention", "chunked_attention",
                                      "indexed_attention", "deepseek_sparse_attention"};
static bool are_attention_layers(const json_t *list) {
    size_t i;
    json_t *kind;
    json_array_foreach(list, i, kind) {
        const char *text = json_string_value(kind);
        if (text == NULL || !is_among(attends, sizeof attends / sizeof *attends, text)) return false;
    }
    return json_is_array(list);
}

bool spw_model_key_is_quiet(const char *key, const json_t *value) {
    if (key[0] == '_' || json_is_null(value) || json_is_false(value)) return true;
    if (json_is_number(value) && json_number_value(value) == 0.0) return true;
    if ((json_is_array(value) || json_is_object(value)) &&
        json_array_size(value) + json_object_size(value) == 0)
        return true;
    if (strcmp(key, "layer_types") == 0) return are_attention_layers(value);
    return is_among(quiet, sizeof quiet / sizeof *quiet, key);
}

/* Switches under which some families hold a part that others always have. */
static const struct {
    const char *key;
    size_t offset; /* of a bool in spw_model */
} switches[] = {
    {"use_qk_norm", offsetof(spw_model, qk_norm)},
    {"qk_norm", offsetof(spw_model, qk_norm)},
    {"qk_layernorm", offsetof(spw_model, qk_norm)},
    {"use_qkv_bias", offsetof(spw_model, attention_bias)},
    {"qkv_bias", offsetof(spw_model, attention_bias)},
    {"attn_output_gate", offsetof(spw_model, query_gate)},
    {"moe_router_enable_expert_bias", offsetof(spw_model, selection_bias)},
    {"use_routing_bias", offsetof(spw_model, selection_bias)},
    {"use_moe_router_bias", offsetof(spw_model, selection_bias)},
    {"use_expert_bias", offsetof(spw_model, selection_bias)},
};

bool spw_model_key_is_stated(const char *key, const json_t *value, const spw_model *model) {
    for (size_t i = 0; json_is_true(value) && i < sizeof switches / sizeof *switches; i++)
        if (strcmp(switches[i].key, key) == 0)
            return *(const bool *)(const void *)((const char *)model + switches[i].offset);
    return false;
}

bool spw_model_value_is_small(const json_t *value) {
    const double number = json_number_value(value);
    return json_is_string(value) || (json_is_number(value) && (number < 2.0 || number != floor(number)));
}

bool spw_model_key_is_mtp(const char *key) { return is_among(mtp, sizeof mtp / sizeof *mtp, key); }

const char *spw_model_mtp_strange(const json_t *root) {
    for (size_t i = 0; i < sizeof mtp / sizeof *mtp; i++) {
        const json_t *value = json_object_get(root, mtp[i]);
        const bool counts = json_is_integer(value) && json_integer_value(value) >= 0;
        if (value != NULL && !counts && !json_is_null(value)) return mtp[i];
    }
    return NULL;
}

json_int_t spw_model_mtp_layers(const json_t *root) {
    json_int_t most = 0;
    for (size_t i = 0; i < sizeof mtp / sizeof *mtp; i++) {
        const json_int_t layers = json_integer_value(json_object_get(root, mtp[i]));
        most = layers > most ? layers : most;
    }
    return most;
}

json_int_t spw_model_window(const json_t *root) {
    return json_is_false(json_object_get(root, "use_sliding_window"))
               ? 0
               : json_integer_value(json_object_get(root, "sliding_window"));
}
