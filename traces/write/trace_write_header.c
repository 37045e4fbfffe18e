/* The parts of the file that are not the tokens: groups, attributes, scales, empty datasets. */
#include "traces/trace.h"
#include "traces/write/trace_write_internal.h"

#include "base/memory.h"
#include "traces/disk/hdf5_error.h"

#include <hdf5_hl.h>
#include <string.h>
#include <time.h>

enum { COLUMN_CHUNK = 65536, IDS_CHUNK_ROWS = 8192, COUNTS_CHUNK_BYTES = 1 << 20, FILLING_BYTES = 64 << 20 };

spw_status spw_trace_write_array(spw_trace_writer *writer, const char *path, hid_t file_type,
                                 hid_t memory_type, size_t count, const void *data) {
    hsize_t extent = count;
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_obj_track_times(list, false); /* the same content gives the same bytes */
    hid_t dataset = H5Dcreate2(writer->file, path, file_type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    bool good = dataset >= 0 && H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (dataset >= 0) (void)H5Dclose(dataset);
    if (list >= 0) (void)H5Pclose(list);
    if (space >= 0) (void)H5Sclose(space);
    if (!good) return spw_fail(SPW_EIO, "/%s: cannot be written (disk full, or out of memory?)", path);
    return spw_hdf5_ledger_note(&writer->ledger, path, SPW_HDF5_IN_ORDER, memory_type, NULL, data,
                                count * H5Tget_size(memory_type));
}

static spw_status set_attribute(hid_t file, const char *object, const char *name, hid_t file_type,
                                hid_t memory_type, const void *value) {
    hid_t holder = H5Oopen(file, object, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(holder, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0;
    if (attribute >= 0) (void)H5Aclose(attribute);
    if (space >= 0) (void)H5Sclose(space);
    if (holder >= 0) (void)H5Oclose(holder);
    return good ? SPW_OK
                : spw_fail(SPW_EIO, "attribute %s of %s: cannot be written (disk full, or out of memory?)",
                           name, object);
}

spw_status spw_trace_writer_set_text(spw_trace_writer *writer, const char *object, const char *name,
                                     const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1); /* of variable length: h5py then gives str, not bytes */
    (void)H5Tset_size(type, H5T_VARIABLE);
    (void)H5Tset_cset(type, H5T_CSET_UTF8);
    spw_status status = set_attribute(writer->file, object, name, type, type, &text);
    (void)H5Tclose(type);
    if (status != SPW_OK) return status;
    const hid_t holder = H5Oopen(writer->file, object, H5P_DEFAULT);
    status = spw_hdf5_ledger_note_text(&writer->ledger, holder, name, text);
    if (holder >= 0) (void)H5Oclose(holder);
    return status;
}

spw_status spw_trace_writer_set_integer(spw_trace_writer *writer, const char *object, const char *name,
                                        int64_t value) {
    return set_attribute(writer->file, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

static spw_status write_attributes(spw_trace_writer *writer, const spw_trace_write_settings *settings) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = settings->info;
    char now[32] = "";
    time_t seconds = time(NULL);
    struct tm utc;
    if (gmtime_r(&seconds, &utc) != NULL) (void)strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const struct {
        const char *object, *name, *text;
    } texts[] = {
        {"/", "format", "moe-routing-trace"},
        {"/", "format_version", "1.0.0"},
        {"/", "content", info->has_tokens ? "tokens+counts" : "counts"},
        {"/", "created", info->created != NULL && info->created[0] != '\0' ? info->created : now},
        {"/", "generator", info->generator},
        {"/", "source", info->source},
        {"/", "source_commit", info->source_commit},
        {"/", "license", info->license},
        {"/", "note", info->note},
        {"model", "name", info->model_name},
        {"model", "router_score", info->router_score},
        {"model", "balance", info->balance},
    };
    const struct {
        const char *object, *name;
        size_t value;
    } numbers[] = {
        {"model", "num_layers", info->model_layers},
        {"model", "hidden_size", info->model_hidden},
        {"model", "moe_intermediate_size", info->model_ffn},
        {"model", "n_group", info->groups},
        {"model", "topk_group", info->groups_kept},
        {"parallel", "seq_length", info->sequence_length},
        {"parallel", "gpus_per_node", info->gpus_per_node},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].text == NULL || texts[i].text[0] == '\0') continue;
        SPW_TRY(spw_trace_writer_set_text(writer, texts[i].object, texts[i].name, texts[i].text));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value == 0) continue;
        SPW_TRY(spw_trace_writer_set_integer(writer, numbers[i].object, numbers[i].name,
                                             (int64_t)numbers[i].value));
    }
    SPW_TRY(spw_trace_writer_set_integer(writer, "/", "synthetic", info->synthetic));

cleanup:
    return status;
}

