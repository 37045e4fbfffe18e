/* Attributes and datasets that only travel along: the loss of a step, token ids, labels, and whatever later
 * versions of the schema add to the same groups. They are read by HDF5 itself, which forged metadata can crash: a child
 * process reads them first. */
#include "base/child.h"
#include "base/memory.h"
#include "traces/write/slice_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK_ROWS = 65536, MAX_BLOCK_BYTES = 64 << 20, NAME_BYTES = 256, MAX_MEMBERS = 256 };

/* What the dimensions of a group's datasets mean, by their number: S step, N token, L layer, R rank, and any
 * other letter: taken whole. NULL: datasets of so many dimensions are left out. */
static const struct {
    const char *group;
    const char *axes[5];
    bool only_uncut; /* left out when ranks or tokens are cut */
} groups[] = {
    {"steps", {NULL, "S", NULL, "SLE", NULL}, false},    {"tokens", {NULL, "N", "NL", NULL, NULL}, false},
    {"model", {NULL, "L", NULL, NULL, NULL}, false},     {"parallel", {NULL, "R", NULL, NULL, NULL}, false},
    {"sequences", {NULL, "Q", NULL, NULL, NULL}, false}, {"counts", {NULL, NULL, NULL, "SLE", "SLRR"}, true},
};

typedef struct copy {
    const spw_trace *in;
    spw_trace_writer *out; /* NULL: a rehearsal, which reads and writes nothing */
    const spw_slice_settings *settings;
    const spw_slice_runs *rows, *steps;
} copy;

static bool out_has(const copy *c, const char *path) {
    return c->out != NULL && spw_hdf5_exists(c->out->file, path);
}

/* The part of an axis that stays: runs, of which only the first dimension may have several. */
static spw_slice_run axis_range(const copy *c, char axis, uint64_t extent) {
    const spw_slice_settings *s = c->settings;
    if (axis == 'L') return (spw_slice_run){s->layer_begin, s->layer_end - s->layer_begin};
    if (axis == 'R' && s->rank_end > 0) return (spw_slice_run){s->rank_begin, s->rank_end - s->rank_begin};
    return (spw_slice_run){0, extent};
}

/* Extent that the axis has in the source, or 0 when it may be any. */
static uint64_t axis_extent(const copy *c, char axis) {
    const spw_trace_info *info = &c->in->info;
    switch (axis) {
    case 'S': return info->steps;
    case 'N': return info->tokens;
    case 'L': return info->layers;
    case 'R': return info->ranks;
    case 'E': return info->experts;
    default: return 0;
    }
}

/* Copies one block from `from` of the source to `to` of the slice; an invalid target is not written. */
typedef struct copied_block {
    int rank;
    hsize_t from[4], to[4], count[4];
} copied_block;

static spw_status copy_block(hid_t source, hid_t target, hid_t type, const copied_block *b,
                             size_t block_bytes) {
    spw_status status = SPW_OK;
    void *data = NULL;
    hid_t memory = H5Screate_simple(b->rank, b->count, NULL), in = H5Dget_space(source),
          out = target < 0 ? H5I_INVALID_HID : H5Dget_space(target);
    SPW_TRY(spw_alloc(block_bytes, 1, &data));
    bool good = H5Sselect_hyperslab(in, H5S_SELECT_SET, b->from, NULL, b->count, NULL) >= 0 &&
                H5Dread(source, type, memory, in, H5P_DEFAULT, data) >= 0;
    if (good && target >= 0)
        good = H5Sselect_hyperslab(out, H5S_SELECT_SET, b->to, NULL, b->count, NULL) >= 0 &&
               H5Dwrite(target, type, memory, out, H5P_DEFAULT, data) >= 0;
    (void)H5Dvlen_reclaim(type, memory, H5P_DEFAULT, data);
    if (!good) status = spw_fail(SPW_EIO, "cannot be copied (disk full, or out of memory?)");

cleanup:
    spw_free(data);
    if (memory >= 0) (void)H5Sclose(memory);
    if (in >= 0) (void)H5Sclose(in);
    if (out >= 0) (void)H5Sclose(out);
    return status;
}

/* Copies the runs of the first axis and the range of every other. */
static spw_status copy_runs(hid_t source, hid_t target, hid_t type, int rank, const spw_slice_runs *runs,
                            const spw_slice_run *range, size_t row_bytes) {
    spw_status status = SPW_OK;
    copied_block b = {.rank = rank};
    uint64_t most = MAX_BLOCK_BYTES / row_bytes;
    if (most > BLOCK_ROWS) most = BLOCK_ROWS;
    if (most == 0) return spw_fail(SPW_EFORMAT, "rows of %zu bytes", row_bytes);
    for (int i = 1; i < rank; i++) {
        b.from[i] = range[i].first;
        b.count[i] = range[i].count;
    }
    for (size_t i = 0; i < runs->used; i++) {
        for (uint64_t done = 0; done < runs->run[i].count; done += b.count[0]) {
            uint64_t left = runs->run[i].count - done;
            b.from[0] = runs->run[i].first + done;
            b.count[0] = left < most ? left : most;
            SPW_TRY(copy_block(source, target, type, &b, (size_t)b.count[0] * row_bytes));
            b.to[0] += b.count[0];
        }
    }

cleanup:
    return status;
}

