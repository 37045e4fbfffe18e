/* What is checked before the first token is read. */
#include "traces/trace_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMN_CACHE = 1 << 20, CHUNK_CACHE = 32 << 20 };

static const struct {
    const char *object, *name;
    size_t offset;
} texts[SPW_TRACE_TEXTS] = {
    {"/", "source", offsetof(spw_trace_info, source)},
    {"/", "source_commit", offsetof(spw_trace_info, source_commit)},
    {"/", "license", offsetof(spw_trace_info, license)},
    {"/", "generator", offsetof(spw_trace_info, generator)},
    {"/", "created", offsetof(spw_trace_info, created)},
    {"/", "note", offsetof(spw_trace_info, note)},
    {"/", "content", offsetof(spw_trace_info, content)},
    {"/", "format_version", offsetof(spw_trace_info, version)},
    {"model", "name", offsetof(spw_trace_info, model_name)},
    {"model", "router_score", offsetof(spw_trace_info, router_score)},
    {"model", "balance", offsetof(spw_trace_info, balance)},
    [SPW_TRACE_FORMAT] = {"/", "format", 0},
    [SPW_TRACE_ORDER] = {"tokens/expert_id", "order", offsetof(spw_trace_info, order)},
    [SPW_TRACE_WEIGHT_KIND] = {"tokens/weight", "weight_kind", offsetof(spw_trace_info, weight_kind)},
    [SPW_TRACE_AXIS] = {"tokens/expert_id", "expert_axis", 0},
    [SPW_TRACE_ROUTED_AXIS] = {"counts/routed", "expert_axis", 0},
    [SPW_TRACE_BY_RANK_AXIS] = {"counts/by_rank", "expert_axis", 0},
    [SPW_TRACE_TOKEN_FILTER] = {"counts/routed", "token_filter", 0},
};

static const struct {
    const char *group, *name;
    size_t offset;
} numbers[] = {
    {"model", "num_layers", offsetof(spw_trace_info, model_layers)},
    {"model", "hidden_size", offsetof(spw_trace_info, model_hidden)},
    {"model", "moe_intermediate_size", offsetof(spw_trace_info, model_ffn)},
    {"model", "n_group", offsetof(spw_trace_info, groups)},
    {"model", "topk_group", offsetof(spw_trace_info, groups_kept)},
    {"parallel", "seq_length", offsetof(spw_trace_info, sequence_length)},
    {"parallel", "gpus_per_node", offsetof(spw_trace_info, gpus_per_node)},
};

static hid_t open_object(hid_t file, const char *path) {
    if (strcmp(path, "/") != 0 && !spw_hdf5_exists(file, path)) return H5I_INVALID_HID;
    return H5Oopen(file, path, H5P_DEFAULT);
}

spw_status spw_trace_read_texts(spw_trace *trace) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < SPW_TRACE_TEXTS && status == SPW_OK; i++) {
        hid_t object = open_object(trace->file, texts[i].object);
        status = spw_hdf5_read_text(object, texts[i].name, &trace->text[i]);
        if (object >= 0) (void)H5Oclose(object);
    }
    return status;
}

static spw_status read_attributes(spw_trace *trace) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < SPW_TRACE_FORMAT; i++) {
        memcpy((char *)&trace->info + texts[i].offset, &trace->text[i], sizeof(char *));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == SPW_OK; i++) {
        hid_t group = open_object(trace->file, numbers[i].group);
        double value = 0.0;
        status = spw_hdf5_read_number(group, numbers[i].name, &value);
        size_t whole = value >= 1.0 && value < 1e15 ? (size_t)value : 0;
        memcpy((char *)&trace->info + numbers[i].offset, &whole, sizeof whole);
        if (group >= 0) (void)H5Oclose(group);
    }
    double synthetic = 0.0;
    if (status == SPW_OK) status = spw_hdf5_read_number(trace->file, "synthetic", &synthetic);
    trace->info.synthetic = synthetic > 0.0;
    return status;
}

static spw_status check_format(spw_trace *trace) {
    const char *format = trace->text[SPW_TRACE_FORMAT];
    if (strcmp(format, "moe-routing-trace") != 0) {
        return spw_fail(SPW_EFORMAT, "attribute format is '%.60s'; must be 'moe-routing-trace'", format);
    }
    char *end = NULL;
    long major = strtol(trace->info.version, &end, 10);
    if (end == trace->info.version || major != 1 || (*end != '.' && *end != '\0')) {
        return spw_fail(SPW_EFORMAT, "attribute format_version is '%.60s'; this program reads 1.x.y",
                        trace->info.version);
    }
    return SPW_OK;
}

