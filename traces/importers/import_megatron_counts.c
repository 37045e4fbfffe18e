/* Megatron-LM, megatron/training/activation_logging.py: tokens_per_expert/rank{N}.jsonl, appended once a logged iteration,
 *   {"iter", "block", "layer", "tpe": [[count of a local expert ...] a micro-batch ...]}, mtp_idx for mtp.
 * Counts are rows that arrived, after the dispatch, on the rank that the file's name says; rank r holds the experts of
 * expert-parallel rank r % EP (Megatron's order of ranks), and ranks with the same experts got tokens of different replicas. A
 * resumed run appends iterations again. */
#include "traces/importers/assembly.h"
#include "traces/importers/json_lines.h"

#include <string.h>

static const char *const known[] = {"iter", "block", "mtp_idx", "layer", "tpe", NULL};

typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_json_lines *lines;
    spw_json_table table;
    size_t file;
    uint32_t rank;
    bool begun;
    spw_assembly_place before; /* of the line before */
} reader;

/* The N of .../rankN.jsonl. */
static spw_status rank_of_name(const char *path, uint32_t *rank) {
    const char *slash = strrchr(path, '/'), *at = slash != NULL ? slash + 1 : path;
    uint32_t value = 0;
    if (strncmp(at, "rank", 4) == 0) {
        const char *digit = at += 4;
        for (; *digit >= '0' && *digit <= '9' && value <= SPW_ASSEMBLY_MAX_RANK; digit++)
            value = value * 10 + (uint32_t)(*digit - '0');
        if (digit > at && value <= SPW_ASSEMBLY_MAX_RANK && strcmp(digit, ".jsonl") == 0) {
            *rank = value;
            return SPW_OK;
        }
    }
    return spw_fail(SPW_EFORMAT, "%s: its rank is in a file's name alone; rank{N}.jsonl would be right",
                    path);
}

static bool goes_back(const spw_assembly_place *before, const spw_assembly_place *now) {
    if (before->step != now->step) return now->step < before->step;
    if (before->block != now->block) return now->block < before->block;
    if (before->depth != now->depth) return now->depth < before->depth;
    return now->layer <= before->layer;
}

static spw_status read_place(reader *r, json_t *object, spw_assembly_place *place) {
    spw_status status = SPW_OK;
    const char *block = NULL;
    int64_t layer = 0, depth = 0;
    SPW_TRY(spw_json_check_keys(r->lines, object, known));
    SPW_TRY(spw_json_whole(r->lines, object, "iter", 0, INT64_MAX, &place->step));
    SPW_TRY(spw_json_whole(r->lines, object, "layer", 0, SPW_ASSEMBLY_MAX_LAYER, &layer));
    SPW_TRY(spw_json_word(r->lines, object, "block", &block));
    place->block = strcmp(block, "mtp") == 0;
    if (place->block == 0 && strcmp(block, "decoder") != 0)
        SPW_TRY(spw_json_lines_fail(r->lines, "'block' must be decoder or mtp"));
    if (place->block == 1)
        SPW_TRY(spw_json_whole(r->lines, object, "mtp_idx", 0, SPW_ASSEMBLY_MAX_DEPTH, &depth));
    place->layer = (int32_t)layer;
    place->rank = r->rank;
    place->depth = (uint32_t)depth;
    place->file = r->file;
    place->line = spw_json_lines_number(r->lines);
    if (r->begun && goes_back(&r->before, place)) {
        if (!r->settings->resumed)
            SPW_TRY(spw_json_lines_fail(
                r->lines,
                "iteration %lld, layer %lld after iteration %lld, layer %d: a resumed run "
                "appends iterations again; with --resumed the later ones count",
                (long long)place->step, (long long)layer, (long long)r->before.step, r->before.layer));
        spw_assembly_forget(r->assembly, r->file, place->step);
    }
    r->before = *place;
    r->begun = true;

cleanup:
    return status;
}

static spw_status add_record(void *context, spw_json_lines *lines, json_t *object) {
    reader *r = context;
    spw_status status = SPW_OK;
    spw_assembly_place place = {.step = 0};
    const size_t groups = r->settings->expert_parallel, local = r->settings->experts / groups;
    r->lines = lines;
    SPW_TRY(read_place(r, object, &place));
    SPW_TRY(spw_json_read_table(r->lines, object, "tpe", UINT32_MAX, &r->table));
    SPW_TRY(spw_json_check_table(r->lines, "tpe", &r->table, r->table.rows, local));
    for (size_t i = 0; i < r->table.rows; i++) {
        SPW_TRY(spw_assembly_add_counts(r->assembly, &place, r->rank % groups * local, local,
                                        r->table.value + i * local));
    }

cleanup:
    return status;
}

static spw_status check_groups(const spw_import_settings *settings) {
    const size_t groups = settings->expert_parallel;
    if (settings->experts % groups == 0 && settings->ranks % groups == 0) return SPW_OK;
    return spw_fail(SPW_EARG, "--expert-parallel %zu must divide --experts %zu and --ranks %zu", groups,
                    settings->experts, settings->ranks);
}

spw_status spw_import_megatron_counts(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.repeats = true;
    shape.counts = true;
    SPW_TRY(check_groups(settings));
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++) {
        r.begun = false;
        SPW_TRY(rank_of_name(settings->input[r.file], &r.rank));
        SPW_TRY(spw_json_lines_read(settings->input[r.file], add_record, &r));
    }

cleanup:
    spw_json_table_clear(&r.table);
    return status;
}
