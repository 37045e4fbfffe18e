/* What a table of settings has read, as JSON: every key with its value, as one would write it into the file. JSON is YAML, so that the same
 * table reads it again. */
#ifndef SPW_SIM_READ_SETTINGS_JSON_H
#define SPW_SIM_READ_SETTINGS_JSON_H

#include "sim/print/json_values.h"

typedef struct spw_setting spw_setting;

/* `in`: the struct of the table. A mapping, with one inside for each group. A text that was not given is left out. A choice whose value has
 * no name is null. NULL without memory, which `json` remembers. */
json_t *spw_settings_json(spw_json *json, const spw_setting *table, const void *in);

#endif
