/* config.json to spw_model. What differs between families of models is in the two tables below. */
#include "sim/input/model.h"

#include "sim/input/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ABSENT = -1, KEYS = 3, WIDEST = 1 << 24, MOST_EXPERTS = 65535 };

/* --- Families: what a model_type implies without saying so in its config.json. Sources: transformers,
 * src/transformers/models/<model_type>/modeling_*.py and configuration_*.py --- */

typedef enum sparse_rule { ALL_LAYERS, FIRST_DENSE, SPARSE_STEP, ANY_RULE } sparse_rule;

typedef struct family {
    const char *model_type;
    const char *experts[KEYS], *top_k[KEYS],
        *expert_ffn[KEYS]; /* names of the keys, the first that is there counts */
    spw_attention attention;
    sparse_rule rule;
    bool shared_count;   /* n_shared_experts of the routed width each */
    bool shared_width;   /* shared_expert_intermediate_size, with a gate */
    bool qkv_bias;       /* always; else attention_bias says */
    bool no_output_bias; /* attention_bias does not reach the output projection */
    bool sigmoid_router; /* with a selection bias, unless scoring_func and topk_method say otherwise */
    bool qk_norm, qk_norm_per_head, expert_bias, router_bias, attention_sinks;
} family;

#define DEEPSEEK \
    .experts = {"n_routed_experts", "num_local_experts"}, .top_k = {"num_experts_per_tok"}, \
    .expert_ffn = {"moe_intermediate_size"}, .attention = SPW_ATTENTION_MLA, .rule = FIRST_DENSE, \
    .shared_count = true

