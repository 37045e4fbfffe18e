/* moe-balance: lines of {"layer", "batch_id", "origin_rows": [rank of a token ...] or [], "topk_experts": [[...]]}; a batch is a
 * step. topk_weights are kept where every line has them; names of requests are not. */
#include "traces/importers/assembly.h"
#include "traces/importers/half_bits.h"
#include "traces/importers/json_lines.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <string.h>

static const char *const known[] = {"layer",        "batch_id",     "origin_rows",
                                    "topk_experts", "topk_weights", "request_id",
                                    "source_file",  "origin_row",   NULL};

typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_json_table table, origin;
    uint16_t *id;                    /* the choices of one rank */
    uint16_t *weight, *table_weight; /* [tokens][top_k] of one rank and of the line, half bits */
    uint64_t *begin;                 /* [ranks + 1] its first token in order of ranks */
    size_t *order;                   /* [tokens] tokens in order of ranks */
    size_t tokens, file;
} reader;

static spw_status reserve(reader *r, size_t tokens) {
    spw_status status = SPW_OK;
    if (tokens <= r->tokens) return SPW_OK;
    void **buffers[] = {(void **)&r->id, (void **)&r->weight, (void **)&r->table_weight, (void **)&r->order};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        spw_free(*buffers[i]);
        *buffers[i] = NULL;
    }
    r->tokens = 0;
    SPW_TRY(SPW_ALLOC(tokens * r->settings->top_k, &r->id));
    SPW_TRY(SPW_ALLOC(tokens * r->settings->top_k, &r->weight));
    SPW_TRY(SPW_ALLOC(tokens * r->settings->top_k, &r->table_weight));
    SPW_TRY(SPW_ALLOC(tokens, &r->order));
    r->tokens = tokens;

cleanup:
    return status;
}

/* Tokens by rank, in their order within it; without origin_rows all are of rank 0. */
static spw_status sort_tokens(reader *r, const spw_json_lines *lines) {
    const size_t ranks = r->settings->ranks > 0 ? r->settings->ranks : 1;
    const bool known_ranks = r->origin.columns > 0;
    if (known_ranks && r->settings->ranks == 0)
        return spw_json_lines_fail(lines,
                                   "'origin_rows' names source ranks; --ranks must say how many there are");
    if (!known_ranks && r->settings->ranks > 0 && r->table.rows > 0)
        return spw_json_lines_fail(lines, "'origin_rows' is empty; without --ranks that would be right");
    if (known_ranks && r->origin.columns != r->table.rows)
        return spw_json_lines_fail(lines, "'origin_rows' has %zu elements, 'topk_experts' %zu rows",
                                   r->origin.columns, r->table.rows);
    for (size_t i = 0; i <= ranks; i++) r->begin[i] = 0;
    for (size_t i = 0; i < r->table.rows; i++) r->begin[(known_ranks ? r->origin.value[i] : 0) + 1]++;
    for (size_t i = 0; i < ranks; i++) r->begin[i + 1] += r->begin[i];
    for (size_t i = r->table.rows; i-- > 0;) {
        /* from the last to the first: begin[rank + 1] goes down to the rank's begin */
        r->order[--r->begin[(known_ranks ? r->origin.value[i] : 0) + 1]] = i;
    }
    for (size_t i = 0; i < ranks; i++) r->begin[i] = r->begin[i + 1];
    r->begin[ranks] = r->table.rows;
    return SPW_OK;
}

/* topk_weights, as topk_experts has its rows. *there false: the line has none. */
static spw_status read_weights(reader *r, const spw_json_lines *lines, const json_t *object, bool *there) {
    const json_t *list = json_object_get(object, "topk_weights");
    const size_t top_k = r->settings->top_k;
    *there = json_array_size(list) > 0;
    if (!*there) return SPW_OK;
    if (json_array_size(list) != r->table.rows)
        return spw_json_lines_fail(lines, "'topk_weights' has %zu rows, 'topk_experts' %zu",
                                   json_array_size(list), r->table.rows);
    for (size_t i = 0; i < r->table.rows; i++) {
        const json_t *row = json_array_get(list, i);
        for (size_t k = 0; k < top_k; k++) {
            const json_t *value = json_array_get(row, k);
            if (json_array_size(row) != top_k || !json_is_number(value) ||
                !spw_half_bits(json_number_value(value), &r->table_weight[i * top_k + k]))
                return spw_json_lines_fail(
                    lines, "'topk_weights', row %zu: must be %zu numbers from 0 to 65504", i, top_k);
        }
    }
    return SPW_OK;
}

static spw_status add_record(void *context, spw_json_lines *lines, json_t *object) {
    spw_status status = SPW_OK;
    reader *r = context;
    const spw_import_settings *settings = r->settings;
    const size_t ranks = settings->ranks > 0 ? settings->ranks : 1, top_k = settings->top_k;
    spw_assembly_place place = {.file = r->file, .line = spw_json_lines_number(lines)};
    int64_t layer = 0;
    bool weighted = false;
    SPW_TRY(spw_json_check_keys(lines, object, known));
    SPW_TRY(spw_json_whole(lines, object, "layer", 0, SPW_ASSEMBLY_MAX_LAYER, &layer));
    SPW_TRY(spw_json_whole(lines, object, "batch_id", 0, INT64_MAX, &place.step));
    SPW_TRY(spw_json_read_list(lines, object, "origin_rows",
                               settings->ranks > 0 ? (uint32_t)ranks - 1 : SPW_TRACE_MAX_RANKS, &r->origin));
    SPW_TRY(spw_json_read_table(lines, object, "topk_experts", (uint32_t)settings->experts - 1, &r->table));
    SPW_TRY(spw_json_check_table(lines, "topk_experts", &r->table, r->table.rows, top_k));
    SPW_TRY(reserve(r, r->table.rows));
    SPW_TRY(sort_tokens(r, lines));
    SPW_TRY(read_weights(r, lines, object, &weighted));
    place.layer = (int32_t)layer;
    for (size_t rank = 0; rank < ranks; rank++) {
        const uint64_t tokens = r->begin[rank + 1] - r->begin[rank];
        if (tokens == 0 && ranks > 1) continue; /* another line may hold them */
        for (uint64_t t = 0; t < tokens; t++) {
            const size_t from = r->order[r->begin[rank] + t] * top_k;
            for (size_t k = 0; k < top_k; k++) r->id[t * top_k + k] = (uint16_t)r->table.value[from + k];
            if (weighted) memcpy(r->weight + t * top_k, r->table_weight + from, top_k * sizeof *r->weight);
        }
        place.rank = (uint32_t)rank;
        SPW_TRY(weighted ? spw_assembly_add_weighted_ids(r->assembly, &place, tokens, r->id, r->weight)
                         : spw_assembly_add_ids(r->assembly, &place, tokens, r->id));
    }

cleanup:
    return status;
}

spw_status spw_import_moe_balance(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.sources = settings->ranks > 0;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    SPW_TRY(SPW_ALLOC(shape.ranks + 1, &r.begin));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++)
        SPW_TRY(spw_json_lines_read(settings->input[r.file], add_record, &r));

cleanup:
    spw_json_table_clear(&r.table);
    spw_json_table_clear(&r.origin);
    spw_free(r.id);
    spw_free(r.weight);
    spw_free(r.table_weight);
    spw_free(r.begin);
    spw_free(r.order);
    return status;
}
