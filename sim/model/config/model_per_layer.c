#include "sim/model/config/model_per_layer.h"

#include <stdlib.h>
#include <string.h>

static const char KEY[] = "per_layer_config";

/* The layer that a key such as "05" names, or -1. */
static long layer_of(const char *key, size_t layers) {
    const size_t digits = strspn(key, "0123456789");
    const long layer = digits > 0 && digits <= 4 && key[digits] == '\0' ? strtol(key, NULL, 10) : -1;
    return layer >= 0 && (size_t)layer < layers ? layer : -1;
}

/* Marks the layers that have numbers; all must be those of *of. */
static spw_status mark_layers(const spw_reading *in, const json_t *all, const spw_model *m, const json_t **of,
                              uint8_t *has) {
    const char *key;
    json_t *numbers;
    *of = NULL;
    json_object_foreach((json_t *)(uintptr_t)all, key, numbers) {
        const long layer = layer_of(key, m->layers);
        if (layer < 0 || !json_is_object(numbers))
            return spw_fail(
                SPW_ECONFIG,
                "%s: '%s' has the key '%.16s'; it must be a mapping of layer numbers in [0, %zu] to "
                "mappings",
                in->where, KEY, key, m->layers - 1);
        if (*of == NULL) *of = numbers;
        if (!json_equal(*of, numbers) || m->mixer_of[layer] % 2 == 0)
            return spw_fail(
                SPW_ECONFIG,
                "%s: '%s' has numbers at layer %ld that %s; read are equal numbers of all layers of one "
                "kind in 'layer_types'",
                in->where, KEY, layer,
                m->mixer_of[layer] % 2 == 0 ? "is of the model's own kind" : "differ from those before it");
        has[layer] = 1;
    }
    return SPW_OK;
}

static spw_status read_number(const spw_reading *in, const char *key, const json_t *value, int64_t *out) {
    char found[SPW_JSON_WORDS];
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 1 && *out <= 65535) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' within '%s' is %s; it must be a whole number in [1, 65535]",
                    in->where, key, KEY, spw_json_words(value, found));
}

spw_status spw_per_layer_read(const spw_reading *in, const spw_model *m, spw_raw_config *raw,
                              bool *is_there) {
    const json_t *all = spw_reading_at(in->root, KEY), *numbers;
    uint8_t has[SPW_MODEL_MAX_LAYERS] = {0};
    const char *key;
    json_t *value;
    spw_status status = SPW_OK;
    const spw_attention_kind *kind = spw_attention_kind_of(m);
    *is_there = json_object_size(all) > 0;
    if (!*is_there) return SPW_OK;
    SPW_TRY(mark_layers(in, all, m, &numbers, has));
    for (size_t i = 0; i < m->layers; i++)
        if (has[i] != m->mixer_of[i] % 2)
            SPW_TRY(
                spw_fail(SPW_ECONFIG,
                         "%s: '%s' has no numbers for layer %zu, but for others of its kind in 'layer_types'",
                         in->where, KEY, i));
    raw->mixer_dim = (int64_t)m->head_dim;
    raw->mixer_kv_heads = (int64_t)m->kv_heads;
    json_object_foreach((json_t *)(uintptr_t)numbers, key, value) {
        const spw_layer_key *known = kind->layer_keys;
        while (known->key != NULL && strcmp(key, known->key) != 0) known++;
        if (known->key == NULL)
            SPW_TRY(spw_fail(SPW_ECONFIG,
                             "%s: '%s' has the key '%.40s', and it could hold parameters; %s are read there",
                             in->where, KEY, key, kind->layer_keys_words));
        SPW_TRY(read_number(in, key, value, (int64_t *)(void *)((char *)raw + known->offset)));
    }

cleanup:
    return status;
}

spw_status spw_heads_per_layer_read(const spw_reading *in, const spw_model *m, spw_raw_config *raw) {
    static const char HEADS[] = "num_attention_heads_per_layer";
    const json_t *list = spw_reading_at(in->root, HEADS);
    char found[SPW_JSON_WORDS];
    raw->mixer_heads = SPW_ABSENT;
    if (list == NULL) return SPW_OK;
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return spw_fail(SPW_ECONFIG, "%s: '%s' is %s of %zu; it must be a list of %zu numbers, one a layer",
                        in->where, HEADS, spw_json_words(list, found), json_array_size(list), m->layers);
    for (size_t i = 0; i < m->layers; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t heads = json_integer_value(item);
        if (m->mixer_of[i] != 0 && raw->mixer_heads == SPW_ABSENT) raw->mixer_heads = heads;
        const int64_t want = m->mixer_of[i] == 0 ? (int64_t)m->heads : raw->mixer_heads;
        if (heads >= 1 && heads <= 65535 && heads == want && (size_t)heads % m->kv_heads == 0) continue;
        return spw_fail(
            SPW_ECONFIG,
            "%s: '%s' has %s at layer %zu; read is one number of all layers of a kind, a multiple of the %zu "
            "heads of keys and values, here %lld",
            in->where, HEADS, spw_json_words(item, found), i, m->kv_heads, (long long)want);
    }
    return SPW_OK;
}