static const family families[] = {
    {.model_type = "deepseek_v2", DEEPSEEK},
    {.model_type = "deepseek_v3", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "kimi_k2", DEEPSEEK, .sigmoid_router = true},
    {.model_type = "qwen2_moe",
     .experts = {"num_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = SPARSE_STEP,
     .shared_width = true,
     .qkv_bias = true,
     .no_output_bias = true},
    {.model_type = "qwen3_moe",
     .experts = {"num_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = SPARSE_STEP,
     .qk_norm = true,
     .qk_norm_per_head = true},
    {.model_type = "mixtral",
     .experts = {"num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .rule = ALL_LAYERS},
    {.model_type = "olmoe",
     .experts = {"num_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok"},
     .expert_ffn = {"intermediate_size"},
     .rule = ALL_LAYERS,
     .qk_norm = true},
    {.model_type = "gpt_oss",
     .experts = {"num_local_experts", "num_experts"},
     .top_k = {"num_experts_per_tok", "experts_per_token"},
     .expert_ffn = {"intermediate_size"},
     .rule = ALL_LAYERS,
     .expert_bias = true,
     .router_bias = true,
     .attention_sinks = true},
    /* Not of Hugging Face: any model made of the parts above, named key by key. */
    {.model_type = "generic",
     .experts = {"num_experts", "n_routed_experts", "num_local_experts"},
     .top_k = {"num_experts_per_tok", "experts_per_token"},
     .expert_ffn = {"moe_intermediate_size"},
     .rule = ANY_RULE,
     .shared_count = true},
};

/* --- Keys --- */

typedef struct raw_config {
    int64_t layers, hidden, vocab, heads, kv_heads, head_dim, experts, top_k, expert_ffn, ffn;
    int64_t shared_experts, shared_ffn, first_dense, layer_freq, sparse_step, groups, groups_kept;
    int64_t q_lora_rank, kv_lora_rank, nope_dim, rope_dim, v_head_dim;
} raw_config;

typedef struct key_row {
    const char *key;
    size_t offset;
    int64_t minimum, maximum;
    bool required;
} key_row;

#define KEY(name, field, low, high, needed) \
    { (name), offsetof(raw_config, field), (low), (high), (needed) }

static const key_row common_keys[] = {
    KEY("num_hidden_layers", layers, 1, SPW_MODEL_MAX_LAYERS, true),
    KEY("hidden_size", hidden, 1, WIDEST, true),
    KEY("vocab_size", vocab, 1, WIDEST, true),
    KEY("num_attention_heads", heads, 1, 65535, true),
    KEY("intermediate_size", ffn, 1, WIDEST, false),
    KEY("n_shared_experts", shared_experts, 0, MOST_EXPERTS, false),
    KEY("shared_expert_intermediate_size", shared_ffn, 0, WIDEST, false),
    KEY("first_k_dense_replace", first_dense, 0, SPW_MODEL_MAX_LAYERS, false),
    KEY("moe_layer_freq", layer_freq, 1, SPW_MODEL_MAX_LAYERS, false),
    KEY("decoder_sparse_step", sparse_step, 1, SPW_MODEL_MAX_LAYERS, false),
    KEY("n_group", groups, 1, MOST_EXPERTS, false),
    KEY("topk_group", groups_kept, 1, MOST_EXPERTS, false),
    {NULL, 0, 0, 0, false}};

static const key_row gqa_keys[] = {KEY("num_key_value_heads", kv_heads, 1, 65535, false),
                                   KEY("head_dim", head_dim, 1, WIDEST, false),
                                   {NULL, 0, 0, 0, false}};

static const key_row mla_keys[] = {
    KEY("q_lora_rank", q_lora_rank, 1, WIDEST, false),  KEY("kv_lora_rank", kv_lora_rank, 1, WIDEST, true),
    KEY("qk_nope_head_dim", nope_dim, 1, WIDEST, true), KEY("qk_rope_head_dim", rope_dim, 1, WIDEST, true),
    KEY("v_head_dim", v_head_dim, 1, WIDEST, true),     {NULL, 0, 0, 0, false}};

/* The text that is read, for messages. */
typedef struct reading {
    const char *where;
    const json_t *root;
    const family *family;
} reading;

static const char *json_words(const json_t *value, char text[64]) {
    static const char *const names[] = {[JSON_OBJECT] = "a mapping",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    json_type type = json_typeof(value);
    char shown[SPW_SETTINGS_SHOWN];
    if (type == JSON_INTEGER)
        (void)snprintf(text, 64, "%lld", (long long)json_integer_value(value));
    else if (type == JSON_REAL)
        (void)snprintf(text, 64, "%g", json_real_value(value));
    else if (type != JSON_STRING)
        return names[type];
    else
        (void)snprintf(text, 64, "'%s'",
                       spw_settings_shown(json_string_value(value), json_string_length(value), shown));
    return text;
}

/* null reads like an absent key, as it does in transformers. */
static const json_t *lookup(const reading *in, const char *key) {
    const json_t *value = json_object_get(in->root, key);
    return value == NULL || json_is_null(value) ? NULL : value;
}

static spw_status read_count(const reading *in, const char *key, const key_row *row, int64_t *out) {
    const json_t *value = lookup(in, key);
    char found[64];
    if (value == NULL) {
        *out = ABSENT;
        if (!row->required) return SPW_OK;
        return spw_fail(
            SPW_ECONFIG, "%s: key '%s' is missing; a %s model needs it: a whole number in [%lld, %lld]",
            in->where, key, in->family->model_type, (long long)row->minimum, (long long)row->maximum);
    }
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= row->minimum && *out <= row->maximum) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be a whole number in [%lld, %lld]", in->where, key,
                    json_words(value, found), (long long)row->minimum, (long long)row->maximum);
}

static spw_status read_rows(const reading *in, const key_row *row, raw_config *raw) {
    spw_status status = SPW_OK;
    for (; status == SPW_OK && row->key != NULL; row++)
        status = read_count(in, row->key, row, (int64_t *)(void *)((char *)raw + row->offset));
    return status;
}

/* The first of several names that is there. */
static spw_status read_either(const reading *in, const char *const keys[KEYS], int64_t maximum,
                              int64_t *out) {
    char names[160] = "";
    const key_row row = {.minimum = 1, .maximum = maximum, .required = true};
    for (size_t i = 0; i < KEYS && keys[i] != NULL; i++) {
        if (lookup(in, keys[i]) != NULL) return read_count(in, keys[i], &row, out);
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s'%s'", i == 0 ? "" : " or ", keys[i]);
    }
    return spw_fail(SPW_ECONFIG, "%s: key %s is missing; a %s model needs it: a whole number in [1, %lld]",
                    in->where, names, in->family->model_type, (long long)maximum);
}

static spw_status read_flag(const reading *in, const char *key, bool fallback, bool *out) {
    const json_t *value = lookup(in, key);
    char found[64];
    *out = value != NULL ? json_is_true(value) : fallback;
    if (value == NULL || json_is_boolean(value)) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be true or false", in->where, key,
                    json_words(value, found));
}

/* *is = the text at `key` is `word`; `fallback` when it is absent. `other` is the only other text allowed,
 * NULL: any. */
static spw_status read_word(const reading *in, const char *key, const char *word, const char *other,
                            bool fallback, bool *is) {
    const json_t *value = lookup(in, key);
    const char *text = json_string_value(value);
    char found[64];
    *is = value == NULL ? fallback : text != NULL && strcmp(text, word) == 0;
    if (value == NULL || *is || (text != NULL && (other == NULL || strcmp(text, other) == 0))) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be '%s'%s%s%s", in->where, key,
                    json_words(value, found), word, other != NULL ? " or '" : "", other != NULL ? other : "",
                    other != NULL ? "'" : "");
}

static size_t or_default(int64_t value, size_t fallback) {
    return value == ABSENT ? fallback : (size_t)value;
}

/* --- Which layers are sparse --- */

static spw_status mark_dense_list(const reading *in, spw_model *m) {
    const json_t *list = lookup(in, "mlp_only_layers");
    char found[64];
    if (list != NULL && !json_is_array(list))
        return spw_fail(SPW_ECONFIG,
                        "%s: 'mlp_only_layers' is %s; it must be a list of layer numbers in [0, %zu]",
                        in->where, json_words(list, found), m->layers - 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0 || (size_t)layer >= m->layers)
            return spw_fail(
                SPW_ECONFIG,
                "%s: 'mlp_only_layers' has the entry %s; it must be a list of layer numbers in [0, %zu]",
                in->where, json_words(item, found), m->layers - 1);
        m->is_moe[layer] = 0;
    }
    return SPW_OK;
}

