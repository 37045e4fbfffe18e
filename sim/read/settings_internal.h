/* What an open text is made of; shared by settings_open.c (YAML to nodes) and settings.c (nodes to a struct). */
#ifndef SPW_SIM_READ_SETTINGS_INTERNAL_H
#define SPW_SIM_READ_SETTINGS_INTERNAL_H

#include "sim/read/settings.h"

#include <stdbool.h>
#include <yaml.h>

struct spw_settings {
    const char *where;
    bool lineless; /* lines of the text are nobody's: messages name `where` alone */
    yaml_document_t document;
    yaml_node_t *root;
    spw_settings_adviser *adviser; /* NULL: nobody knows other names */
    const char *label
        [SPW_SETTINGS_PUTS]; /* of values that were put in; their nodes begin at line LABELS + place here */
    size_t labels;
};

/* No text has so many lines. */
enum { SPW_SETTINGS_LABELS = 2 * SPW_SETTINGS_BYTES };

/* As spw_settings_open() of a text without aliases, which SPW_ECONFIG refuses: every node is held once, so that walking down what
 * holds what ends after SPW_SETTINGS_DEPTH levels and SPW_SETTINGS_NODES nodes. */
SPW_MUST_CHECK spw_status spw_settings_open_tree(const char *where, const char *text, size_t length,
                                                 spw_settings **out);

/* "job.yaml:7" of a line counted from 1, or the label of what was put in. */
const char *spw_settings_line_text(const spw_settings *settings, size_t line, char out[SPW_SETTINGS_PLACE]);

#endif
