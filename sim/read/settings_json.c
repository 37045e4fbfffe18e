#include "sim/read/settings_json.h"

#include "sim/read/settings.h"

#include <string.h>

enum { PARTS_SIZE = 128 };

static size_t choice_value(const spw_setting *row, const char *field) {
    if (row->size == sizeof(size_t)) return *(const size_t *)(const void *)field;
    if (row->size == sizeof(bool)) return *(const bool *)(const void *)field;
    return *(const unsigned *)(const void *)field;
}

/* The parts whose bits make the value, as a+b; false where none do. */
static bool find_parts(const spw_setting *row, size_t value, char out[PARTS_SIZE]) {
    size_t parts = 0, all = 1;
    while (row->parts != NULL && row->parts[parts].name != NULL) parts++;
    for (size_t i = 0; i < parts; i++) all *= 2;
    for (size_t chosen = 1; chosen < all; chosen++) {
        size_t bits = 0;
        out[0] = '\0';
        for (size_t i = 0; i < parts; i++) {
            const size_t used = strlen(out);
            if ((chosen >> i & 1) == 0) continue;
            bits |= row->parts[i].value;
            (void)snprintf(out + used, PARTS_SIZE - used, "%s%s", used > 0 ? "+" : "", row->parts[i].name);
        }
        if (row->join(bits) == value) return true;
    }
    return false;
}

static json_t *choice_json(const spw_setting *row, const char *field) {
    const size_t value = choice_value(row, field);
    char parts[PARTS_SIZE];
    for (const spw_choice *c = row->choices; c->name != NULL; c++)
        if (c->value == value) return spw_json_text(c->name);
    return find_parts(row, value, parts) ? spw_json_text(parts) : json_null();
}

static json_t *list_json(spw_json *json, const spw_setting *row, const char *in) {
    const size_t count = *(const size_t *)(const void *)(in + row->count_offset);
    const char *field = in + row->offset;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        spw_json_add(json, list,
                     row->kind == SPW_SETTING_TEXTS
                         ? spw_json_text(field + i * row->size)
                         : spw_json_count(((const size_t *)(const void *)field)[i]));
    return list;
}

static json_t *value_json(spw_json *json, const spw_setting *row, const char *in) {
    const char *field = in + row->offset;
    switch (row->kind) {
    case SPW_SETTING_COUNT: return spw_json_count(*(const size_t *)(const void *)field);
    case SPW_SETTING_REAL: return spw_json_real(*(const double *)(const void *)field);
    case SPW_SETTING_FLAG: return json_boolean(*(const bool *)(const void *)field);
    case SPW_SETTING_TEXT: return spw_json_text(field);
    case SPW_SETTING_CHOICE: return choice_json(row, field);
    case SPW_SETTING_COUNTS:
    case SPW_SETTING_TEXTS: return list_json(json, row, in);
    case SPW_SETTING_GROUP: return spw_settings_json(json, row->fields, field);
    }
    return NULL;
}

json_t *spw_settings_json(spw_json *json, const spw_setting *table, const void *in) {
    const char *bytes = in;
    json_t *object = json_object();
    for (; table->key != NULL; table++) {
        if (table->kind == SPW_SETTING_TEXT && bytes[table->offset] == '\0') continue;
        spw_json_put(json, object, table->key, value_json(json, table, bytes));
    }
    return object;
}
