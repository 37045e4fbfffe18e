/* Values from elsewhere than the text, such as the command line, put among its nodes. */
#include "sim/read/settings_internal.h"

#include <string.h>

const char *spw_settings_line_text(const spw_settings *settings, size_t line, char out[SPW_SETTINGS_PLACE]) {
    if (line > SPW_SETTINGS_LABELS)
        (void)snprintf(out, SPW_SETTINGS_PLACE, "%s", settings->label[line - SPW_SETTINGS_LABELS - 1]);
    else if (settings->lineless)
        (void)snprintf(out, SPW_SETTINGS_PLACE, "%s", settings->where);
    else
        (void)snprintf(out, SPW_SETTINGS_PLACE, "%s:%zu", settings->where, line);
    return out;
}

void spw_settings_hide_lines(spw_settings *settings) { settings->lineless = true; }

void spw_settings_advise(spw_settings *settings, spw_settings_adviser *adviser) {
    settings->adviser = adviser;
}

static spw_status out_of_memory(const spw_settings *settings) {
    return spw_fail(SPW_ENOMEM, "%s: out of memory", settings->where);
}

static yaml_node_t *node_at(yaml_document_t *document, int index) {
    return document->nodes.start + index - 1;
}

/* Every node of the value gets a line that stands for its label. 0 without memory. */
static int marked(spw_settings *settings, int index) {
    if (index > 0)
        node_at(&settings->document, index)->start_mark.line = SPW_SETTINGS_LABELS + settings->labels - 1;
    return index;
}

/* Copies a node of another document, and what it holds: a tree of bounded depth, as spw_settings_open_tree() opens it. 0 without memory. */
static int copy_node(spw_settings *settings, yaml_document_t *from, int index) {
    yaml_document_t *to = &settings->document;
    const yaml_node_t *node = node_at(from, index);
    int copy = 0;
    if (node->type == YAML_SCALAR_NODE)
        return marked(settings,
                      yaml_document_add_scalar(to, NULL, node->data.scalar.value,
                                               (int)node->data.scalar.length, node->data.scalar.style));
    if (node->type == YAML_SEQUENCE_NODE) {
        copy = yaml_document_add_sequence(to, NULL, YAML_FLOW_SEQUENCE_STYLE);
        for (const int *item = node->data.sequence.items.start;
             copy > 0 && item < node->data.sequence.items.top; item++) {
            const int inner = copy_node(settings, from, *item);
            if (inner == 0 || yaml_document_append_sequence_item(to, copy, inner) == 0) return 0;
        }
        return marked(settings, copy);
    }
    copy = yaml_document_add_mapping(to, NULL, YAML_FLOW_MAPPING_STYLE);
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         copy > 0 && pair < node->data.mapping.pairs.top; pair++) {
        const int key = copy_node(settings, from, pair->key), value = copy_node(settings, from, pair->value);
        if (key == 0 || value == 0 || yaml_document_append_mapping_pair(to, copy, key, value) == 0) return 0;
    }
    return marked(settings, copy);
}

/* The pair of `key` in a mapping; NULL when there is none. */
static yaml_node_pair_t *pair_of(yaml_document_t *document, int mapping, const char *key, size_t length) {
    const yaml_node_t *node = node_at(document, mapping);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *name = node_at(document, pair->key);
        if (name->type == YAML_SCALAR_NODE && name->data.scalar.length == length &&
            memcmp(name->data.scalar.value, key, length) == 0)
            return pair;
    }
    return NULL;
}

/* Sets one key of one mapping to a node. */
static spw_status set_pair(spw_settings *settings, int mapping, const char *key, size_t length, int value) {
    yaml_document_t *document = &settings->document;
    const int name = marked(settings, yaml_document_add_scalar(document, NULL, (const yaml_char_t *)key,
                                                               (int)length, YAML_PLAIN_SCALAR_STYLE));
    if (name == 0 || value == 0) return out_of_memory(settings);
    yaml_node_pair_t *pair = pair_of(document, mapping, key, length);
    if (pair != NULL)
        *pair = (yaml_node_pair_t){name, value};
    else if (yaml_document_append_mapping_pair(document, mapping, name, value) == 0)
        return out_of_memory(settings);
    return SPW_OK;
}

/* Walks to the mapping around the last key of the path; *path becomes that key. */
static spw_status walk(spw_settings *settings, const char **path, int *mapping, const char *label) {
    yaml_document_t *document = &settings->document;
    for (const char *dot = strchr(*path, '.'); dot != NULL; dot = strchr(*path, '.')) {
        const size_t length = (size_t)(dot - *path);
        const yaml_node_pair_t *pair = pair_of(document, *mapping, *path, length);
        int inner = pair != NULL ? pair->value : 0;
        if (inner > 0 && node_at(document, inner)->type != YAML_MAPPING_NODE)
            return spw_fail(SPW_ECONFIG, "%s: '%.*s' is no mapping, so it has no '%s'", label, (int)length,
                            *path, dot + 1);
        if (inner == 0) {
            inner = marked(settings, yaml_document_add_mapping(document, NULL, YAML_FLOW_MAPPING_STYLE));
            const spw_status status = set_pair(settings, *mapping, *path, length, inner);
            if (status != SPW_OK) return status;
        }
        *mapping = inner;
        *path = dot + 1;
    }
    return SPW_OK;
}

spw_status spw_settings_put(spw_settings *settings, const char *path, const char *value, const char *label) {
    spw_status status = SPW_OK;
    char wrapped[2048];
    spw_settings *read = NULL;
    const int length = snprintf(wrapped, sizeof wrapped, "value: %s", value);
    if (length < 0 || (size_t)length >= sizeof wrapped)
        return spw_fail(SPW_ECONFIG, "%.60s...: a value of more than %zu characters", label,
                        sizeof wrapped - 16);
    if (settings->labels == SPW_SETTINGS_PUTS)
        return spw_fail(SPW_ECONFIG, "%s: more than %d values are set beside the file", label,
                        SPW_SETTINGS_PUTS);
    SPW_TRY(spw_settings_open_tree(label, wrapped, (size_t)length, &read));
    const yaml_node_pair_t *pair = read->root->data.mapping.pairs.start;
    if (read->root->data.mapping.pairs.top - pair != 1) /* a line end, and keys behind it */
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: several lines; write one value", label));
    settings->label[settings->labels++] = label;
    int mapping = 1; /* the root is the first node */
    SPW_TRY(walk(settings, &path, &mapping, label));
    SPW_TRY(
        set_pair(settings, mapping, path, strlen(path), copy_node(settings, &read->document, pair->value)));
    settings->root = yaml_document_get_root_node(&settings->document);

cleanup:
    spw_settings_close(read);
    return status;
}
