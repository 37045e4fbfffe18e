/* Lines of {"layer", "counts": [count of an expert ...]}: totals of one run, as tools around llama.cpp print them. */
#include "traces/importers/assembly.h"
#include "traces/importers/json_lines.h"

static const char *const known[] = {"layer", "counts", NULL};

typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_json_table table;
    size_t file;
} reader;

static spw_status add_record(void *context, spw_json_lines *lines, json_t *object) {
    spw_status status = SPW_OK;
    reader *r = context;
    spw_assembly_place place = {.file = r->file, .line = spw_json_lines_number(lines)};
    int64_t layer = 0;
    SPW_TRY(spw_json_check_keys(lines, object, known));
    SPW_TRY(spw_json_whole(lines, object, "layer", 0, SPW_ASSEMBLY_MAX_LAYER, &layer));
    SPW_TRY(spw_json_read_list(lines, object, "counts", UINT32_MAX, &r->table));
    SPW_TRY(spw_json_check_table(lines, "counts", &r->table, 1, r->settings->experts));
    place.layer = (int32_t)layer;
    SPW_TRY(spw_assembly_add_counts(r->assembly, &place, 0, r->settings->experts, r->table.value));

cleanup:
    return status;
}

spw_status spw_import_layer_counts(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.counts = true;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++)
        SPW_TRY(spw_json_lines_read(settings->input[r.file], add_record, &r));

cleanup:
    spw_json_table_clear(&r.table);
    return status;
}
