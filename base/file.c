#include "base/file.h"

#include "base/memory.h"
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITABLE = 0222, ALL_MODES = 0777 };

static spw_status copy_text(const char *text, char **out) {
    const size_t length = strlen(text) + 1;
    const spw_status status = SPW_ALLOC(length, out);
    if (status == SPW_OK) memcpy(*out, text, length);
    return status;
}

/* Whether a file may be written at `path`; *mode of what it replaces, or of any new file. */
static spw_status check_target(const char *path, mode_t *mode) {
    struct stat there;
    const mode_t mask = umask(0);
    (void)umask(mask);
    *mode = 0666 & ~mask;
    if (stat(path, &there) != 0) {
        if (lstat(path, &there) != 0) return SPW_OK;
        return spw_fail(SPW_EIO, "%s: is a link to a file that is not there; name the file itself", path);
    }
    if (!S_ISREG(there.st_mode))
        return spw_fail(SPW_EIO, "%s: is no regular file; name a file to write", path);
    if ((there.st_mode & WRITABLE) == 0 || access(path, W_OK) != 0)
        return spw_fail(SPW_EIO,
                        "%s: is there and may not be written; name another file, or make it writable", path);
    *mode = there.st_mode & ALL_MODES;
    return spw_file_check_output(path);
}

spw_status spw_file_begin(const char *path, spw_file *out) {
    spw_status status = SPW_OK;
    char *real = NULL; /* a link stays, its target is replaced */
    mode_t mode = 0;
    int descriptor = -1;
    *out = (spw_file){NULL, NULL};
    if (path[0] == '\0')
        return spw_fail(SPW_EARG, "the output has no name; give the path of the file to write");
    SPW_TRY(check_target(path, &mode));
    errno = 0;
    real = realpath(path, NULL);
    if (real == NULL && errno != ENOENT)
        SPW_TRY(spw_fail(errno == ENOMEM ? SPW_ENOMEM : SPW_EIO, "%s: cannot be created: %s", path,
                         strerror(errno)));
    SPW_TRY(copy_text(real != NULL ? real : path, &out->path));
    SPW_TRY(spw_temporary_create(out->path, &out->temporary, &descriptor));
    const bool set = fchmod(descriptor, mode) == 0; /* as readable as what it replaces, not 0600 */
    if (close(descriptor) != 0 || !set)
        SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be created: %s", path, strerror(errno)));

cleanup:
    free(real);
    if (status != SPW_OK) spw_file_discard(out);
    return status;
}

/* Brings a file, or the names in a folder, to the disk. */
static bool synchronize(const char *path, int flags) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | flags);
    const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
    const int failure = errno;
    if (descriptor >= 0 && close(descriptor) != 0) return false;
    errno = failure;
    return synced;
}

/* The folder of a file that has got its name. Some file systems have nothing to do for a folder and say so. */
static spw_status synchronize_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
    const bool synced = synchronize(slash == NULL ? "." : slash == path ? "/" : path, O_DIRECTORY);
    if (slash != NULL) *slash = '/';
    if (synced || errno == EINVAL || errno == ENOTSUP || errno == EACCES) return SPW_OK;
    return spw_fail(
        SPW_EIO,
        "%s: is complete, but the name in its folder cannot be brought to the disk (%s); after a power "
        "cut the file of before may stand there",
        path, strerror(errno));
}

spw_status spw_file_commit(spw_file *file) {
    spw_status status = SPW_OK;
    status = spw_settle(SPW_OK);
    if (status == SPW_EIO) status = spw_fail_within(status, "%s", file->path);
    if (status != SPW_OK) goto cleanup;
    SPW_TRY(spw_file_check_output(file->path)); /* which may have been read since the beginning */
    if (!synchronize(file->temporary, 0) || rename(file->temporary, file->path) != 0)
        SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written: %s", file->path, strerror(errno)));
    spw_temporary_forget(file->temporary);
    spw_free(file->temporary);
    file->temporary = NULL;
    SPW_TRY(synchronize_folder(file->path));

cleanup:
    spw_file_discard(file);
    return status;
}

void spw_file_discard(spw_file *file) {
    if (file->temporary != NULL) spw_temporary_remove(file->temporary);
    spw_free(file->temporary);
    spw_free(file->path);
    *file = (spw_file){NULL, NULL};
}

