#include "sim/model/config/model_keys.h"

#include <math.h>
#include <string.h>

/* Keys of Hugging Face's configurations that hold no parameters. Those of transformers 5.24 were held against its classes, one
 * value changed at a time (tests/models/change_keys.py). */
static const char *const quiet[] = {
    /* how the file, its tokens and its weights are handled */
    "architectures",
    "auto_map",
    "dtype",
    "ep_size",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "model_type",
    "pretraining_tp",
    "quantization_config",
    "return_dict",
    "tie_encoder_decoder",
    "tokenizer_class",
    "transformers_version",
    "use_cache",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "for_llm_compressor",
    "is_composition",
    "num_logits_to_keep",
    "num_return_sequences",
    "problem_type",
    "use_bfloat16",
    /* how text is generated: transformers 4 wrote them into every file */
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "output_scores",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
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
    "rotary_dim",
    /* numbers of an operation that has its weights by other keys */
    "clip_qkv",
    "hidden_act",
    "initializer_range",
    "logits_soft_cap",
    "swiglu_limit",
    "logits_scaling",
    "moe_renormalize",
    "index_share_for_mtp_iteration",
    "index_topk",
    "indexer_rope_interleave",
    "full_attn_alpha_factor",
    "linear_attn_alpha_factor",
    "mlp_alpha_factor",
    "attention_value_scale",
    "attn_scale",
    "attn_temperature_tuning",
    "floor_scale",
    "full_attn_beta_factor",
    "hc_magnitude",
    "hidden_activation",
    "kda_lower_bound",
    "kda_safe_gate",
    "linear_attn_beta_factor",
    "learnable_sink_init",
    "linear_lower_bound",
    "log_scaling_n_floor",
    "logit_scale",
    "mlp_beta_factor",
    "moe_router_use_scaling",
    "mup_enabled",
    "query_pre_attn_scalar",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "route_norm",
    "route_scale",
    "swiglu_limits",
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    /* how an operation is run */
    "chunk_size",
    "enable_moe_fp32_combine",
    "mamba_chunk_size",
    "moe_shared_expert_overlap",
    "use_associative_scan",
    "use_grouped_mm",
    "use_mambapy",
    /* the loss, and what the router adds to it */
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "seq_aux",
    /* how far attention looks, and in which layers; which layers turn queries and keys */
    "attention_chunk_size",
    "index_kpool_always_select_tail",
    "index_local_blocks",
    "index_topk_blocks",
    "keep_window_size",
    "mla_use_nope",
    "no_rope_layer_interval",
    "no_rope_layers",
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
    /* latent attention has no such projections: the sizes are there for other code */
    "head_dim",
    "num_key_value_heads",
    "qk_head_dim",
};

/* How the names of such keys end. */
static const char *const quiet_endings[] = {
    "_alpha",     "_beta",           "_coef",      "_coeff",       "_dropout", "_dtype",       "_eps",
    "_epsilon",   "_jitter",         "_kernels",   "_multiplier",  "_noise",   "_pdrop",       "_placeholder",
    "_prob",      "_scaling_factor", "_softcap",   "_softcapping", "_std",     "_temperature", "_theta",
    "_threshold", "_token_id",       "_token_ids", "_token_index",
};

static bool ends_quietly(const char *key) {
    const size_t length = strlen(key);
    for (size_t i = 0; i < sizeof quiet_endings / sizeof *quiet_endings; i++) {
        const size_t ending = strlen(quiet_endings[i]);
        if (length > ending && strcmp(key + length - ending, quiet_endings[i]) == 0) return true;
    }
    return false;
}

static const char *const mtp[] = {"num_nextn_predict_layers", "mtp_num_layers", "num_mtp_layers",
                                  "mtp_num_hidden_layers", "num_mtp_modules"};

static bool is_among(const char *const *list, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i], key) == 0) return true;
    }
    return false;
}

/* Layers that attend, all of them or the last so many tokens; a layer of another kind has other weights. */
static const char *const attends[] = {
    "full_attention",    "sliding_attention",         "chunked_attention",
    "indexed_attention", "deepseek_sparse_attention", "reference_sliding_attention"};
static bool are_attention_layers(const json_t *list) {
    size_t i;
    json_t *kind;
    json_array_foreach(list, i, kind) {
        const char *text = json_string_value(kind);
        if (text == NULL || !is_among(attends, sizeof attends / sizeof *attends, text)) return false;
    }
    return json_is_array(list);
}