/* Length of a 1-D dataset. */
static spw_status read_length(hid_t file, const char *path, uint64_t least, uint64_t most, size_t *out) {
    hid_t dataset = H5I_INVALID_HID;
    spw_hdf5_shape shape;
    spw_status status = spw_hdf5_open_dataset(file, path, 1, 0, &dataset, &shape);
    spw_hdf5_close_dataset(&dataset);
    if (status != SPW_OK) return status;
    if (shape.extent[0] < least || shape.extent[0] > most) {
        return spw_fail(SPW_EFORMAT, "/%s: %llu elements; must be %llu to %llu", path,
                        (unsigned long long)shape.extent[0], (unsigned long long)least,
                        (unsigned long long)most);
    }
    *out = (size_t)shape.extent[0];
    return SPW_OK;
}

static spw_status read_layers(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    hid_t file = trace->file;
    SPW_TRY(read_length(file, "layer", 1, SPW_TRACE_MAX_LAYERS, &info->layers));
    SPW_TRY(read_length(file, "expert", 1, SPW_TRACE_MAX_EXPERTS, &info->experts));
    SPW_TRY(read_length(file, "k", 1, SPW_TRACE_MAX_TOP_K, &info->top_k));
    SPW_TRY(SPW_ALLOC(info->layers, &trace->layer_id));
    SPW_TRY(SPW_ALLOC(info->layers, &trace->layer_experts));
    SPW_TRY(SPW_ALLOC(info->layers, &trace->layer_top_k));
    SPW_TRY(spw_read_array(file, "layer", H5T_NATIVE_INT32, info->layers, trace->layer_id));
    SPW_TRY(spw_read_array(file, "model/num_experts", H5T_NATIVE_UINT32, info->layers, trace->layer_experts));
    SPW_TRY(spw_read_array(file, "model/top_k", H5T_NATIVE_UINT32, info->layers, trace->layer_top_k));
    for (size_t i = 0; i < info->layers; i++) {
        size_t experts = trace->layer_experts[i], top_k = trace->layer_top_k[i];
        if (experts < 1 || experts > info->experts) {
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "/model/num_experts: %zu in layer %d; must be 1 to %zu, the length of /expert",
                             experts, trace->layer_id[i], info->experts));
        }
        if (top_k < 1 || top_k > info->top_k || top_k > experts) {
            SPW_TRY(
                spw_fail(SPW_EFORMAT,
                         "/model/top_k: %zu in layer %d of %zu experts; must be 1 to %zu, the length of /k",
                         top_k, trace->layer_id[i], experts, info->top_k));
        }
    }
    info->layer_id = trace->layer_id;
    info->layer_experts = trace->layer_experts;
    info->layer_top_k = trace->layer_top_k;

cleanup:
    return status;
}

static spw_status read_steps(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    SPW_TRY(read_length(trace->file, "steps/id", 1, SPW_TRACE_MAX_STEPS, &info->steps));
    SPW_TRY(SPW_ALLOC(info->steps, &trace->step_id));
    SPW_TRY(SPW_ALLOC(info->steps, &trace->step_tokens));
    SPW_TRY(SPW_ALLOC(info->steps, &trace->step_phase));
    SPW_TRY(spw_read_array(trace->file, "steps/id", H5T_NATIVE_INT64, info->steps, trace->step_id));
    SPW_TRY(
        spw_read_array(trace->file, "steps/num_tokens", H5T_NATIVE_INT64, info->steps, trace->step_tokens));
    for (size_t i = 0; i < info->steps; i++) {
        if (trace->step_tokens[i] >
            SPW_TRACE_MAX_TOKENS) { /* also what was negative: HDF5 would make 0 of it */
            SPW_TRY(spw_fail(SPW_EFORMAT, "/steps/num_tokens: %lld at position %zu; must be 0 to %llu",
                             (long long)trace->step_tokens[i], i, (unsigned long long)SPW_TRACE_MAX_TOKENS));
        }
    }
    memset(trace->step_phase, 4, info->steps); /* not said: mixed */
    if (spw_hdf5_exists(trace->file, "steps/phase")) {
        SPW_TRY(spw_read_array(trace->file, "steps/phase", H5T_NATIVE_UINT8, info->steps, trace->step_phase));
    }
    info->step_id = trace->step_id;
    info->step_tokens = trace->step_tokens;
    info->step_phase = trace->step_phase;

cleanup:
    return status;
}

