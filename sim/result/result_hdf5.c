#include "sim/result/result_hdf5.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/result/result_json.h"
#include "traces/disk/hdf5_disk.h"
#include "traces/disk/hdf5_error.h"
#include "traces/disk/hdf5_ledger.h"
#include "traces/trace.h"

#include <hdf5.h>
#include <hdf5_hl.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 4, STEP_AXIS = 1, VALUES = 4, STEP_FIGURES = 4 + SPW_OVERLOADS, FIGURES = STEP_FIGURES + 2 };

static const struct {
    const char *name, *units, *meaning;
} values[VALUES] = {
    {"rows_received", "rows", "rows a rank holds for its experts after drops, without deduplication"},
    {"bytes_sent", "bytes", "off-rank bytes a rank sends in one dispatch"},
    {"bytes_received", "bytes", "off-rank bytes a rank receives in one dispatch"},
    {"dropped", "assignments", "assignments of the rank's own tokens that are dropped"},
};
/* Real numbers: of a step, and the last ones of its layers. */
static const struct {
    const char *name, *units, *meaning;
} figures[FIGURES] = {
    {"peak_gib", "GiB", "peak memory of the rank that needs most"},
    {"allocated_gib", "GiB",
     "peak of PyTorch's allocated memory, of the rank that has most; in a step that runs out, what it had "
     "reached"},
    {"reserved_gib", "GiB",
     "peak of PyTorch's reserved memory, of the rank that has most; in a step that runs out, what it had "
     "reached"},
    {"step_s", "s", "seconds of the step; 0 where there is no time of it"},
    {"overload_max", "1", "overload factor: largest of any layer, micro-batch and expert-parallel group"},
    {"overload_average", "1", "overload factor: mean over layers, micro-batches and groups"},
    {"overload_cumulative", "1", "overload factor of the rows kept for the backward pass"},
    {"overload_slowest_by_layer", "1", "overload factor where every layer waits for its own slowest rank"},
    {"overload_slowest_rank", "1", "overload factor of the rows of all layers together"},
    {"overload_layer_average", "1", "overload factor of a layer: mean over micro-batches and groups"},
    {"overload_layer_max", "1", "overload factor of a layer: largest of any micro-batch and group"},
};
static int axes_of(int figure) { return figure < STEP_FIGURES ? 2 : 3; }
static const char *const axis_names[AXES] = {"result", "step", "layer", "rank"};

struct spw_result_file {
    spw_file target;
    spw_hdf5_disk disk;
    spw_hdf5_ledger ledger;
    hid_t file, value[VALUES], step, figure[FIGURES], choices, links;
    const spw_run_settings *settings;
    const spw_scheme *scheme;
    size_t results, steps, layers, ranks; /* steps: written so far; layers 0 = datasets not created yet */
    size_t experts, members;              /* members: ranks of a group; 0 = too many for links */
    double *layer_figure;                 /* [layers] scratch */
    double *link;                         /* [ranks][members] scratch */
};

static spw_status broken(const spw_result_file *f, const char *what) {
    return spw_fail(SPW_EIO, "%s: %s cannot be written; is the disk full, or memory?", f->target.path, what);
}

/* Whether all that was written is there. */
static spw_status check_disk(const spw_result_file *f) {
    const spw_status status = spw_hdf5_disk_check(&f->disk);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "%s", f->target.path);
}

static spw_status set_text(spw_result_file *f, hid_t object, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    (void)H5Tset_size(type, strlen(text) > 0 ? strlen(text) : 1);
    (void)H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, text) >= 0;
    if (attribute >= 0) (void)H5Aclose(attribute);
    (void)H5Sclose(space);
    (void)H5Tclose(type);
    return good ? spw_hdf5_ledger_note_text(&f->ledger, object, name, text) : broken(f, name);
}

/* Without the time of its making: the same run gives the same bytes. */
static hid_t dataset_properties(void) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_obj_track_times(properties, false);
    return properties;
}

