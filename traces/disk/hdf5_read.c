#include "traces/disk/hdf5_read.h"

#include "base/file.h"
#include "base/memory.h"
#include "traces/disk/hdf5_error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFLATE_RATIO = 1032, SPARSE_BYTES = 64 << 20, PATH_BYTES = 256 };

hid_t spw_hdf5_open_unlocked(const char *path) {
    const hid_t access_list = H5Pcreate(H5P_FILE_ACCESS);
    (void)H5Pset_file_locking(access_list, 0, 1);
    (void)H5Pset_fclose_degree(access_list, H5F_CLOSE_STRONG);
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access_list);
    (void)H5Pclose(access_list);
    return file;
}

spw_status spw_hdf5_open_file(const char *path, hid_t *out) {
    struct stat entry;
    *out = H5I_INVALID_HID;
    spw_status status = spw_hdf5_listen();
    if (status == SPW_OK) status = spw_file_reads(path);
    if (status != SPW_OK) return status;
    if (stat(path, &entry) != 0) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(entry.st_mode)) return spw_fail(SPW_EIO, "%s: not a regular file", path);
    if (access(path, R_OK) != 0) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    if (entry.st_size == 0) return spw_fail(SPW_EFORMAT, "%s: an empty file", path);
    if (H5Fis_hdf5(path) <= 0) {
        const char *const dot = strrchr(path, '.');
        const bool job = dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
        const bool table = dot != NULL && (strcmp(dot, ".csv") == 0 || strcmp(dot, ".txt") == 0);
        return spw_fail(SPW_EFORMAT, "%s: not an HDF5 file (%lld bytes), which traces and results are%s",
                        path, (long long)entry.st_size,
                        job     ? "; a job is said by --job JOB.yaml"
                        : table ? "; a plan or a replay of which a page is made is printed by --format json"
                                : "");
    }
    *out = spw_hdf5_open_unlocked(path);
    if (*out < 0) return spw_fail(SPW_EFORMAT, "%s: damaged HDF5 file (cut short?)", path);
    return SPW_OK;
}

typedef enum path_end { PATH_WHOLE, PATH_BROKEN, PATH_LINKED } path_end;

/* How far hard links lead along a path. */
static path_end follow_path(hid_t file, const char *path) {
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) return PATH_BROKEN;
    for (size_t end = 1; end <= length; end++) {
        if (path[end] != '/' && path[end] != '\0') continue;
        memcpy(part, path, end);
        part[end] = '\0';
        H5L_info_t link;
        if (H5Lexists(file, part, H5P_DEFAULT) <= 0) return PATH_BROKEN;
        if (H5Lget_info(file, part, &link, H5P_DEFAULT) < 0) return PATH_BROKEN;
        if (link.type != H5L_TYPE_HARD) return PATH_LINKED;
    }
    return PATH_WHOLE;
}

bool spw_hdf5_exists(hid_t file, const char *path) {
    return follow_path(file, path) == PATH_WHOLE && H5Oexists_by_name(file, path, H5P_DEFAULT) > 0;
}

bool spw_hdf5_is_linked(hid_t file, const char *path) { return follow_path(file, path) == PATH_LINKED; }

static spw_status read_filters(hid_t list, const char *path, spw_hdf5_shape *shape) {
    int filters = H5Pget_nfilters(list);
    const struct {
        H5Z_filter_t filter;
        int *at;
    } known[] = {{H5Z_FILTER_SHUFFLE, &shape->shuffle_at},
                 {H5Z_FILTER_DEFLATE, &shape->deflate_at},
                 {H5Z_FILTER_FLETCHER32, &shape->fletcher32_at}};
    if (filters < 0 || filters > 8) return spw_fail(SPW_EFORMAT, "/%s: unreadable filters", path);
    for (int i = 0; i < filters; i++) {
        unsigned flags = 0, values[8] = {0}, config = 0;
        size_t count = 8;
        char name[64] = "";
        H5Z_filter_t filter =
            H5Pget_filter2(list, (unsigned)i, &flags, &count, values, sizeof name, name, &config);
        int j = 0;
        while (j < 3 && (known[j].filter != filter || *known[j].at >= 0)) j++;
        if (j == 3) {
            return spw_fail(SPW_EFORMAT,
                            "/%s: filter %d (%.60s); must be shuffle, deflate or fletcher32, each once", path,
                            (int)filter, filter < 0 ? "unreadable" : name);
        }
        *known[j].at = i;
        if (filter == H5Z_FILTER_SHUFFLE) shape->shuffle_bytes = count >= 1 && values[0] > 0 ? values[0] : 1;
    }
    return SPW_OK;
}

