/* To be preloaded: lets one call of the C library fail, as a full disk, a lost disk or a machine without memory would.
 *
 *   SPW_FAULT=OPERATION:K:ERRNO[:on]  call number K (from 0) of the operation fails with that errno; `on`: and all after it.
 *                                     ERRNO 0 moves half of the bytes only, as a signal or a slow disk may.
 *   SPW_FAULT_COUNTS=FILE             where the calls are counted, as uint64_t [operations + 1] in the order of the list;
 *                                     last, how many failed. It must exist and have that size.
 *
 * A process and its children count together, so that a number means one call. Streams are given back their system calls,
 * which the C library otherwise makes where no preloaded function is asked. time() stands still, so that files can be
 * compared bit for bit. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define OPERATIONS(X) \
    X(alloc) \
    X(write) \
    X(read) X(close) X(sync) X(rename) X(truncate) X(open) X(create) X(fork) X(pipe) X(thread) X(lose)

#define ENTRY(name) op_##name,
enum { OPERATIONS(ENTRY) OPERATION_COUNT };
#define NAME(name) #name,
static const char *const names[] = {OPERATIONS(NAME)};

static _Atomic uint64_t private_counts[OPERATION_COUNT + 1], *counts = private_counts;
static int chosen = -1, failure;
static uint64_t first;
static bool and_after, ready;

/* Whether this call is one that fails; it is counted either way. */
static bool fails(int operation) {
    if (!ready) return false;
    const uint64_t number = atomic_fetch_add(&counts[operation], 1);
    if (operation != chosen || number < first || (number > first && !and_after)) return false;
    atomic_fetch_add(&counts[OPERATION_COUNT], 1);
    errno = failure;
    return true;
}

#define REAL(function) ((__typeof__(&(function)))dlsym(RTLD_NEXT, #function))

/* --- Memory: the C library's own names, since dlsym() allocates. --- */

extern void *__libc_malloc(size_t bytes);                     /* NOLINT(bugprone-reserved-identifier) */
extern void *__libc_calloc(size_t count, size_t size);        /* NOLINT(bugprone-reserved-identifier) */
extern void *__libc_realloc(void *memory, size_t bytes);      /* NOLINT(bugprone-reserved-identifier) */
extern void *__libc_memalign(size_t alignment, size_t bytes); /* NOLINT(bugprone-reserved-identifier) */

void *malloc(size_t bytes) { return fails(op_alloc) ? NULL : __libc_malloc(bytes); }

void *calloc(size_t count, size_t size) { return fails(op_alloc) ? NULL : __libc_calloc(count, size); }

void *realloc(void *memory, size_t bytes) {
    return bytes > 0 && fails(op_alloc) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails(op_alloc) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    if (fails(op_alloc)) return ENOMEM;
    *out = __libc_memalign(alignment, bytes);
    return *out != NULL ? 0 : ENOMEM;
}

/* --- Files --- */

/* Half of the bytes where errno is to be 0; SIZE_MAX: fail. */
static size_t allowed(int operation, size_t bytes) {
    if (!fails(operation)) return bytes;
    return failure == 0 && bytes > 1 ? bytes / 2 : failure == 0 ? bytes : SIZE_MAX;
}

/* What a process says on standard error is not for it to lose here. */
static bool is_watched(int descriptor) { return descriptor != STDERR_FILENO; }

ssize_t write(int descriptor, const void *data, size_t bytes) {
    const size_t most = is_watched(descriptor) ? allowed(op_write, bytes) : bytes;
    return most == SIZE_MAX ? -1 : REAL(write)(descriptor, data, most);
}

/* `lose` is a write that says that all went well and writes nothing, of those that HDF5 makes. */
ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t at) {
    if (fails(op_lose)) return (ssize_t)bytes;
    const size_t most = allowed(op_write, bytes);
    return most == SIZE_MAX ? -1 : REAL(pwrite)(descriptor, data, most, at);
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t at) {
    if (fails(op_lose)) return (ssize_t)bytes;
    const size_t most = allowed(op_write, bytes);
    return most == SIZE_MAX ? -1 : REAL(pwrite64)(descriptor, data, most, at);
}

ssize_t read(int descriptor, void *data, size_t bytes) {
    const size_t most = allowed(op_read, bytes);
    return most == SIZE_MAX ? -1 : REAL(read)(descriptor, data, most);
}

ssize_t pread(int descriptor, void *data, size_t bytes, off_t at) {
    const size_t most = allowed(op_read, bytes);
    return most == SIZE_MAX ? -1 : REAL(pread)(descriptor, data, most, at);
}

