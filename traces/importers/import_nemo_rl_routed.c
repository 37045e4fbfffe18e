/* NeMo-RL: choices[].message.routed_experts is "nrlre1:DTYPE:TOKENSxLAYERSxK:BASE64", the narrowest of int8, int16 and int32 that
 * holds the experts. A token whose route is not known has -1. The last token of a sequence is never routed: its row is made up. */
#include "traces/importers/routed_responses.h"

#include <stdio.h>
#include <string.h>

enum { AXES = 3, MOST_DIGITS = 9 };

/* A number of at most nine digits before `end`; *at then stands behind it. */
static bool take_extent(const char **at, char end, size_t *out) {
    size_t digits = 0;
    for (*out = 0; **at >= '0' && **at <= '9' && digits < MOST_DIGITS; ++*at, digits++)
        *out = *out * 10 + (size_t)(**at - '0');
    return digits > 0 && *(*at)++ == end;
}

static spw_status decode(const spw_import_settings *settings, const spw_json_lines *lines,
                         const json_t *parent, json_t *value, spw_npy *out) {
    (void)settings;
    (void)parent;
    static const char magic[] = "nrlre1:";
    const char *at = json_string_value(value), *colon = NULL;
    size_t extent[AXES] = {0, 0, 0};
    char type[8] = "";
    if (at == NULL || strncmp(at, magic, sizeof magic - 1) != 0)
        return spw_json_lines_fail(lines,
                                   "'routed_experts' must be a text 'nrlre1:DTYPE:TOKENSxLAYERSxK:BASE64'");
    const char *end = at + json_string_length(value);
    at += sizeof magic - 1;
    colon = strchr(at, ':');
    if (colon == NULL || (size_t)(colon - at) >= sizeof type)
        return spw_json_lines_fail(lines, "'routed_experts': no type of elements after 'nrlre1:'");
    (void)snprintf(type, sizeof type, "%.*s", (int)(colon - at), at);
    at = colon + 1;
    if (!take_extent(&at, 'x', &extent[0]) || !take_extent(&at, 'x', &extent[1]) ||
        !take_extent(&at, ':', &extent[2]))
        return spw_json_lines_fail(lines, "'routed_experts': the shape must be TOKENSxLAYERSxK");
    return spw_routed_decode_raw(lines, at, (size_t)(end - at), type, extent, out);
}

spw_status spw_import_nemo_rl_routed(const spw_import_settings *settings, struct spw_assembly **out) {
    static const spw_routed_engine engine = {.decode = decode, .no_route = true, .made_last = true};
    return spw_routed_responses_read(&engine, settings, out);
}
