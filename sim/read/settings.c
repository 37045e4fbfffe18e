#include "sim/read/settings.h"

#include "sim/read/settings_internal.h"

#include "base/nearest.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 128, KEYS_SIZE = 1024, NUMBER_SIZE = 64 };

/* Where a value sits: the file, and "batch." before the keys of a group. */
typedef struct place {
    const spw_settings *settings;
    const char *prefix;
} place;

static yaml_node_t *node_of(const spw_settings *settings, int index) {
    return settings->document.nodes.start + index - 1; /* indices count from 1 */
}

static size_t line_of(const yaml_node_t *node) { return node->start_mark.line + 1; }

static const char *place_of(const place *at, const yaml_node_t *node, char out[SPW_SETTINGS_PLACE]) {
    return spw_settings_line_text(at->settings, line_of(node), out);
}

/* --- Words for messages --- */

static void join(char *text, size_t size, const char *separator, const char *word) {
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : separator, word);
}

static const char *list_keys(const spw_setting *table, char keys[KEYS_SIZE]) {
    keys[0] = '\0';
    for (; table->key != NULL; table++) join(keys, KEYS_SIZE, ", ", table->key);
    return keys;
}

/* What `setting` takes, in words. */
static void describe_kind(const spw_setting *setting, char *text, size_t size) {
    char keys[KEYS_SIZE] = "";
    int used = 0;
    switch (setting->kind) {
    case SPW_SETTING_COUNT:
        (void)snprintf(text, size, "a whole number in [%.0f, %.0f]", setting->minimum, setting->maximum);
        break;
    case SPW_SETTING_REAL:
        (void)snprintf(text, size, "a number in [%g, %g]", setting->minimum, setting->maximum);
        break;
    case SPW_SETTING_FLAG: (void)snprintf(text, size, "true or false"); break;
    case SPW_SETTING_TEXT:
        (void)snprintf(text, size, "a text of 1 to %zu printable characters", setting->size - 1);
        break;
    case SPW_SETTING_CHOICE:
        for (const spw_choice *c = setting->choices; c->name != NULL; c++)
            join(keys, sizeof keys, ", ", c->name);
        used = snprintf(text, size, "one of: %s", keys);
        if (setting->parts == NULL || used < 0 || (size_t)used >= size) break;
        keys[0] = '\0';
        for (const spw_choice *c = setting->parts; c->name != NULL; c++)
            join(keys, sizeof keys, ", ", c->name);
        (void)snprintf(text + used, size - (size_t)used, ", or several, as [a, b] or a+b, of: %s", keys);
        break;
    case SPW_SETTING_COUNTS:
        (void)snprintf(text, size, "%s [%.0f, %.0f]%s %zu to %zu of them",
                       setting->fewest > 0 ? "a list of whole numbers in" : "a whole number in",
                       setting->minimum, setting->maximum, setting->fewest > 0 ? "," : " or a list of",
                       setting->fewest > 0 ? setting->fewest : 1, setting->limit);
        break;
    case SPW_SETTING_TEXTS:
        (void)snprintf(text, size, "a list of at most %zu texts of 1 to %zu printable characters",
                       setting->limit, setting->size - 1);
        break;
    case SPW_SETTING_GROUP:
        (void)snprintf(text, size, "a mapping with the keys: %s", list_keys(setting->fields, keys));
        used = (int)strlen(text);
        keys[0] = '\0';
        if (setting->fields->kind != SPW_SETTING_CHOICE || (size_t)used >= size) break;
        for (const spw_choice *c = setting->fields->choices; c->name != NULL; c++)
            join(keys, sizeof keys, ", ", c->name);
        (void)snprintf(text + used, size - (size_t)used, "; or one word for them: %s", keys);
        break;
    }
}

static const char *describe_node(const yaml_node_t *node, char *text, size_t size) {
    char shown[SPW_SETTINGS_SHOWN];
    if (node->type == YAML_MAPPING_NODE) return "a mapping";
    if (node->type == YAML_SEQUENCE_NODE) return "a list";
    if (node->data.scalar.length == 0) return "empty";
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    (void)snprintf(text, size, "%s'%s'", plain ? "" : "the quoted text ",
                   spw_settings_shown(node->data.scalar.value, node->data.scalar.length, shown));
    return text;
}

/* "32k" may be 32768 or 32000: who wrote it must say. */
static void describe_thousands(const yaml_node_t *node, char *text, size_t size) {
    const char *value = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
    const size_t digits = strspn(value, "0123456789");
    const unsigned long long number = strtoull(value, NULL, 10);
    text[0] = '\0';
    if (digits > 0 && digits < 7 && (value[digits] == 'k' || value[digits] == 'K') &&
        value[digits + 1] == '\0')
        (void)snprintf(text, size, "; write %llu or %llu", number * 1024, number * 1000);
}

