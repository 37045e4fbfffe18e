#include "traces/disk/hdf5_ledger.h"

#include "base/memory.h"
#include "traces/disk/hdf5_read.h"
#include "traces/generate/random_stream.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANK = 4, BLOCK_BYTES = 4 << 20 };
#define FNV_BEGIN 14695981039346656037u

/* FNV-1a, 64 bits: does not depend on how the bytes are cut. */
static uint64_t add_bytes(uint64_t sum, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * 1099511628211u;
    return sum;
}

/* A part's share of a sum that does not depend on the order of the parts. */
static uint64_t share(uint64_t first, uint64_t second, const void *data, size_t bytes) {
    return spw_random_mix(add_bytes(FNV_BEGIN, data, bytes) ^ spw_random_mix(first << 24 ^ second));
}

static spw_status find(spw_hdf5_ledger *ledger, const char *path, spw_hdf5_entry **out) {
    spw_status status = SPW_OK;
    for (size_t i = ledger->entries; i-- > 0;) {
        *out = &ledger->entry[i];
        if (strcmp((*out)->path, path) == 0) return SPW_OK;
    }
    if (ledger->entries == ledger->capacity) {
        spw_hdf5_entry *larger = NULL;
        SPW_TRY(SPW_ALLOC(ledger->capacity * 2 + 32, &larger));
        if (ledger->entries > 0) memcpy(larger, ledger->entry, ledger->entries * sizeof *larger);
        spw_free(ledger->entry);
        ledger->entry = larger;
        ledger->capacity = ledger->capacity * 2 + 32;
    }
    *out = &ledger->entry[ledger->entries++];
    **out = (spw_hdf5_entry){.sum = 0};
    (void)snprintf((*out)->path, sizeof(*out)->path, "%s", path);

cleanup:
    return status;
}

spw_status spw_hdf5_ledger_note(spw_hdf5_ledger *ledger, const char *path, spw_hdf5_way way, hid_t type,
                                const uint64_t at[2], const void *data, size_t bytes) {
    spw_hdf5_entry *entry = NULL;
    const spw_status status = find(ledger, path, &entry);
    if (status != SPW_OK) return status;
    if (way == SPW_HDF5_IN_ORDER) {
        entry->sum = add_bytes(entry->sum != 0 ? entry->sum : FNV_BEGIN, data, bytes);
    } else {
        entry->sum += share(at != NULL ? at[0] : 0, at != NULL ? at[1] : 0, data, bytes);
    }
    entry->way = way;
    entry->type = type;
    return SPW_OK;
}

spw_status spw_hdf5_ledger_note_text(spw_hdf5_ledger *ledger, hid_t object, const char *name,
                                     const char *text) {
    char path[sizeof ledger->entry->path], holder[64] = "";
    if (H5Iget_name(object, holder, sizeof holder) < 0)
        return spw_fail(SPW_EIO, "attribute %s: of an object without a name (out of memory?)", name);
    (void)snprintf(path, sizeof path, "%s@%.30s", holder, name);
    return spw_hdf5_ledger_note(ledger, path, SPW_HDF5_TEXT, H5I_INVALID_HID, NULL, text, strlen(text));
}

/* Each with its end, so that no two lists of texts have one sum. */
static uint64_t add_strings(uint64_t sum, size_t count, const char *const *text) {
    for (size_t i = 0; i < count; i++)
        sum = text[i] != NULL ? add_bytes(sum, text[i], strlen(text[i]) + 1) : 0;
    return sum;
}

spw_status spw_hdf5_ledger_note_strings(spw_hdf5_ledger *ledger, const char *path, size_t count,
                                        const char *const *text) {
    spw_hdf5_entry *entry = NULL;
    const spw_status status = find(ledger, path, &entry);
    if (status != SPW_OK) return status;
    entry->way = SPW_HDF5_STRINGS;
    entry->type = H5I_INVALID_HID;
    entry->sum = add_strings(FNV_BEGIN, count, text);
    return SPW_OK;
}

