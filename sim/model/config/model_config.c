/* config.json to spw_model. What differs between families of models is the table in model_family.c. */

#include "sim/model/config/model_keys.h"
#include "sim/model/config/model_synonyms.h"
#include "sim/model/config/model_twice.h"
#include "sim/model/config/model_wrapper.h"
#include "sim/read/settings.h"

#include <string.h>

/* --- Parts of a model --- */

/* What runs beside the routed experts. */
static void read_shared(const spw_family *f, const spw_raw_config *raw, spw_model *m) {
    const size_t width = spw_or_default(raw->shared_ffn, 0);
    const size_t count = spw_or_default(raw->shared_experts, f->any_attention && width > 0);
    const size_t wide[] = {[SPW_SHARED_BY_COUNT] = count * m->expert_ffn,
                           [SPW_SHARED_BY_WIDTH] = width,
                           [SPW_SHARED_BY_GATED_WIDTH] = width,
                           [SPW_SHARED_BY_BOTH] = count * (width > 0 ? width : m->expert_ffn),
                           [SPW_SHARED_ONE] = m->expert_ffn,
                           [SPW_SHARED_DENSE] = spw_or_default(raw->ffn, 0),
                           [SPW_SHARED_HIDDEN] = m->hidden};
    m->shared_ffn = wide[f->shared];
    m->shared_gate = f->shared == SPW_SHARED_BY_GATED_WIDTH && m->shared_ffn > 0;
}