static spw_status refuse(const place *at, const spw_setting *setting, const yaml_node_t *node) {
    char found[NUMBER_SIZE + SPW_SETTINGS_SHOWN], wanted[KEYS_SIZE + 64], thousands[64];
    describe_kind(setting, wanted, sizeof wanted);
    describe_thousands(node, thousands, sizeof thousands);
    char where[SPW_SETTINGS_PLACE];
    return spw_fail(SPW_ECONFIG, "%s: '%s%s' is %s; it must be %s (%s)%s", place_of(at, node, where),
                    at->prefix, setting->key, describe_node(node, found, sizeof found), wanted, setting->help,
                    thousands);
}

/* --- Scalars --- */

/* A zero-ended copy of a plain decimal number, .75 among them; false for everything else, so also for 0x10, 010, .inf
 * and 1_000. */
static bool copy_number(const char *text, size_t length, bool whole, char number[NUMBER_SIZE]) {
    if (length == 0 || length >= NUMBER_SIZE || memchr(text, '\0', length) != NULL) return false;
    memcpy(number, text, length);
    number[length] = '\0';
    const char *rest = number + (!whole && number[0] == '-');
    size_t digits = strspn(rest, "0123456789");
    const bool bare = !whole && digits == 0 && rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9';
    if ((digits == 0 && !bare) || (digits > 1 && rest[0] == '0')) return false;
    rest += digits;
    if (*rest == '.') rest += 1 + strspn(rest + 1, whole ? "0" : "0123456789"); /* 64.0 is whole */
    if (!whole && (*rest == 'e' || *rest == 'E')) {
        rest += 1 + (rest[1] == '+' || rest[1] == '-');
        digits = strspn(rest, "0123456789");
        if (digits == 0) return false;
        rest += digits;
    }
    return *rest == '\0';
}

static bool store_number(const spw_setting *setting, const char *text, size_t length, void *out) {
    char number[NUMBER_SIZE];
    bool whole = setting->kind != SPW_SETTING_REAL;
    if (!copy_number(text, length, whole, number)) return false;
    double value = strtod(number, NULL);
    if (!isfinite(value) || !(value >= setting->minimum && value <= setting->maximum)) return false;
    if (whole)
        *(size_t *)out = (size_t)strtoumax(number, NULL, 10);
    else
        *(double *)out = value;
    return true;
}