/* /path = 0 1 2 ... count-1, or `values`, as a dimension scale. */
static spw_status write_scale(spw_trace_writer *writer, const char *path, const char *name, size_t count,
                              const int32_t *values) {
    spw_status status = SPW_OK;
    int32_t *numbers = NULL;
    SPW_TRY(SPW_ALLOC(count, &numbers));
    for (size_t i = 0; i < count; i++) numbers[i] = values != NULL ? values[i] : (int32_t)i;
    SPW_TRY(spw_trace_write_array(writer, path, H5T_STD_I32LE, H5T_NATIVE_INT32, count, numbers));
    hid_t dataset = H5Dopen2(writer->file, path, H5P_DEFAULT);
    if (H5DSset_scale(dataset, name) < 0)
        status = spw_fail(SPW_EIO, "/%s: cannot be a scale (disk full, or out of memory?)", path);
    if (dataset >= 0) (void)H5Dclose(dataset);

cleanup:
    spw_free(numbers);
    return status;
}

static spw_status write_layers(spw_trace_writer *writer, const spw_trace_info *info) {
    spw_status status = SPW_OK;
    SPW_TRY(write_scale(writer, "layer", "layer", info->layers, info->layer_id));
    SPW_TRY(write_scale(writer, "expert", "expert", info->experts, NULL));
    SPW_TRY(write_scale(writer, "k", "k", info->top_k, NULL));
    if (info->ranks > 0) SPW_TRY(write_scale(writer, "rank", "rank", info->ranks, info->rank_id));
    SPW_TRY(spw_trace_write_array(writer, "model/num_experts", H5T_STD_I32LE, H5T_NATIVE_UINT32, info->layers,
                                  info->layer_experts));
    SPW_TRY(spw_trace_write_array(writer, "model/top_k", H5T_STD_I32LE, H5T_NATIVE_UINT32, info->layers,
                                  info->layer_top_k));

cleanup:
    return status;
}

/* An empty dataset [0...][..] that grows along its first dimension; shuffle and gzip 4. */
typedef struct growing {
    const char *path;
    hid_t type;
    int rank;
    size_t element_bytes;
    bool fill; /* with all bits set */
} growing;

static spw_status create_growing(spw_trace_writer *writer, growing g, const hsize_t *extent,
                                 const hsize_t *chunk, hid_t *out) {
    const int rank = g.rank;
    const uint16_t all_set = 0xffff;
    hsize_t first[4] = {0}, most[4] = {0}, cache = g.element_bytes;
    for (int i = 0; i < rank; i++) {
        first[i] = i == 0 ? 0 : extent[i];
        most[i] = i == 0 ? H5S_UNLIMITED : extent[i];
        cache *= chunk[i];
    }
    hid_t space = H5Screate_simple(rank, first, most);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), access_list = H5Pcreate(H5P_DATASET_ACCESS);
    bool good = H5Pset_chunk(list, rank, chunk) >= 0 && H5Pset_shuffle(list) >= 0 &&
                H5Pset_deflate(list, 4) >= 0 && H5Pset_obj_track_times(list, false) >= 0 &&
                H5Pset_chunk_cache(access_list, 101, cache + 1024, 1.0) >= 0 &&
                (!g.fill || H5Pset_fill_value(list, H5T_NATIVE_UINT16, &all_set) >= 0);
    *out = good ? H5Dcreate2(writer->file, g.path, g.type, space, H5P_DEFAULT, list, access_list)
                : H5I_INVALID_HID;
    (void)H5Sclose(space);
    (void)H5Pclose(list);
    (void)H5Pclose(access_list);
    return *out >= 0 ? SPW_OK : spw_fail(SPW_EIO, "/%s: cannot be created (out of memory?)", g.path);
}

