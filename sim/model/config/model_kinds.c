/* Lists of layers in which every entry names its kind: a word, a number, or a letter of a pattern. */
#include "sim/model/config/model_keys.h"
#include "sim/model/config/model_reading.h"

#include <stdio.h>
#include <string.h>

/* The list at one of the family's names; a pattern is a text. */
static const json_t *find_list(const spw_reading *in, size_t from, size_t *at) {
    for (size_t i = from; i < SPW_MODEL_KEYS && in->family->layer_list[i] != NULL; i++) {
        const json_t *list = spw_reading_find(in, in->family->layer_list[i], NULL);
        *at = i;
        if (json_is_array(list) || json_is_string(list)) return list;
    }
    return NULL;
}

static size_t entries_of(const json_t *list) {
    return json_is_string(list) ? json_string_length(list) : json_array_size(list);
}

static const spw_layer_word *find_word(const spw_layer_word *words, const json_t *list, size_t i) {
    const json_t *item = json_array_get(list, i);
    const char *text = json_string_value(item);
    for (; words->word != NULL; words++) {
        if (json_is_string(list)) {
            if (words->letter != '\0' && json_string_value(list)[i] == words->letter) return words;
        } else if (json_is_integer(item)) {
            if (words->number >= 0 && json_integer_value(item) == words->number) return words;
        } else if (text != NULL && strcmp(text, words->word) == 0) {
            return words;
        }
    }
    return NULL;
}

/* "'mamba', 'moe'": what the family knows. */
static void name_words(const spw_layer_word *words, bool letters, char *out, size_t size) {
    out[0] = '\0';
    for (; words->word != NULL; words++) {
        const size_t used = strlen(out);
        const char letter[2] = {words->letter, '\0'}, *name = letters ? letter : words->word;
        if (name[0] != '\0' && used + strlen(name) + 6 < size)
            (void)snprintf(out + used, size - used, "%s'%s'", used > 0 ? ", " : "", name);
    }
}

/* What every entry of a list says; entries of multi-token prediction may follow. */
static spw_status read_list(const spw_reading *in, const char *key, const json_t *list, size_t layers,
                            const spw_layer_word *says[SPW_MODEL_MAX_LAYERS]) {
    const size_t entries = entries_of(list);
    const json_int_t predictions = spw_model_mtp_layers(in->root);
    const char *spelled = key;
    (void)spw_reading_find(in, key, &spelled);
    if (entries < layers || (entries > layers && (json_int_t)(entries - layers) > predictions))
        return spw_fail(SPW_ECONFIG, "%s: '%s' has %zu entries; it must have one a layer, %zu", in->where,
                        spelled, entries, layers);
    for (size_t i = 0; i < layers; i++) {
        says[i] = find_word(in->family->layer_words, list, i);
        if (says[i] != NULL) continue;
        char known[640], found[SPW_JSON_WORDS];
        const json_t *item = json_array_get(list, i);
        const char letter[2] = {json_is_string(list) ? json_string_value(list)[i] : '\0', '\0'};
        name_words(in->family->layer_words, json_is_string(list), known, sizeof known);
        return spw_fail(SPW_ECONFIG, "%s: '%s' has the entry %s at layer %zu; %s models have one of %s there",
                        in->where, spelled, json_is_string(list) ? letter : spw_json_words(item, found), i,
                        in->family->model_type, known);
    }
    return SPW_OK;
}

spw_status spw_reading_listed(const spw_reading *in, size_t *layers) {
    size_t at = 0;
    const json_t *list = find_list(in, 0, &at);
    *layers = 0;
    if (list == NULL || !spw_family_has(in->family, SPW_FROM_LIST)) return SPW_OK;
    if (entries_of(list) >= 1 && entries_of(list) <= SPW_MODEL_MAX_LAYERS) {
        *layers = entries_of(list);
        return SPW_OK;
    }
    return spw_fail(SPW_ECONFIG, "%s: '%s' has %zu entries; a model has 1 to %d layers", in->where,
                    in->family->layer_list[at], entries_of(list), SPW_MODEL_MAX_LAYERS);
}