/* DeepSeek: layer i >= first_k_dense_replace with i a multiple of moe_layer_freq. Qwen: i + 1 a multiple of
 * decoder_sparse_step and i not in mlp_only_layers. */
static spw_status mark_layers(const reading *in, const raw_config *raw, spw_model *m) {
    sparse_rule rule = in->family->rule;
    bool by_first = rule == FIRST_DENSE || rule == ANY_RULE,
         by_step = rule == SPARSE_STEP || rule == ANY_RULE;
    size_t first = by_first ? or_default(raw->first_dense, 0) : 0;
    size_t every = by_first ? or_default(raw->layer_freq, 1) : 1;
    size_t step = by_step ? or_default(raw->sparse_step, 1) : 1;
    for (size_t i = 0; i < m->layers; i++) m->is_moe[i] = i >= first && i % every == 0 && (i + 1) % step == 0;
    spw_status status = by_step ? mark_dense_list(in, m) : SPW_OK;
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < m->layers; i++) m->moe_layers += m->is_moe[i];
    if (m->moe_layers == 0)
        return spw_fail(SPW_ECONFIG,
                        "%s: none of the %zu layers has experts; Spillway plans mixtures of experts only",
                        in->where, m->layers);
    return SPW_OK;
}

/* --- Parts of a model --- */

static spw_status read_experts(const reading *in, raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const family *f = in->family;
    bool greedy = false;
    SPW_TRY(read_either(in, f->experts, MOST_EXPERTS, &raw->experts));
    SPW_TRY(read_either(in, f->top_k, MOST_EXPERTS, &raw->top_k));
    SPW_TRY(read_either(in, f->expert_ffn, WIDEST, &raw->expert_ffn));
    m->experts = (size_t)raw->experts;
    m->top_k = (size_t)raw->top_k;
    m->expert_ffn = (size_t)raw->expert_ffn;
    if (m->top_k > m->experts)
        return spw_fail(SPW_ECONFIG,
                        "%s: %zu experts a token of %zu; a token cannot choose more than there are",
                        in->where, m->top_k, m->experts);
    if (f->shared_count) m->shared_ffn = or_default(raw->shared_experts, 0) * m->expert_ffn;
    if (f->shared_width) m->shared_ffn = or_default(raw->shared_ffn, 0);
    m->shared_gate = f->shared_width && m->shared_ffn > 0;
    m->expert_bias = f->expert_bias;
    m->router_bias = f->router_bias;
    SPW_TRY(read_word(in, "scoring_func", "sigmoid", "softmax", f->sigmoid_router, &m->sigmoid_router));
    SPW_TRY(read_word(in, "topk_method", "noaux_tc", NULL, f->sigmoid_router, &m->selection_bias));
    SPW_TRY(read_word(in, "topk_method", "greedy", NULL, false, &greedy));
    m->groups = greedy ? 1 : or_default(raw->groups, 1);
    m->groups_kept = greedy ? 1 : or_default(raw->groups_kept, m->groups);
    if (m->experts % m->groups != 0 || m->groups_kept > m->groups ||
        m->top_k > m->groups_kept * (m->experts / m->groups))
        status = spw_fail(
            SPW_ECONFIG,
            "%s: %zu experts in %zu groups ('n_group') of which %zu are kept ('topk_group') cannot give "
            "%zu a token; n_group must divide the experts and the kept groups hold enough of them",
            in->where, m->experts, m->groups, m->groups_kept, m->top_k);

cleanup:
    return status;
}

static spw_status read_mla(const reading *in, raw_config *raw, spw_model *m) {
    spw_status status = read_rows(in, mla_keys, raw);
    if (status != SPW_OK) return status;
    m->q_lora_rank = or_default(raw->q_lora_rank, 0);
    m->kv_lora_rank = (size_t)raw->kv_lora_rank;
    m->nope_dim = (size_t)raw->nope_dim;
    m->rope_dim = (size_t)raw->rope_dim;
    m->v_head_dim = (size_t)raw->v_head_dim;
    m->kv_heads = m->heads;
    m->head_dim = m->nope_dim + m->rope_dim;
    return SPW_OK;
}