/* Whether the attribute's text has the sum. */
static bool text_agrees(hid_t file, const spw_hdf5_entry *entry) {
    char holder[sizeof entry->path], *text = NULL;
    (void)snprintf(holder, sizeof holder, "%s", entry->path);
    char *name = strrchr(holder, '@');
    *name++ = '\0';
    const hid_t attribute = H5Aopen_by_name(file, holder, name, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
    const bool variable = type >= 0 && H5Tis_variable_str(type) > 0;
    const size_t bytes = type >= 0 && !variable ? H5Tget_size(type) : 0;
    bool good = type >= 0 && (variable || SPW_ALLOC(bytes + 1, &text) == SPW_OK) &&
                H5Aread(attribute, type, variable ? (void *)&text : text) >= 0 && text != NULL;
    good = good && share(0, 0, text, strlen(text)) == entry->sum;
    if (text != NULL && variable) (void)H5free_memory(text);
    if (!variable) spw_free(text);
    if (type >= 0) (void)H5Tclose(type);
    if (attribute >= 0) (void)H5Aclose(attribute);
    return good;
}

/* A dataset that is read again. */
typedef struct reading {
    hid_t dataset, space, type;
    int rank;
    hsize_t extent[MOST_RANK], chunk[MOST_RANK];
    size_t row_bytes; /* of all axes but the first; of all but the first two for parts */
    void *buffer;
    size_t buffer_bytes;
} reading;

static bool open_reading(hid_t file, const spw_hdf5_entry *entry, reading *r) {
    *r = (reading){.dataset = H5Dopen2(file, entry->path, H5P_DEFAULT),
                   .space = H5I_INVALID_HID,
                   .type = H5I_INVALID_HID};
    if (r->dataset < 0) return false;
    const hid_t list = H5Dget_create_plist(r->dataset);
    r->space = H5Dget_space(r->dataset);
    r->type = entry->type >= 0 ? H5Tcopy(entry->type) : H5Dget_type(r->dataset);
    r->rank = r->space >= 0 ? H5Sget_simple_extent_ndims(r->space) : -1;
    const bool chunked = list >= 0 && H5Pget_layout(list) == H5D_CHUNKED;
    bool good = list >= 0 && r->type >= 0 && r->rank >= 0 && r->rank <= MOST_RANK &&
                H5Sget_simple_extent_dims(r->space, r->extent, NULL) == r->rank &&
                (!chunked || H5Pget_chunk(list, MOST_RANK, r->chunk) == r->rank);
    if (list >= 0) good = H5Pclose(list) >= 0 && good;
    if (!good) return false;
    r->row_bytes = H5Tget_size(r->type);
    for (int i = entry->way == SPW_HDF5_PARTS ? 2 : 1; i < r->rank; i++) r->row_bytes *= (size_t)r->extent[i];
    return true;
}

static void close_reading(reading *r) {
    if (r->type >= 0) (void)H5Tclose(r->type);
    if (r->space >= 0) (void)H5Sclose(r->space);
    if (r->dataset >= 0) (void)H5Dclose(r->dataset);
    spw_free(r->buffer);
}

static spw_status hold(reading *r, size_t bytes) {
    if (bytes <= r->buffer_bytes) return SPW_OK;
    spw_free(r->buffer);
    r->buffer_bytes = 0;
    const spw_status status = spw_alloc(bytes, 1, &r->buffer);
    if (status == SPW_OK) r->buffer_bytes = bytes;
    return status;
}

static bool read_block(reading *r, const hsize_t *start, const hsize_t *count) {
    if (r->rank == 0) return H5Dread(r->dataset, r->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, r->buffer) >= 0;
    const hid_t memory = H5Screate_simple(r->rank, count, NULL);
    const bool good = memory >= 0 &&
                      H5Sselect_hyperslab(r->space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                      H5Dread(r->dataset, r->type, memory, r->space, H5P_DEFAULT, r->buffer) >= 0;
    if (memory >= 0) (void)H5Sclose(memory);
    return good;
}

/* The sum of a dataset that was written from first to last; *good is whether it could be read. */
static spw_status sum_in_order(reading *r, uint64_t *sum, bool *good) {
    spw_status status = SPW_OK;
    const size_t rows = r->rank == 0 ? 1 : (size_t)r->extent[0],
                 most = r->row_bytes > 0 ? BLOCK_BYTES / r->row_bytes : 0;
    hsize_t start[MOST_RANK] = {0}, count[MOST_RANK];
    memcpy(count, r->extent, sizeof count);
    *sum = FNV_BEGIN;
    for (size_t row = 0; row < rows && *good; row += (size_t)count[0]) {
        start[0] = row;
        count[0] = rows - row < most ? rows - row : most > 0 ? most : 1;
        SPW_TRY(hold(r, (size_t)count[0] * r->row_bytes));
        *good = read_block(r, start, count);
        if (*good) *sum = add_bytes(*sum, r->buffer, (size_t)count[0] * r->row_bytes);
    }

cleanup:
    return status;
}

static spw_status sum_parts(reading *r, uint64_t *sum, bool *good) {
    spw_status status = SPW_OK;
    hsize_t start[MOST_RANK] = {0}, count[MOST_RANK];
    memcpy(count, r->extent, sizeof count);
    count[0] = count[1] = 1;
    SPW_TRY(hold(r, r->row_bytes));
    for (start[0] = 0; start[0] < r->extent[0] && *good; start[0]++) {
        for (start[1] = 0; start[1] < r->extent[1] && *good; start[1]++) {
            *good = read_block(r, start, count);
            if (*good) *sum += share(start[0], start[1], r->buffer, r->row_bytes);
        }
    }

cleanup:
    return status;
}

static spw_status sum_chunks(reading *r, uint64_t *sum, bool *good) {
    spw_status status = SPW_OK;
    hsize_t at[MOST_RANK] = {0}, bytes = 0;
    uint32_t mask = 0;
    for (at[0] = 0; at[0] < r->extent[0] && *good; at[0] += r->chunk[0]) {
        for (at[1] = 0; at[1] < r->extent[1] && *good; at[1] += r->chunk[1]) {
            *good = H5Dget_chunk_storage_size(r->dataset, at, &bytes) >= 0;
            SPW_TRY(hold(r, (size_t)bytes + 1));
            *good = *good && bytes > 0 && H5Dread_chunk(r->dataset, H5P_DEFAULT, at, &mask, r->buffer) >= 0;
            if (*good) *sum += share(at[0], at[1], r->buffer, (size_t)bytes);
        }
    }

cleanup:
    return status;
}

static spw_status sum_strings(reading *r, uint64_t *sum, bool *good) {
    spw_status status = SPW_OK;
    const size_t count = r->rank == 1 ? (size_t)r->extent[0] : 0;
    if (count == 0) {
        *sum = FNV_BEGIN;
        return SPW_OK;
    }
    SPW_TRY(hold(r, count * sizeof(char *)));
    *good = H5Tis_variable_str(r->type) > 0 &&
            H5Dread(r->dataset, r->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, r->buffer) >= 0;
    if (*good) *sum = add_strings(FNV_BEGIN, count, r->buffer);
    if (*good) *good = H5Dvlen_reclaim(r->type, r->space, H5P_DEFAULT, r->buffer) >= 0;

cleanup:
    return status;
}

static spw_status check_entry(hid_t file, const spw_hdf5_entry *entry) {
    static spw_status (*const ways[])(reading *, uint64_t *, bool *) = {sum_in_order, sum_parts, sum_chunks,
                                                                        sum_strings};
    spw_status status = SPW_OK;
    reading r;
    uint64_t sum = 0;
    if (entry->way == SPW_HDF5_TEXT)
        return text_agrees(file, entry)
                   ? SPW_OK
                   : spw_fail(SPW_EIO,
                              "%s: does not read as it was written; a fault of the disk, or of memory",
                              entry->path);
    bool good = open_reading(file, entry, &r);
    if (good) SPW_TRY(ways[entry->way](&r, &sum, &good));
    if (!good || sum != entry->sum)
        status = spw_fail(SPW_EIO, "/%s: does not read as it was written; a fault of the disk, or of memory",
                          entry->path);

cleanup:
    close_reading(&r);
    return status;
}

/* An attribute of whatever type can be read, what it keeps in the file's heap too: the axes of a dataset stand there. */
static herr_t read_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    (void)info;
    spw_status *status = context;
    void *value = NULL;
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    const hid_t type = attribute >= 0 ? H5Aget_type(attribute) : H5I_INVALID_HID;
    const hid_t space = attribute >= 0 ? H5Aget_space(attribute) : H5I_INVALID_HID;
    const hssize_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    bool good = type >= 0 && count >= 0;
    if (good) *status = spw_alloc((size_t)count + 1, H5Tget_size(type), &value);
    good = good && *status == SPW_OK && H5Aread(attribute, type, value) >= 0;
    if (good) good = H5Dvlen_reclaim(type, space, H5P_DEFAULT, value) >= 0;
    spw_free(value);
    if (space >= 0) (void)H5Sclose(space);
    if (type >= 0) (void)H5Tclose(type);
    if (attribute >= 0) (void)H5Aclose(attribute);
    return good ? 0 : -1;
}

static herr_t read_attributes(hid_t file, const char *name, const H5O_info_t *info, void *status) {
    (void)info;
    const hid_t object = H5Oopen(file, name, H5P_DEFAULT);
    if (object < 0) return -1;
    const herr_t done = H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, read_attribute, status);
    return H5Oclose(object) < 0 ? -1 : done;
}

