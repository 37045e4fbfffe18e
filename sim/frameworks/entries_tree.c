/* YAML through libyaml, with the limits of a job's file, and JSON through jansson, both walked into one list. */
#include "sim/frameworks/file_entries.h"

#include "base/memory.h"
#include "sim/frameworks/variables.h"
#include "sim/read/settings_internal.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct walk {
    spw_file_entries *out;
    yaml_document_t *document;
    size_t first_line;
    char path[SPW_ENTRY_NAME];
} walk;

/* `path` with a name behind it; returns the length to go back to. */
static spw_status enter(walk *w, const char *name, size_t line, size_t *back) {
    *back = strlen(w->path);
    const int length = snprintf(w->path + *back, sizeof w->path - *back, "%s%s", *back > 0 ? "." : "", name);
    if (length < 0 || (size_t)length >= sizeof w->path - *back)
        return spw_fail(SPW_ECONFIG, "%s:%zu: names of more than %d characters", w->out->where, line,
                        SPW_ENTRY_NAME - 1);
    return SPW_OK;
}

/* A value with its placeholders, ${NAME:default}, replaced. */
static spw_status entries_tree_add(walk *w, const char *text, size_t line, bool quoted) {
    char value[SPW_ENTRY_VALUE];
    bool unknown = false;
    const spw_status status =
        spw_variables_expand(w->out->where, line, NULL, text, value, sizeof value, &unknown);
    if (status != SPW_OK) return status;
    const bool nothing = !quoted && (value[0] == '\0' || strcmp(value, "null") == 0 ||
                                     strcmp(value, "~") == 0 || strcmp(value, "None") == 0);
    return spw_file_entries_add(w->out, w->path, value,
                                (spw_file_entry){.line = line, .nothing = nothing, .unknown = unknown});
}

/* --- YAML --- */

static spw_status walk_yaml(walk *w, yaml_node_t *node, size_t depth);

static size_t yaml_line(const walk *w, const yaml_node_t *node) {
    return node->start_mark.line + w->first_line;
}

static spw_status walk_mapping(walk *w, yaml_node_t *node, size_t depth) {
    spw_status status = SPW_OK;
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         status == SPW_OK && pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(w->document, pair->key),
                    *value = yaml_document_get_node(w->document, pair->value);
        size_t back = 0;
        if (key->type != YAML_SCALAR_NODE ||
            strlen((const char *)key->data.scalar.value) != key->data.scalar.length)
            return spw_fail(SPW_ECONFIG, "%s:%zu: a key is no plain word", w->out->where, yaml_line(w, key));
        status = enter(w, (const char *)key->data.scalar.value, yaml_line(w, key), &back);
        if (status == SPW_OK) status = walk_yaml(w, value, depth + 1);
        w->path[back] = '\0';
    }
    return status;
}

/* A list of plain values is one value; of other things each has its position as a name. */
static spw_status walk_sequence(walk *w, yaml_node_t *node, size_t depth) {
    char list[SPW_ENTRY_VALUE] = "", number[24];
    size_t used = 0, position = 0, back = 0;
    spw_status status = SPW_OK;
    bool plain = true;
    for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top;
         item++) {
        const yaml_node_t *value = yaml_document_get_node(w->document, *item);
        plain =
            plain && value->type == YAML_SCALAR_NODE && used + value->data.scalar.length + 2 < sizeof list;
        if (plain)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? "," : "",
                                     (const char *)value->data.scalar.value);
    }
    if (plain) return entries_tree_add(w, list, yaml_line(w, node), true);
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         status == SPW_OK && item < node->data.sequence.items.top; item++) {
        yaml_node_t *value = yaml_document_get_node(w->document, *item);
        (void)snprintf(number, sizeof number, "%zu", position++);
        status = enter(w, number, yaml_line(w, value), &back);
        if (status == SPW_OK) status = walk_yaml(w, value, depth + 1);
        w->path[back] = '\0';
    }
    return status;
}