/* A text too long for an attribute (64 KiB) stands as a dataset. */
static spw_status set_long_text(spw_result_file *f, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), properties = dataset_properties();
    (void)H5Tset_size(type, strlen(text) > 0 ? strlen(text) : 1);
    (void)H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t dataset = H5Dcreate2(f->file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    bool good = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0;
    (void)H5Pclose(properties);
    if (dataset >= 0) (void)H5Dclose(dataset);
    (void)H5Sclose(space);
    (void)H5Tclose(type);
    if (!good) return broken(f, name);
    return spw_hdf5_ledger_note(&f->ledger, name, SPW_HDF5_IN_ORDER, H5I_INVALID_HID, NULL, text,
                                strlen(text));
}

static hid_t create_dataset(spw_result_file *f, const char *name, hid_t type, int axes, const hsize_t *extent,
                            int growing) {
    hsize_t most[AXES], chunk[AXES];
    hid_t properties = dataset_properties();
    for (int i = 0; i < axes; i++) {
        most[i] = i == growing ? H5S_UNLIMITED : extent[i];
        chunk[i] = growing >= 0 && i <= growing ? 1 : extent[i];
    }
    if (growing == 0 && axes == 1) chunk[0] = 64;
    hid_t space = H5Screate_simple(axes, extent, most);
    if (growing >= 0 && axes > 1) {
        (void)H5Pset_chunk(properties, axes, chunk);
        (void)H5Pset_shuffle(properties);
        (void)H5Pset_deflate(properties, 4);
    } else if (growing >= 0) {
        (void)H5Pset_chunk(properties, axes, chunk);
    }
    hid_t dataset = H5Dcreate2(f->file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    (void)H5Sclose(space);
    (void)H5Pclose(properties);
    return dataset;
}

static spw_status write_array(spw_result_file *f, const char *name, hid_t type, size_t count,
                              const void *data) {
    const hsize_t extent = count;
    hid_t dataset = create_dataset(f, name, type, 1, &extent, -1);
    bool good = dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (dataset >= 0) (void)H5Dclose(dataset);
    if (!good) return broken(f, name);
    if (H5Tis_variable_str(type) > 0) return spw_hdf5_ledger_note_strings(&f->ledger, name, count, data);
    return spw_hdf5_ledger_note(&f->ledger, name, SPW_HDF5_IN_ORDER, type, NULL, data,
                                count * H5Tget_size(type));
}

spw_status spw_result_file_create(const char *path, const spw_run_settings *settings,
                                  const spw_scheme *scheme, spw_result_file **out) {
    spw_status status = SPW_OK;
    spw_result_file *f = NULL;
    char *text = NULL;
    hid_t access_list = H5I_INVALID_HID;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &f));
    f->file = f->step = f->choices = f->links = H5I_INVALID_HID;
    for (int v = 0; v < FIGURES; v++) f->figure[v] = H5I_INVALID_HID;
    for (int v = 0; v < VALUES; v++) f->value[v] = H5I_INVALID_HID;
    f->settings = settings;
    f->scheme = scheme;
    f->results = settings->job->batches * settings->job->schemes;
    SPW_TRY(spw_file_begin(path, &f->target));
    SPW_TRY(spw_hdf5_listen());
    access_list = H5Pcreate(H5P_FILE_ACCESS);
    SPW_TRY(spw_hdf5_disk_use(access_list, &f->disk));
    f->file = H5Fcreate(f->target.temporary, H5F_ACC_TRUNC, H5P_DEFAULT, access_list);
    if (f->file < 0) SPW_TRY(broken(f, "the file"));
    SPW_TRY(spw_run_settings_text(settings, &text));
    SPW_TRY(set_text(f, f->file, "format", "spillway-result"));
    SPW_TRY(set_text(f, f->file, "format_version", SPW_RESULT_FORMAT_VERSION));
    SPW_TRY(set_text(f, f->file, "settings", text));
    *out = f;
    f = NULL;

