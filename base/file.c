#include "base/file.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary files under way, for a program that is asked to stop. Slots are taken and left by one thread. */
enum { MOST_FILES = 16, WRITABLE = 0222, ALL_MODES = 0777 };
static char *volatile under_way[MOST_FILES];
static pid_t owner; /* a child process removes nothing */

static void remove_all(void) {
    for (int i = 0; i < MOST_FILES && owner == getpid(); i++) {
        char *path = under_way[i];
        if (path != NULL) (void)unlink(path);
    }
}

static void remove_and_stop(int signal_number) {
    remove_all();
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* Signals that end a program remove its temporary files first, and so does a library that ends it by exit(), as OpenMP does
 * without threads; a signal that is ignored stays ignored. */
static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGXCPU};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static void watch(char *path) {
    static bool installed = false;
    for (size_t i = 0; i < SIGNALS && !installed; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) != 0 || old.sa_handler != SIG_DFL) continue;
        (void)sigaction(signals[i], &(struct sigaction){.sa_handler = remove_and_stop}, NULL);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a write past the limit then fails like any other */
    if (!installed) (void)atexit(remove_all);
    installed = true;
    owner = getpid();
    for (int i = 0; i < MOST_FILES; i++) {
        if (under_way[i] != NULL) continue;
        under_way[i] = path;
        return;
    }
}

static void unwatch(const char *path) {
    for (int i = 0; i < MOST_FILES; i++) {
        if (under_way[i] == path) under_way[i] = NULL;
    }
}

/* mkstemp() and watch() as one: a signal waits until the file is known. */
static int create_watched(char *path) {
    sigset_t waiting, before;
    (void)sigemptyset(&waiting);
    for (size_t i = 0; i < SIGNALS; i++) (void)sigaddset(&waiting, signals[i]);
    (void)pthread_sigmask(SIG_BLOCK, &waiting, &before);
    const int descriptor = mkstemp(path), failure = errno;
    if (descriptor >= 0) watch(path);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failure;
    return descriptor;
}

static spw_status copy_text(const char *text, const char *suffix, char **out) {
    size_t length = strlen(text) + strlen(suffix) + 1;
    spw_status status = SPW_ALLOC(length, out);
    if (status == SPW_OK) (void)snprintf(*out, length, "%s%s", text, suffix);
    return status;
}

spw_status spw_file_differs(const char *output, const char *input) {
    struct stat a, b;
    if (stat(output, &a) != 0 || stat(input, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return SPW_OK;
    return spw_fail(SPW_EARG, "%s is the input %s itself; write to another file", output, input);
}

spw_status spw_file_begin(const char *path, spw_file *out) {
    spw_status status = SPW_OK;
    struct stat there;
    char *real = NULL; /* a link stays, its target is replaced */
    *out = (spw_file){NULL, NULL};
    const bool exists = stat(path, &there) == 0;
    if (exists && !S_ISREG(there.st_mode))
        return spw_fail(SPW_EIO, "%s: is no regular file; name a file to write", path);
    if (exists && ((there.st_mode & WRITABLE) == 0 || access(path, W_OK) != 0))
        return spw_fail(SPW_EIO,
                        "%s: is there and may not be written; name another file, or make it writable", path);
    if (!exists && lstat(path, &there) == 0)
        return spw_fail(SPW_EIO, "%s: is a link to a file that is not there; name the file itself", path);
    real = realpath(path, NULL);
    SPW_TRY(copy_text(real != NULL ? real : path, "", &out->path));
    SPW_TRY(copy_text(out->path, ".XXXXXX", &out->temporary));
    const int descriptor = create_watched(out->temporary);
    if (descriptor < 0) {
        spw_free(out->temporary);
        out->temporary = NULL; /* nothing to remove */
        SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be created: %s", path, strerror(errno)));
    }
    mode_t mask =
        umask(0); /* mkstemp gives 0600; a result is as readable as what it replaces, or as any new file */
    (void)umask(mask);
    (void)fchmod(descriptor, exists ? there.st_mode & ALL_MODES : 0666 & ~mask);
    (void)close(descriptor);

cleanup:
    free(real);
    if (status != SPW_OK) spw_file_discard(out);
    return status;
}

spw_status spw_file_commit(spw_file *file) {
    spw_status status = SPW_OK;
    int descriptor = open(file->temporary, O_RDONLY);
    bool good = descriptor >= 0 && fsync(descriptor) == 0;
    if (descriptor >= 0) (void)close(descriptor);
    good = good && rename(file->temporary, file->path) == 0;
    if (!good) status = spw_fail(SPW_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
    if (good) {
        unwatch(file->temporary);
        spw_free(file->temporary);
        file->temporary = NULL;
    }
    spw_file_discard(file);
    return status;
}

void spw_file_discard(spw_file *file) {
    if (file->temporary != NULL) {
        (void)unlink(file->temporary);
        unwatch(file->temporary);
    }
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
    bool written = out != NULL;
    if (out != NULL) {
        status = print(out, what);
        written = ferror(out) == 0;
        written = fclose(out) == 0 && written;
    }
    if (status == SPW_OK)
        status = written ? spw_file_commit(&file)
                         : spw_fail(SPW_EIO, "%s: cannot be written: %s", path, strerror(errno));
    spw_file_discard(&file);
    return status;
}

spw_status spw_file_read(const char *path, size_t limit, char **text, size_t *length) {
    spw_status status = SPW_OK;
    char *buffer = NULL;
    size_t capacity = 4096, used = 0;
    *text = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return spw_fail(SPW_EIO, "%s: %s", path, strerror(errno));
    SPW_TRY(SPW_ALLOC(capacity, &buffer));
    for (;;) {
        used += fread(buffer + used, 1, capacity - 1 - used, file);
        if (ferror(file)) SPW_TRY(spw_fail(SPW_EIO, "%s: %s", path, strerror(errno)));
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
    (void)fclose(file);
    return status;
}
