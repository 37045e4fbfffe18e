#include "sim/read/settings_internal.h"

#include "base/memory.h"

#include <string.h>

const char *spw_settings_shown(const void *text, size_t length, char shown[SPW_SETTINGS_SHOWN]) {
    const unsigned char *bytes = text;
    size_t room = SPW_SETTINGS_SHOWN - 4, used = length < room ? length : room;
    while (used < length && used > 0 && (bytes[used] & 0xC0) == 0x80)
        used--; /* not in the middle of a character */
    for (size_t i = 0; i < used; i++) shown[i] = (char)(bytes[i] < 0x20 || bytes[i] == 0x7F ? '?' : bytes[i]);
    (void)snprintf(shown + used, SPW_SETTINGS_SHOWN - used, "%s", used < length ? "..." : "");
    return shown;
}

/* libyaml gives a line for what it cannot parse, and an offset for what it cannot read. */
static spw_status not_yaml(const char *where, const char *text, size_t length, const yaml_parser_t *parser) {
    if (parser->error == YAML_MEMORY_ERROR || parser->problem == NULL) /* every other error says what it is */
        return spw_fail(SPW_ENOMEM, "%s: out of memory", where);
    size_t line = parser->problem_mark.line + 1;
    if (parser->error == YAML_READER_ERROR)
        for (size_t i = 0; i < length && i < parser->problem_offset; i++) line += text[i] == '\n';
    return spw_fail(SPW_ECONFIG, "%s:%zu: not YAML (%s); write 'key: value' lines", where, line,
                    parser->problem);
}

static void begin(yaml_parser_t *parser, const char *text, size_t length) {
    yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(parser, (const unsigned char *)text, length);
}

/* Limits one event; libyaml's loader has none of its own, and takes time quadratic in the number of anchors. */
static spw_status check_event(const char *where, const yaml_event_t *event, bool aliases, size_t *depth,
                              size_t *nodes, size_t *documents) {
    size_t line = event->start_mark.line + 1;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*documents == 1) return SPW_OK;
        return spw_fail(SPW_ECONFIG, "%s:%zu: a second document begins; one file is one mapping", where,
                        line);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        if (++*depth > SPW_SETTINGS_DEPTH)
            return spw_fail(SPW_ECONFIG, "%s:%zu: nested deeper than %d levels", where, line,
                            SPW_SETTINGS_DEPTH);
        break;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: --*depth; return SPW_OK;
    case YAML_ALIAS_EVENT:
        if (aliases) break;
        return spw_fail(SPW_ECONFIG, "%s:%zu: the alias *%s; write the value itself", where, line,
                        (const char *)event->data.alias.anchor);
    case YAML_SCALAR_EVENT: break;
    default: return SPW_OK;
    }
    if (++*nodes > SPW_SETTINGS_NODES)
        return spw_fail(SPW_ECONFIG, "%s:%zu: more than %d values in one file", where, line,
                        SPW_SETTINGS_NODES);
    return SPW_OK;
}

static spw_status check_limits(const char *where, const char *text, size_t length, bool aliases) {
    spw_status status = SPW_OK;
    size_t depth = 0, nodes = 0, documents = 0;
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) return spw_fail(SPW_ENOMEM, "%s: out of memory", where);
    begin(&parser, text, length);
    for (bool ended = false; !ended;) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) SPW_TRY(not_yaml(where, text, length, &parser));
        ended = event.type == YAML_STREAM_END_EVENT;
        status = check_event(where, &event, aliases, &depth, &nodes, &documents);
        yaml_event_delete(&event);
        SPW_TRY(status);
    }

cleanup:
    yaml_parser_delete(&parser);
    return status;
}

static spw_status load(spw_settings *settings, const char *text, size_t length) {
    spw_status status = SPW_OK;
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0)
        return spw_fail(SPW_ENOMEM, "%s: out of memory", settings->where);
    begin(&parser, text, length);
    if (yaml_parser_load(&parser, &settings->document) == 0) {
        memset(&settings->document, 0, sizeof settings->document);
        status = not_yaml(settings->where, text, length, &parser);
    }
    yaml_parser_delete(&parser);
    return status;
}

static spw_status open_text(const char *where, const char *text, size_t length, bool aliases,
                            spw_settings **out) {
    spw_status status = SPW_OK;
    spw_settings *settings = NULL;
    *out = NULL;
    if (length > SPW_SETTINGS_BYTES)
        return spw_fail(SPW_ECONFIG, "%s: larger than the %d bytes allowed", where, SPW_SETTINGS_BYTES);
    SPW_TRY(check_limits(where, text, length, aliases));
    SPW_TRY(SPW_ALLOC(1, &settings));
    settings->where = where;
    SPW_TRY(load(settings, text, length));
    settings->root = yaml_document_get_root_node(&settings->document);
    if (settings->root == NULL || settings->root->type != YAML_MAPPING_NODE)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s:%zu: %s; write 'key: value' lines", where,
                         settings->root == NULL ? 1 : settings->root->start_mark.line + 1,
                         settings->root == NULL ? "empty" : "not a mapping"));
    *out = settings;
    settings = NULL;

cleanup:
    spw_settings_close(settings);
    return status;
}

spw_status spw_settings_open(const char *where, const char *text, size_t length, spw_settings **out) {
    return open_text(where, text, length, true, out);
}

spw_status spw_settings_open_tree(const char *where, const char *text, size_t length, spw_settings **out) {
    return open_text(where, text, length, false, out);
}

void spw_settings_close(spw_settings *settings) {
    if (settings == NULL) return;
    yaml_document_delete(&settings->document);
    spw_free(settings);
}