spw_status spw_hdf5_ledger_check(const spw_hdf5_ledger *ledger, const char *path) {
    spw_status status = SPW_OK;
    const hid_t file = spw_hdf5_open_unlocked(path);
    if (file < 0) return spw_fail(SPW_EIO, "cannot be opened again (a fault of the disk, or of memory)");
    for (size_t i = 0; i < ledger->entries && status == SPW_OK; i++)
        status = check_entry(file, &ledger->entry[i]);
    if (status == SPW_OK && H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, read_attributes, &status) < 0 &&
        status == SPW_OK)
        status = spw_fail(SPW_EIO, "an attribute cannot be read again; a fault of the disk, or of memory");
    if (H5Fclose(file) < 0 && status == SPW_OK)
        status = spw_fail(SPW_EIO, "cannot be closed (a fault of the disk?)");
    return status;
}

spw_status spw_hdf5_ledger_copy(const spw_hdf5_ledger *ledger, spw_hdf5_ledger *out) {
    spw_hdf5_entry *larger = NULL;
    if (out->capacity < ledger->entries) {
        const spw_status status = SPW_ALLOC(ledger->capacity, &larger);
        if (status != SPW_OK) return status;
        spw_free(out->entry);
        out->entry = larger;
        out->capacity = ledger->capacity;
    }
    out->entries = ledger->entries;
    if (ledger->entries > 0) memcpy(out->entry, ledger->entry, ledger->entries * sizeof *out->entry);
    return SPW_OK;
}

void spw_hdf5_ledger_clear(spw_hdf5_ledger *ledger) {
    spw_free(ledger->entry);
    *ledger = (spw_hdf5_ledger){NULL, 0, 0};
}
