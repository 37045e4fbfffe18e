/* Which layers of a model have experts, and in which something other than its attention mixes. */
#include "sim/model/config/model_reading.h"
#include "sim/model/config/model_twice.h"

#include <string.h>

/* Sets is_moe of the layers whose numbers are in the list at `key`. */
static spw_status mark_listed(const spw_reading *in, const char *key, uint8_t sparse, spw_model *m) {
    const json_t *list = spw_reading_find(in, key, NULL);
    char found[SPW_JSON_WORDS];
    if (list != NULL && !json_is_array(list))
        return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be a list of layer numbers in [0, %zu]",
                        in->where, key, spw_json_words(list, found), m->layers - 1);
    if (sparse != 0 && json_array_size(list) > 0) memset(m->is_moe, 0, m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0 || (size_t)layer >= m->layers)
            return spw_fail(SPW_ECONFIG,
                            "%s: '%s' has the entry %s; it must be a list of layer numbers in [0, %zu]",
                            in->where, key, spw_json_words(item, found), m->layers - 1);
        m->is_moe[layer] = sparse;
    }
    return SPW_OK;
}

/* 1, 0: the entry says yes or no by any of the words; -1: neither. */
static int entry_says(const json_t *item, const char *const yes[2], const char *const no[2]) {
    const char *text = json_string_value(item);
    if (json_is_boolean(item)) return json_is_true(item);
    if (json_is_integer(item))
        return json_integer_value(item) == 0 ? 0 : json_integer_value(item) == 1 ? 1 : -1;
    for (size_t i = 0; text != NULL && i < 2; i++) {
        if (yes[i] != NULL && strcmp(text, yes[i]) == 0) return 1;
        if (no[i] != NULL && strcmp(text, no[i]) == 0) return 0;
    }
    return -1;
}

/* One entry a layer: true, 1 or a word of `yes`; false, 0 or, when `no` has words, one of those. */
static spw_status mark_each(const spw_reading *in, const char *key, const char *const yes[2],
                            const char *const no[2], uint8_t *mark, size_t layers) {
    const char *spelled = key;
    const json_t *list = spw_reading_find(in, key, &spelled);
    char found[SPW_JSON_WORDS];
    if (list == NULL) return SPW_OK;
    if (!json_is_array(list) || json_array_size(list) != layers)
        return spw_fail(SPW_ECONFIG, "%s: '%s' must be a list of %zu entries, one a layer; it is %s of %zu",
                        in->where, spelled, layers, spw_json_words(list, found), json_array_size(list));
    for (size_t i = 0; i < layers; i++) {
        const json_t *item = json_array_get(list, i);
        const int says = entry_says(item, yes, no);
        if (says < 0)
            return spw_fail(
                SPW_ECONFIG, "%s: '%s' has the entry %s at layer %zu; %s models have '%s' and '%s' there",
                in->where, spelled, spw_json_words(item, found), i, in->family->model_type, yes[0], no[0]);
        mark[i] = (uint8_t)says;
    }
    return SPW_OK;
}

/* Layers with experts as a list says them, held against those that the counts of the same file give. */
static spw_status mark_sparse_by(const spw_reading *in, const char *key, const spw_key_row *counts,
                                 spw_model *m) {
    static const char *const sparse[2] = {"sparse", "moe"}, *const dense[2] = {"dense", "mlp"};
    uint8_t counted[SPW_MODEL_MAX_LAYERS];
    spw_status status = SPW_OK;
    if (spw_reading_find(in, key, NULL) == NULL) return SPW_OK;
    memcpy(counted, m->is_moe, m->layers);
    SPW_TRY(strcmp(key, "moe_layers") == 0 ? mark_listed(in, key, 1, m)
                                           : mark_each(in, key, sparse, dense, m->is_moe, m->layers));
    for (; status == SPW_OK && counts->key != NULL; counts++) {
        const char *spelled = counts->key;
        const json_t *value = spw_reading_find(in, counts->key, &spelled);
        if (value != NULL && spw_family_has(in->family, counts->part) && !json_is_array(value))
            status =
                spw_same_layers(in, (spw_layer_marks){key, m->is_moe}, (spw_layer_marks){spelled, counted},
                                m->layers, "has experts", "is dense");
    }

cleanup:
    return status;
}

