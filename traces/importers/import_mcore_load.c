/* Dumps "mcore_ep_load_dump_v1" of a Megatron-Core fork, one .npz a rank:
 *   loads [layers][forwards][experts] of the tokens that this rank routes, layer_numbers [layers], forward_counts [layers], the rank
 * and its expert-parallel group. A layer's forwards behind its forward_counts are memory that was never written. Forward passes
 * that recomputation runs again are among them. */
#include "traces/importers/assembly.h"
#include "traces/importers/npy.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <string.h>

static const char version[] = "mcore_ep_load_dump_v1";
static const char *const known[] = {"dump_version",
                                    "capture_id",
                                    "loads",
                                    "layer_numbers",
                                    "forward_counts",
                                    "ep_rank",
                                    "ep_size",
                                    "ep_group_ranks",
                                    "global_rank",
                                    "num_global_physical_experts",
                                    "num_local_physical_experts",
                                    NULL};

typedef struct dump {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_npz *npz;
    spw_npy loads, layer_numbers, forward_counts, group;
    uint32_t *count; /* [experts] */
    size_t file;
} dump;

static void clear(dump *d) {
    spw_npy_close(&d->loads);
    spw_npy_close(&d->layer_numbers);
    spw_npy_close(&d->forward_counts);
    spw_npy_close(&d->group);
    spw_npz_close(d->npz);
    d->npz = NULL;
}

/* Element `at` of whole numbers, from 0 to most. */
static spw_status number(const spw_npy *npy, size_t at, int64_t most, int64_t *out) {
    bool fits = false;
    *out = spw_npy_at(npy, at, &fits);
    if (fits && *out >= 0 && *out <= most) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s: element %zu is %" PRId64 "; must be 0 to %" PRId64, npy->where, at,
                    *out, most);
}

static spw_status read_array(const dump *d, const char *name, size_t rank, spw_npy *out) {
    const spw_status status = spw_npz_read(d->npz, name, out);
    if (status != SPW_OK || (out->rank == rank && spw_npy_is_whole(out))) return status;
    return spw_fail(SPW_EFORMAT, "%s: must be whole numbers with %zu axes", out->where, rank);
}

static spw_status read_scalar(const dump *d, const char *name, int64_t most, int64_t *out) {
    spw_npy npy;
    spw_status status = read_array(d, name, 0, &npy);
    if (status == SPW_OK) status = number(&npy, 0, most, out);
    spw_npy_close(&npy);
    return status;
}

static spw_status check_version(const dump *d) {
    spw_npy npy;
    char text[64] = "";
    spw_status status = spw_npz_read(d->npz, "dump_version", &npy);
    if (status == SPW_OK) status = spw_npy_text(&npy, text, sizeof text);
    if (status == SPW_OK && strcmp(text, version) != 0)
        status = spw_fail(SPW_EFORMAT, "%s: is '%s'; %s is read", npy.where, text, version);
    spw_npy_close(&npy);
    return status;
}

/* The rank that wrote the file, which must be the ep_rank-th of its group. */
static spw_status read_rank(dump *d, int64_t *rank) {
    spw_status status = SPW_OK;
    int64_t experts = 0, local = 0, size = 0, index = 0, named = 0;
    const int64_t most = SPW_ASSEMBLY_MAX_RANK;
    SPW_TRY(check_version(d));
    SPW_TRY(read_scalar(d, "global_rank", most, rank));
    SPW_TRY(read_scalar(d, "ep_rank", most, &index));
    SPW_TRY(read_scalar(d, "ep_size", most, &size));
    SPW_TRY(read_scalar(d, "num_global_physical_experts", SPW_TRACE_MAX_EXPERTS, &experts));
    SPW_TRY(read_scalar(d, "num_local_physical_experts", SPW_TRACE_MAX_EXPERTS, &local));
    SPW_TRY(read_array(d, "ep_group_ranks", 1, &d->group));
    if ((size_t)experts != d->settings->experts) {
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "%s: counts of %" PRId64
                         " physical experts, --experts says %zu; replicas beside the experts "
                         "of the model need a map that the dump lacks",
                         d->settings->input[d->file], experts, d->settings->experts));
    }
    if (index >= size || (size_t)size != d->group.extent[0] || local * size != experts)
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "%s: ep_rank %" PRId64 ", ep_size %" PRId64 ", %" PRId64
                         " local experts do not fit its %zu ranks and %" PRId64 " experts",
                         d->settings->input[d->file], index, size, local, d->group.extent[0], experts));
    SPW_TRY(number(&d->group, (size_t)index, most, &named));
    if (named != *rank)
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "%s: global_rank is %" PRId64 ", but ep_group_ranks names %" PRId64 " at ep_rank",
                         d->settings->input[d->file], *rank, named));