static hid_t create_like(const copy *c, hid_t type, const char *path, int rank, const hsize_t *extent) {
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, extent, NULL);
    (void)H5Pset_obj_track_times(list, false);
    if (extent[0] >= BLOCK_ROWS && H5Tdetect_class(type, H5T_VLEN) <= 0 && H5Tis_variable_str(type) <= 0) {
        hsize_t chunk[4] = {BLOCK_ROWS, extent[1], extent[2], extent[3]};
        (void)H5Pset_chunk(list, rank, chunk);
        (void)H5Pset_shuffle(list);
        (void)H5Pset_deflate(list, 4);
    }
    hid_t target = H5Dcreate2(c->out->file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    (void)H5Sclose(space);
    (void)H5Pclose(list);
    return target;
}

static spw_status copy_dataset(const copy *c, const char *path, const char *const *axes) {
    spw_status status = SPW_OK;
    spw_trace_dataset source = {.path = path, .id = H5I_INVALID_HID};
    hid_t target = H5I_INVALID_HID, type = H5I_INVALID_HID;
    spw_slice_run range[4] = {{0, 0}};
    spw_slice_runs whole = {&range[0], 1, 1};
    hsize_t extent[4] = {1, 1, 1, 1};
    for (int rank = 1; rank <= 4 && source.id < 0; rank++) {
        if (axes[rank] == NULL) continue;
        if (spw_hdf5_open_dataset(c->in->file, path, rank, 1 << 20, &source.id, &source.shape) == SPW_OK)
            break;
    }
    if (source.id < 0) return SPW_OK; /* of another kind: left out */
    int rank = source.shape.rank;
    const char *axis = axes[rank];
    const spw_slice_runs *runs = axis[0] == 'S' ? c->steps : axis[0] == 'N' ? c->rows : &whole;
    size_t row_bytes = 0;
    type = H5Dget_type(source.id);
    row_bytes = H5Tget_size(type);
    for (int i = 0; i < rank; i++) {
        uint64_t want = axis_extent(c, axis[i]);
        if (want != 0 && source.shape.extent[i] != want) goto cleanup; /* not what its place says */
        range[i] = axis_range(c, axis[i], source.shape.extent[i]);
        extent[i] = range[i].count;
        if (i > 0 && !spw_mul_size(row_bytes, (size_t)extent[i], &row_bytes)) goto cleanup;
    }
    if (runs != &whole) {
        extent[0] = 0;
        for (size_t i = 0; i < runs->used; i++) extent[0] += runs->run[i].count;
    }
    if (c->out != NULL) target = create_like(c, type, path, rank, extent);
    if (c->out != NULL && target < 0)
        SPW_TRY(spw_fail(SPW_EIO, "/%s: cannot be created (out of memory?)", path));
    status = row_bytes > 0 ? copy_runs(source.id, target, type, rank, runs, range, row_bytes) : SPW_OK;
    if (status != SPW_OK) status = spw_fail_within(status, "/%s", path);

cleanup:
    spw_hdf5_close_dataset(&source.id);
    spw_hdf5_close_dataset(&target);
    if (type >= 0) (void)H5Tclose(type);
    return status;
}

/* An invalid `to` is not written. */
static spw_status copy_attribute(hid_t from, hid_t to, const char *name) {
    spw_status status = SPW_OK;
    void *data = NULL;
    hid_t source = H5Aopen(from, name, H5P_DEFAULT), target = H5I_INVALID_HID;
    hid_t type = H5Aget_type(source), space = H5Aget_space(source);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    size_t size = H5Tget_size(type), bytes = 0;
    if (count < 1 || !spw_mul_size((size_t)count, size, &bytes) || bytes > SPW_HDF5_MAX_TEXT ||
        H5Tdetect_class(type, H5T_REFERENCE) > 0) {
        goto cleanup; /* nothing to copy, or nothing that could be */
    }
    SPW_TRY(spw_alloc(bytes, 1, &data));
    if (to >= 0) target = H5Acreate2(to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (H5Aread(source, type, data) < 0 || (to >= 0 && (target < 0 || H5Awrite(target, type, data) < 0))) {
        status = spw_fail(SPW_EIO, "attribute %s cannot be copied (disk full, or out of memory?)", name);
    }
    (void)H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);

cleanup:
    spw_free(data);
    if (target >= 0) (void)H5Aclose(target);
    if (space >= 0) (void)H5Sclose(space);
    if (type >= 0) (void)H5Tclose(type);
    if (source >= 0) (void)H5Aclose(source);
    return status;
}

