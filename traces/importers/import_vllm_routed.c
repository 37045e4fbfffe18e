/* vLLM --enable-return-routed-experts: choices[].routed_experts is the base64 of a .npy, [tokens - 1][layers][k] of uint8 or uint16
 * (of int16 before). dynamo passes the same text on as generate_metadata.routed_experts. */
#include "traces/importers/npy_internal.h"
#include "traces/importers/routed_responses.h"

static spw_status decode(const spw_import_settings *settings, const spw_json_lines *lines,
                         const json_t *parent, json_t *value, spw_npy *out) {
    (void)settings;
    (void)parent;
    if (!json_is_string(value))
        return spw_json_lines_fail(lines, "'routed_experts' must be a text, the base64 of a .npy");
    const spw_status status =
        spw_routed_decode_text(lines, json_string_value(value), json_string_length(value), out);
    return status == SPW_OK ? spw_npy_parse(out) : status;
}

spw_status spw_import_vllm_routed(const spw_import_settings *settings, struct spw_assembly **out) {
    static const spw_routed_engine engine = {.decode = decode};
    return spw_routed_responses_read(&engine, settings, out);
}