static spw_status read_experts(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const spw_family *f = in->family;
    bool greedy = false;
    SPW_TRY(spw_reading_either(in, f->experts, SPW_MODEL_MOST_EXPERTS, &raw->experts));
    raw->top_k = (int64_t)f->usual_top_k;
    if (f->usual_top_k == 0 || spw_reading_has(in, f->top_k))
        SPW_TRY(spw_reading_either(in, f->top_k, SPW_MODEL_MOST_EXPERTS, &raw->top_k));
    raw->expert_ffn = 1;
    if (!f->unit_experts) SPW_TRY(spw_reading_either(in, f->expert_ffn, SPW_MODEL_WIDEST, &raw->expert_ffn));
    m->experts = (size_t)raw->experts;
    m->top_k = (size_t)raw->top_k;
    SPW_TRY(spw_reading_each(in, f->experts, m->experts, m->layers, m->fewer_experts));
    SPW_TRY(spw_reading_each(in, f->top_k, m->top_k, m->layers, m->fewer_choices));
    m->expert_ffn = (size_t)raw->expert_ffn;
    if (m->top_k > m->experts)
        return spw_fail(SPW_ECONFIG,
                        "%s: %zu experts a token of %zu; a token cannot choose more than there are",
                        in->where, m->top_k, m->experts);
    read_shared(f, raw, m);
    m->zero_experts = spw_or_default(raw->zero_experts, f->zero_experts);
    m->expert_bias = f->expert_bias;
    m->router_bias = f->router_bias;
    m->router_scales = f->router_scales;
    m->moe_norm = f->moe_norm;
    m->quick_gate = f->quick_gate;
    m->listed_router = f->listed_router;
    m->sigmoid_router = f->sigmoid_router;
    m->selection_bias = f->selection_bias || (f->sigmoid_router && !f->no_selection_bias);
    if (spw_family_has(f, SPW_SCORING)) {
        const char *const score = json_string_value(spw_reading_find(in, "scoring_func", NULL));
        if (score != NULL && strcmp(score, "sqrtsoftplus") == 0)
            m->sigmoid_router = true; /* each expert's score by itself, as a sigmoid's */
        else
            SPW_TRY(spw_reading_word(in, "scoring_func", "sigmoid", "softmax", f->sigmoid_router,
                                     &m->sigmoid_router));
        SPW_TRY(spw_reading_word(in, "topk_method", "noaux_tc", NULL, m->selection_bias, &m->selection_bias));
        SPW_TRY(spw_reading_word(in, "topk_method", "greedy", NULL, false, &greedy));
    }
    m->groups = greedy ? 1 : spw_or_default(raw->groups, 1);
    m->groups_kept = greedy ? 1 : spw_or_default(raw->groups_kept, m->groups);
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

static spw_status read_attention(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = SPW_OK;
    const spw_family *f = in->family;
    bool bias = false;
    m->attention = f->any_attention && f->attention == NULL ? spw_attention_said(in) : f->attention;
    if (m->attention == NULL || m->attention == &spw_grouped_attention)
        m->attention = f->listed_attention ? &spw_listed_attention : &spw_grouped_attention;
    SPW_TRY(m->attention->read(in, raw, m));
    const bool latent = spw_attention_is_latent(m);
    SPW_TRY(spw_reading_flag(in, "attention_bias", false, &bias));
    bias = bias && !f->no_bias;
    m->gate_bias = bias && f->gate_bias;
    m->attention_bias = bias || f->qkv_bias;
    m->output_bias = bias && !f->no_output_bias;
    m->qk_norm = f->qk_norm;
    m->qk_norm_per_head = f->qk_norm_per_head;
    m->attention_sinks = f->attention_sinks;
    m->query_gate = f->query_gate;
    m->query_gate_bias = f->query_gate_bias;
    m->head_gates = f->head_gates;
    /* in a model that is said part by part, indexers of other attention belong to its kinds of layers */
    const bool indexed = latent || !f->any_attention;
    m->indexer_heads = indexed ? spw_or_default(raw->indexer_heads, 0) : 0;
    m->indexer_dim = indexed ? spw_or_default(raw->indexer_dim, 0) : 0;
    if (m->indexer_heads > 0 && m->q_lora_rank == 0)
        status =
            spw_fail(SPW_ECONFIG,
                     "%s: key 'q_lora_rank' is missing; the indexer of %s models reads the queries' latent",
                     in->where, f->model_type);

cleanup:
    return status;
}

/* Numbers of a norm and of the head, then whatever the file says of the family's flags. */
static spw_status read_rest(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const spw_family *f = in->family;
    spw_status status = spw_wrapper_tie(in, &m->tied_embeddings, NULL);
    m->layer_norms = f->no_layer_norms ? 0 : f->layer_norms > 0 ? f->layer_norms : 2;
    m->norm_bias = f->norm_bias;
    m->conv_bias = true;
    m->half_layers = f->half_layers;
    m->plain_experts =
        raw->expert_matrices != SPW_ABSENT ? raw->expert_matrices == 2 : f->plain_experts || f->unit_experts;
    m->head_rows = spw_or_default(raw->head_rows, 0);
    m->plain_ffn = raw->ffn_matrices != SPW_ABSENT ? raw->ffn_matrices == 2 : f->plain_experts;
    m->layer_scalar = f->layer_scalar;
    for (size_t i = 0; status == SPW_OK && i < SPW_MODEL_FLAGS && f->flags[i].key != NULL; i++) {
        bool *const flag = (bool *)(void *)((char *)m + f->flags[i].offset);
        const json_t *const word = spw_reading_find(in, f->flags[i].key, NULL);
        if (json_is_string(word) && strcmp(f->flags[i].key, "gating") == 0) /* Laguna */
            *flag = strcmp(json_string_value(word), "per-head") == 0;
        else
            status = spw_reading_flag(in, f->flags[i].key, *flag, flag);
    }
    if (status == SPW_OK && !m->ffn_bias) status = spw_reading_flag(in, "mlp_bias", false, &m->ffn_bias);
    m->shared_gate = m->shared_gate && m->shared_ffn > 0;
    if (spw_attention_is_latent(m) && m->query_gate) m->output_gate = true;
    return status;
}

static spw_status read_widths(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const int64_t ffn = raw->dense_ffn != SPW_ABSENT ? raw->dense_ffn : raw->ffn;
    const char *spelled = "intermediate_size";
    (void)spw_reading_find(in, "intermediate_size", &spelled);
    const size_t dense = spw_model_dense_layers(m);
    const bool needed = dense > 0 || in->family->shared == SPW_SHARED_DENSE;
    if (needed && ffn == SPW_ABSENT)
        return spw_fail(
            SPW_ECONFIG,
            "%s: key '%s' is missing; %zu layers are dense and need it: a whole number in [1, %d]", in->where,
            spelled, dense, SPW_MODEL_WIDEST);
    if (dense > 0) m->dense_ffn = (size_t)ffn;
    return SPW_OK;
}

/* *listed: the number of layers, where a list of them says it in place of a key. */
static spw_status read_depth(const spw_reading *in, size_t *listed) {
    const char *spelled = "num_hidden_layers";
    spw_status status = spw_reading_listed(in, listed);
    if (status == SPW_OK && spw_reading_find(in, "num_hidden_layers", &spelled) == NULL &&
        spw_reading_meant(in, "num_hidden_layers", &spelled) == NULL && *listed == 0)
        status =
            spw_fail(SPW_ECONFIG, "%s: key '%s' is missing; %s models need it: a whole number in [1, %d]",
                     in->where, spelled, in->family->model_type, SPW_MODEL_MAX_LAYERS);
    return status;
}

/* A switch that is off: the class builds dense layers, whatever other keys say of experts. */
static spw_status check_sparse(const spw_reading *in) {
    static const char *const switches[] = {"is_moe", "use_moe", "enable_moe"};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (json_is_false(spw_reading_at(in->root, switches[i])))
            return spw_fail(
                SPW_ECONFIG,
                "%s: '%s' is false, so the model is dense and has no experts; Spillway plans mixtures of "
                "experts only",
                in->where, switches[i]);
    return SPW_OK;
}

static spw_status read_model(const spw_reading *in, spw_model *m) {
    spw_status status = SPW_OK;
    const spw_family *f = in->family;
    size_t listed = 0;
    spw_raw_config raw;
    memset(&raw, SPW_ABSENT, sizeof raw); /* -1 in every byte is -1 */
    SPW_TRY(read_depth(in, &listed));
    SPW_TRY(spw_reading_rows(in, spw_common_keys, &raw));
    if (raw.layers == SPW_ABSENT) raw.layers = (int64_t)listed;
    if (raw.last_sparse == -1) raw.last_sparse = SPW_ABSENT; /* ERNIE: -1 is the last layer */
    m->layers = (size_t)raw.layers * (f->layer_copies > 1 ? f->layer_copies : 1);
    if (m->layers > SPW_MODEL_MAX_LAYERS)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: %zu layers; a model has at most %d", in->where, m->layers,
                         SPW_MODEL_MAX_LAYERS));
    m->hidden = (size_t)raw.hidden;
    m->vocab = (size_t)raw.vocab;
    m->heads = (size_t)raw.heads;
    SPW_TRY(check_sparse(in));
    SPW_TRY(read_experts(in, &raw, m));
    SPW_TRY(read_attention(in, &raw, m));
    SPW_TRY(read_rest(in, &raw, m));
    SPW_TRY(spw_reading_layers(in, &raw, m));
    SPW_TRY(read_widths(in, &raw, m));
    SPW_TRY(spw_reading_mixers(in, &raw, m));
    SPW_TRY(spw_reading_beside(in, &raw, m));
    if (spw_model_parameters(m).total > (uint64_t)1 << 52)
        status =
            spw_fail(SPW_ECONFIG, "%s: the model has more than 2^52 parameters; no such model can be planned",
                     in->where);