static bool store_text(const spw_setting *setting, const char *text, size_t length, char *out) {
    if (length == 0 || length >= setting->size) return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

static const spw_choice *find_choice(const spw_choice *choices, const char *text, size_t length) {
    while (choices->name != NULL &&
           (strlen(choices->name) != length || memcmp(choices->name, text, length) != 0))
        choices++;
    return choices->name != NULL ? choices : NULL;
}

static void put_choice(const spw_setting *setting, size_t value, void *out) {
    if (setting->size == sizeof(size_t))
        *(size_t *)out = value;
    else if (setting->size == sizeof(bool))
        *(bool *)out = value != 0;
    else
        *(unsigned *)out = (unsigned)value;
}

/* Adds the bits of a+b or a,b; false for what is no part, or was there before. */
static bool add_parts(const spw_setting *setting, const char *text, size_t length, size_t *bits) {
    for (size_t first = 0, end; first <= length; first = end + 1) {
        for (end = first; end < length && text[end] != '+' && text[end] != ',';) end++;
        const spw_choice *part = find_choice(setting->parts, text + first, end - first);
        if (part == NULL || (*bits & part->value) != 0) return false;
        *bits |= part->value;
    }
    return true;
}

static bool store_choice(const spw_setting *setting, const char *text, size_t length, void *out) {
    const spw_choice *one = find_choice(setting->choices, text, length);
    size_t bits = 0;
    if (one == NULL && (setting->parts == NULL || !add_parts(setting, text, length, &bits))) return false;
    put_choice(setting, one != NULL ? one->value : setting->join(bits), out);
    return true;
}

static bool store_flag(const char *text, size_t length, bool *out) {
    *out = length == 4 && memcmp(text, "true", 4) == 0;
    return *out || (length == 5 && memcmp(text, "false", 5) == 0);
}

static bool store(const spw_setting *setting, const char *text, size_t length, bool plain, void *out) {
    switch (setting->kind) {
    case SPW_SETTING_COUNT:
    case SPW_SETTING_COUNTS:
    case SPW_SETTING_REAL: return plain && store_number(setting, text, length, out);
    case SPW_SETTING_FLAG: return plain && store_flag(text, length, out);
    case SPW_SETTING_TEXT:
    case SPW_SETTING_TEXTS: return store_text(setting, text, length, out);
    case SPW_SETTING_CHOICE: return store_choice(setting, text, length, out);
    case SPW_SETTING_GROUP: break;
    }
    return false;
}

static bool store_node(const spw_setting *setting, const yaml_node_t *node, void *out) {
    return node->type == YAML_SCALAR_NODE &&
           store(setting, (const char *)node->data.scalar.value, node->data.scalar.length,
                 node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE, out);
}

/* --- Lists --- */

static size_t element_size(const spw_setting *setting) {
    return setting->kind == SPW_SETTING_COUNTS ? sizeof(size_t) : setting->size;
}

static spw_status read_list(const place *at, const spw_setting *setting, const yaml_node_t *node, char *out) {
    char *elements = out + setting->offset;
    size_t *count = (size_t *)(void *)(out + setting->count_offset);
    *count = 0;
    if (setting->kind == SPW_SETTING_COUNTS && setting->fewest == 0 && node->type == YAML_SCALAR_NODE) {
        *count = 1;
        return store_node(setting, node, elements) ? SPW_OK : refuse(at, setting, node);
    }
    if (node->type != YAML_SEQUENCE_NODE) return refuse(at, setting, node);
    size_t length = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    const bool empty = setting->fallback != NULL && setting->fallback[0] == '\0';
    if (length > setting->limit || length < setting->fewest ||
        (length == 0 && setting->kind == SPW_SETTING_COUNTS && !empty)) {
        char wanted[KEYS_SIZE];
        describe_kind(setting, wanted, sizeof wanted);
        char where[SPW_SETTINGS_PLACE];
        return spw_fail(SPW_ECONFIG, "%s: '%s%s' has %zu elements; it must be %s (%s)",
                        place_of(at, node, where), at->prefix, setting->key, length, wanted, setting->help);
    }
    for (; *count < length; ++*count) {
        const yaml_node_t *element = node_of(at->settings, node->data.sequence.items.start[*count]);
        if (!store_node(setting, element, elements + *count * element_size(setting)))
            return refuse(at, setting, element);
    }
    return SPW_OK;
}

/* Several parts of a choice. */
static spw_status read_parts(const place *at, const spw_setting *setting, const yaml_node_t *node,
                             void *field) {
    size_t bits = 0;
    for (const yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top;
         item++) {
        const yaml_node_t *element = node_of(at->settings, *item);
        if (element->type != YAML_SCALAR_NODE ||
            !add_parts(setting, (const char *)element->data.scalar.value, element->data.scalar.length, &bits))
            return refuse(at, setting, element);
    }
    if (bits == 0) return refuse(at, setting, node);
    put_choice(setting, setting->join(bits), field);
    return SPW_OK;
}

/* --- Mappings --- */

static bool key_is(const yaml_node_t *key, const char *name, size_t length) {
    return key->type == YAML_SCALAR_NODE && key->data.scalar.length == length &&
           memcmp(key->data.scalar.value, name, length) == 0;
}

/* The pair of `name` in a mapping, and in *again a second one; NULL when there is none. */
static const yaml_node_pair_t *find_pair(const spw_settings *settings, const yaml_node_t *mapping,
                                         const char *name, size_t length, const yaml_node_pair_t **again) {
    const yaml_node_pair_t *found = NULL;
    *again = NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        if (!key_is(node_of(settings, pair->key), name, length)) continue;
        if (found == NULL)
            found = pair;
        else if (*again == NULL)
            *again = pair;
    }
    return found;
}

/* "did you mean 'batch.micro_batches'? " for a key that one of the table's groups has. */
static void guess_inside(const spw_setting *table, const char *key, char *out, size_t size) {
    for (const spw_setting *row = table; row->key != NULL; row++) {
        for (const spw_setting *inner = row->kind == SPW_SETTING_GROUP ? row->fields : NULL;
             inner != NULL && inner->key != NULL; inner++) {
            if (strcmp(inner->key, key) != 0) continue;
            (void)snprintf(out, size, "did you mean '%s.%s'? ", row->key, inner->key);
            return;
        }
    }
}

/* Whether other programs' names are looked up here: in other groups such words may mean something else. */
static bool is_advised(const place *at) {
    return at->settings->adviser != NULL && (at->prefix[0] == '\0' || strcmp(at->prefix, "parallel.") == 0 ||
                                             strcmp(at->prefix, "batch.") == 0);
}