/* The attributes of an object that its copy lacks, but for those that HDF5 and netCDF keep for themselves. */
static spw_status copy_attributes(const copy *c, const char *object) {
    spw_status status = SPW_OK;
    char name[NAME_BYTES];
    bool root = strcmp(object, "/") == 0;
    if (!root && (!spw_hdf5_exists(c->in->file, object) || (c->out != NULL && !out_has(c, object))))
        return SPW_OK;
    hid_t from = H5Oopen(c->in->file, object, H5P_DEFAULT),
          to = c->out == NULL ? H5I_INVALID_HID : H5Oopen(c->out->file, object, H5P_DEFAULT);
    for (hsize_t i = 0; i < MAX_MEMBERS && status == SPW_OK; i++) {
        ssize_t length =
            H5Aget_name_by_idx(from, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
        if (length < 0) break;
        bool reserved = strcmp(name, "CLASS") == 0 || strcmp(name, "NAME") == 0 ||
                        strncmp(name, "_Netcdf4", 8) == 0 || strcmp(name, "REFERENCE_LIST") == 0 ||
                        strcmp(name, "DIMENSION_LIST") == 0;
        if ((size_t)length >= sizeof name || reserved || (to >= 0 && H5Aexists(to, name) != 0)) continue;
        status = copy_attribute(from, to, name);
    }
    if (from >= 0) (void)H5Oclose(from);
    if (to >= 0) (void)H5Oclose(to);
    return status;
}

/* The writer writes these at the end; offsets into the source's rows mean nothing in the slice. */
static bool is_made_anew(const char *path) {
    const char *const made[] = {"steps/id", "steps/num_tokens", "steps/phase", "tokens/step_offset",
                                "sequences/token_offset"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        if (strcmp(path, made[i]) == 0) return true;
    }
    return false;
}

static spw_status copy_group(const copy *c, const char *group, const char *const *axes) {
    spw_status status = SPW_OK;
    char name[NAME_BYTES], path[NAME_BYTES + 16];
    if (!spw_hdf5_exists(c->in->file, group)) return SPW_OK;
    if (c->out != NULL && strcmp(group, "tokens") == 0 && !out_has(c, group)) return SPW_OK;
    if (c->out != NULL && !out_has(c, group)) {
        hid_t made = H5Gcreate2(c->out->file, group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (made >= 0) (void)H5Gclose(made);
    }
    for (hsize_t i = 0; i < MAX_MEMBERS; i++) {
        ssize_t length = H5Lget_name_by_idx(c->in->file, group, H5_INDEX_NAME, H5_ITER_INC, i, name,
                                            sizeof name, H5P_DEFAULT);
        if (length < 0) break;
        if ((size_t)length >= sizeof name || strchr(name, '/') != NULL) continue;
        (void)snprintf(path, sizeof path, "%s/%s", group, name);
        if (!is_made_anew(path) && !out_has(c, path)) SPW_TRY(copy_dataset(c, path, axes));
        SPW_TRY(copy_attributes(c, path));
    }
    SPW_TRY(copy_attributes(c, group));

cleanup:
    return status;
}

spw_status spw_slice_copy_extra(const spw_trace *in, spw_trace_writer *out,
                                const spw_slice_settings *settings, const spw_slice_runs *rows,
                                const spw_slice_runs *steps) {
    spw_status status = SPW_OK;
    const copy c = {in, out, settings, rows, steps};
    bool cut = settings->rank_end > 0 || settings->max_tokens > 0;
    SPW_TRY(copy_attributes(&c, "/"));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (groups[i].only_uncut && cut) continue;
        SPW_TRY(copy_group(&c, groups[i].group, groups[i].axes));
    }

cleanup:
    return status;
}

/* Reads all that a slice of every step and row would copy. That something cannot be read is for the slice to say. */
static spw_status read_extra(void *context, FILE *out) {
    const char *path = context;
    spw_trace *trace = NULL;
    (void)out;
    spw_status status = spw_trace_open(path, &trace);
    if (status != SPW_OK) return status == SPW_ENOMEM ? status : SPW_OK;
    const spw_trace_info *info = spw_trace_get_info(trace);
    const spw_slice_settings settings = {.layer_end = info->layers};
    spw_slice_run row = {0, info->tokens}, step = {0, info->steps};
    const spw_slice_runs rows = {&row, info->tokens > 0 ? 1 : 0, 1},
                         steps = {&step, info->steps > 0 ? 1 : 0, 1};
    status = spw_slice_copy_extra(trace, NULL, &settings, &rows, &steps);
    spw_trace_close(trace);
    return status == SPW_ENOMEM ? status : SPW_OK;
}

spw_status spw_slice_rehearse_extra(const char *path) {
    enum { LEAST_SECONDS = 10, BYTES_A_SECOND = 1 << 20, REPLY_BYTES = 1 };
    struct stat file;
    char *reply = NULL;
    size_t bytes = 0;
    const uint64_t megabytes = stat(path, &file) == 0 ? (uint64_t)file.st_size / BYTES_A_SECOND : 0;
    const unsigned seconds = megabytes < INT_MAX / 2 ? LEAST_SECONDS + (unsigned)megabytes : INT_MAX;
    spw_status status =
        spw_child_run(path, seconds, REPLY_BYTES, read_extra, (void *)(uintptr_t)path, &reply, &bytes);
    spw_free(reply);
    return status;
}
