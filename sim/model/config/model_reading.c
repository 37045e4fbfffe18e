#include "sim/model/config/model_reading.h"

#include "sim/read/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *spw_json_words(const json_t *value, char text[SPW_JSON_WORDS]) {
    static const char *const names[] = {[JSON_OBJECT] = "a mapping",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    const json_type type = value != NULL ? json_typeof(value) : JSON_NULL;
    char shown[SPW_SETTINGS_SHOWN];
    if (type == JSON_INTEGER)
        (void)snprintf(text, SPW_JSON_WORDS, "%lld", (long long)json_integer_value(value));
    else if (type == JSON_REAL)
        (void)snprintf(text, SPW_JSON_WORDS, "%g", json_real_value(value));
    else if (type != JSON_STRING)
        return names[type];
    else
        (void)snprintf(text, SPW_JSON_WORDS, "'%s'",
                       spw_settings_shown(json_string_value(value), json_string_length(value), shown));
    return text;
}

/* "a.b" is b within a. */
static const json_t *value_at(const json_t *root, const char *key) {
    const char *dot = strchr(key, '.');
    char outer[SPW_JSON_WORDS];
    if (dot == NULL) return json_object_get(root, key);
    (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    return json_object_get(json_object_get(root, outer), dot + 1);
}

static bool is_there(const json_t *value) { return value != NULL && !json_is_null(value); }

const json_t *spw_reading_at(const json_t *root, const char *name) {
    const json_t *value = value_at(root, name);
    return is_there(value) ? value : NULL;
}

const json_t *spw_reading_find(const spw_reading *in, const char *key, const char **spelled) {
    const char *name = key;
    const json_t *value = NULL;
    for (size_t i = 0; i < SPW_MODEL_SPELLED && in->family->spelled[i][0] != NULL && !is_there(value); i++) {
        if (strcmp(in->family->spelled[i][0], key) != 0) continue;
        name = in->family->spelled[i][1];
        value = value_at(in->root, name);
    }
    if (!is_there(value)) {
        const json_t *plain = value_at(in->root, key);
        if (is_there(plain)) name = key;
        value = plain;
    }
    if (spelled != NULL) *spelled = name;
    return is_there(value) ? value : NULL;
}

const json_t *spw_json_one_of_list(const json_t *value) {
    if (!json_is_array(value) || json_array_size(value) == 0) return value;
    const json_t *first = json_array_get(value, 0);
    for (size_t i = 1; i < json_array_size(value); i++)
        if (!json_equal(first, json_array_get(value, i))) return value;
    return first;
}

static spw_status read_count(const spw_reading *in, const char *key, const spw_key_row *row, int64_t *out) {
    const char *spelled = key;
    const json_t *value = spw_reading_find(in, key, &spelled);
    char found[SPW_JSON_WORDS];
    if (value == NULL && (row->required || in->family->by_meaning || strcmp(key, "num_hidden_layers") == 0))
        value = in->meant(in, key, &spelled);
    if (in->family->lists) value = spw_json_one_of_list(value); /* Hunyuan */
    if (in->family->text_first && json_array_size(value) > 0) value = json_array_get(value, 0);
    if (value == NULL) {
        *out = SPW_ABSENT;
        if (!row->required || (row->part != SPW_ANY_PART && in->family->any_attention)) return SPW_OK;
        return spw_fail(
            SPW_ECONFIG, "%s: key '%s' is missing; %s models need it: a whole number in [%lld, %lld]",
            in->where, spelled, in->family->model_type, (long long)row->minimum, (long long)row->maximum);
    }
    const double real = json_number_value(value); /* 64.0 is whole */
    const bool whole =
        json_is_integer(value) || (json_is_real(value) && fabs(real) < 1e15 && real == floor(real));
    *out = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)real : 0;
    if (whole && *out >= row->minimum && *out <= row->maximum) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be a whole number in [%lld, %lld]", in->where,
                    spelled, spw_json_words(value, found), (long long)row->minimum, (long long)row->maximum);
}

spw_status spw_reading_rows(const spw_reading *in, const spw_key_row *row, spw_raw_config *raw) {
    spw_status status = SPW_OK;
    for (; status == SPW_OK && row->key != NULL; row++) {
        const bool list = in->family->list != NULL && strcmp(in->family->list, row->key) == 0;
        if (spw_family_has(in->family, row->part) && !list)
            status = read_count(in, row->key, row, (int64_t *)(void *)((char *)raw + row->offset));
    }
    return status;
}

/* Whether a value is a list of unlike whole numbers; the largest. */
static bool is_unlike(const json_t *value, int64_t *most) {
    const json_t *item, *list = spw_json_one_of_list(value);
    size_t i;
    *most = 0;
    json_array_foreach(list, i, item) {
        if (!json_is_integer(item)) return false;
        if (json_integer_value(item) > *most) *most = json_integer_value(item);
    }
    return json_array_size(list) > 0;
}