spw_status spw_file_print(const char *path, spw_status (*print)(FILE *out, const void *what),
                          const void *what) {
    spw_file file = {NULL, NULL};
    spw_status status = spw_file_begin(path, &file);
    if (file.temporary == NULL) return status; /* it has failed */
    FILE *out = fopen(file.temporary, "w");
    if (out == NULL)
        SPW_TRY(spw_fail(errno == ENOMEM ? SPW_ENOMEM : SPW_EIO, "%s: cannot be written: %s", path,
                         strerror(errno)));
    status = print(out, what);
    errno = 0;
    const bool written = ferror(out) == 0;
    if ((fclose(out) != 0 || !written) && status == SPW_OK)
        status = spw_fail(SPW_EIO, "%s: cannot be written: %s", path,
                          errno != 0 ? strerror(errno) : "is the disk full?");
    if (status == SPW_OK) status = spw_file_commit(&file);

cleanup:
    spw_file_discard(&file);
    return status;
}

static spw_status cannot_open(const char *path) {
    return spw_fail(errno == ENOMEM ? SPW_ENOMEM : SPW_EIO, "%s: %s", path, strerror(errno));
}

/* A FIFO waits for ever for somebody to write to it; here that takes FIFO_WAIT_MS. *first: a byte that was read to find out, or
 * EOF. */
static spw_status check_fifo(const char *path, int descriptor, int *first) {
    enum { FIFO_WAIT_MS = 2000 };
    struct stat there;
    struct pollfd input = {.fd = descriptor, .events = POLLIN};
    unsigned char byte = 0;
    *first = EOF;
    if (fstat(descriptor, &there) != 0 || !S_ISFIFO(there.st_mode) || poll(&input, 1, FIFO_WAIT_MS) > 0)
        return SPW_OK;
    const ssize_t got = read(descriptor, &byte, 1); /* does not wait; 0: no writer, below: one that is slow */
    if (got == 1) *first = byte;
    if (got != 0) return SPW_OK;
    return spw_fail(SPW_EIO, "%s: is a FIFO that nobody writes to; name a file", path);
}

spw_status spw_file_open(const char *path, FILE **out) {
    spw_status status = SPW_OK;
    int descriptor = -1, first = EOF;
    *out = NULL;
    SPW_TRY(spw_file_reads(path));
    descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) SPW_TRY(cannot_open(path));
    SPW_TRY(check_fifo(path, descriptor, &first));
    if (fcntl(descriptor, F_SETFL, 0) != 0) SPW_TRY(cannot_open(path));
    *out = fdopen(descriptor, "rb");
    if (*out == NULL) SPW_TRY(cannot_open(path));
    descriptor = -1;
    if (first != EOF) (void)ungetc(first, *out);

cleanup:
    if (descriptor >= 0) (void)close(descriptor);
    return status;
}

spw_status spw_file_read(const char *path, size_t limit, char **text, size_t *length) {
    spw_status status = SPW_OK;
    char *buffer = NULL;
    size_t capacity = 4096, used = 0;
    *text = NULL;
    FILE *file = NULL;
    SPW_TRY(spw_file_open(path, &file));
    SPW_TRY(SPW_ALLOC(capacity, &buffer));
    for (;;) {
        used += fread(buffer + used, 1, capacity - 1 - used, file);
        if (ferror(file)) {
            if (errno == EIO) spw_note_cause(SPW_EIO, strerror(errno)); /* not: a folder */
            SPW_TRY(spw_fail(SPW_EIO, "%s: %s", path, strerror(errno)));
        }
        if (used + 1 < capacity) break;
        if (used >= limit) SPW_TRY(spw_fail(SPW_EIO, "%s: larger than the %zu bytes allowed", path, limit));
        char *larger = NULL;
        SPW_TRY(SPW_ALLOC(capacity * 2, &larger));
        memcpy(larger, buffer, used);
        spw_free(buffer);
        buffer = larger;
        capacity *= 2;
    }
    if (used > limit) SPW_TRY(spw_fail(SPW_EIO, "%s: larger than the %zu bytes allowed", path, limit));
    buffer[used] = '\0';
    *text = buffer;
    *length = used;
    buffer = NULL;

cleanup:
    spw_free(buffer);
    if (file != NULL) (void)fclose(file); /* nothing is lost by what was only read */
    return status;
}
