/* The text of a config.json as JSON, with the words beside JSON's own that Python's json module writes. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_JSON_H
#define SPW_SIM_MODEL_CONFIG_MODEL_JSON_H

#include "base/status.h"

#include <jansson.h>

enum { SPW_MODEL_FILE_BYTES = 16 << 20 }; /* some files list every layer that a quantisation leaves alone */

/* *out = the mapping in the text, which json_decref() frees. Infinity, -Infinity and NaN outside of strings become strings of
 * that name: no size, so that they are refused where a number is read, and left alone elsewhere. SPW_ECONFIG names `where` and
 * the line, also for a key that stands twice. */
SPW_MUST_CHECK spw_status spw_model_json(const char *where, const char *text, size_t length, json_t **out);

#endif