ssize_t pread64(int descriptor, void *data, size_t bytes, off64_t at) {
    const size_t most = allowed(op_read, bytes);
    return most == SIZE_MAX ? -1 : REAL(pread64)(descriptor, data, most, at);
}

/* A failed close() has closed all the same, as on Linux. */
int close(int descriptor) {
    const int done = REAL(close)(descriptor);
    return done == 0 && fails(op_close) ? -1 : done;
}

int fsync(int descriptor) { return fails(op_sync) ? -1 : REAL(fsync)(descriptor); }

int rename(const char *from, const char *to) { return fails(op_rename) ? -1 : REAL(rename)(from, to); }

int ftruncate(int descriptor, off_t bytes) {
    return fails(op_truncate) ? -1 : REAL(ftruncate)(descriptor, bytes);
}

int ftruncate64(int descriptor, off64_t bytes) {
    return fails(op_truncate) ? -1 : REAL(ftruncate64)(descriptor, bytes);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(op_open) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails(op_open) ? -1 : REAL(open64)(path, flags, mode);
}

int mkstemp(char *path) { return fails(op_create) ? -1 : REAL(mkstemp)(path); }

int mkstemp64(char *path) { return fails(op_create) ? -1 : REAL(mkstemp64)(path); }

int pipe(int ends[2]) { return fails(op_pipe) ? -1 : REAL(pipe)(ends); }

pid_t fork(void) { return fails(op_fork) ? -1 : REAL(fork)(); }

int pthread_create(pthread_t *thread, const pthread_attr_t *settings, void *(*work)(void *), void *context) {
    return fails(op_thread) ? EAGAIN : REAL(pthread_create)(thread, settings, work, context);
}

time_t time(time_t *out) {
    const time_t fixed = 1700000000;
    if (out != NULL) *out = fixed;
    return fixed;
}

int gettimeofday(struct timeval *out, void *zone) {
    (void)zone;
    *out = (struct timeval){.tv_sec = time(NULL)};
    return 0;
}

/* --- Streams: their bytes go through write(), read() and close() of this file. --- */

static ssize_t stream_read(void *cookie, char *data, size_t bytes) {
    return read((int)(intptr_t)cookie, data, bytes);
}

static ssize_t stream_write(void *cookie, const char *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t now = write((int)(intptr_t)cookie, data + done, bytes - done);
        if (now < 0) return done > 0 ? (ssize_t)done : 0; /* 0 is how a cookie says that it failed */
        done += (size_t)now;
    }
    return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *at, int whence) {
    *at = lseek64((int)(intptr_t)cookie, *at, whence);
    return *at < 0 ? -1 : 0;
}

static int stream_close(void *cookie) { return close((int)(intptr_t)cookie); }

static const cookie_io_functions_t on_descriptor = {stream_read, stream_write, stream_seek, stream_close};

static FILE *stream(const char *path, const char *mode) {
    const bool update = strchr(mode, '+') != NULL;
    const int way = update ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    const int made = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
    const int descriptor = open(path, way | made, 0666);
    if (descriptor < 0) return NULL;
    FILE *file = fopencookie((void *)(intptr_t)descriptor, mode, on_descriptor);
    if (file == NULL) (void)REAL(close)(descriptor);
    return file;
}

FILE *fopen(const char *path, const char *mode) { return stream(path, mode); }

FILE *fopen64(const char *path, const char *mode) { return stream(path, mode); }

/* --- */

static void choose(const char *text) {
    char name[16] = "", after[8] = "";
    unsigned long long number = 0;
    if (sscanf(text, "%15[a-z]:%llu:%d:%7s", name, &number, &failure, after) < 3) return;
    for (int i = 0; i < OPERATION_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) chosen = i;
    }
    first = number;
    and_after = strcmp(after, "on") == 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *fault = getenv("SPW_FAULT"), *file = getenv("SPW_FAULT_COUNTS");
    if (fault != NULL) choose(fault);
    if (file != NULL) {
        const int descriptor = REAL(open)(file, O_RDWR);
        void *shared = mmap(NULL, sizeof private_counts, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (descriptor >= 0) (void)REAL(close)(descriptor);
        if (shared != MAP_FAILED) counts = shared;
    }
    FILE *out = fopencookie((void *)(intptr_t)STDOUT_FILENO, "w", on_descriptor);
    if (out != NULL) stdout = out;
    ready = true;
}