static spw_status check_stored(hid_t dataset, const char *path, const spw_hdf5_shape *shape,
                               H5D_layout_t layout) {
    size_t bytes = shape->element_bytes, chunk_bytes = shape->element_bytes;
    for (int i = 0; i < shape->rank; i++) {
        if (!spw_mul_size(bytes, (size_t)shape->extent[i], &bytes)) {
            return spw_fail(SPW_EFORMAT, "/%s: extent overflows", path);
        }
        if (!spw_mul_size(chunk_bytes, (size_t)shape->chunk[i], &chunk_bytes) ||
            (layout == H5D_CHUNKED && (chunk_bytes == 0 || chunk_bytes > SPW_HDF5_MAX_CHUNK_BYTES))) {
            return spw_fail(SPW_EFORMAT, "/%s: chunks of more than %d MiB", path,
                            SPW_HDF5_MAX_CHUNK_BYTES >> 20);
        }
    }
    uint64_t stored = H5Dget_storage_size(dataset);
    uint64_t most = stored, ratio = shape->deflate_at >= 0 ? DEFLATE_RATIO : 1;
    if (__builtin_mul_overflow(stored, ratio, &most)) most = UINT64_MAX;
    uint64_t slack = layout == H5D_CHUNKED ? SPARSE_BYTES : 0;
    if (bytes > most && bytes - most > slack) {
        return spw_fail(SPW_EFORMAT, "/%s: %zu bytes of extent but only %llu stored", path, bytes,
                        (unsigned long long)stored);
    }
    return SPW_OK;
}

/* Numbers as every machine stores them. HDF5 1.10 crashes while converting from a forged type whose bits lie outside of
 * its bytes, so that nothing else is handed to it. */
static bool is_plain_number(hid_t type) {
    size_t bytes = H5Tget_size(type);
    H5T_order_t order = H5Tget_order(type);
    if (order != H5T_ORDER_LE && order != H5T_ORDER_BE) return false;
    if (H5Tget_class(type) == H5T_INTEGER) {
        return (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) &&
               H5Tget_precision(type) == 8 * bytes && H5Tget_offset(type) == 0;
    }
    if (H5Tget_class(type) != H5T_FLOAT) return false;
    hid_t half = spw_hdf5_half_type();
    bool known = H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F64LE) > 0 ||
                 H5Tequal(type, H5T_IEEE_F32BE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0 ||
                 (half >= 0 && H5Tequal(type, half) > 0);
    if (half >= 0) (void)H5Tclose(half);
    return known;
}

static spw_status read_shape(hid_t dataset, const char *path, int rank, spw_hdf5_shape *shape) {
    spw_status status = SPW_OK;
    hsize_t extent[SPW_HDF5_MAX_RANK] = {0}, chunk[SPW_HDF5_MAX_RANK] = {0};
    hid_t list = H5Dget_create_plist(dataset), space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    *shape = (spw_hdf5_shape){.shuffle_at = -1, .deflate_at = -1, .fletcher32_at = -1};
    if (list < 0 || space < 0 || type < 0) SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: unreadable header", path));
    int dimensions = H5Sget_simple_extent_ndims(space);
    if (H5Sget_simple_extent_type(space) != H5S_SIMPLE || dimensions != rank) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: has %d dimensions; must have %d", path, dimensions, rank));
    }
    if (H5Sget_simple_extent_dims(space, extent, NULL) != rank) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: unreadable extent", path));
    }
    shape->rank = rank;
    shape->type_class = H5Tget_class(type);
    shape->element_bytes = H5Tget_size(type);
    shape->plain_number = is_plain_number(type);
    shape->is_signed = shape->type_class == H5T_INTEGER && H5Tget_sign(type) != H5T_SGN_NONE;
    if (shape->element_bytes == 0 || shape->element_bytes > SPW_HDF5_MAX_TEXT) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: elements of %zu bytes", path, shape->element_bytes));
    }
    H5D_layout_t layout = H5Pget_layout(list);
    if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: virtual or unknown storage; must be in this file", path));
    }
    if (layout == H5D_CONTIGUOUS && H5Pget_external_count(list) != 0) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: stored in another file; must be in this one", path));
    }
    if (layout == H5D_CHUNKED && H5Pget_chunk(list, rank, chunk) != rank) {
        SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: unreadable chunks", path));
    }
    for (int i = 0; i < rank; i++) {
        shape->extent[i] = extent[i];
        shape->chunk[i] = chunk[i];
    }
    if (layout == H5D_CHUNKED) SPW_TRY(read_filters(list, path, shape));
    SPW_TRY(check_stored(dataset, path, shape, layout));

cleanup:
    if (list >= 0) (void)H5Pclose(list);
    if (space >= 0) (void)H5Sclose(space);
    if (type >= 0) (void)H5Tclose(type);
    return status;
}

