/* dynamo before it took over vLLM's text: engine_data.routed_experts is {"data": base64, "shape": [tokens, layers, k], "dtype",
 * "start": tokens of the prompt that were left out}. */
#include "traces/importers/routed_responses.h"

static const char *const known[] = {"data", "shape", "dtype", "start", NULL};

static spw_status decode(const spw_import_settings *settings, const spw_json_lines *lines,
                         const json_t *parent, json_t *value, spw_npy *out) {
    (void)settings;
    (void)parent;
    enum { AXES = 3 };
    spw_status status = SPW_OK;
    spw_json_table shape = {.value = NULL};
    const char *data = NULL, *type = NULL;
    int64_t start = 0;
    if (!json_is_object(value))
        SPW_TRY(
            spw_json_lines_fail(lines, "'routed_experts' must be an object of data, shape, dtype and start"));
    SPW_TRY(spw_json_check_keys(lines, value, known));
    SPW_TRY(spw_json_word(lines, value, "data", &data));
    SPW_TRY(spw_json_word(lines, value, "dtype", &type));
    SPW_TRY(spw_json_whole(lines, value, "start", 0, INT32_MAX, &start));
    SPW_TRY(spw_json_read_list(lines, value, "shape", INT32_MAX, &shape));
    SPW_TRY(spw_json_check_table(lines, "shape", &shape, 1, AXES));
    const size_t extent[AXES] = {shape.value[0], shape.value[1], shape.value[2]};
    SPW_TRY(spw_routed_decode_raw(lines, data, json_string_length(json_object_get(value, "data")), type,
                                  extent, out));

cleanup:
    spw_json_table_clear(&shape);
    return status;
}

spw_status spw_import_dynamo_routed(const spw_import_settings *settings, struct spw_assembly **out) {
    static const spw_routed_engine engine = {.decode = decode};
    return spw_routed_responses_read(&engine, settings, out);
}