cleanup:
    return status;
}

static spw_status add_forward(dump *d, const spw_assembly_place *place, size_t layer, size_t forward) {
    spw_status status = SPW_OK;
    const size_t at = layer * d->loads.stride[0] + forward * d->loads.stride[1];
    for (size_t x = 0; x < d->settings->experts; x++) {
        bool fits = false;
        const int64_t value = spw_npy_at(&d->loads, at + x * d->loads.stride[2], &fits);
        if (!fits || value < 0 || value > UINT32_MAX)
            SPW_TRY(spw_assembly_fail(d->settings, place, "forward %zu, expert %zu: count %" PRId64, forward,
                                      x, value));
        d->count[x] = (uint32_t)value;
    }
    SPW_TRY(spw_assembly_add_counts(d->assembly, place, 0, d->settings->experts, d->count));

cleanup:
    return status;
}

static spw_status add_dump(dump *d) {
    spw_status status = SPW_OK;
    int64_t rank = 0, layer = 0, before = -1, forwards = 0, first = 0;
    SPW_TRY(spw_npz_open(d->settings->input[d->file], &d->npz));
    SPW_TRY(spw_npz_check_names(d->npz, known));
    SPW_TRY(read_rank(d, &rank));
    SPW_TRY(read_array(d, "loads", 3, &d->loads));
    SPW_TRY(read_array(d, "layer_numbers", 1, &d->layer_numbers));
    SPW_TRY(read_array(d, "forward_counts", 1, &d->forward_counts));
    const size_t *extent = d->loads.extent, layers = extent[0];
    if (d->layer_numbers.extent[0] != layers || d->forward_counts.extent[0] != layers ||
        extent[2] != d->settings->experts)
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "%s: %zu x %zu x %zu; [layer_numbers][forwards][experts] would be right",
                         d->loads.where, layers, extent[1], extent[2]));
    for (size_t i = 0; i < layers; i++) {
        SPW_TRY(number(&d->layer_numbers, i, SPW_ASSEMBLY_MAX_LAYER, &layer));
        SPW_TRY(number(&d->forward_counts, i, (int64_t)extent[1], &forwards));
        if (layer <= before)
            SPW_TRY(spw_fail(SPW_EFORMAT, "%s: layer %" PRId64 " after layer %" PRId64,
                             d->layer_numbers.where, layer, before));
        if (i == 0) first = forwards;
        if (forwards != first)
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "%s: layer %" PRId64 " ran %" PRId64 " times, the first layer %" PRId64
                             "; a capture that ended between layers cannot be imported",
                             d->forward_counts.where, layer, forwards, first));
        before = layer;
        const spw_assembly_place place = {.layer = (int32_t)layer, .rank = (uint32_t)rank, .file = d->file};
        for (size_t forward = 0; forward < (size_t)forwards; forward++)
            SPW_TRY(add_forward(d, &place, i, forward));
    }

cleanup:
    clear(d);
    return status;
}

spw_status spw_import_mcore_load(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    dump d = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.counts = shape.sources = shape.repeats = shape.number_steps = true;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    SPW_TRY(SPW_ALLOC(settings->experts, &d.count));
    d.assembly = *out;
    for (d.file = 0; d.file < settings->inputs; d.file++) SPW_TRY(add_dump(&d));

cleanup:
    spw_free(d.count);
    return status;
}
