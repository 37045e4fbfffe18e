#include "traces/shard_names.h"

#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_LIST_BYTES = 64 << 20 };

/* Appends folder/name [length], or the name alone where it begins at the root. */
static spw_status shard_names_add(spw_shard_names *names, const char *folder, size_t folder_length,
                                  const char *name, size_t length) {
    spw_status status = SPW_OK;
    const bool whole = name[0] == '/' || folder_length == 0;
    const size_t bytes = length + 1 + (whole ? 0 : folder_length + 1);
    char **larger = NULL;
    if ((names->count & (names->count + 1)) == 0) { /* room for 1, 3, 7 ... */
        SPW_TRY(SPW_ALLOC(2 * names->count + 1, &larger));
        if (names->count > 0) memcpy(larger, names->path, names->count * sizeof *larger);
        spw_free(names->path);
        names->path = larger;
    }
    if (names->count == SPW_MAX_SHARDS)
        SPW_TRY(spw_fail(SPW_EFORMAT, "more than %d shards are too many", SPW_MAX_SHARDS));
    SPW_TRY(SPW_ALLOC(bytes, &names->path[names->count]));
    (void)snprintf(names->path[names->count++], bytes, "%.*s%s%.*s", whole ? 0 : (int)folder_length, folder,
                   whole ? "" : "/", (int)length, name);

cleanup:
    return status;
}

static spw_status read_list(const char *path, spw_shard_names *names) {
    spw_status status = SPW_OK;
    const char *slash = strrchr(path, '/');
    char *text = NULL;
    size_t length = 0;
    SPW_TRY(spw_file_reads(path));
    SPW_TRY(spw_file_read(path, MOST_LIST_BYTES, &text, &length));
    for (const char *line = text; line < text + length;) {
        const size_t whole = strcspn(line, "\n");
        size_t end = strcspn(line, "#\n");
        const char *begin = line + strspn(line, " \t\r");
        while (line + end > begin && strchr(" \t\r", line[end - 1]) != NULL) end--;
        if (line + end > begin)
            SPW_TRY(shard_names_add(names, path, slash == NULL ? 0 : (size_t)(slash - path), begin,
                                    (size_t)(line + end - begin)));
        line += whole + 1;
    }
    if (names->count == 0)
        SPW_TRY(
            spw_fail(SPW_EFORMAT, "%s: names no shard; a list has the path of a trace on each line", path));

cleanup:
    spw_free(text);
    return status;
}

static bool ends_in(const char *name, const char *end) {
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Of NAME-00003-of-00008.h5: where 00003 stands, 3 and 8. */
static bool numbered(const char *path, const char **at, unsigned long *number, unsigned long *of) {
    const char *middle = NULL;
    char *end = NULL;
    for (const char *next = path; (next = strstr(next, "-of-")) != NULL; next++) middle = next;
    if (middle == NULL || middle == path) return false;
    for (*at = middle; *at > path && (*at)[-1] >= '0' && (*at)[-1] <= '9';) (*at)--;
    if (*at == middle || *at == path || (*at)[-1] != '-' || middle[4] < '0' || middle[4] > '9') return false;
    *number = strtoul(*at, NULL, 10);
    *of = strtoul(middle + 4, &end, 10);
    return *end == '.' && *of <= SPW_MAX_SHARDS;
}

static bool is_there(const spw_shard_names *names, const char *path) {
    return bsearch(&path, names->path, names->count, sizeof *names->path, by_name) != NULL;
}

/* Files that number themselves, from 0 or from 1, are all there: beside each one stand its neighbours. */
static spw_status check_numbers(const spw_shard_names *names) {
    for (size_t i = 0; i < names->count; i++) {
        const char *path = names->path[i], *at = NULL;
        unsigned long number = 0, of = 0;
        char want[4096];
        if (!numbered(path, &at, &number, &of)) continue;
        const int head = (int)(at - path), digits = (int)strspn(at, "0123456789");
        (void)snprintf(want, sizeof want, "%.*s%0*d%s", head, path, digits, 0, at + digits);
        const unsigned long from = is_there(names, want) ? 0 : 1;
        for (unsigned long n = number > from ? number - 1 : from; n <= number + 1 && n < from + of; n++) {
            (void)snprintf(want, sizeof want, "%.*s%0*lu%s", head, path, digits, n, at + digits);
            if (!is_there(names, want))
                return spw_fail(SPW_EIO, "%s: missing; its fellow %s is there", want, path);
        }
    }
    return SPW_OK;
}

static spw_status read_folder(const char *path, spw_shard_names *names) {
    spw_status status = SPW_OK;
    size_t length = strlen(path);
    DIR *folder = opendir(path);
    if (folder == NULL) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    while (length > 1 && path[length - 1] == '/') length--;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] == '.' || (!ends_in(entry->d_name, ".h5") && !ends_in(entry->d_name, ".hdf5")))
            continue;
        SPW_TRY(shard_names_add(names, path, length, entry->d_name, strlen(entry->d_name)));
    }
    if (names->count == 0)
        SPW_TRY(spw_fail(SPW_EIO, "%s: holds no file *.h5 or *.hdf5; a trace may be a folder of such shards",
                         path));
    qsort(names->path, names->count, sizeof *names->path, by_name);
    SPW_TRY(check_numbers(names));

cleanup:
    (void)closedir(folder);
    return status;
}

spw_status spw_shard_names_read(const char *path, spw_shard_names *out) {
    struct stat entry;
    *out = (spw_shard_names){.count = 0};
    if (stat(path, &entry) != 0) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    const spw_status status = S_ISDIR(entry.st_mode) ? read_folder(path, out) : read_list(path, out);
    if (status != SPW_OK) spw_shard_names_clear(out);
    return status;
}

void spw_shard_names_clear(spw_shard_names *names) {
    for (size_t i = 0; i < names->count; i++) spw_free(names->path[i]);
    spw_free(names->path);
    *names = (spw_shard_names){.count = 0};
}
