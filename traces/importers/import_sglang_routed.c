/* SGLang --enable-return-routed-experts: routed_experts, in meta_info or sgl_ext, is the base64 of int32 [tokens - 1 - start][layers][k]
 * without a header; start is its neighbour routed_experts_start_len, 0 where there is none. */
#include "traces/importers/routed_responses.h"

#include <inttypes.h>

/* Where the response counts its tokens, the rows must be theirs. */
static spw_status check_tokens(const spw_json_lines *lines, const json_t *parent, size_t rows) {
    enum { MOST = 1 << 30 };
    spw_status status = SPW_OK;
    int64_t prompt = 0, completion = 0, start = 0;
    if (json_object_get(parent, "routed_experts_start_len") != NULL)
        SPW_TRY(spw_json_whole(lines, parent, "routed_experts_start_len", 0, MOST, &start));
    if (json_object_get(parent, "prompt_tokens") == NULL ||
        json_object_get(parent, "completion_tokens") == NULL)
        goto cleanup;
    SPW_TRY(spw_json_whole(lines, parent, "prompt_tokens", 0, MOST, &prompt));
    SPW_TRY(spw_json_whole(lines, parent, "completion_tokens", 0, MOST, &completion));
    if (prompt + completion - 1 - start != (int64_t)rows)
        SPW_TRY(spw_json_lines_fail(lines,
                                    "routed_experts of %zu tokens; %" PRId64 " of the prompt and %" PRId64
                                    " after it, without the last one and %" PRId64
                                    " before the start, are %" PRId64
                                    " (does --layers name every layer of the model?)",
                                    rows, prompt, completion, start, prompt + completion - 1 - start));

cleanup:
    return status;
}

static spw_status decode(const spw_import_settings *settings, const spw_json_lines *lines,
                         const json_t *parent, json_t *value, spw_npy *out) {
    spw_status status = SPW_OK;
    if (!json_is_string(value))
        return spw_json_lines_fail(lines, "'routed_experts' must be a text, the base64 of int32");
    const size_t length = json_string_length(value), row = settings->layers.count * settings->top_k;
    const char *text = json_string_value(value);
    const size_t padding = length > 1 ? (size_t)(text[length - 1] == '=') + (text[length - 2] == '=') : 0,
                 elements = (length / 4 * 3 - padding) / sizeof(int32_t);
    if (row == 0 || elements % row != 0)
        return spw_json_lines_fail(lines,
                                   "routed_experts: %zu numbers are no multiple of %zu layers x top-%zu",
                                   elements, settings->layers.count, settings->top_k);
    const size_t extent[3] = {elements / row, settings->layers.count, settings->top_k};
    SPW_TRY(spw_routed_decode_raw(lines, text, length, "int32", extent, out));
    SPW_TRY(check_tokens(lines, parent, extent[0]));

cleanup:
    return status;
}

spw_status spw_import_sglang_routed(const spw_import_settings *settings, struct spw_assembly **out) {
    static const spw_routed_engine engine = {.decode = decode};
    return spw_routed_responses_read(&engine, settings, out);
}