static spw_status unknown_key(const place *at, const spw_setting *table, const yaml_node_t *key) {
    char shown[SPW_SETTINGS_SHOWN] = "?", keys[KEYS_SIZE], guess[SPW_ADVICE] = "", inside[PATH_SIZE + 8] = "";
    if (key->type == YAML_SCALAR_NODE)
        (void)spw_settings_shown(key->data.scalar.value, key->data.scalar.length, shown);
    spw_nearest nearest = {.text = shown};
    for (const spw_setting *row = table; row->key != NULL; row++) spw_nearest_offer(&nearest, row->key);
    if (nearest.best != NULL) (void)snprintf(guess, sizeof guess, "did you mean '%s'? ", nearest.best);
    if (nearest.distance > 1 || guess[0] == '\0') guess_inside(table, shown, guess, sizeof guess);
    char advice[SPW_ADVICE] = "";
    if (is_advised(at) && at->settings->adviser(shown, strlen(shown), advice)[0] != '\0')
        memcpy(guess, advice, sizeof guess);
    if (at->prefix[0] != '\0')
        (void)snprintf(inside, sizeof inside, " in '%.*s'", (int)strlen(at->prefix) - 1, at->prefix);
    char where[SPW_SETTINGS_PLACE];
    return spw_fail(SPW_ECONFIG, "%s: unknown key '%s'%s; %sknown keys: %s", place_of(at, key, where), shown,
                    inside, guess, list_keys(table, keys));
}

static spw_status check_keys(const place *at, const spw_setting *table, const yaml_node_t *mapping) {
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_of(at->settings, pair->key);
        const spw_setting *row = table;
        while (row->key != NULL && !key_is(key, row->key, strlen(row->key))) row++;
        if (row->key == NULL) return unknown_key(at, table, key);
    }
    return SPW_OK;
}

static spw_status read_mapping(const place *at, const spw_setting *table, const yaml_node_t *mapping,
                               bool given, char *out);
static spw_status read_default(const place *at, const spw_setting *setting, const yaml_node_t *around,
                               char *out);

/* One word for the keys of a group that take what its first takes, as spw_job_overrides_put has it. */
static spw_status read_word(const place *at, const spw_setting *group, const yaml_node_t *node, char *out) {
    spw_status status = SPW_OK;
    for (const spw_setting *row = group->fields; status == SPW_OK && row->key != NULL; row++) {
        if (row->choices != group->fields->choices || row->kind != SPW_SETTING_CHOICE)
            status = read_default(at, row, node, out);
        else if (!store_node(row, node, out + row->offset))
            status = refuse(at, group, node);
    }
    return status;
}

static spw_status read_value(const place *at, const spw_setting *setting, const yaml_node_t *node,
                             char *out) {
    char *field = out + setting->offset;
    if (setting->kind == SPW_SETTING_COUNTS || setting->kind == SPW_SETTING_TEXTS)
        return read_list(at, setting, node, out);
    if (setting->parts != NULL && node->type == YAML_SEQUENCE_NODE)
        return read_parts(at, setting, node, field);
    if (setting->kind != SPW_SETTING_GROUP)
        return store_node(setting, node, field) ? SPW_OK : refuse(at, setting, node);
    if (node->type == YAML_SCALAR_NODE && setting->fields->kind == SPW_SETTING_CHOICE)
        return read_word(at, setting, node, field);
    if (node->type != YAML_MAPPING_NODE) return refuse(at, setting, node);
    char prefix[PATH_SIZE];
    (void)snprintf(prefix, sizeof prefix, "%s%s.", at->prefix, setting->key);
    place inside = {at->settings, prefix};
    return read_mapping(&inside, setting->fields, node, true, field);
}

static spw_status read_default(const place *at, const spw_setting *setting, const yaml_node_t *around,
                               char *out) {
    char *field = out + setting->offset;
    bool list = setting->kind == SPW_SETTING_COUNTS || setting->kind == SPW_SETTING_TEXTS;
    if (setting->fallback == NULL) {
        char wanted[KEYS_SIZE + 64];
        describe_kind(setting, wanted, sizeof wanted);
        char where[SPW_SETTINGS_PLACE];
        return spw_fail(SPW_ECONFIG, "%s: '%s%s' is missing; it must be %s (%s)", place_of(at, around, where),
                        at->prefix, setting->key, wanted, setting->help);
    }
    if (setting->kind == SPW_SETTING_GROUP) {
        char prefix[PATH_SIZE];
        if (strcmp(setting->fallback, "default") == 0) return SPW_OK;
        (void)snprintf(prefix, sizeof prefix, "%s%s.", at->prefix, setting->key);
        place inside = {at->settings, prefix};
        return read_mapping(&inside, setting->fields, around, false, field);
    }
    if (list) *(size_t *)(void *)(out + setting->count_offset) = setting->fallback[0] != '\0';
    if (setting->fallback[0] == '\0') return SPW_OK;
    if (!store(setting, setting->fallback, strlen(setting->fallback), true, field))
        return spw_fail(SPW_EARG, "table of settings: the default of '%s' is wrong", setting->key);
    return SPW_OK;
}