spw_status spw_hdf5_open_dataset(hid_t file, const char *path, int rank, size_t cache_bytes, hid_t *out,
                                 spw_hdf5_shape *shape) {
    spw_status status = SPW_OK;
    H5O_info_t info;
    hid_t access_list = H5I_INVALID_HID;
    *out = H5I_INVALID_HID;
    if (!spw_hdf5_exists(file, path)) {
        return spw_fail(SPW_EFORMAT, "/%s: missing (or a link to elsewhere); must be a dataset", path);
    }
    if (H5Oget_info_by_name2(file, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0 ||
        info.type != H5O_TYPE_DATASET) {
        return spw_fail(SPW_EFORMAT, "/%s: not a dataset", path);
    }
    access_list = H5Pcreate(H5P_DATASET_ACCESS);
    (void)H5Pset_chunk_cache(access_list, 1009, cache_bytes, 1.0);
    *out = H5Dopen2(file, path, access_list);
    if (*out < 0) SPW_TRY(spw_fail(SPW_EFORMAT, "/%s: unreadable dataset", path));
    SPW_TRY(read_shape(*out, path, rank, shape));

cleanup:
    if (access_list >= 0) (void)H5Pclose(access_list);
    if (status != SPW_OK) spw_hdf5_close_dataset(out);
    return status;
}

void spw_hdf5_close_dataset(hid_t *dataset) {
    if (*dataset >= 0) (void)H5Dclose(*dataset);
    *dataset = H5I_INVALID_HID;
}

spw_status spw_hdf5_read_block(hid_t dataset, int rank, const uint64_t *start, const uint64_t *count,
                               hid_t memory_type, void *out) {
    hsize_t from[SPW_HDF5_MAX_RANK] = {0}, size[SPW_HDF5_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) {
        if (count[i] == 0) return SPW_OK;
        from[i] = start[i];
        size[i] = count[i];
    }
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(rank, size, NULL);
    bool good = space >= 0 && memory >= 0 &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, size, NULL) >= 0 &&
                H5Dread(dataset, memory_type, memory, space, H5P_DEFAULT, out) >= 0;
    if (space >= 0) (void)H5Sclose(space);
    if (memory >= 0) (void)H5Sclose(memory);
    if (!good) return spw_fail(SPW_EFORMAT, "unreadable (damaged, cut short, or a wrong checksum)");
    return SPW_OK;
}

hid_t spw_hdf5_half_type(void) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    bool good = type >= 0 && H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 &&
                H5Tset_ebias(type, 15) >= 0;
    if (good) return type;
    if (type >= 0) (void)H5Tclose(type);
    return H5I_INVALID_HID;
}

static spw_status read_fixed_text(hid_t attribute, hid_t type, const char *name, char **out) {
    size_t bytes = H5Tget_size(type);
    if (bytes > SPW_HDF5_MAX_TEXT)
        return spw_fail(SPW_EFORMAT, "attribute %s: %zu bytes of text", name, bytes);
    spw_status status = SPW_ALLOC(bytes + 1, out);
    if (status == SPW_OK && H5Aread(attribute, type, *out) < 0) (*out)[0] = '\0';
    return status;
}

static spw_status read_long_text(hid_t attribute, hid_t type, char **out) {
    char *text = NULL;
    size_t length = 0;
    if (H5Aread(attribute, type, &text) >= 0 && text != NULL) length = strnlen(text, SPW_HDF5_MAX_TEXT);
    spw_status status = SPW_ALLOC(length + 1, out);
    if (status == SPW_OK && length > 0) memcpy(*out, text, length);
    if (text != NULL) (void)H5free_memory(text);
    return status;
}

/* The attribute when it exists and holds one element; else an invalid id. */
static hid_t open_attribute(hid_t object, const char *name) {
    if (H5Aexists(object, name) <= 0) return H5I_INVALID_HID;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : H5I_INVALID_HID;
    bool single = space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
    if (space >= 0) (void)H5Sclose(space);
    if (single) return attribute;
    if (attribute >= 0) (void)H5Aclose(attribute);
    return H5I_INVALID_HID;
}

spw_status spw_hdf5_read_text(hid_t object, const char *name, char **out) {
    spw_status status = SPW_OK;
    *out = NULL;
    hid_t attribute = open_attribute(object, name);
    hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING) {
        status = H5Tis_variable_str(type) > 0 ? read_long_text(attribute, type, out)
                                              : read_fixed_text(attribute, type, name, out);
    } else {
        status = SPW_ALLOC(1, out);
    }
    if (type >= 0) (void)H5Tclose(type);
    if (attribute >= 0) (void)H5Aclose(attribute);
    return status;
}

spw_status spw_hdf5_read_number(hid_t object, const char *name, double *out) {
    hid_t attribute = open_attribute(object, name);
    if (attribute < 0) return SPW_OK;
    hid_t type = H5Aget_type(attribute);
    H5T_class_t kind = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    double value = 0.0;
    bool good = type >= 0 && is_plain_number(type) && H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0;
    if (kind == H5T_ENUM) { /* a boolean of h5py */
        int8_t flag = 0;
        good = H5Tget_size(type) == 1 && H5Aread(attribute, type, &flag) >= 0;
        value = flag;
    }
    if (good) *out = value;
    if (type >= 0) (void)H5Tclose(type);
    (void)H5Aclose(attribute);
    return SPW_OK;
}