static spw_status read_offsets(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    uint64_t *offset = NULL;
    SPW_TRY(SPW_ALLOC(info->steps + 1, &trace->step_offset));
    offset = trace->step_offset;
    SPW_TRY(spw_read_array(trace->file, "tokens/step_offset", H5T_NATIVE_INT64, info->steps + 1, offset));
    if (offset[0] != 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/tokens/step_offset: starts at %lld; must start at 0",
                         (long long)offset[0]));
    }
    for (size_t i = 1; i <= info->steps; i++) {
        if ((int64_t)offset[i] >= 0) continue;
        SPW_TRY(spw_fail(SPW_EFORMAT, "/tokens/step_offset: entry %zu is %lld; must be 0 or above", i,
                         (long long)offset[i]));
    }
    for (size_t i = 0; i < info->steps; i++) {
        unsigned long long from = offset[i], to = offset[i + 1], tokens = info->step_tokens[i];
        if (to < from) {
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "/tokens/step_offset: decreases from %llu to %llu after step position %zu", from,
                             to, i));
        }
        if (to != from && to - from != tokens) {
            SPW_TRY(spw_fail(
                SPW_EFORMAT,
                "/tokens/step_offset: step position %zu has %llu rows, but steps/num_tokens says %llu", i,
                to - from, tokens));
        }
    }
    if (offset[info->steps] != info->tokens) {
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "/tokens/step_offset: ends at %llu; must end at %llu, the rows of expert_id",
                         (unsigned long long)offset[info->steps], (unsigned long long)info->tokens));
    }
    info->step_offset = offset;

cleanup:
    return status;
}

static spw_status check_extent(const spw_trace_dataset *dataset, const uint64_t *want) {
    for (int i = 0; i < dataset->shape.rank && i < SPW_HDF5_MAX_RANK; i++) {
        if (dataset->shape.extent[i] == want[i]) continue;
        return spw_fail(SPW_EFORMAT, "/%s: %llu in dimension %d; must be %llu", dataset->path,
                        (unsigned long long)dataset->shape.extent[i], i, (unsigned long long)want[i]);
    }
    return SPW_OK;
}

/* Opens an optional dataset of integers (or floats) with the extent `want`. */
static spw_status open_optional(spw_trace *trace, spw_trace_dataset *dataset, const char *path, int rank,
                                const uint64_t *want, size_t cache, H5T_class_t type) {
    spw_status status = SPW_OK;
    dataset->path = path;
    if (!spw_hdf5_exists(trace->file, path)) return SPW_OK;
    SPW_TRY(spw_hdf5_open_dataset(trace->file, path, rank, cache, &dataset->id, &dataset->shape));
    if (dataset->shape.type_class != type || !dataset->shape.plain_number) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: must hold %s", path,
                         type == H5T_FLOAT ? "floating-point numbers" : "integers"));
    }
    SPW_TRY(check_extent(dataset, want));

cleanup:
    return status;
}

static spw_status check_ids(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    const spw_hdf5_shape *shape = &trace->expert_id.shape;
    if (shape->type_class != H5T_INTEGER || shape->is_signed || shape->element_bytes > 2 ||
        !shape->plain_number) {
        return spw_fail(SPW_EFORMAT, "/tokens/expert_id: must be uint8 or uint16");
    }
    info->id_bytes = shape->element_bytes;
    info->tokens = shape->extent[0];
    double missing = info->id_bytes == 1 ? UINT8_MAX : UINT16_MAX, largest = missing;
    SPW_TRY(spw_hdf5_read_number(trace->expert_id.id, "missing_value", &missing));
    if (!(missing >= (double)info->experts && missing <= largest)) {
        SPW_TRY(spw_fail(
            SPW_EFORMAT,
            "/tokens/expert_id: missing_value %g with %zu experts in %zu-byte ids; must be %zu to %g",
            missing, info->experts, info->id_bytes, info->experts, largest));
    }
    info->missing = (uint16_t)missing;

cleanup:
    return status;
}

/* Chunks that can be decoded here, of elements that need no conversion. */
static bool can_be_fast(const spw_trace_dataset *dataset) {
    hid_t type = H5Dget_type(dataset->id);
    bool same = type >= 0 && H5Tequal(type, dataset->memory_type) > 0;
    if (type >= 0) (void)H5Tclose(type);
    return same && spw_chunk_store_fits(&dataset->shape);
}