/* DeepSeek: layer i >= first_k_dense_replace with i a multiple of moe_layer_freq. Qwen: i + 1 a multiple of
 * decoder_sparse_step and i not in mlp_only_layers. ERNIE has a last one. Jamba: i mod period is the offset. */
static spw_status mark_sparse(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    static const spw_key_row counts[] = {
        SPW_PART_KEY(SPW_BY_FIRST, "first_k_dense_replace", first_dense, 0, 0, false),
        SPW_PART_KEY(SPW_BY_FREQUENCY, "moe_layer_freq", layer_freq, 0, 0, false),
        SPW_PART_KEY(SPW_BY_STEP, "decoder_sparse_step", sparse_step, 0, 0, false),
        {.key = NULL}};
    const spw_family *f = in->family;
    const bool by_first = spw_family_has(f, SPW_BY_FIRST);
    const size_t first = by_first ? spw_or_default(raw->first_dense, f->first_dense) : 0,
                 every = spw_or_default(raw->layer_freq, 1), step = spw_or_default(raw->sparse_step, 1),
                 period = spw_or_default(raw->expert_period, 1),
                 offset = spw_or_default(raw->expert_offset, 0),
                 last = spw_or_default(raw->last_sparse, m->layers),
                 copies = f->layer_copies > 1 ? f->layer_copies : 1;
    for (size_t i = 0; i < m->layers; i++)
        m->is_moe[i] = i >= first && i <= last && i % every == 0 && (i + 1) % step == 0 &&
                       i % period == offset && i % copies == 0;
    spw_status status = SPW_OK;
    if (spw_family_has(f, SPW_BY_STEP)) SPW_TRY(mark_listed(in, "mlp_only_layers", 0, m));
    if (spw_family_has(f, SPW_LISTED)) SPW_TRY(mark_sparse_by(in, "moe_layers", counts, m));
    if (by_first) SPW_TRY(mark_sparse_by(in, "mlp_layer_types", counts, m));
    if (f->list != NULL) SPW_TRY(mark_sparse_by(in, f->list, counts, m));

cleanup:
    return status;
}

/* Kimi-Linear lists the layers that attend, counted from 1. */
static spw_status mark_attending(const spw_reading *in, const json_t *list, spw_model *m) {
    memset(m->mixer_of, 1, m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t layer = json_integer_value(item);
        char found[SPW_JSON_WORDS];
        if (!json_is_integer(item) || layer < 1 || (size_t)layer > m->layers)
            return spw_fail(
                SPW_ECONFIG,
                "%s: 'full_attn_layers' has the entry %s; it must be a list of layer numbers in [1, %zu]",
                in->where, spw_json_words(item, found), m->layers);
        m->mixer_of[layer - 1] = 0;
    }
    return SPW_OK;
}

