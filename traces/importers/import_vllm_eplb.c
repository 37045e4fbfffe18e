/* vLLM's offline EPLB statistics: at most one line eplb_load_meta, at the head of a file, then lines of
 *   {"record_type": "eplb_load_stats", "version": 1, "step", "expert_load": [layer][slot], "p2l_map": [layer][slot]}.
 * A slot holds a replica of the logical expert that p2l_map says; the loads of replicas are summed. */
#include "traces/importers/assembly.h"
#include "traces/importers/json_lines.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <string.h>

static const char *const known_meta[] = {"record_type", "version",   "model",      "num_ranks",
                                         "num_groups",  "num_nodes", "num_layers", "num_redundant_experts",
                                         NULL};
static const char *const known_stats[] = {"record_type", "version",   "step",       "expert_load",
                                          "p2l_map",     "num_ranks", "num_layers", NULL};

typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_json_table load, map;
    uint32_t *count; /* [experts] */
    size_t file;
    int64_t layers; /* of the meta line; 0: none */
    bool begun;     /* a line was read */
} reader;

static spw_status read_meta(reader *r, const spw_json_lines *lines, json_t *object) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_json_check_keys(lines, object, known_meta));
    if (r->begun)
        SPW_TRY(spw_json_lines_fail(lines, "eplb_load_meta must be the first line, and there but once"));
    SPW_TRY(spw_json_whole(lines, object, "num_layers", 1, SPW_TRACE_MAX_LAYERS, &r->layers));

cleanup:
    return status;
}

static spw_status sum_layer(reader *r, const spw_json_lines *lines, size_t layer) {
    const size_t slots = r->load.columns, experts = r->settings->experts;
    memset(r->count, 0, experts * sizeof *r->count);
    for (size_t slot = 0; slot < slots; slot++) {
        const uint32_t expert = r->map.value[layer * slots + slot],
                       load = r->load.value[layer * slots + slot];
        if (load > UINT32_MAX - r->count[expert])
            return spw_json_lines_fail(lines, "layer %zu: the loads of expert %u overflow", layer, expert);
        r->count[expert] += load;
    }
    return SPW_OK;
}

static spw_status read_stats(reader *r, const spw_json_lines *lines, json_t *object) {
    spw_status status = SPW_OK;
    spw_assembly_place place = {.file = r->file, .line = spw_json_lines_number(lines)};
    const spw_index_list *layers = &r->settings->layers;
    const uint32_t last = (uint32_t)r->settings->experts - 1;
    SPW_TRY(spw_json_check_keys(lines, object, known_stats));
    SPW_TRY(spw_json_whole(lines, object, "step", 0, INT64_MAX, &place.step));
    SPW_TRY(spw_json_read_table(lines, object, "expert_load", UINT32_MAX, &r->load));
    SPW_TRY(spw_json_read_table(lines, object, "p2l_map", last, &r->map));
    SPW_TRY(spw_json_check_table(lines, "p2l_map", &r->map, r->load.rows, r->load.columns));
    if (r->layers > 0)
        SPW_TRY(spw_json_check_table(lines, "expert_load", &r->load, (size_t)r->layers, r->load.columns));
    if (layers->count > 0)
        SPW_TRY(spw_json_check_table(lines, "expert_load", &r->load, layers->count, r->load.columns));
    for (size_t layer = 0; layer < r->load.rows; layer++) {
        SPW_TRY(sum_layer(r, lines, layer));
        place.layer = layers->count > 0 ? layers->value[layer] : (int32_t)layer;
        SPW_TRY(spw_assembly_add_counts(r->assembly, &place, 0, r->settings->experts, r->count));
    }

cleanup:
    return status;
}

static spw_status add_record(void *context, spw_json_lines *lines, json_t *object) {
    spw_status status = SPW_OK;
    reader *r = context;
    const char *type = NULL;
    int64_t version = 0;
    SPW_TRY(spw_json_word(lines, object, "record_type", &type));
    SPW_TRY(spw_json_whole(lines, object, "version", 1, 1, &version));
    if (strcmp(type, "eplb_load_meta") == 0) {
        SPW_TRY(read_meta(r, lines, object));
    } else if (strcmp(type, "eplb_load_stats") == 0) {
        SPW_TRY(read_stats(r, lines, object));
    } else {
        SPW_TRY(spw_json_lines_fail(lines, "'record_type' must be eplb_load_meta or eplb_load_stats"));
    }
    r->begun = true;

cleanup:
    return status;
}

spw_status spw_import_vllm_eplb(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.counts = true;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    SPW_TRY(SPW_ALLOC(settings->experts, &r.count));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++) {
        r.begun = false;
        r.layers = 0;
        SPW_TRY(spw_json_lines_read(settings->input[r.file], add_record, &r));
    }

cleanup:
    spw_json_table_clear(&r.load);
    spw_json_table_clear(&r.map);
    spw_free(r.count);
    return status;
}