/* Every layer has keys and values, or an indexer, of its own. */
static bool shares_nothing(const char *key, const json_t *list) {
    const bool sources = strcmp(key, "kv_source_layers") == 0, indexers = strcmp(key, "indexer_types") == 0;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (sources && !(json_is_integer(item) && json_integer_value(item) == (json_int_t)i)) return false;
        if (indexers && (text == NULL || strcmp(text, "full") != 0)) return false;
    }
    return json_is_array(list) && (sources || indexers);
}

bool spw_model_key_is_quiet(const char *key, const json_t *value) {
    if (key[0] == '_' || json_is_null(value) || json_is_false(value)) return true;
    if (json_is_number(value) && json_number_value(value) == 0.0) return true;
    if ((json_is_array(value) || json_is_object(value)) &&
        json_array_size(value) + json_object_size(value) == 0)
        return true;
    if (strcmp(key, "layer_types") == 0) return are_attention_layers(value);
    if (shares_nothing(key, value)) return true;
    return ends_quietly(key) || is_among(quiet, sizeof quiet / sizeof *quiet, key);
}

/* Words between '_' of a name that is no size of a weight. */
static const char *const quiet_words[] = {"rope",
                                          "rotary",
                                          "yarn",
                                          "token",
                                          "tokens",
                                          "bos",
                                          "eos",
                                          "pad",
                                          "sep",
                                          "loss",
                                          "aux",
                                          "dropout",
                                          "init",
                                          "initializer",
                                          "eps",
                                          "epsilon",
                                          "cache",
                                          "quant",
                                          "quantization",
                                          "quantized",
                                          "dtype",
                                          "precision",
                                          "fp32",
                                          "bf16",
                                          "fp8",
                                          "fp4",
                                          "implementation",
                                          "impl",
                                          "backend",
                                          "kernels",
                                          "window",
                                          "chunk",
                                          "softcap",
                                          "softcapping",
                                          "clip",
                                          "clipping",
                                          "temperature",
                                          "beam",
                                          "beams",
                                          "penalty",
                                          "generation",
                                          "capacity",
                                          "jitter",
                                          "noise",
                                          "seed",
                                          "checkpoint",
                                          "checkpointing",
                                          "parallel",
                                          "overlap",
                                          "fuse",
                                          "fused",
                                          "vision",
                                          "visual",
                                          "image",
                                          "images",
                                          "video",
                                          "audio",
                                          "speech",
                                          "mtp",
                                          "nextn",
                                          "draft",
                                          "theta",
                                          "scaling",
                                          "alpha",
                                          "beta",
                                          "threshold",
                                          "version",
                                          "seq",
                                          "sequence",
                                          "seqlen",
                                          "positions",
                                          "mup",
                                          "recompute",
                                          "offload",
                                          "topk",
                                          "norm_topk_prob",
                                          "limit",
                                          "padding",
                                          "truncation",
                                          "budget",
                                          "sinkhorn",
                                          "lr"};

bool spw_model_key_sounds_quiet(const char *key, const json_t *value) {
    const json_t *item;
    const char *name;
    size_t i;
    for (const char *word = key; strchr(key, '_') != NULL && *word != '\0'; word += *word == '_') {
        const size_t length = strcspn(word, "_");
        for (i = 0; i < sizeof quiet_words / sizeof *quiet_words; i++)
            if (strlen(quiet_words[i]) == length && strncmp(quiet_words[i], word, length) == 0) return true;
        word += length;
    }
    if (are_attention_layers(value) && json_array_size(value) > 0) return true;
    bool small = json_is_array(value) || json_is_object(value);
    json_array_foreach(value, i, item) small = small && json_is_real(item);
    json_object_foreach((json_t *)(uintptr_t)value, name, item) small =
        small && (json_is_real(item) || json_is_string(item) || json_is_boolean(item) || json_is_null(item));
    return small || json_is_real(value);
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
    if (json_is_false(json_object_get(root, "use_sliding_window"))) return 0;
    const json_int_t window = json_integer_value(json_object_get(root, "sliding_window"));
    return window > 0 ? window
                      : json_integer_value(json_object_get(root, "attention_chunk_size")); /* Llama 4's */
}