cleanup:
    return status;
}

/* --- Keys that are not read --- */

/* Of a mapping within the file, such as DBRX's ffn_config, every key is looked at. */
static bool is_taken_apart(const spw_reading *in, const spw_attention_kind *kind, const char *key,
                           const json_t *value) {
    const char *inner;
    json_t *item;
    char path[128];
    bool any = false;
    if (!json_is_object(value)) return false;
    json_object_foreach((json_t *)(uintptr_t)value, inner, item) {
        (void)snprintf(path, sizeof path, "%s.%s", key, inner);
        any = any || spw_family_reads(in->family, kind, path);
    }
    return any;
}

/* The key of the family that somebody probably meant and the file does not have, or NULL. */
static const char *meant(const spw_reading *in, const spw_attention_kind *kind, const char *key,
                         size_t slips) {
    spw_nearest nearest = {.text = key};
    spw_family_offer(in->family, kind, &nearest);
    const bool taken = nearest.best == NULL || json_object_get(in->root, nearest.best) != NULL;
    return taken || nearest.distance > slips ? NULL : nearest.best;
}

static spw_status check_key(const spw_reading *in, const spw_model *m, const char *key, const json_t *value) {
    const spw_attention_kind *kind = spw_attention_kind_of(m);
    char found[SPW_JSON_WORDS], shown[SPW_SETTINGS_SHOWN];
    const char *leaf = strrchr(key, '.') != NULL ? strrchr(key, '.') + 1 : key;
    const bool generic = in->family->any_attention && !in->family->by_meaning;
    if (spw_family_reads(in->family, kind, key) || spw_family_is_quiet(in->family, key) ||
        spw_model_key_is_quiet(leaf, value) || spw_model_key_is_mtp(key) ||
        spw_model_key_is_stated(key, value, m) || spw_states_again(in, kind, key) ||
        spw_reading_was_meant(in, key) || spw_reading_means_again(in, key, value))
        return SPW_OK;
    const bool elsewhere = spw_any_family_reads(key);
    if (!elsewhere && spw_model_key_sounds_quiet(leaf, value)) return SPW_OK;
    const bool small = !generic && !elsewhere && spw_model_value_is_small(value);
    if (in->family->by_meaning && (spw_model_value_is_small(value) || json_is_true(value))) return SPW_OK;
    const char *const guess = elsewhere ? NULL : meant(in, kind, key, small ? 2 : SIZE_MAX);
    char hint[96] = "";
    if (small && guess == NULL) return SPW_OK;
    if (guess != NULL) (void)snprintf(hint, sizeof hint, "; did you mean '%s'?", guess);
    return spw_fail(
        SPW_ECONFIG,
        "%s: key '%s' (%s) %s, and it could hold parameters%s; docs/models.md lists what is read and "
        "what is known to hold none; if this one holds none, write '_%s'",
        in->where, spw_settings_shown(key, strlen(key), shown), spw_json_words(value, found),
        elsewhere ? "is not read in a model of this kind" : "is not known", hint, shown);
}

