/* config.json to spw_model. What differs between families of models is in the two tables below. */
#include "sim/input/model.h"

#include "base/text.h"
#include "sim/input/model_family.h"
#include "sim/input/model_keys.h"
#include "sim/input/settings.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ABSENT = -1 };

/* The text that is read, for messages. */
typedef struct reading {
    const char *where;
    const json_t *root;
    const spw_family *family;
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

static spw_status read_count(const reading *in, const char *key, const spw_key_row *row, int64_t *out) {
    const json_t *value = lookup(in, key);
    char found[64];
    if (value == NULL) {
        *out = ABSENT;
        if (!row->required) return SPW_OK;
        return spw_fail(
            SPW_ECONFIG, "%s: key '%s' is missing; a %s model needs it: a whole number in [%lld, %lld]",
            in->where, key, in->family->model_type, (long long)row->minimum, (long long)row->maximum);
    }
    const double real = json_number_value(value); /* 64.0 is whole */
    const bool whole =
        json_is_integer(value) || (json_is_real(value) && fabs(real) < 1e15 && real == floor(real));
    *out = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)real : 0;
    if (whole && *out >= row->minimum && *out <= row->maximum) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be a whole number in [%lld, %lld]", in->where, key,
                    json_words(value, found), (long long)row->minimum, (long long)row->maximum);
}

static spw_status read_rows(const reading *in, const spw_key_row *row, spw_raw_config *raw) {
    spw_status status = SPW_OK;
    for (; status == SPW_OK && row->key != NULL; row++)
        if (spw_family_has(in->family, row->part))
            status = read_count(in, row->key, row, (int64_t *)(void *)((char *)raw + row->offset));
    return status;
}