cleanup:
    if (access_list >= 0) (void)H5Pclose(access_list);
    free(text);
    spw_result_file_discard(f);
    return status;
}

/* scheme and sequences_per_gpu of every result. The names are of variable length: netCDF's own reader fails on others. */
static spw_status write_results(spw_result_file *f) {
    spw_status status = SPW_OK;
    const spw_job *job = f->settings->job;
    const char **name = NULL;
    uint64_t *sequences = NULL;
    hid_t type = H5Tcopy(H5T_C_S1);
    (void)H5Tset_size(type, H5T_VARIABLE);
    (void)H5Tset_cset(type, H5T_CSET_UTF8);
    SPW_TRY(SPW_ALLOC(f->results, &name));
    SPW_TRY(SPW_ALLOC(f->results, &sequences));
    for (size_t i = 0; i < f->results; i++) {
        name[i] = f->scheme[i % job->schemes].text;
        sequences[i] = job->sequences_per_gpu[i / job->schemes];
    }
    SPW_TRY(write_array(f, "scheme", type, f->results, name));
    SPW_TRY(write_array(f, "sequences_per_gpu", H5T_NATIVE_UINT64, f->results, sequences));

cleanup:
    (void)H5Tclose(type);
    spw_free(name);
    spw_free(sequences);
    return status;
}

static spw_status write_axes(spw_result_file *f) {
    spw_status status = SPW_OK;
    size_t longest = f->results > f->ranks ? f->results : f->ranks;
    if (f->experts > longest) longest = f->experts;
    uint64_t *number = NULL;
    int32_t *layer = NULL;
    SPW_TRY(SPW_ALLOC(longest, &number));
    SPW_TRY(SPW_ALLOC(f->layers, &layer));
    for (size_t i = 0; i < longest; i++) number[i] = i;
    for (size_t l = 0; l < f->layers; l++)
        layer[l] = f->settings->trace->layer_id[f->settings->layer_begin + l];
    SPW_TRY(write_array(f, "result", H5T_NATIVE_UINT64, f->results, number));
    SPW_TRY(write_array(f, "rank", H5T_NATIVE_UINT64, f->ranks, number));
    SPW_TRY(write_array(f, "layer", H5T_NATIVE_INT32, f->layers, layer));
    SPW_TRY(write_array(f, "expert", H5T_NATIVE_UINT64, f->experts, number));
    if (f->members > 0) SPW_TRY(write_array(f, "member", H5T_NATIVE_UINT64, f->members, number));

cleanup:
    spw_free(number);
    spw_free(layer);
    return status;
}

/* Choices of the experts, which no scheme changes, and bytes between ranks. */
static spw_status create_pairs(spw_result_file *f) {
    const hsize_t choices[] = {0, f->layers, f->experts}, links[] = {f->results, f->ranks, f->members};
    spw_status status = SPW_OK;
    f->choices = create_dataset(f, "expert_choices", H5T_NATIVE_UINT64, 3, choices, 0);
    if (f->choices < 0) SPW_TRY(broken(f, "expert_choices"));
    SPW_TRY(set_text(f, f->choices, "units", "assignments"));
    SPW_TRY(set_text(f, f->choices, "long_name",
                     "choices of each expert by all tokens of the first batch size, before drops"));
    if (f->members == 0) goto cleanup;
    f->links = create_dataset(f, "link_bytes", H5T_NATIVE_DOUBLE, 3, links, 0);
    if (f->links < 0) SPW_TRY(broken(f, "link_bytes"));
    SPW_TRY(set_text(f, f->links, "units", "bytes"));
    SPW_TRY(
        set_text(f, f->links, "long_name",
                 "off-rank bytes a rank sends to each member of its expert-parallel group in one dispatch, "
                 "mean over steps and layers"));
    SPW_TRY(SPW_ALLOC(f->ranks * f->members, &f->link));

cleanup:
    return status;
}