/* A second list of the same layers must say the same. */
static spw_status check_other_lists(const spw_reading *in, size_t first, size_t layers,
                                    const spw_layer_word *const says[]) {
    const spw_layer_word *also[SPW_MODEL_MAX_LAYERS] = {NULL};
    size_t at = first;
    for (const json_t *list = find_list(in, first + 1, &at); list != NULL;
         list = find_list(in, at + 1, &at)) {
        const spw_status status = read_list(in, in->family->layer_list[at], list, layers, also);
        if (status != SPW_OK) return status;
        for (size_t i = 0; i < layers; i++) {
            if (also[i] == NULL || says[i] == NULL) continue; /* read_list fills both */
            if (also[i]->mixer == says[i]->mixer && also[i]->ffn == says[i]->ffn) continue;
            return spw_fail(SPW_ECONFIG,
                            "%s: '%s' and '%s' differ at layer %zu: '%s' and '%s'; give one of them",
                            in->where, in->family->layer_list[first], in->family->layer_list[at], i,
                            says[i]->word, also[i]->word);
        }
    }
    return SPW_OK;
}

/* The linear attention whose keys the file has. */
static uint8_t linear_by_keys(const spw_reading *in) {
    static const struct {
        const char *key;
        uint8_t kind;
    } tells[] = {{"linear_num_value_heads", SPW_KIND_GATED_DELTA},
                 {"linear_attn_config.num_heads", SPW_KIND_KIMI_DELTA},
                 {"mamba_num_heads", SPW_KIND_MAMBA2},
                 {"conv_L_cache", SPW_KIND_CONVOLUTION}};
    for (size_t i = 0; i < sizeof tells / sizeof *tells; i++)
        if (spw_reading_find(in, tells[i].key, NULL) != NULL) return tells[i].kind;
    return SPW_KIND_LIGHTNING;
}

/* A list of the layers that attend, counted from 0; all others have a linear attention. */
static spw_status mark_attending(const spw_reading *in, const json_t *list, spw_model *m) {
    memset(m->mixer_of, linear_by_keys(in), m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t layer = json_integer_value(json_array_get(list, i));
        char found[SPW_JSON_WORDS];
        if (!json_is_integer(json_array_get(list, i)) || layer < 0 || (size_t)layer >= m->layers)
            return spw_fail(SPW_ECONFIG,
                            "%s: 'full_attention_layers' has the entry %s; it must be a list of layer "
                            "numbers in [0, %zu]",
                            in->where, spw_json_words(json_array_get(list, i), found), m->layers - 1);
        m->mixer_of[layer] = 0;
    }
    return SPW_OK;
}

/* Marks the layers that a list names, counted from 0; layers behind the last are of multi-token prediction. */
static spw_status mark_named(const spw_reading *in, const char *key, uint8_t *mark, size_t layers) {
    const json_t *list = spw_reading_at(in->root, key), *item;
    size_t i;
    char found[SPW_JSON_WORDS];
    json_array_foreach(list, i, item) {
        const json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0 || layer >= SPW_MODEL_MAX_LAYERS)
            return spw_fail(SPW_ECONFIG,
                            "%s: '%s' has the entry %s; it must be a list of layer numbers in [0, %zu]",
                            in->where, key, spw_json_words(item, found), layers - 1);
        if ((size_t)layer < layers) mark[layer] = 1;
    }
    return SPW_OK;
}

/* Layers by how many tokens their keys join, 'compress_ratios', and by who joins them: of every ratio three kinds, that read joined
 * keys, that choose among them, that join them. */
static spw_status mark_sources(const spw_reading *in, spw_model *m) {
    enum { RATIOS = 3 };
    const json_t *list = spw_reading_at(in->root, "compress_ratios");
    uint8_t joins[SPW_MODEL_MAX_LAYERS] = {0}, chooses[SPW_MODEL_MAX_LAYERS] = {0};
    spw_status status = SPW_OK;
    if (json_array_size(list) < m->layers)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: 'compress_ratios' has %zu entries; it must have one a layer, %zu",
                         in->where, json_array_size(list), m->layers));
    SPW_TRY(mark_named(in, "kv_source_layer_ids", joins, m->layers));
    SPW_TRY(mark_named(in, "index_source_layer_ids", chooses, m->layers));
    for (size_t i = 0; i < m->layers; i++) {
        const json_int_t ratio = json_integer_value(json_array_get(list, i));
        size_t k = 0;
        if (ratio == 0) continue;
        while (k < RATIOS && m->mixer[1 + 3 * k].every != 0 && (json_int_t)m->mixer[1 + 3 * k].every != ratio)
            k++;
        if (k == RATIOS || ratio < 0 || ratio > 65535)
            SPW_TRY(spw_fail(
                SPW_ECONFIG,
                "%s: 'compress_ratios' has %lld at layer %zu; read are %d ratios in [0, 65535] beside 0",
                in->where, (long long)ratio, i, RATIOS));
        for (size_t role = 0; role < 3; role++) m->mixer[1 + 3 * k + role].every = (size_t)ratio;
        m->mixer_of[i] = (uint8_t)(1 + 3 * k + (joins[i] != 0 ? 2 : chooses[i]));
    }