/* 'layer_types' and 'kda_layers' held against the counts or the list that decided. */
static spw_status check_other(const spw_reading *in, const char *counted, const char *const attends[2],
                              const spw_model *m) {
    const json_t *kda = spw_reading_at(in->root, "linear_attn_config.kda_layers");
    uint8_t listed[SPW_MODEL_MAX_LAYERS] = {0};
    const char *types = "layer_types", *spelled = counted;
    spw_status status = SPW_OK;
    (void)spw_reading_find(in, counted, &spelled);
    if (spw_reading_find(in, types, &types) != NULL &&
        json_is_array(spw_reading_find(in, "layer_types", NULL))) {
        SPW_TRY(mark_each(in, "layer_types", in->family->mixer->words, attends, listed, m->layers));
        SPW_TRY(spw_same_layers(in, (spw_layer_marks){types, listed}, (spw_layer_marks){spelled, m->mixer_of},
                                m->layers, "has a mixer of another kind", "has attention"));
    }
    if (kda != NULL && spw_reading_find(in, "full_attn_layers", NULL) != NULL) {
        memset(listed, 0, sizeof listed);
        for (size_t i = 0; i < json_array_size(kda); i++) {
            const json_int_t layer = json_integer_value(json_array_get(kda, i));
            if (layer >= 1 && (size_t)layer <= m->layers) listed[layer - 1] = 1;
        }
        SPW_TRY(spw_same_layers(in, (spw_layer_marks){"linear_attn_config.kda_layers", listed},
                                (spw_layer_marks){"linear_attn_config.full_attn_layers", m->mixer_of},
                                m->layers, "has a mixer of another kind", "has attention"));
    }

cleanup:
    return status;
}

/* Layers in which the family's other mixer works. */
static spw_status mark_other(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const spw_family *f = in->family;
    spw_status status = SPW_OK;
    if (f->layer_words != NULL) return spw_reading_kinds(in, raw, m);
    if (f->mixer == NULL) return SPW_OK;
    const char *word = f->mixer->words[0];
    const bool full = strcmp(word, "full_attention") == 0;
    const char *const attends[2] = {full ? "sliding_attention" : "full_attention", full ? NULL : "attention"};
    const size_t interval = spw_or_default(raw->interval, f->interval);
    const json_t *listed = spw_reading_find(in, "full_attn_layers", NULL);
    if (spw_family_has(f, SPW_BY_PERIOD)) {
        for (size_t i = 0; i < m->layers; i++)
            m->mixer_of[i] = i % (size_t)raw->attention_period != (size_t)raw->attention_offset;
        SPW_TRY(check_other(in, "attn_layer_period", attends, m));
    } else if (listed != NULL) {
        SPW_TRY(mark_attending(in, listed, m));
        SPW_TRY(check_other(in, "full_attn_layers", attends, m));
    } else if (spw_reading_find(in, "layer_types", NULL) != NULL) {
        uint8_t counted[SPW_MODEL_MAX_LAYERS];
        for (size_t i = 0; i < m->layers; i++) counted[i] = interval > 0 && (i + 1) % interval != 0;
        SPW_TRY(mark_each(in, "layer_types", f->mixer->words, attends, m->mixer_of, m->layers));
        if (raw->interval != SPW_ABSENT)
            SPW_TRY(spw_same_layers(in, (spw_layer_marks){"layer_types", m->mixer_of},
                                    (spw_layer_marks){"full_attention_interval", counted}, m->layers,
                                    "has a mixer of another kind", "has attention"));
    } else if (interval > 0) {
        for (size_t i = 0; i < m->layers; i++) m->mixer_of[i] = (i + 1) % interval != 0;
    } else {
        SPW_TRY(spw_fail(SPW_ECONFIG,
                         "%s: key 'layer_types' is missing; %s models need it: a list of '%s' and '%s'",
                         in->where, f->model_type, word, attends[0]));
    }

cleanup:
    return status;
}

/* Indexers by a word of 'F' and 'S' a layer, or by a step behind the first layers (transformers 5.24, GlmMoeDsaConfig). */
static spw_status count_indexers(const spw_reading *in, const spw_raw_config *raw, uint8_t *shares,
                                 const spw_model *m) {
    const json_t *pattern = spw_reading_find(in, "index_topk_pattern", NULL);
    const char *text = json_string_value(pattern);
    char found[SPW_JSON_WORDS];
    const int64_t every = raw->indexer_every == SPW_ABSENT ? 1 : raw->indexer_every,
                  offset = raw->indexer_offset == SPW_ABSENT ? 2 : raw->indexer_offset;
    if (pattern != NULL && (text == NULL || strlen(text) != m->layers || strspn(text, "FS") != m->layers))
        return spw_fail(
            SPW_ECONFIG,
            "%s: 'index_topk_pattern' is %s; it must be a text of %zu letters, F for a layer with "
            "an indexer and S for one that uses the choice before it",
            in->where, spw_json_words(pattern, found), m->layers);
    for (size_t i = 0; i < m->layers; i++) {
        const int64_t behind = (int64_t)i - offset + 1;
        shares[i] = text != NULL ? text[i] == 'S' : behind > 0 && behind % every != 0;
    }
    return SPW_OK;
}