spw_status spw_reading_each(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS], size_t most,
                            size_t layers, uint16_t *fewer) {
    const json_t *list = NULL;
    const char *spelled = NULL;
    char found[SPW_JSON_WORDS];
    int64_t largest = 0;
    for (size_t i = 0; i < SPW_MODEL_KEYS && keys[i] != NULL && list == NULL; i++)
        list = spw_reading_find(in, keys[i], &spelled);
    if (in->family->text_first || !is_unlike(list, &largest)) return SPW_OK;
    if (json_array_size(list) != layers)
        return spw_fail(SPW_ECONFIG,
                        "%s: '%s' is %s of %zu; it must be a number, or a list of %zu numbers, one a layer",
                        in->where, spelled, spw_json_words(list, found), json_array_size(list), layers);
    for (size_t i = 0; i < layers; i++) {
        const json_int_t here = json_integer_value(json_array_get(list, i));
        if (here < 0 || (size_t)here > most)
            return spw_fail(SPW_ECONFIG,
                            "%s: '%s' has %lld at layer %zu; it must be a whole number in [0, %zu]",
                            in->where, spelled, (long long)here, i, most);
        fewer[i] = (uint16_t)(most - (size_t)here);
    }
    return SPW_OK;
}

spw_status spw_reading_either(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS], int64_t maximum,
                              int64_t *out) {
    char names[160] = "";
    const char *spelled = NULL;
    const spw_key_row row = {.minimum = 1, .maximum = maximum, .required = true};
    for (size_t i = 0; i < SPW_MODEL_KEYS && keys[i] != NULL; i++) {
        const json_t *const value = spw_reading_find(in, keys[i], NULL);
        if (value != NULL && !in->family->text_first && is_unlike(value, out) && *out >= 1 && *out <= maximum)
            return SPW_OK;
        if (value != NULL) return read_count(in, keys[i], &row, out);
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s'%s'", i == 0 ? "" : " or ", keys[i]);
    }
    if (keys[0] != NULL && in->meant(in, keys[0], &spelled) != NULL)
        return read_count(in, keys[0], &row, out);
    return spw_fail(SPW_ECONFIG, "%s: key %s is missing; %s models need it: a whole number in [1, %lld]",
                    in->where, names, in->family->model_type, (long long)maximum);
}

bool spw_reading_has(const spw_reading *in, const char *const keys[SPW_MODEL_KEYS]) {
    for (size_t i = 0; i < SPW_MODEL_KEYS && keys[i] != NULL; i++)
        if (spw_reading_find(in, keys[i], NULL) != NULL) return true;
    return false;
}

spw_status spw_reading_flag(const spw_reading *in, const char *key, bool fallback, bool *out) {
    const json_t *value = spw_reading_find(in, key, NULL);
    char found[SPW_JSON_WORDS];
    *out = value != NULL ? json_is_true(value) : fallback;
    if (value == NULL || json_is_boolean(value)) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be true or false", in->where, key,
                    spw_json_words(value, found));
}

spw_status spw_reading_word(const spw_reading *in, const char *key, const char *word, const char *other,
                            bool fallback, bool *is) {
    const json_t *value = spw_reading_find(in, key, NULL);
    const char *text = json_string_value(value);
    char found[SPW_JSON_WORDS];
    *is = value == NULL ? fallback : text != NULL && strcmp(text, word) == 0;
    if (value == NULL || *is || (text != NULL && (other == NULL || strcmp(text, other) == 0))) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be '%s'%s%s%s", in->where, key,
                    spw_json_words(value, found), word, other != NULL ? " or '" : "",
                    other != NULL ? other : "", other != NULL ? "'" : "");
}

/* Keys that transformers, or this program's presets, begin with '_': of the file, not of the model. */
static bool is_of_file(const char *key) {
    static const char *const of_file[] = {"_source", "_note", "_name_or_path", "_commit_hash",
                                          "_diffusers_version"};
    for (size_t i = 0; i < sizeof of_file / sizeof *of_file; i++)
        if (strcmp(of_file[i], key) == 0) return true;
    return strstr(key, "_implementation") != NULL;
}

static size_t add_silenced(const json_t *root, const char *before, char *out, size_t size) {
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        const size_t used = strlen(out);
        char shown[SPW_SETTINGS_SHOWN];
        if (key[0] != '_' || is_of_file(key)) continue;
        count++;
        if (used + SPW_SETTINGS_SHOWN + strlen(before) + 4 < size)
            (void)snprintf(out + used, size - used, "%s%s%s", used == 0 ? "" : ", ", before,
                           spw_settings_shown(key, strlen(key), shown));
        else if (used + 5 < size && used > 0 && out[used - 1] != '.')
            (void)snprintf(out + used, size - used, " ...");
    }
    return count;
}

size_t spw_reading_silenced(const spw_reading *in, char *out, size_t size) {
    const char *key;
    json_t *value;
    size_t count = add_silenced(in->root, "", out, size);
    if (in->outer != in->root) count += add_silenced(in->outer, "", out, size);
    if (in->whole != in->outer) count += add_silenced(in->whole, "", out, size);
    json_object_foreach((json_t *)(uintptr_t)in->root, key, value) {
        char before[SPW_JSON_WORDS];
        (void)snprintf(before, sizeof before, "%.60s.", key);
        if (json_is_object(value)) count += add_silenced(value, before, out, size);
    }
    return count;
}