cleanup:
    return status;
}

spw_status spw_reading_kinds(const spw_reading *in, const spw_raw_config *raw, spw_model *m) {
    if (spw_family_has(in->family, SPW_SOURCES)) return mark_sources(in, m);
    const spw_layer_word *says[SPW_MODEL_MAX_LAYERS] = {NULL};
    size_t at = 0;
    const json_t *list = find_list(in, 0, &at);
    const json_t *attending = spw_reading_at(in->root, "full_attention_layers");
    if (list == NULL && in->family->by_meaning && json_is_array(attending))
        return mark_attending(in, attending, m);
    if (list == NULL) {
        const size_t every = spw_or_default(raw->interval, in->family->interval);
        const uint8_t other = in->family->by_meaning ? linear_by_keys(in) : 1;
        for (size_t i = 0; every > 0 && i < m->layers; i++) m->mixer_of[i] = (i + 1) % every != 0 ? other : 0;
        return SPW_OK;
    }
    spw_status status = read_list(in, in->family->layer_list[at], list, m->layers, says);
    if (status == SPW_OK) status = check_other_lists(in, at, m->layers, says);
    for (size_t i = 0; status == SPW_OK && i < m->layers; i++) {
        if (says[i] == NULL) continue; /* read_list fills it */
        m->mixer_of[i] = says[i]->mixer == SPW_MIXER_BY_KEYS ? linear_by_keys(in) : says[i]->mixer;
        if (says[i]->ffn == SPW_FFN_COUNTED) continue;
        m->is_moe[i] = says[i]->ffn == SPW_FFN_EXPERTS;
        m->is_bare[i] = says[i]->ffn == SPW_FFN_NONE;
    }
    return status;
}

/* --- Layers in which the token's id chooses its experts --- */

spw_status spw_reading_hash(const spw_reading *in, const spw_raw_config *raw, size_t layers, size_t *hash) {
    static const char *const known[2] = {"hash_moe", "moe"};
    const json_t *list = spw_reading_find(in, "mlp_layer_types", NULL);
    char found[SPW_JSON_WORDS];
    size_t counted = 0;
    *hash = spw_or_default(raw->hash_layers, in->family->any_attention ? 0 : 3);
    if (*hash > layers) *hash = layers;
    if (list == NULL || in->family->any_attention) return SPW_OK;
    if (!json_is_array(list) || json_array_size(list) < layers)
        return spw_fail(SPW_ECONFIG,
                        "%s: 'mlp_layer_types' is %s of %zu; it must be a list of %zu entries, one a layer",
                        in->where, spw_json_words(list, found), json_array_size(list), layers);
    for (size_t i = 0; i < layers; i++) {
        const json_t *item = json_array_get(list, i);
        const char *word = json_string_value(item);
        const bool hashes = word != NULL && strcmp(word, known[0]) == 0;
        if (word == NULL || (!hashes && strcmp(word, known[1]) != 0))
            return spw_fail(
                SPW_ECONFIG,
                "%s: 'mlp_layer_types' has the entry %s at layer %zu; %s models have '%s' or '%s' there",
                in->where, spw_json_words(item, found), i, in->family->model_type, known[0], known[1]);
        counted += hashes;
    }
    if (raw->hash_layers != SPW_ABSENT && counted != *hash)
        return spw_fail(
            SPW_ECONFIG,
            "%s: 'mlp_layer_types' has %zu layers 'hash_moe' and 'num_hash_layers' is %zu; they must agree",
            in->where, counted, *hash);
    *hash = counted;
    return SPW_OK;
}
