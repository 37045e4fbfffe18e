/* Megatron-LM, megatron/core/transformer/moe/router_trace.py: one line a (step, block, layer) and forward pass,
 *   {"step", "stage": "pre_dispatch", "block", "layer", "rank", "num_tokens", "topk", "top_indices": [[...]]}, mtp_idx for mtp.
 * Layers are counted inside of a pipeline stage. Where the router hands out a map instead of ids, they come in ascending order.
 * Rows are those of hidden states [sequence][micro-batch][hidden]: micro-batches interleave. */
#include "traces/importers/assembly.h"
#include "traces/importers/json_lines.h"
#include "traces/importers/router_scores.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <string.h>

static const char *const known[] = {"step",         "stage",       "block",       "layer",
                                    "rank",         "num_tokens",  "topk",        "top_indices",
                                    "mtp_idx",      "hs_offset",   "hs_bytes",    "hs_shape",
                                    "logit_offset", "logit_bytes", "logit_shape", NULL};

/* The steps of a file do not go back: every run writes a file of its own. */
typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_json_lines *lines;
    spw_json_table table;
    uint16_t *id;
    size_t id_capacity;
    spw_router_logits logits; /* open from a file's first record on, where --scores is stated */
    size_t file;
    int64_t rank, step; /* of the line before; -1: none */
} reader;

static spw_status read_place(reader *r, json_t *object, spw_assembly_place *place) {
    spw_status status = SPW_OK;
    const char *block = NULL, *stage = "pre_dispatch"; /* older recorders do not write it */
    int64_t layer = 0, rank = 0, depth = 0;
    SPW_TRY(spw_json_check_keys(r->lines, object, known));
    if (json_object_get(object, "stage") != NULL) SPW_TRY(spw_json_word(r->lines, object, "stage", &stage));
    SPW_TRY(spw_json_word(r->lines, object, "block", &block));
    SPW_TRY(spw_json_whole(r->lines, object, "step", 0, INT64_MAX, &place->step));
    SPW_TRY(spw_json_whole(r->lines, object, "layer", 0, SPW_ASSEMBLY_MAX_LAYER, &layer));
    SPW_TRY(spw_json_whole(r->lines, object, "rank", 0, SPW_ASSEMBLY_MAX_RANK, &rank));
    if (strcmp(stage, "pre_dispatch") != 0)
        SPW_TRY(spw_json_lines_fail(r->lines, "'stage' must be pre_dispatch"));
    place->block = strcmp(block, "mtp") == 0;
    if (place->block == 0 && strcmp(block, "decoder") != 0)
        SPW_TRY(spw_json_lines_fail(r->lines, "'block' must be decoder or mtp"));
    if (place->block == 1)
        SPW_TRY(spw_json_whole(r->lines, object, "mtp_idx", 0, SPW_ASSEMBLY_MAX_DEPTH, &depth));
    if (r->rank >= 0 && rank != r->rank)
        SPW_TRY(spw_json_lines_fail(r->lines, "rank %lld; the lines before are of rank %lld", (long long)rank,
                                    (long long)r->rank));
    if (place->step < r->step)
        SPW_TRY(spw_json_lines_fail(
            r->lines, "step %lld after step %lld: the lines of two runs? import them one by one",
            (long long)place->step, (long long)r->step));
    r->rank = rank;
    r->step = place->step;
    place->layer = (int32_t)layer;
    place->rank = (uint32_t)rank;
    place->depth = (uint32_t)depth;
    place->file = r->file;
    place->line = spw_json_lines_number(r->lines);

cleanup:
    return status;
}

static spw_status add_record(void *context, spw_json_lines *lines, json_t *object) {
    reader *r = context;
    spw_status status = SPW_OK;
    spw_assembly_place place = {.step = 0};
    int64_t tokens = 0, top_k = 0;
    r->lines = lines;
    SPW_TRY(read_place(r, object, &place));
    SPW_TRY(spw_json_whole(r->lines, object, "num_tokens", 0, INT32_MAX, &tokens));
    SPW_TRY(spw_json_whole(r->lines, object, "topk", 1, SPW_TRACE_MAX_TOP_K, &top_k));
    if ((size_t)top_k != r->settings->top_k)
        SPW_TRY(spw_json_lines_fail(r->lines, "topk %lld; --top-k says %zu", (long long)top_k,
                                    r->settings->top_k));
    SPW_TRY(
        spw_json_read_table(r->lines, object, "top_indices", (uint32_t)r->settings->experts - 1, &r->table));
    SPW_TRY(spw_json_check_table(r->lines, "top_indices", &r->table, (size_t)tokens, (size_t)top_k));
    const size_t choices = r->table.rows * r->table.columns;
    if (choices > r->id_capacity) {
        spw_free(r->id);
        r->id_capacity = 0;
        SPW_TRY(SPW_ALLOC(choices, &r->id));
        r->id_capacity = choices;
    }
    for (size_t i = 0; i < choices; i++) r->id[i] = (uint16_t)r->table.value[i];
    if (r->settings->scores == NULL) {
        SPW_TRY(spw_assembly_add_ids(r->assembly, &place, (uint64_t)tokens, r->id));
        goto cleanup;
    }
    if (r->logits.file == NULL)
        SPW_TRY(spw_router_logits_open(r->settings->input[r->file], r->rank, &r->logits));
    SPW_TRY(spw_router_logits_weigh(&r->logits, r->settings, lines, object, r->id, (size_t)tokens));
    SPW_TRY(spw_assembly_add_weighted_ids(r->assembly, &place, (uint64_t)tokens, r->id, r->logits.weight));

cleanup:
    return status;
}

spw_status spw_import_megatron_router(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.repeats = true;
    shape.sources = true;
    shape.sequences = settings->micro_batch_size;
    shape.interleaved = true;
    if (settings->scores != NULL) shape.weight_kind = spw_router_score_kind(settings->scores);
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++) {
        r.rank = r.step = -1;
        SPW_TRY(spw_json_lines_read(settings->input[r.file], add_record, &r));
        spw_router_logits_close(&r.logits);
    }

cleanup:
    spw_router_logits_close(&r.logits);
    spw_json_table_clear(&r.table);
    spw_free(r.id);
    return status;
}