/* Rows of a chunk of expert_id: 8192, fewer where the file is short or all layers under way would be too
 * much. */
static size_t chunk_rows(const spw_trace_writer *writer, uint64_t tokens) {
    size_t rows = IDS_CHUNK_ROWS;
    if (tokens > 0 && tokens < rows) rows = (size_t)tokens;
    while (rows > 1 && rows * writer->top_k * 2 * writer->layers > FILLING_BYTES) rows = (rows + 1) / 2;
    return rows;
}

static spw_status create_tokens(spw_trace_writer *writer, const spw_trace_write_settings *settings) {
    spw_status status = SPW_OK;
    hid_t id_type = writer->id_bytes == 1 ? H5T_STD_U8LE : H5T_STD_U16LE;
    size_t rows = chunk_rows(writer, settings->tokens), layers = writer->layers, top_k = writer->top_k;
    const int level = settings->level == SPW_TRACE_STORED ? 0 : settings->level > 0 ? settings->level : 6;
    const hsize_t extent[] = {0, layers, top_k}, chunk[] = {rows, 1, top_k}, column = COLUMN_CHUNK;
    SPW_TRY(create_growing(writer, (growing){"tokens/expert_id", id_type, 3, 2, true}, extent, chunk,
                           &writer->expert_id));
    spw_chunk_writer set = {.dataset = writer->expert_id,
                            .path = "tokens/expert_id",
                            .ledger = &writer->ledger,
                            .layers = layers,
                            .top_k = top_k,
                            .element_bytes = writer->id_bytes,
                            .chunk_rows = rows,
                            .level = level};
    SPW_TRY(spw_chunk_writer_create(&set, &writer->ids));
    SPW_TRY(spw_trace_writer_set_integer(writer, "tokens/expert_id", "missing_value",
                                         writer->id_bytes == 1 ? UINT8_MAX : UINT16_MAX));
    SPW_TRY(spw_trace_writer_set_text(writer, "tokens/expert_id", "order",
                                      settings->order != NULL ? settings->order : "unspecified"));
    SPW_TRY(spw_trace_writer_set_text(writer, "tokens/expert_id", "expert_axis", "logical"));
    if (writer->has_weights) {
        SPW_TRY(create_growing(writer, (growing){"tokens/weight", writer->half_type, 3, 2, false}, extent,
                               chunk, &writer->weight));
        set.dataset = writer->weight, set.path = "tokens/weight", set.element_bytes = 2;
        SPW_TRY(spw_chunk_writer_create(&set, &writer->weights));
    }
    if (writer->ranks > 0) {
        SPW_TRY(create_growing(writer, (growing){"tokens/source_rank", H5T_STD_U16LE, 1, 2, false}, &column,
                               &column, &writer->source_rank));
    }
    if (writer->has_sequences) {
        SPW_TRY(create_growing(writer, (growing){"tokens/sequence", H5T_STD_I32LE, 1, 4, false}, &column,
                               &column, &writer->sequence));
        SPW_TRY(create_growing(writer, (growing){"tokens/position", H5T_STD_I32LE, 1, 4, false}, &column,
                               &column, &writer->position));
    }

cleanup:
    return status;
}

static spw_status create_counts(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    size_t layers = writer->layers, experts = writer->experts, ranks = writer->ranks;
    hsize_t steps = COUNTS_CHUNK_BYTES / (layers * experts * 4);
    const hsize_t extent[] = {0, layers, experts};
    hsize_t chunk[] = {steps < 1 ? 1 : steps > 64 ? 64 : steps, layers, experts};
    while (chunk[1] > 1 && chunk[0] * chunk[1] * experts * 4 > (hsize_t)16 * COUNTS_CHUNK_BYTES)
        chunk[1] = (chunk[1] + 1) / 2;
    SPW_TRY(create_growing(writer, (growing){"counts/routed", H5T_STD_U32LE, 3, 4, false}, extent, chunk,
                           &writer->routed));
    SPW_TRY(spw_trace_writer_set_text(writer, "counts/routed", "units", "token_expert_assignments"));
    SPW_TRY(spw_trace_writer_set_text(writer, "counts/routed", "expert_axis", "logical"));
    if (writer->has_by_rank) {
        const hsize_t whole[] = {0, ranks, layers, experts};
        hsize_t part[] = {1, ranks, layers, experts};
        while (part[2] > 1 && part[1] * part[2] * experts * 4 > (hsize_t)32 * COUNTS_CHUNK_BYTES)
            part[2] = (part[2] + 1) / 2;
        while (part[1] > 1 && part[1] * part[2] * experts * 4 > (hsize_t)32 * COUNTS_CHUNK_BYTES)
            part[1] = (part[1] + 1) / 2;
        SPW_TRY(create_growing(writer, (growing){"counts/by_rank", H5T_STD_U32LE, 4, 4, false}, whole, part,
                               &writer->by_rank));
    }

cleanup:
    return status;
}