static spw_status read_gqa(const reading *in, raw_config *raw, spw_model *m) {
    spw_status status = read_rows(in, gqa_keys, raw);
    if (status != SPW_OK) return status;
    m->kv_heads = or_default(raw->kv_heads, m->heads);
    m->head_dim = or_default(raw->head_dim, m->hidden / m->heads);
    if (raw->head_dim == ABSENT && m->hidden % m->heads != 0)
        return spw_fail(SPW_ECONFIG,
                        "%s: hidden_size %zu is not a multiple of num_attention_heads %zu; give 'head_dim'",
                        in->where, m->hidden, m->heads);
    if (m->heads % m->kv_heads != 0)
        return spw_fail(
            SPW_ECONFIG,
            "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu; give a divisor",
            in->where, m->heads, m->kv_heads);
    return SPW_OK;
}

static spw_status read_attention(const reading *in, raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const family *f = in->family;
    bool bias = false, latent = f->attention == SPW_ATTENTION_MLA ||
                                (f->rule == ANY_RULE && lookup(in, "kv_lora_rank") != NULL);
    m->attention = latent ? SPW_ATTENTION_MLA : SPW_ATTENTION_GQA;
    SPW_TRY(latent ? read_mla(in, raw, m) : read_gqa(in, raw, m));
    SPW_TRY(read_flag(in, "attention_bias", false, &bias));
    m->attention_bias = bias || f->qkv_bias;
    m->output_bias = bias && !f->no_output_bias;
    m->qk_norm = f->qk_norm;
    m->qk_norm_per_head = f->qk_norm_per_head;
    m->attention_sinks = f->attention_sinks;

cleanup:
    return status;
}

static spw_status read_model(const reading *in, spw_model *m) {
    spw_status status = SPW_OK;
    raw_config raw;
    memset(&raw, ABSENT, sizeof raw); /* -1 in every byte is -1 */
    SPW_TRY(read_rows(in, common_keys, &raw));
    m->layers = (size_t)raw.layers;
    m->hidden = (size_t)raw.hidden;
    m->vocab = (size_t)raw.vocab;
    m->heads = (size_t)raw.heads;
    SPW_TRY(read_experts(in, &raw, m));
    SPW_TRY(read_attention(in, &raw, m));
    SPW_TRY(read_flag(in, "tie_word_embeddings", false, &m->tied_embeddings));
    SPW_TRY(mark_layers(in, &raw, m));
    if (m->moe_layers < m->layers) {
        if (raw.ffn == ABSENT)
            return spw_fail(SPW_ECONFIG,
                            "%s: key 'intermediate_size' is missing; %zu layers are dense and need it: a "
                            "whole number in [1, %d]",
                            in->where, m->layers - m->moe_layers, WIDEST);
        m->dense_ffn = (size_t)raw.ffn;
    }
    if (spw_model_parameters(m).total > (uint64_t)1 << 52)
        status =
            spw_fail(SPW_ECONFIG, "%s: the model has more than 2^52 parameters; no such model can be planned",
                     in->where);

cleanup:
    return status;
}

static spw_status find_family(reading *in) {
    char known[256] = "";
    const json_t *value = json_object_get(in->root, "model_type");
    const char *type = json_string_value(value);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        in->family = &families[i];
        if (type != NULL && strcmp(type, families[i].model_type) == 0) return SPW_OK;
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", families[i].model_type);
    }
    char shown[SPW_SETTINGS_SHOWN];
    if (type == NULL)
        return spw_fail(SPW_ECONFIG, "%s: key 'model_type' is missing; it must be one of: %s", in->where,
                        known);
    return spw_fail(SPW_ECONFIG, "%s: model_type '%s' is unknown; known: %s", in->where,
                    spw_settings_shown(type, strlen(type), shown), known);
}

spw_status spw_model_parse(const char *where, const char *text, size_t length, spw_model *out) {
    json_error_t error;
    memset(out, 0, sizeof *out);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return spw_fail(json_error_code(&error) == json_error_out_of_memory ? SPW_ENOMEM : SPW_ECONFIG,
                        "%s:%d: not JSON: %s", where, error.line, error.text);
    spw_status status = SPW_OK;
    reading in = {.where = where, .root = root};
    if (!json_is_object(root))
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: not a JSON object; give a Hugging Face config.json", where));
    SPW_TRY(find_family(&in));
    SPW_TRY(read_model(&in, out));
    const char *source = json_string_value(json_object_get(root, "_source"));
    (void)snprintf(out->source, sizeof out->source, "%s", source != NULL ? source : where);
    (void)snprintf(out->name, sizeof out->name, "%s", where);

cleanup:
    json_decref(root);
    return status;
}