/* Every key is read, or known to hold no parameters; what is neither is refused: in a generic model, which is nothing but its
 * keys, whatever its value; in a family, whose parts are known, where the value could be a size. */
static spw_status check_keys(const spw_reading *in, spw_model *m) {
    const spw_attention_kind *kind = spw_attention_kind_of(m);
    const char *key, *inner;
    json_t *value, *item;
    char path[128];
    json_object_foreach((json_t *)(uintptr_t)in->root, key, value) {
        if (!is_taken_apart(in, kind, key, value)) {
            spw_status status = check_key(in, m, key, value);
            if (status != SPW_OK) return status;
            continue;
        }
        json_object_foreach(value, inner, item) {
            (void)snprintf(path, sizeof path, "%s.%s", key, inner);
            spw_status status = check_key(in, m, path, item);
            if (status != SPW_OK) return status;
        }
    }
    const char *const strange = spw_model_mtp_strange(in->root);
    if (strange != NULL)
        return spw_fail(SPW_ECONFIG,
                        "%s: '%s' must be a whole number of layers of multi-token prediction, or null",
                        in->where, strange);
    spw_reading_doubts(in, m);
    return SPW_OK;
}

spw_status spw_reading_model(const spw_reading *in, spw_model *out) {
    memset(out, 0, sizeof *out);
    if (in->used != NULL) in->used->count = 0;
    spw_status status = read_model(in, out);
    if (status == SPW_OK) status = spw_stated_twice(in);
    if (status == SPW_OK) spw_reading_storage(in, out);
    return status == SPW_OK ? check_keys(in, out) : status;
}