static spw_status walk_yaml(walk *w, yaml_node_t *node, size_t depth) {
    if (depth > SPW_SETTINGS_DEPTH || w->out->count >= SPW_ENTRIES)
        return spw_fail(SPW_ECONFIG, "%s:%zu: more than %d levels or %d values", w->out->where,
                        yaml_line(w, node), SPW_SETTINGS_DEPTH, SPW_ENTRIES);
    if (node->type == YAML_MAPPING_NODE) return walk_mapping(w, node, depth);
    if (node->type == YAML_SEQUENCE_NODE) return walk_sequence(w, node, depth);
    if (strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
        return spw_fail(SPW_ECONFIG, "%s:%zu: a zero byte in a value", w->out->where, yaml_line(w, node));
    const yaml_scalar_style_t style = node->data.scalar.style;
    /* lines of text behind '|' or '>', such as a recipe's Dockerfile, are no setting */
    const bool page = (style == YAML_LITERAL_SCALAR_STYLE || style == YAML_FOLDED_SCALAR_STYLE) &&
                      node->data.scalar.length >= SPW_ENTRY_VALUE;
    return entries_tree_add(w, page ? "lines of text" : (const char *)node->data.scalar.value,
                            yaml_line(w, node), style != YAML_PLAIN_SCALAR_STYLE);
}

spw_status spw_entries_of_yaml(const char *text, size_t length, size_t first_line, spw_file_entries *out) {
    spw_settings *settings = NULL;
    spw_status status = spw_settings_open_tree(out->where, text, length, &settings);
    if (status != SPW_OK) return status;
    walk w = {.out = out, .document = &settings->document, .first_line = first_line, .path = ""};
    status = walk_yaml(&w, settings->root, 0);
    spw_settings_close(settings);
    return status;
}

/* --- JSON, whose library keeps no lines --- */

static spw_status walk_json(walk *w, const json_t *node, size_t depth);

static void json_word(const json_t *node, char *out, size_t size) {
    if (json_is_string(node))
        (void)snprintf(out, size, "%s", json_string_value(node));
    else if (json_is_integer(node))
        (void)snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(node));
    else if (json_is_real(node))
        (void)snprintf(out, size, "%.17g", json_real_value(node));
    else
        (void)snprintf(out, size, "%s", json_is_true(node) ? "true" : json_is_false(node) ? "false" : "null");
}

static spw_status walk_array(walk *w, const json_t *node, size_t depth) {
    char list[SPW_ENTRY_VALUE] = "", word[SPW_ENTRY_VALUE];
    size_t used = 0, index = 0, back = 0;
    bool plain = true;
    const json_t *value = NULL;
    spw_status status = SPW_OK;
    json_array_foreach(node, index, value) {
        plain = plain && !json_is_object(value) && !json_is_array(value);
        if (!plain) break;
        json_word(value, word, sizeof word);
        plain = used + strlen(word) + 2 < sizeof list;
        if (plain)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? "," : "", word);
    }
    if (plain) return entries_tree_add(w, list, 0, true);
    json_array_foreach(node, index, value) {
        (void)snprintf(word, sizeof word, "%zu", index);
        if (status == SPW_OK) status = enter(w, word, 0, &back);
        if (status == SPW_OK) status = walk_json(w, value, depth + 1);
        w->path[back] = '\0';
    }
    return status;
}

static spw_status walk_json(walk *w, const json_t *node, size_t depth) {
    const char *key = NULL;
    json_t *value = NULL;
    size_t back = 0;
    spw_status status = SPW_OK;
    char word[SPW_ENTRY_VALUE];
    if (depth > SPW_SETTINGS_DEPTH)
        return spw_fail(SPW_ECONFIG, "%s: nested deeper than %d levels", w->out->where, SPW_SETTINGS_DEPTH);
    if (json_is_array(node)) return walk_array(w, node, depth);
    if (!json_is_object(node)) {
        json_word(node, word, sizeof word);
        return entries_tree_add(w, word, 0, json_is_string(node));
    }
    json_object_foreach((json_t *)(uintptr_t)node, key, value) {
        if (status == SPW_OK) status = enter(w, key, 0, &back);
        if (status == SPW_OK) status = walk_json(w, value, depth + 1);
        w->path[back] = '\0';
    }
    return status;
}

spw_status spw_entries_of_json(const char *text, size_t length, spw_file_entries *out) {
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    walk w = {.out = out, .path = ""};
    if (root == NULL)
        return spw_fail(json_error_code(&error) == json_error_out_of_memory ? SPW_ENOMEM : SPW_ECONFIG,
                        "%s:%d: not JSON: %s", out->where, error.line, error.text);
    const spw_status status = json_is_object(root)
                                  ? walk_json(&w, root, 0)
                                  : spw_fail(SPW_ECONFIG, "%s: not a JSON object", out->where);
    json_decref(root);
    return status;
}