/* Layers that use the choice of an indexer before them and hold none. */
static spw_status mark_indexers(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    static const char *const shared[2] = {"shared", NULL}, *const full[2] = {"full", NULL};
    spw_status status = SPW_OK;
    uint8_t counted[SPW_MODEL_MAX_LAYERS] = {0};
    if (!spw_family_has(in->family, SPW_INDEXER)) return SPW_OK;
    SPW_TRY(count_indexers(in, raw, counted, m));
    memcpy(m->shares_indexer, counted, m->layers);
    SPW_TRY(mark_each(in, "indexer_types", shared, full, m->shares_indexer, m->layers));
    const char *const by =
        spw_reading_find(in, "index_topk_pattern", NULL) != NULL ? "index_topk_pattern" : "index_topk_freq";
    SPW_TRY(spw_same_layers(in, (spw_layer_marks){"indexer_types", m->shares_indexer},
                            (spw_layer_marks){by, counted}, m->layers, "shares an indexer", "has one"));
    for (size_t i = 0; i < m->layers && (m->mixer_of[i] != 0 || m->shares_indexer[i] != 0); i++)
        if (m->mixer_of[i] == 0)
            SPW_TRY(spw_fail(SPW_ECONFIG,
                             "%s: layer %zu shares an indexer by '%s', but no layer before it has one: the "
                             "first must be 'full'",
                             in->where, i,
                             spw_reading_find(in, "indexer_types", NULL) != NULL ? "indexer_types" : by));

cleanup:
    return status;
}

/* The smallest period of unlike layers, by what mixes in them and by 'layer_types', which MaxText's scan takes in one turn; of a
 * list of another length nothing is learnt. */
static void find_period(const spw_reading *in, spw_model *m) {
    const json_t *list = json_object_get(in->root, "layer_types");
    const size_t count = json_array_size(list);
    size_t first = 0;
    m->nested_scans = in->family->nested_scans;
    m->layers_per_turn = in->family->layer_period > 0 ? in->family->layer_period : 1;
    if (m->layers > 0) m->layers_per_turn = m->layers_per_turn * m->moe_layers / m->layers;
    if (m->layers_per_turn == 0) m->layers_per_turn = 1;
    if (count != m->layers && m->other_layers == 0) return;
    while (m->is_moe[first] == 0) first++; /* there is one */
    for (size_t period = 1, sparse = 0; first + period <= m->layers; period++) {
        size_t i = first;
        sparse += m->is_moe[first + period - 1];
        while (i + period < m->layers && m->mixer_of[i] == m->mixer_of[i + period] &&
               m->is_moe[i] == m->is_moe[i + period] && m->is_bare[i] == m->is_bare[i + period] &&
               (count != m->layers || json_equal(json_array_get(list, i), json_array_get(list, i + period))))
            i++;
        m->layers_per_turn = sparse;
        if (m->moe_layers % sparse == 0 && i + period >= m->layers) return;
    }
}

/* The last layers use keys and values of layers of their kind before: kinds of their own, two behind. */
static spw_status mark_shared_keys(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const size_t shared = spw_or_default(raw->shared_keys, 0);
    if (!spw_family_has(in->family, SPW_SHARED_KEYS) || shared == 0) return SPW_OK;
    if (shared >= m->layers)
        return spw_fail(SPW_ECONFIG,
                        "%s: 'num_kv_shared_layers' is %zu of %zu layers; some must have keys of their own",
                        in->where, shared, m->layers);
    for (size_t i = m->layers - shared; i < m->layers; i++) m->mixer_of[i] += 2;
    return spw_reading_flag(in, "use_double_wide_mlp", false, &m->double_ffn);
}