static spw_status open_tokens(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    trace->expert_id.path = "tokens/expert_id";
    SPW_TRY(spw_hdf5_open_dataset(trace->file, "tokens/expert_id", 3, 0, &trace->expert_id.id,
                                  &trace->expert_id.shape));
    SPW_TRY(check_ids(trace));
    const uint64_t ids[SPW_HDF5_MAX_RANK] = {info->tokens, info->layers, info->top_k};
    SPW_TRY(check_extent(&trace->expert_id, ids));
    SPW_TRY(read_offsets(trace));
    SPW_TRY(open_optional(trace, &trace->weight, "tokens/weight", 3, ids, 0, H5T_FLOAT));
    SPW_TRY(open_optional(trace, &trace->source_rank, "tokens/source_rank", 1, ids, 0, H5T_INTEGER));
    SPW_TRY(open_optional(trace, &trace->sequence, "tokens/sequence", 1, ids, 0, H5T_INTEGER));
    SPW_TRY(open_optional(trace, &trace->position, "tokens/position", 1, ids, 0, H5T_INTEGER));
    SPW_TRY(open_optional(trace, &trace->flags, "tokens/flags", 1, ids, 0, H5T_INTEGER));
    info->has_tokens = true;
    info->has_weights = trace->weight.id >= 0;
    info->has_sequences = trace->sequence.id >= 0;
    trace->expert_id.memory_type = info->id_bytes == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_UINT16;
    trace->weight.memory_type = trace->half_type;
    trace->expert_id.fast = info->fast_path = can_be_fast(&trace->expert_id);
    trace->weight.fast = info->has_weights && can_be_fast(&trace->weight);

cleanup:
    return status;
}

static spw_status open_counts(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    const uint64_t routed[SPW_HDF5_MAX_RANK] = {info->steps, info->layers, info->experts};
    const uint64_t by_rank[SPW_HDF5_MAX_RANK] = {info->steps, info->ranks, info->layers, info->experts};
    SPW_TRY(open_optional(trace, &trace->routed, "counts/routed", 3, routed, 0, H5T_INTEGER));
    if (info->ranks > 0) {
        size_t size = 0;
        if (!spw_mul_size(info->ranks, info->experts, &size) || size > SPW_TRACE_MAX_BY_RANK) {
            SPW_TRY(spw_fail(SPW_EFORMAT, "%zu ranks x %zu experts; their product must be at most %zu",
                             info->ranks, info->experts, (size_t)SPW_TRACE_MAX_BY_RANK));
        }
        SPW_TRY(open_optional(trace, &trace->by_rank, "counts/by_rank", 4, by_rank, 0, H5T_INTEGER));
    } else if (spw_hdf5_exists(trace->file, "counts/by_rank") || trace->source_rank.id >= 0) {
        SPW_TRY(
            spw_fail(SPW_EFORMAT, "/rank: missing, but the file has source ranks; must be int32 [ranks]"));
    }
    info->has_routed = trace->routed.id >= 0;
    info->has_by_rank = trace->by_rank.id >= 0;
    info->has_placement = spw_hdf5_exists(trace->file, "placement");

cleanup:
    return status;
}

spw_status spw_trace_read_header(spw_trace *trace) {
    spw_status status = SPW_OK;
    spw_trace_info *info = &trace->info;
    SPW_TRY(read_attributes(trace));
    SPW_TRY(check_format(trace));
    SPW_TRY(spw_trace_check_links(trace));
    SPW_TRY(read_layers(trace));
    SPW_TRY(read_steps(trace));
    if (spw_hdf5_exists(trace->file, "rank")) {
        SPW_TRY(read_length(trace->file, "rank", 1, SPW_TRACE_MAX_RANKS, &info->ranks));
        SPW_TRY(SPW_ALLOC(info->ranks, &trace->rank_id));
        SPW_TRY(spw_read_array(trace->file, "rank", H5T_NATIVE_INT32, info->ranks, trace->rank_id));
        info->rank_id = trace->rank_id;
    }
    if (spw_hdf5_exists(trace->file, "tokens/expert_id")) SPW_TRY(open_tokens(trace));
    SPW_TRY(open_counts(trace));
    SPW_TRY(spw_trace_check_header(trace));
    if (!info->has_tokens && strncmp(info->content, "tokens", 6) == 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/tokens/expert_id: missing, but attribute content says '%.40s'",
                         info->content));
    }
    if (!info->has_routed && strstr(info->content, "counts") != NULL &&
        !spw_hdf5_exists(trace->file, "counts/share")) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/counts/routed: missing, but attribute content says '%.40s'",
                         info->content));
    }
    if (!info->has_tokens && !info->has_routed) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "has neither /tokens/expert_id nor /counts/routed; a trace needs one"));
    }

cleanup:
    return status;
}