/* The first of several names that is there. */
static spw_status read_either(const reading *in, const char *const keys[SPW_MODEL_KEYS], int64_t maximum,
                              int64_t *out) {
    char names[160] = "";
    const spw_key_row row = {.minimum = 1, .maximum = maximum, .required = true};
    for (size_t i = 0; i < SPW_MODEL_KEYS && keys[i] != NULL; i++) {
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
static spw_status mark_layers(const reading *in, const spw_raw_config *raw, spw_model *m) {
    const size_t first = or_default(raw->first_dense, 0), every = or_default(raw->layer_freq, 1),
                 step = or_default(raw->sparse_step, 1);
    for (size_t i = 0; i < m->layers; i++) m->is_moe[i] = i >= first && i % every == 0 && (i + 1) % step == 0;
    spw_status status = spw_family_has(in->family, SPW_BY_STEP) ? mark_dense_list(in, m) : SPW_OK;
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < m->layers; i++) m->moe_layers += m->is_moe[i];
    if (m->moe_layers == 0)
        return spw_fail(SPW_ECONFIG,
                        "%s: none of the %zu layers has experts; Spillway plans mixtures of experts only",
                        in->where, m->layers);
    return SPW_OK;
}

/* The smallest period of 'layer_types', which MaxText's scan takes in one turn; of a list of another length nothing is
 * learnt. */
static void find_period(const reading *in, spw_model *m) {
    const json_t *list = lookup(in, "layer_types");
    const size_t count = json_array_size(list), first = m->layers - m->moe_layers;
    m->layers_per_turn = in->family->layer_period > 0 ? in->family->layer_period : 1;
    if (count != m->layers) return;
    for (size_t period = 1; period <= m->moe_layers; period++) {
        size_t i = first;
        while (i + period < count && json_equal(json_array_get(list, i), json_array_get(list, i + period)))
            i++;
        m->layers_per_turn = period;
        if (m->moe_layers % period == 0 && i + period >= count) return;
    }
}

/* --- Parts of a model --- */

static spw_status read_experts(const reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const spw_family *f = in->family;
    bool greedy = false;
    SPW_TRY(read_either(in, f->experts, SPW_MODEL_MOST_EXPERTS, &raw->experts));
    SPW_TRY(read_either(in, f->top_k, SPW_MODEL_MOST_EXPERTS, &raw->top_k));
    SPW_TRY(read_either(in, f->expert_ffn, SPW_MODEL_WIDEST, &raw->expert_ffn));
    m->experts = (size_t)raw->experts;
    m->top_k = (size_t)raw->top_k;
    m->expert_ffn = (size_t)raw->expert_ffn;
    if (m->top_k > m->experts)
        return spw_fail(SPW_ECONFIG,
                        "%s: %zu experts a token of %zu; a token cannot choose more than there are",
                        in->where, m->top_k, m->experts);
    m->shared_ffn =
        f->shared_width ? or_default(raw->shared_ffn, 0) : or_default(raw->shared_experts, 0) * m->expert_ffn;
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

static spw_status read_mla(const reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = read_rows(in, spw_mla_keys, raw);
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

static spw_status read_gqa(const reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = read_rows(in, spw_gqa_keys, raw);
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

static spw_status read_attention(const reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const spw_family *f = in->family;
    bool bias = false, qkv_bias = f->qkv_bias,
         latent = f->attention == SPW_ATTENTION_MLA ||
                  (f->rule == SPW_ANY_RULE && lookup(in, "kv_lora_rank") != NULL);
    m->attention = latent ? SPW_ATTENTION_MLA : SPW_ATTENTION_GQA;
    SPW_TRY(latent ? read_mla(in, raw, m) : read_gqa(in, raw, m));
    SPW_TRY(read_flag(in, "attention_bias", false, &bias));
    if (f->qkv_bias) SPW_TRY(read_flag(in, "qkv_bias", true, &qkv_bias));
    m->attention_bias = bias || qkv_bias;
    m->output_bias = bias && !f->no_output_bias;
    m->qk_norm = f->qk_norm;
    m->qk_norm_per_head = f->qk_norm_per_head;
    m->attention_sinks = f->attention_sinks;

cleanup:
    return status;
}

static spw_status read_model(const reading *in, spw_model *m) {
    spw_status status = SPW_OK;
    spw_raw_config raw;
    memset(&raw, ABSENT, sizeof raw); /* -1 in every byte is -1 */
    SPW_TRY(read_rows(in, spw_common_keys, &raw));
    m->layers = (size_t)raw.layers;
    m->hidden = (size_t)raw.hidden;
    m->vocab = (size_t)raw.vocab;
    m->heads = (size_t)raw.heads;
    SPW_TRY(read_experts(in, &raw, m));
    SPW_TRY(read_attention(in, &raw, m));
    SPW_TRY(read_flag(in, "tie_word_embeddings", false, &m->tied_embeddings));
    SPW_TRY(mark_layers(in, &raw, m));
    find_period(in, m);
    if (m->moe_layers < m->layers) {
        if (raw.ffn == ABSENT)
            return spw_fail(SPW_ECONFIG,
                            "%s: key 'intermediate_size' is missing; %zu layers are dense and need it: a "
                            "whole number in [1, %d]",
                            in->where, m->layers - m->moe_layers, SPW_MODEL_WIDEST);
        m->dense_ffn = (size_t)raw.ffn;
    }
    if (spw_model_parameters(m).total > (uint64_t)1 << 52)
        status =
            spw_fail(SPW_ECONFIG, "%s: the model has more than 2^52 parameters; no such model can be planned",
                     in->where);

cleanup:
    return status;
}

/* --- Keys that are not read --- */

static uint64_t mtp_parameters(const spw_model *m, json_int_t layers) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t hidden = m->hidden; /* a projection of two inputs, their norms and one of the output */
    return (uint64_t)layers * (p.attention_per_layer + p.norms_per_layer + p.routed_per_layer +
                               p.shared_per_layer + p.router_per_layer + 2 * hidden * hidden + 3 * hidden);
}

/* What the file asks for and is not in the figures. */
static void note_doubts(const reading *in, const char *unknown, spw_model *m) {
    const json_int_t mtp = spw_model_mtp_layers(in->root), window = spw_model_window(in->root);
    size_t used = 0;
    if (mtp > 0 && mtp <= SPW_MODEL_MAX_LAYERS)
        (void)snprintf(
            m->doubt[used++], SPW_MODEL_DOUBT,
            "the model's %lld layer%s of multi-token prediction (%.1f B parameters beside the %.1f B that "
            "count) %s not in these figures, neither memory and traffic nor time",
            (long long)mtp, mtp == 1 ? "" : "s", (double)mtp_parameters(m, mtp) / 1e9,
            (double)spw_model_parameters(m).total / 1e9, mtp == 1 ? "is" : "are");
    if (window > 0)
        (void)snprintf(
            m->doubt[used++], SPW_MODEL_DOUBT,
            "the model's attention looks back %lld tokens in some or all layers; its work is counted over "
            "the whole sequence in all of them",
            (long long)window);
    if (unknown[0] != '\0')
        (void)snprintf(
            m->doubt[used++], SPW_MODEL_DOUBT,
            "keys of the model's file are not known (%.200s): what they add to it is not in these figures",
            unknown);
}

/* Every key is read, or known to hold no parameters; what is neither is refused in a generic model, which is nothing but its
 * keys, and noted in a family, whose parts are known. */
static spw_status check_keys(const reading *in, spw_model *m) {
    const bool latent = m->attention == SPW_ATTENTION_MLA, generic = in->family->rule == SPW_ANY_RULE;
    char unknown[256] = "", found[64], shown[SPW_SETTINGS_SHOWN];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in->root, key, value) {
        if (spw_family_reads(in->family, latent, key) || spw_model_key_is_quiet(key, value) ||
            spw_model_key_is_mtp(key))
            continue;
        const bool elsewhere = spw_any_family_reads(key);
        (void)spw_settings_shown(key, strlen(key), shown);
        if (generic || elsewhere)
            return spw_fail(
                SPW_ECONFIG,
                "%s: key '%s' (%s) %s, and it could hold parameters; docs/models.md lists what is read and "
                "what is known to hold none",
                in->where, shown, json_words(value, found),
                elsewhere ? "is not read in a model of this kind" : "is not known");
        const size_t used = strlen(unknown);
        (void)snprintf(unknown + used, sizeof unknown - used, "%s%s", used > 0 ? ", " : "", shown);
    }
    note_doubts(in, unknown, m);
    return SPW_OK;
}

static spw_status find_family(reading *in) {
    char known[256] = "";
    const json_t *value = json_object_get(in->root, "model_type");
    const char *type = json_string_value(value);
    in->family = type != NULL ? spw_family_find(type) : NULL;
    if (in->family != NULL) return SPW_OK;
    for (size_t i = 0; spw_family_at(i) != NULL; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                       spw_family_at(i)->model_type);
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
    text = spw_text_skip_mark(text, &length);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return spw_fail(json_error_code(&error) == json_error_out_of_memory ? SPW_ENOMEM : SPW_ECONFIG,
                        "%s:%d: not JSON: %s", where, error.line, error.text);
    spw_status status = SPW_OK;
    reading in = {.where = where, .root = root};
    if (!json_is_object(root))
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: not a JSON object; give a Hugging Face config.json", where));
    status = find_family(&in);
    if (in.family == NULL) goto cleanup;
    SPW_TRY(read_model(&in, out));
    SPW_TRY(check_keys(&in, out));
    const char *source = json_string_value(json_object_get(root, "_source"));
    (void)snprintf(out->source, sizeof out->source, "%s", source != NULL ? source : where);
    (void)snprintf(out->name, sizeof out->name, "%s", where);

cleanup:
    json_decref(root);
    return status;
}
