#include "sim/report/result_open.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const values[SPW_RESULT_VALUES] = {"rows_received", "bytes_sent", "bytes_received",
                                                      "dropped"};
static const char *const memories[SPW_RESULT_MEMORIES] = {"peak_gib", "allocated_gib", "reserved_gib"};

static spw_status wrong_format(const char *format, const char *version) {
    char plain[2][64];
    spw_plain_text(format, plain[0], sizeof plain[0]);
    spw_plain_text(version, plain[1], sizeof plain[1]);
    if (strcmp(format, "spillway-result") != 0)
        return spw_fail(SPW_EFORMAT,
                        "attribute format is '%s'; must be 'spillway-result' (spillway replay --output)",
                        plain[0]);
    return spw_fail(SPW_EFORMAT, "attribute format_version is '%s'; must be 1.x, as in %s", plain[1],
                    "1.3.0");
}

static spw_status check_format(hid_t file) {
    spw_status status = SPW_OK;
    char *format = NULL, *version = NULL;
    SPW_TRY(spw_hdf5_read_text(file, "format", &format));
    SPW_TRY(spw_hdf5_read_text(file, "format_version", &version));
    if (strcmp(format, "spillway-result") != 0 || strncmp(version, "1.", 2) != 0)
        status = wrong_format(format, version);

cleanup:
    spw_free(format);
    spw_free(version);
    return status;
}

/* The one text of fixed length, as it is written: other texts would lead HDF5 to its heap. */
static spw_status read_summary(spw_result_input *in) {
    static const char *const name = "summary_json";
    spw_status status = SPW_OK;
    H5O_info_t info;
    if (!spw_hdf5_exists(in->file, name) ||
        H5Oget_info_by_name2(in->file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0 ||
        info.type != H5O_TYPE_DATASET)
        return spw_fail(SPW_EFORMAT, "/%s: missing; must be the result as one JSON text", name);
    const hid_t dataset = H5Dopen2(in->file, name, H5P_DEFAULT);
    if (dataset < 0) return spw_fail(SPW_EFORMAT, "/%s: unreadable dataset", name);
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset),
                list = H5Dget_create_plist(dataset);
    const bool fixed = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
    const bool single = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SCALAR;
    const bool inside =
        list >= 0 && H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_external_count(list) == 0;
    if (!fixed || !single || !inside)
        return spw_fail(SPW_EFORMAT, "/%s: must be one text of fixed length, stored in this file", name);
    in->summary_bytes = H5Tget_size(type);
    if (in->summary_bytes == 0 || in->summary_bytes > SPW_RESULT_SUMMARY_BYTES ||
        H5Dget_storage_size(dataset) != in->summary_bytes)
        return spw_fail(SPW_EFORMAT, "/%s: %zu bytes of text, %llu stored; must be the same, at most %d MiB",
                        name, in->summary_bytes, (unsigned long long)H5Dget_storage_size(dataset),
                        SPW_RESULT_SUMMARY_BYTES >> 20);
    SPW_TRY(SPW_ALLOC(in->summary_bytes + 1, &in->summary));
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, in->summary) < 0)
        status = spw_fail(SPW_EFORMAT, "/%s: unreadable (cut short?)", name);

cleanup:
    return status;
}

/* Opens a dataset of numbers whose extent begins with [results][steps]; a reader of it in *reader. */
static spw_status open_numbers(const spw_result_input *in, const char *name, int axes, H5T_class_t kind,
                               hid_t *dataset, spw_block_reader **reader) {
    const size_t want[] = {in->results, in->steps, in->layers, in->ranks};
    spw_hdf5_shape shape;
    spw_status status = spw_hdf5_open_dataset(in->file, name, axes, 1 << 20, dataset, &shape);
    if (status != SPW_OK) return status;
    if (!shape.plain_number || shape.type_class != kind)
        return spw_fail(SPW_EFORMAT, "/%s: must be %s", name,
                        kind == H5T_FLOAT ? "real numbers" : "integers");
    for (int a = 0; a < axes; a++) {
        if (shape.extent[a] != want[a])
            return spw_fail(SPW_EFORMAT, "/%s: %llu elements in dimension %d; must be %zu as the axis", name,
                            (unsigned long long)shape.extent[a], a, want[a]);
    }
    return spw_block_reader_create(*dataset, &shape, reader);
}

static spw_status axis_length(hid_t file, const char *name, size_t most, size_t *out) {
    spw_hdf5_shape shape;
    hid_t dataset = H5I_INVALID_HID;
    const spw_status status = spw_hdf5_open_dataset(file, name, 1, 1 << 20, &dataset, &shape);
    if (status != SPW_OK) return status;
    spw_hdf5_close_dataset(&dataset);
    *out = (size_t)shape.extent[0];
    if (*out == 0 || shape.extent[0] > most)
        return spw_fail(SPW_EFORMAT, "/%s: %llu elements; must be 1 to %zu", name,
                        (unsigned long long)shape.extent[0], most);
    return SPW_OK;
}

/* A dataset that a file may have: numbers [first][second][*third], where a slice of the last two has at most `most`. */
typedef struct optional_set {
    const char *name;
    H5T_class_t kind;
    size_t first, second, most;
} optional_set;