/* The first step tells the sizes. */
static spw_status create_datasets(spw_result_file *f, const spw_replay_step *step) {
    spw_status status = SPW_OK;
    f->layers = step->layers;
    f->ranks = step->ranks;
    f->experts = step->experts;
    f->members = step->link_bytes != NULL ? step->group_ranks : 0;
    const hsize_t cells[AXES] = {f->results, 0, f->layers, f->ranks}, none = 0;
    SPW_TRY(write_results(f));
    SPW_TRY(write_axes(f));
    f->step = create_dataset(f, "step", H5T_NATIVE_INT64, 1, &none, 0);
    if (f->step < 0) SPW_TRY(broken(f, "step"));
    for (int v = 0; v < VALUES; v++) {
        f->value[v] = create_dataset(f, values[v].name, H5T_NATIVE_UINT64, AXES, cells, STEP_AXIS);
        if (f->value[v] < 0) SPW_TRY(broken(f, values[v].name));
        SPW_TRY(set_text(f, f->value[v], "units", values[v].units));
        SPW_TRY(set_text(f, f->value[v], "long_name", values[v].meaning));
    }
    for (int v = 0; v < FIGURES; v++) {
        f->figure[v] = create_dataset(f, figures[v].name, H5T_NATIVE_DOUBLE, axes_of(v), cells, STEP_AXIS);
        if (f->figure[v] < 0) SPW_TRY(broken(f, figures[v].name));
        SPW_TRY(set_text(f, f->figure[v], "units", figures[v].units));
        SPW_TRY(set_text(f, f->figure[v], "long_name", figures[v].meaning));
    }
    SPW_TRY(SPW_ALLOC(f->layers, &f->layer_figure));
    SPW_TRY(create_pairs(f));

cleanup:
    return status;
}

static bool write_slab(hid_t dataset, int axes, const hsize_t *start, const hsize_t *count, hid_t type,
                       const void *data) {
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(axes, count, NULL);
    bool good = space >= 0 && memory >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, data) >= 0;
    if (space >= 0) (void)H5Sclose(space);
    if (memory >= 0) (void)H5Sclose(memory);
    return good;
}

static spw_status write_choices(spw_result_file *f, const spw_replay_step *step) {
    const hsize_t extent[] = {step->step + 1, f->layers, f->experts}, start[] = {step->step, 0, 0},
                  count[] = {1, f->layers, f->experts};
    if (H5Dset_extent(f->choices, extent) < 0 ||
        !write_slab(f->choices, 3, start, count, H5T_NATIVE_UINT64, step->chosen))
        return broken(f, "expert_choices");
    return spw_hdf5_ledger_note(&f->ledger, "expert_choices", SPW_HDF5_IN_ORDER, H5T_NATIVE_UINT64, NULL,
                                step->chosen, f->layers * f->experts * sizeof *step->chosen);
}

/* Of the whole replay, once the last step is there. */
static spw_status write_links(spw_result_file *f, const spw_replay_step *step) {
    const double times = (double)(step->step + 1) * (double)f->layers;
    const hsize_t start[] = {step->row, 0, 0}, count[] = {1, f->ranks, f->members};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < f->ranks * f->members; i++) f->link[i] = step->link_bytes[i] / times;
    if (!write_slab(f->links, 3, start, count, H5T_NATIVE_DOUBLE, f->link)) return broken(f, "link_bytes");
    for (size_t rank = 0; rank < f->ranks && status == SPW_OK; rank++)
        status = spw_hdf5_ledger_note(&f->ledger, "link_bytes", SPW_HDF5_PARTS, H5T_NATIVE_DOUBLE,
                                      (const uint64_t[2]){step->row, rank}, f->link + rank * f->members,
                                      f->members * sizeof *f->link);
    return status;
}

