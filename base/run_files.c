#include "base/run_files.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct named_file {
    size_t run;
    char *path, *place; /* place: of an output, the path that names it once it is there */
    char option[32];    /* of an output; "": an input */
} named_file;

static named_file *files;
static size_t count, capacity, current, last;

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static spw_status copy_text(const char *text, char **out) {
    const size_t length = strlen(text) + 1;
    const spw_status status = SPW_ALLOC(length, out);
    if (status == SPW_OK) memcpy(*out, text, length);
    return status;
}

/* Takes `place`, which may be NULL. */
static spw_status note(const char *path, char *place, const char *option) {
    spw_status status = SPW_OK;
    named_file *larger = NULL;
    if (count == capacity) {
        SPW_TRY(SPW_ALLOC(capacity * 2 + 16, &larger));
        if (count > 0) memcpy(larger, files, count * sizeof *larger);
        spw_free(files);
        files = larger;
        capacity = capacity * 2 + 16;
    }
    files[count] = (named_file){.run = current};
    (void)snprintf(files[count].option, sizeof files[count].option, "%s", option);
    SPW_TRY(copy_text(path, &files[count].path));
    files[count].place = place;
    place = NULL;
    count++;

cleanup:
    free(place);
    return status;
}

spw_status spw_file_reads(const char *path) {
    const named_file *before = count > 0 ? &files[count - 1] : NULL;
    if (before != NULL && before->option[0] == '\0' && before->run == current &&
        strcmp(before->path, path) == 0)
        return SPW_OK;
    return note(path, NULL, "");
}

static spw_status check_streams(const char *path, const struct stat *there) {
    static const char *const streams[] = {"standard output", "standard error"};
    struct stat stream;
    for (int i = 0; i < 2; i++) {
        if (fstat(STDOUT_FILENO + i, &stream) != 0 || !S_ISREG(stream.st_mode) || !is_same(&stream, there))
            continue;
        return spw_fail(SPW_EARG, "%s is the file into which %s goes; write to another file", path,
                        streams[i]);
    }
    return SPW_OK;
}

spw_status spw_file_check_output(const char *path) {
    struct stat there, input;
    if (stat(path, &there) != 0) return SPW_OK; /* what is not there is nobody's input */
    for (size_t i = 0; i < count; i++) {
        if (files[i].option[0] != '\0' || stat(files[i].path, &input) != 0 || !is_same(&there, &input))
            continue;
        if (files[i].run == current)
            return spw_fail(SPW_EARG, "%s is the input %s itself; write to another file", path,
                            files[i].path);
        return spw_fail(SPW_EARG,
                        "%s is open for reading as %s; close that reader first, or write to another file",
                        path, files[i].path);
    }
    return check_streams(path, &there);
}

/* The folder's true name and the file's; NULL: there is no such folder, and whoever begins the file says so. */
static char *place_of(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    char *folder = NULL, *whole = NULL, *out = realpath(path, NULL);
    if (out != NULL) return out;
    folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    whole = folder != NULL ? realpath(folder, NULL) : NULL;
    if (whole != NULL) {
        const size_t bytes = strlen(whole) + strlen(name) + 2;
        out = malloc(bytes);
        if (out != NULL) (void)snprintf(out, bytes, "%s/%s", whole, name);
    }
    free(folder);
    free(whole);
    return out;
}

spw_status spw_file_writes(const char *path, const char *option) {
    spw_status status = SPW_OK;
    struct stat there, other;
    const bool exists = stat(path, &there) == 0;
    char *place = place_of(path);
    SPW_TRY(spw_file_check_output(path));
    for (size_t i = 0; i < count; i++) {
        const named_file *f = &files[i];
        if (f->option[0] == '\0' || f->run != current) continue;
        const bool same = exists ? stat(f->path, &other) == 0 && is_same(&there, &other)
                                 : place != NULL && f->place != NULL && strcmp(place, f->place) == 0;
        if (same)
            SPW_TRY(spw_fail(SPW_EARG, "%s %s: %s writes the same file (%s); give each a file of its own",
                             option, path, f->option, f->path));
    }
    status = note(path, place, option);
    place = NULL;

cleanup:
    free(place);
    return status;
}

size_t spw_run_begin(void) { return current = ++last; }

void spw_run_end(size_t run) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (files[i].run != run) {
            files[kept++] = files[i];
            continue;
        }
        spw_free(files[i].path);
        free(files[i].place);
    }
    count = kept;
    if (current == run) current = 0;
}

void spw_file_forget_reads(void) {
    for (size_t i = 0; i < count; i++) {
        spw_free(files[i].path);
        free(files[i].place);
    }
    spw_free(files);
    files = NULL;
    count = capacity = 0;
}
