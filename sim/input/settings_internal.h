/* What an open text is made of; shared by settings_open.c (YAML to nodes) and settings.c (nodes to a struct). */
#ifndef SPW_SIM_INPUT_SETTINGS_INTERNAL_H
#define SPW_SIM_INPUT_SETTINGS_INTERNAL_H

#include "sim/input/settings.h"

#include <yaml.h>

struct spw_settings {
    const char *where;
    yaml_document_t document;
    yaml_node_t *root;
};

#endif
