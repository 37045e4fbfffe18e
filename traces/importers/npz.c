/* Zip files of arrays, by libzip. */
#include "traces/importers/npy_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zip.h>

enum { DEFLATE_FACTOR = 1032, MOST_ENTRIES = 4096 }; /* deflate packs 1032 : 1 at most */

struct spw_npz {
    const char *path;
    zip_t *zip;
    uint64_t bytes; /* of the file */
};

spw_status spw_npz_open(const char *path, spw_npz **out) {
    spw_status status = SPW_OK;
    spw_npz *npz = NULL;
    struct stat there;
    int code = 0;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &npz));
    npz->path = path;
    if (stat(path, &there) != 0) SPW_TRY(spw_fail(SPW_EIO, "%s: %s", path, strerror(errno)));
    if (!S_ISREG(there.st_mode)) SPW_TRY(spw_fail(SPW_EIO, "%s: is no regular file", path));
    npz->bytes = (uint64_t)there.st_size;
    for (int tries = 0; tries < 2 && npz->zip == NULL; tries++) /* short of memory it sees no zip archive */
        npz->zip = zip_open(path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
    if (npz->zip == NULL) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        status =
            spw_fail(code == ZIP_ER_MEMORY                         ? SPW_ENOMEM
                     : code == ZIP_ER_OPEN || code == ZIP_ER_NOENT ? SPW_EIO
                                                                   : SPW_EFORMAT,
                     "%s: %s", path, code == ZIP_ER_MEMORY ? "out of memory" : zip_error_strerror(&error));
        zip_error_fini(&error);
        goto cleanup;
    }
    if (zip_get_num_entries(npz->zip, 0) > MOST_ENTRIES)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: more than %d arrays", path, MOST_ENTRIES));
    *out = npz;
    npz = NULL;

cleanup:
    spw_npz_close(npz);
    return status;
}

void spw_npz_close(spw_npz *npz) {
    if (npz == NULL) return;
    if (npz->zip != NULL) zip_discard(npz->zip);
    spw_free(npz);
}

static bool is_entry(const char *entry, const char *name) {
    const size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && strcmp(entry + length, ".npy") == 0;
}

spw_status spw_npz_check_names(spw_npz *npz, const char *const *known) {
    const zip_int64_t entries = zip_get_num_entries(npz->zip, 0);
    for (zip_int64_t i = 0; i < entries; i++) {
        const char *entry = zip_get_name(npz->zip, (zip_uint64_t)i, 0);
        char plain[64] = "";
        size_t j = 0;
        while (entry != NULL && known[j] != NULL && !is_entry(entry, known[j])) j++;
        if (entry != NULL && known[j] != NULL) continue;
        if (entry != NULL) spw_plain_text(entry, plain, sizeof plain);
        return spw_fail(SPW_EFORMAT, "%s: holds '%s', which is not known to this format", npz->path, plain);
    }
    return SPW_OK;
}

/* The last number in a name; -1: there is none that fits. */
static int32_t last_number(const char *name) {
    size_t end = strlen(name);
    int64_t number = 0, scale = 1;
    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9')) end--;
    if (end == 0) return -1;
    for (; end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9'; end--, scale *= 10) {
        if (scale > 1000000) return -1;
        number += (name[end - 1] - '0') * scale;
    }
    return (int32_t)number;
}