/* Between layers with keys and values of their own, all the same distance apart, are those that use them: a kind two behind. */
static spw_status mark_shared_turns(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    const size_t every = spw_or_default(raw->shared_turns, 1);
    bool shares = false;
    if (!spw_family_has(in->family, SPW_SHARED_TURNS)) return SPW_OK;
    const spw_status status = spw_reading_flag(in, "use_cla", false, &shares);
    for (size_t i = 0; status == SPW_OK && shares && i < m->layers; i++)
        if (i % every != 0) m->mixer_of[i] += 2;
    return status;
}

/* Layers that run several times are kinds of their own, two behind those of the same word. */
static spw_status mark_loop(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    if (!spw_family_has(in->family, SPW_LOOP) || raw->loop_passes == SPW_ABSENT) return SPW_OK;
    if (raw->loop_start >= raw->loop_end || (size_t)raw->loop_end > m->layers)
        return spw_fail(SPW_ECONFIG,
                        "%s: the looped layers are [%lld, %lld) of %zu ('loop_layer_index_start', '_end'); "
                        "they must be some of "
                        "the layers",
                        in->where, (long long)raw->loop_start, (long long)raw->loop_end, m->layers);
    m->loop_start = (size_t)raw->loop_start;
    m->loop_end = (size_t)raw->loop_end;
    m->loop_passes = (size_t)raw->loop_passes;
    for (size_t i = m->loop_start;
         !in->family->any_attention && in->family->kinds[2] != NULL && i < m->loop_end; i++)
        m->mixer_of[i] += 2;
    return SPW_OK;
}

static spw_status count_layers(const spw_reading *in, spw_model *m) {
    for (size_t i = 0; i < m->layers; i++) {
        if (m->is_moe[i] == 0) m->fewer_experts[i] = m->fewer_choices[i] = 0;
        m->lacking_experts += m->fewer_experts[i];
        m->lacking_choices += m->fewer_choices[i];
        m->moe_layers += m->is_moe[i];
        m->bare_layers += m->is_bare[i];
        m->other_layers += m->mixer_of[i] > 0;
        m->mixer[m->mixer_of[i]].layers++;
        m->half_layers = m->half_layers || in->family->kinds[m->mixer_of[i]] == &spw_no_mixer;
    }
    for (size_t i = 0; i < m->layers; i++)
        if (m->is_moe[i] != 0 && (m->fewer_experts[i] >= m->experts || m->fewer_choices[i] >= m->top_k ||
                                  m->experts - m->fewer_experts[i] < m->top_k - m->fewer_choices[i]))
            return spw_fail(
                SPW_ECONFIG,
                "%s: layer %zu has %zu experts, of which a token chooses %zu; it must choose some of them",
                in->where, i, m->experts - m->fewer_experts[i], m->top_k - m->fewer_choices[i]);
    if (m->moe_layers > 0) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "%s: none of the %zu layers has experts; Spillway plans mixtures of experts only",
                    in->where, m->layers);
}

spw_status spw_reading_layers(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    spw_status status = mark_sparse(in, raw, m);
    if (status == SPW_OK) status = mark_other(in, raw, m);
    if (status == SPW_OK) status = mark_loop(in, raw, m);
    if (status == SPW_OK) status = mark_shared_keys(in, raw, m);
    if (status == SPW_OK) status = mark_shared_turns(in, raw, m);
    if (status == SPW_OK) status = count_layers(in, m);
    if (status == SPW_OK) status = mark_indexers(in, raw, m);
    if (status == SPW_OK) find_period(in, m);
    return status;
}