static spw_status grow(spw_result_file *f, const spw_replay_step *step) {
    const hsize_t cells[AXES] = {f->results, step->step + 1, f->layers, f->ranks};
    const hsize_t start = step->step, count = 1;
    bool good = H5Dset_extent(f->step, &cells[STEP_AXIS]) >= 0 &&
                write_slab(f->step, 1, &start, &count, H5T_NATIVE_INT64, &step->step_id);
    for (int v = 0; v < VALUES && good; v++) good = H5Dset_extent(f->value[v], cells) >= 0;
    for (int v = 0; v < FIGURES && good; v++) good = H5Dset_extent(f->figure[v], cells) >= 0;
    f->steps = step->step + 1;
    if (!good) return broken(f, "a step");
    return spw_hdf5_ledger_note(&f->ledger, "step", SPW_HDF5_IN_ORDER, H5T_NATIVE_INT64, NULL, &step->step_id,
                                sizeof step->step_id);
}

static spw_status write_figure(spw_result_file *f, const spw_replay_step *step, int v, const double *data,
                               size_t numbers) {
    const hsize_t start[AXES] = {step->row, step->step, 0, 0}, count[AXES] = {1, 1, numbers, 1};
    if (!write_slab(f->figure[v], axes_of(v), start, count, H5T_NATIVE_DOUBLE, data))
        return broken(f, figures[v].name);
    return spw_hdf5_ledger_note(&f->ledger, figures[v].name, SPW_HDF5_PARTS, H5T_NATIVE_DOUBLE,
                                (const uint64_t[2]){step->row, step->step}, data, numbers * sizeof *data);
}

static spw_status write_figures(spw_result_file *f, const spw_replay_step *step) {
    static const double GIB = 1024.0 * 1024.0 * 1024.0;
    double value[STEP_FIGURES] = {(double)step->peak_bytes / GIB, (double)step->allocated_bytes / GIB,
                                  (double)step->reserved_bytes / GIB, step->step_s};
    spw_status status = SPW_OK;
    memcpy(value + STEP_FIGURES - SPW_OVERLOADS, step->factor, sizeof step->factor);
    for (int v = 0; v < STEP_FIGURES; v++) SPW_TRY(write_figure(f, step, v, &value[v], 1));
    for (int v = STEP_FIGURES; v < FIGURES && step->overload != NULL; v++) {
        for (size_t l = 0; l < f->layers; l++) {
            const spw_layer_overload layer = spw_overload_step_layer(step->overload, l);
            f->layer_figure[l] = v == STEP_FIGURES ? layer.average : layer.max;
        }
        SPW_TRY(write_figure(f, step, v, f->layer_figure, f->layers));
    }

cleanup:
    return status;
}

static spw_status take(void *state, const spw_replay_step *step) {
    spw_result_file *f = state;
    spw_status status = SPW_OK;
    if (f->layers == 0) SPW_TRY(create_datasets(f, step));
    if (step->step >= f->steps) {
        SPW_TRY(grow(f, step));
        SPW_TRY(write_choices(f, step));
    }
    if (step->last && f->members > 0) SPW_TRY(write_links(f, step));
    const uint64_t *const data[VALUES] = {step->rows_received, step->bytes_sent, step->bytes_received,
                                          step->dropped};
    const hsize_t start[AXES] = {step->row, step->step, 0, 0}, count[AXES] = {1, 1, f->layers, f->ranks};
    bool good = true;
    SPW_TRY(write_figures(f, step));
    for (int v = 0; v < VALUES && good; v++) {
        good = write_slab(f->value[v], AXES, start, count, H5T_NATIVE_UINT64, data[v]);
        SPW_TRY(spw_hdf5_ledger_note(&f->ledger, values[v].name, SPW_HDF5_PARTS, H5T_NATIVE_UINT64,
                                     (const uint64_t[2]){start[0], start[1]}, data[v],
                                     f->layers * f->ranks * sizeof *data[v]));
    }
    if (!good) SPW_TRY(broken(f, "a step"));
    SPW_TRY(check_disk(f));

cleanup:
    return status;
}

spw_replay_sink spw_result_file_sink(spw_result_file *file) { return (spw_replay_sink){file, take}; }