/* Not `given`: every key takes its default, and `mapping` is what would contain the group. */
static spw_status read_mapping(const place *at, const spw_setting *table, const yaml_node_t *mapping,
                               bool given, char *out) {
    spw_status status = given ? check_keys(at, table, mapping) : SPW_OK;
    for (; status == SPW_OK && table->key != NULL; table++) {
        const yaml_node_pair_t *again = NULL, *pair = NULL;
        if (given) pair = find_pair(at->settings, mapping, table->key, strlen(table->key), &again);
        if (pair != NULL && again != NULL)
            return spw_fail(SPW_ECONFIG, "%s:%zu: '%s%s' is given again (first on line %zu); keep one",
                            at->settings->where, line_of(node_of(at->settings, again->key)), at->prefix,
                            table->key, line_of(node_of(at->settings, pair->key)));
        status = pair != NULL ? read_value(at, table, node_of(at->settings, pair->value), out)
                              : read_default(at, table, mapping, out);
    }
    return status;
}

/* All rows of a table are of one struct, and the table of a group is of the struct that the group says. */
static spw_status check_table(const spw_setting *table, size_t within) {
    for (const spw_setting *row = table; row->key != NULL; row++) {
        if (row->within != within)
            return spw_fail(SPW_EARG, "table of settings: '%s' is of a struct of %zu bytes, not %zu",
                            row->key, row->within, within);
        const spw_status status =
            row->kind == SPW_SETTING_GROUP ? check_table(row->fields, row->inside) : SPW_OK;
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

spw_status spw_settings_read(const spw_settings *settings, const spw_setting *table, void *out) {
    place at = {settings, ""};
    const spw_status status = check_table(table, table->within);
    if (status != SPW_OK) return status;
    return read_mapping(&at, table, settings->root, true, out);
}

/* The node at `path`, or the last on the way to it; *line is where its key stands. */
static const yaml_node_t *walk(const spw_settings *settings, const char *path, size_t *line, bool *found) {
    const yaml_node_t *node = settings->root;
    *line = line_of(node);
    while (*path != '\0' && node->type == YAML_MAPPING_NODE) {
        const yaml_node_pair_t *again = NULL;
        size_t length = strcspn(path, ".");
        const yaml_node_pair_t *pair = find_pair(settings, node, path, length, &again);
        if (pair == NULL) break;
        *line = line_of(node_of(settings, pair->key));
        node = node_of(settings, pair->value);
        path += length + (path[length] == '.');
    }
    *found = *path == '\0';
    return node;
}

size_t spw_settings_line(const spw_settings *settings, const char *path) {
    size_t line = 0;
    bool found = false;
    (void)walk(settings, path, &line, &found);
    return line;
}

const char *spw_settings_text(const spw_settings *settings, const char *path) {
    size_t line = 0;
    bool found = false;
    const yaml_node_t *node = walk(settings, path, &line, &found);
    return found && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

const char *spw_settings_place(const spw_settings *settings, const char *path, char out[SPW_SETTINGS_PLACE]) {
    return spw_settings_line_text(settings, spw_settings_line(settings, path), out);
}

static void describe(const spw_setting *table, const char *prefix, FILE *out) {
    for (; table->key != NULL; table++) {
        char text[KEYS_SIZE + 64];
        if (table->kind == SPW_SETTING_GROUP) {
            (void)snprintf(text, sizeof text, "%s%s.", prefix, table->key);
            describe(table->fields, text, out);
            continue;
        }
        describe_kind(table, text, sizeof text);
        const char *fallback = table->fallback == NULL      ? "required"
                               : table->fallback[0] == '\0' ? "default: none"
                                                            : table->fallback;
        bool has_default = table->fallback != NULL && table->fallback[0] != '\0';
        (void)fprintf(out, "%s%s: %s; %s%s; %s\n", prefix, table->key, table->help,
                      has_default ? "default: " : "", fallback, text);
    }
}

void spw_settings_describe(const spw_setting *table, FILE *out) { describe(table, "", out); }
