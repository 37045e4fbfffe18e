/* The experts that inference engines return with a response (router replay, "R3"), one response or several in a line of JSON. What
 * differs between the engines is how an array [tokens][layers][k] is put into the value of "routed_experts"; where that value
 * stands in the response is the same to all: at any depth, once in a choice. A file is a step of the trace. */
#ifndef SPW_TRACES_IMPORTERS_ROUTED_RESPONSES_H
#define SPW_TRACES_IMPORTERS_ROUTED_RESPONSES_H

#include "traces/importers/importer.h"
#include "traces/importers/json_lines.h"
#include "traces/importers/npy.h"

typedef struct spw_routed_engine {
    /* The array of `value`, which stands in `parent`. Owned by the caller, also after a failure. */
    spw_status (*decode)(const spw_import_settings *settings, const spw_json_lines *lines,
                         const json_t *parent, json_t *value, spw_npy *out);
    bool no_route;  /* an id of -1 stands for no choice */
    bool made_last; /* the last row was made up, as 0, 1, ... k - 1 in every layer, and is left out */
} spw_routed_engine;

SPW_MUST_CHECK spw_status spw_routed_responses_read(const spw_routed_engine *engine,
                                                    const spw_import_settings *settings,
                                                    struct spw_assembly **out);

/* For decode(): the bytes that `text` holds in base64, and out->where. */
SPW_MUST_CHECK spw_status spw_routed_decode_text(const spw_json_lines *lines, const char *text, size_t length,
                                                 spw_npy *out);
/* For decode(): the array of little-endian numbers, one after the other, that `text` holds in base64. `type` is "uint8", "int8",
 * "uint16", "int16", "int32", "uint32" or "int64". */
SPW_MUST_CHECK spw_status spw_routed_decode_raw(const spw_json_lines *lines, const char *text, size_t length,
                                                const char *type, const size_t extent[3], spw_npy *out);

#endif