static spw_status open_optional(const spw_result_input *in, const optional_set *set, size_t *third,
                                hid_t *dataset, spw_block_reader **reader) {
    const size_t want[] = {set->first, set->second}, most = set->most / set->second;
    const char *name = set->name;
    spw_hdf5_shape shape;
    if (!spw_hdf5_exists(in->file, name)) return SPW_OK;
    const spw_status status = spw_hdf5_open_dataset(in->file, name, 3, 1 << 20, dataset, &shape);
    if (status != SPW_OK) return status;
    if (!shape.plain_number || shape.type_class != set->kind)
        return spw_fail(SPW_EFORMAT, "/%s: must be %s", name,
                        set->kind == H5T_FLOAT ? "real numbers" : "integers");
    for (int a = 0; a < 2; a++) {
        if (shape.extent[a] != want[a])
            return spw_fail(SPW_EFORMAT, "/%s: %llu elements in dimension %d; must be %zu as the axis", name,
                            (unsigned long long)shape.extent[a], a, want[a]);
    }
    if (shape.extent[2] == 0 || shape.extent[2] > most)
        return spw_fail(SPW_EFORMAT, "/%s: %llu elements in dimension 2; must be 1 to %zu", name,
                        (unsigned long long)shape.extent[2], most);
    *third = (size_t)shape.extent[2];
    return spw_block_reader_create(*dataset, &shape, reader);
}

spw_status spw_result_input_open(const char *path, spw_result_input *in) {
    spw_status status = SPW_OK;
    *in = (spw_result_input){.file = H5I_INVALID_HID};
    SPW_TRY(spw_hdf5_open_file(path, &in->file));
    SPW_TRY(check_format(in->file));
    const struct {
        const char *name;
        size_t most, *length;
    } axes[] = {{"result", SPW_RESULT_MOST, &in->results},
                {"step", SPW_RESULT_MOST_STEPS, &in->steps},
                {"layer", SPW_RESULT_MOST_LAYERS, &in->layers},
                {"rank", SPW_RESULT_MOST_RANKS, &in->ranks}};
    for (size_t a = 0; a < sizeof axes / sizeof axes[0]; a++)
        SPW_TRY(axis_length(in->file, axes[a].name, axes[a].most, axes[a].length));
    SPW_TRY(SPW_ALLOC(in->results, &in->sequences));
    SPW_TRY(spw_read_array(in->file, "sequences_per_gpu", H5T_NATIVE_UINT64, in->results, in->sequences));
    for (int v = 0; v < SPW_RESULT_VALUES; v++) {
        spw_block_reader *reader = NULL;
        SPW_TRY(open_numbers(in, values[v], 4, H5T_INTEGER, &in->value, &reader));
        if (v == 0) {
            in->rows = reader;
        } else {
            spw_block_reader_destroy(reader);
            spw_hdf5_close_dataset(&in->value);
        }
    }
    for (int m = 0; m < SPW_RESULT_MEMORIES; m++)
        SPW_TRY(open_numbers(in, memories[m], 2, H5T_FLOAT, &in->memory[m], &in->gib[m]));
    const optional_set choices = {"expert_choices", H5T_INTEGER, in->steps, in->layers,
                                  in->layers * SPW_RESULT_MOST_EXPERTS},
                       links = {"link_bytes", H5T_FLOAT, in->results, in->ranks, SPW_RESULT_MOST_LINKS};
    SPW_TRY(open_optional(in, &choices, &in->experts, &in->choice, &in->choices));
    SPW_TRY(open_optional(in, &links, &in->members, &in->link, &in->links));
    SPW_TRY(read_summary(in));

cleanup:
    return status;
}

spw_status spw_result_input_axes(const spw_result_input *in, int64_t *step, int32_t *layer) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_read_array(in->file, "step", H5T_NATIVE_INT64, in->steps, step));
    SPW_TRY(spw_read_array(in->file, "layer", H5T_NATIVE_INT32, in->layers, layer));

cleanup:
    return status;
}

spw_status spw_result_input_step(const spw_result_input *in, size_t result, size_t step, uint64_t *rows,
                                 double gib[SPW_RESULT_MEMORIES]) {
    const uint64_t start[4] = {result, step, 0, 0}, cells[4] = {1, 1, in->layers, in->ranks};
    spw_status status = spw_block_reader_read(in->rows, start, cells, H5T_NATIVE_UINT64, rows);
    if (status != SPW_OK)
        return spw_fail_within(status, "/%s: result %zu, step %zu", values[0], result, step);
    for (int m = 0; m < SPW_RESULT_MEMORIES; m++) {
        status = spw_block_reader_read(in->gib[m], start, cells, H5T_NATIVE_DOUBLE, &gib[m]);
        if (status == SPW_OK && !(gib[m] >= 0.0 && gib[m] < 1e9))
            status = spw_fail(SPW_EFORMAT, "%g GiB; must be a number from 0 on", gib[m]);
        if (status != SPW_OK)
            return spw_fail_within(status, "/%s: result %zu, step %zu", memories[m], result, step);
    }
    return SPW_OK;
}

spw_status spw_result_input_choices(const spw_result_input *in, size_t step, uint64_t *choices) {
    const uint64_t start[3] = {step, 0, 0}, cells[3] = {1, in->layers, in->experts};
    const spw_status status = spw_block_reader_read(in->choices, start, cells, H5T_NATIVE_UINT64, choices);
    return status == SPW_OK ? status : spw_fail_within(status, "/expert_choices: step %zu", step);
}

spw_status spw_result_input_links(const spw_result_input *in, size_t result, double *links) {
    const uint64_t start[3] = {result, 0, 0}, cells[3] = {1, in->ranks, in->members};
    spw_status status = spw_block_reader_read(in->links, start, cells, H5T_NATIVE_DOUBLE, links);
    for (size_t i = 0; i < in->ranks * in->members && status == SPW_OK; i++) {
        if (!(links[i] >= 0.0 && links[i] < 1e24))
            status = spw_fail(SPW_EFORMAT, "%g bytes; must be a number from 0 on", links[i]);
    }
    return status == SPW_OK ? status : spw_fail_within(status, "/link_bytes: result %zu", result);
}