static bool attach_scales(spw_result_file *f) {
    bool good = true;
    for (int a = 0; a < AXES && good; a++) {
        hid_t scale = H5Dopen2(f->file, axis_names[a], H5P_DEFAULT);
        good = scale >= 0 && H5DSset_scale(scale, axis_names[a]) >= 0;
        for (int v = 0; v < VALUES && good; v++)
            good = H5DSattach_scale(f->value[v], scale, (unsigned)a) >= 0;
        for (int v = 0; v < FIGURES && good; v++)
            good = a >= axes_of(v) || H5DSattach_scale(f->figure[v], scale, (unsigned)a) >= 0;
        for (int n = 0; n < 2 && a == 0 && good; n++) {
            hid_t named = H5Dopen2(f->file, n == 0 ? "scheme" : "sequences_per_gpu", H5P_DEFAULT);
            good = named >= 0 && H5DSattach_scale(named, scale, 0) >= 0;
            if (named >= 0) (void)H5Dclose(named);
        }
        if (scale >= 0) (void)H5Dclose(scale);
    }
    return good;
}

/* Of the datasets that have axes of their own. */
static bool attach_pairs(const spw_result_file *f) {
    static const char *const of_choices[] = {"step", "layer", "expert"}, *const of_links[] = {
                                                                             "result", "rank", "member"};
    bool good = true;
    for (int a = 0; a < 6 && good; a++) {
        const bool link = a >= 3;
        if (link && f->members == 0) break;
        const char *const name = link ? of_links[a - 3] : of_choices[a];
        hid_t scale = H5Dopen2(f->file, name, H5P_DEFAULT);
        good = scale >= 0 && (a % 3 < 2 || H5DSset_scale(scale, name) >= 0) &&
               H5DSattach_scale(link ? f->links : f->choices, scale, (unsigned)a % 3) >= 0;
        if (scale >= 0) (void)H5Dclose(scale);
    }
    return good;
}

static bool close_dataset(hid_t *dataset) {
    const bool good = *dataset < 0 || H5Dclose(*dataset) >= 0;
    *dataset = H5I_INVALID_HID;
    return good;
}

static bool close_all(spw_result_file *f) {
    bool good = close_dataset(&f->step);
    good = close_dataset(&f->choices) && good;
    good = close_dataset(&f->links) && good;
    for (int v = 0; v < VALUES; v++) good = close_dataset(&f->value[v]) && good;
    for (int v = 0; v < FIGURES; v++) good = close_dataset(&f->figure[v]) && good;
    if (f->file >= 0) good = H5Fclose(f->file) >= 0 && good;
    f->file = H5I_INVALID_HID;
    return good;
}

spw_status spw_result_file_commit(spw_result_file *f, const spw_result *result) {
    spw_status status = SPW_OK;
    char *summary = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&summary, &length);
    if (text == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate the summary");
    status = spw_result_print_json(result, f->settings, text);
    if (fclose(text) != 0 && status == SPW_OK) status = spw_fail(SPW_ENOMEM, "cannot allocate the summary");
    if (status == SPW_OK) status = set_long_text(f, "summary_json", summary);
    free(summary);
    if (status == SPW_OK && !(attach_scales(f) && attach_pairs(f))) status = broken(f, "the axes");
    if (!close_all(f) && status == SPW_OK) status = broken(f, "the file");
    if (status == SPW_OK) status = check_disk(f);
    if (status == SPW_OK) {
        status = spw_hdf5_ledger_check(&f->ledger, f->target.temporary);
        if (status != SPW_OK) status = spw_fail_within(status, "%s", f->target.path);
    }
    return status == SPW_OK ? spw_file_commit(&f->target) : status;
}

void spw_result_file_discard(spw_result_file *f) {
    if (f == NULL) return;
    (void)close_all(f);
    spw_file_discard(&f->target);
    spw_hdf5_ledger_clear(&f->ledger);
    spw_free(f->layer_figure);
    spw_free(f->link);
    spw_free(f);
}