spw_status spw_trace_write_header(spw_trace_writer *writer, const spw_trace_write_settings *settings) {
    spw_status status = SPW_OK;
    const char *groups[] = {"model", "steps", "counts", "parallel", "tokens"};
    for (size_t i = 0; i < (writer->has_tokens ? 5u : 4u); i++) {
        hid_t group = H5Gcreate2(writer->file, groups[i], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (group < 0) SPW_TRY(spw_fail(SPW_EIO, "/%s: cannot be created (out of memory?)", groups[i]));
        (void)H5Gclose(group);
    }
    SPW_TRY(write_attributes(writer, settings));
    SPW_TRY(write_layers(writer, settings->info));
    if (writer->has_tokens) SPW_TRY(create_tokens(writer, settings));
    SPW_TRY(create_counts(writer));

cleanup:
    return status;
}

static spw_status attach(spw_trace_writer *writer, hid_t dataset, const char *const *scales, unsigned rank) {
    for (unsigned i = 0; dataset >= 0 && i < rank; i++) {
        if (scales[i] == NULL) continue;
        hid_t scale = H5Dopen2(writer->file, scales[i], H5P_DEFAULT);
        bool good = scale >= 0 && H5DSattach_scale(dataset, scale, i) >= 0;
        if (!good) spw_hdf5_look();
        if (scale >= 0) (void)H5Dclose(scale);
        if (!good)
            return spw_fail(SPW_EIO, "/%s: cannot be attached as a scale (disk full, or out of memory?)",
                            scales[i]);
    }
    return SPW_OK;
}

spw_status spw_trace_write_steps(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    hid_t file = writer->file;
    SPW_TRY(spw_trace_write_array(writer, "steps/id", H5T_STD_I64LE, H5T_NATIVE_INT64, writer->steps,
                                  writer->step_id));
    SPW_TRY(spw_trace_write_array(writer, "steps/num_tokens", H5T_STD_I64LE, H5T_NATIVE_INT64, writer->steps,
                                  writer->step_tokens));
    SPW_TRY(spw_trace_write_array(writer, "steps/phase", H5T_STD_U8LE, H5T_NATIVE_UINT8, writer->steps,
                                  writer->step_phase));
    if (writer->has_tokens) {
        SPW_TRY(spw_trace_write_array(writer, "tokens/step_offset", H5T_STD_I64LE, H5T_NATIVE_INT64,
                                      writer->steps + 1, writer->step_offset));
    }
    /* Again in the root: netCDF readers look for the scales of /counts there and upwards, not in /steps. */
    SPW_TRY(spw_trace_write_array(writer, "step", H5T_STD_I64LE, H5T_NATIVE_INT64, writer->steps,
                                  writer->step_id));
    for (int i = 0; i < 2 && status == SPW_OK; i++) {
        hid_t step = H5Dopen2(file, i == 0 ? "step" : "steps/id", H5P_DEFAULT);
        if (H5DSset_scale(step, "step") < 0)
            status = spw_fail(SPW_EIO, "/steps/id: cannot be a scale (disk full, or out of memory?)");
        if (step >= 0) (void)H5Dclose(step);
    }
    if (status != SPW_OK) goto cleanup;
    /* not expert_id and weight: netCDF readers refuse a dataset of which one dimension (the tokens) has no
     * scale */
    SPW_TRY(attach(writer, writer->routed, (const char *const[]){"step", "layer", "expert"}, 3));
    SPW_TRY(attach(writer, writer->by_rank, (const char *const[]){"step", "rank", "layer", "expert"}, 4));

cleanup:
    return status;
}