static int by_number(const void *left, const void *right) {
    const spw_npz_name *a = left, *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

spw_status spw_npz_list(spw_npz *npz, spw_npz_name **out, size_t *count) {
    const size_t entries = (size_t)zip_get_num_entries(npz->zip, 0);
    spw_npz_name *names = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(entries, &names));
    for (size_t i = 0; i < entries; i++) {
        const char *entry = zip_get_name(npz->zip, i, 0);
        const size_t length = entry != NULL ? strlen(entry) : 0;
        if (entry == NULL || length < 5 || length - 4 >= sizeof names[i].text ||
            strcmp(entry + length - 4, ".npy") != 0) {
            status =
                spw_fail(SPW_EFORMAT,
                         "%s: entry %zu is no array that numpy wrote, or has a name of over %zu characters",
                         npz->path, i, sizeof names[i].text);
            goto cleanup;
        }
        memcpy(names[i].text, entry, length - 4);
        names[i].number = last_number(names[i].text);
        if (names[i].number < 0)
            SPW_TRY(spw_fail(
                SPW_EFORMAT,
                "%s: array '%.60s' has no number in its name, which would be that of its layer; name one "
                "array with --array",
                npz->path, names[i].text));
    }
    qsort(names, entries, sizeof *names, by_number);
    for (size_t i = 1; i < entries; i++) {
        if (names[i].number == names[i - 1].number)
            SPW_TRY(spw_fail(SPW_EFORMAT,
                             "%s: arrays '%.60s' and '%.60s' have one number; each layer needs its own",
                             npz->path, names[i - 1].text, names[i].text));
    }
    *out = names, *count = entries;
    names = NULL;

cleanup:
    spw_free(names);
    return status;
}

/* *index of the one entry `name`.npy. */
static spw_status find(spw_npz *npz, const char *name, zip_uint64_t *index) {
    const zip_int64_t entries = zip_get_num_entries(npz->zip, 0);
    size_t found = 0;
    for (zip_int64_t i = 0; i < entries; i++) {
        const char *entry = zip_get_name(npz->zip, (zip_uint64_t)i, 0);
        if (entry == NULL || !is_entry(entry, name)) continue;
        *index = (zip_uint64_t)i;
        found++;
    }
    if (found == 1) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s: array '%s' is %s", npz->path, name,
                    found == 0 ? "missing" : "there twice");
}

/* Its sizes, which must be possible. */
static spw_status check_entry(const spw_npz *npz, zip_uint64_t index, const char *where, zip_stat_t *out) {
    const zip_uint64_t needed =
        ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    zip_stat_init(out);
    if (zip_stat_index(npz->zip, index, 0, out) != 0 || (out->valid & needed) != needed)
        return spw_fail(SPW_EFORMAT, "%s: damaged", where);
    const bool stored = out->comp_method == ZIP_CM_STORE && out->size == out->comp_size;
    const bool packed = out->comp_method == ZIP_CM_DEFLATE && out->size / DEFLATE_FACTOR <= out->comp_size;
    if (out->encryption_method != ZIP_EM_NONE || out->comp_size > npz->bytes || (!stored && !packed))
        return spw_fail(SPW_EFORMAT, "%s: stored in a way that numpy does not, or of a size that cannot be",
                        where);
    return SPW_OK;
}

/* What libzip says of its last failure. */
static spw_status refused(const spw_npz *npz, const char *where) {
    if (zip_error_code_zip(zip_get_error(npz->zip)) == ZIP_ER_MEMORY)
        return spw_fail(SPW_ENOMEM, "%s: out of memory", where);
    return spw_fail(SPW_EFORMAT, "%s: %s", where, zip_strerror(npz->zip));
}

spw_status spw_npz_read(spw_npz *npz, const char *name, spw_npy *out) {
    spw_status status = SPW_OK;
    zip_uint64_t index = 0;
    zip_stat_t entry;
    zip_file_t *file = NULL;
    unsigned char extra = 0;
    *out = (spw_npy){.bytes = NULL};
    (void)snprintf(out->where, sizeof out->where, "%s: array '%s'", npz->path, name);
    SPW_TRY(find(npz, name, &index));
    SPW_TRY(check_entry(npz, index, out->where, &entry));
    out->length = (size_t)entry.size;
    SPW_TRY(SPW_ALLOC(out->length, &out->bytes));
    file = zip_fopen_index(npz->zip, index, 0);
    if (file == NULL) SPW_TRY(refused(npz, out->where));
    if (zip_fread(file, out->bytes, entry.size) != (zip_int64_t)entry.size || zip_fread(file, &extra, 1) != 0)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: damaged, or cut short", out->where));
    SPW_TRY(spw_npy_parse(out));

cleanup:
    if (file != NULL) (void)zip_fclose(file);
    if (status != SPW_OK) spw_npy_close(out);
    return status;
}
