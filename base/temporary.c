#include "base/temporary.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_FILES = 16, PATH_BYTES = 4096, MOST_NAME = 200, SUFFIX_BYTES = 48, RANDOM_BYTES = 7 };

/* A file under way. A path that does not fit is removed by its owner only when all goes well. */
typedef struct entry {
    _Atomic pid_t owner; /* 0: no file; only the owner removes it, not a process that it has forked */
    char path[PATH_BYTES];
} entry;

static entry own_entries[MOST_FILES], *entries = own_entries;
static bool removes_for_others;

void spw_temporary_remove_all(void) {
    const pid_t self = getpid();
    for (int i = 0; i < MOST_FILES; i++) {
        const pid_t owner = entries[i].owner;
        if (owner == 0 || (owner != self && !removes_for_others)) continue;
        (void)unlink(entries[i].path);
        entries[i].owner = 0;
    }
}

void *spw_temporary_lend(void) {
    void *list = mmap(NULL, sizeof own_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return list != MAP_FAILED ? list : NULL;
}

void spw_temporary_borrow(void *list) {
    if (list != NULL) entries = list;
}

void spw_temporary_take_back(void *list) {
    const entry *left = list;
    for (int i = 0; left != NULL && i < MOST_FILES; i++)
        if (left[i].owner != 0) (void)unlink(left[i].path);
    if (list != NULL) (void)munmap(list, sizeof own_entries);
}

void spw_temporary_share(void) {
    void *shared = mmap(NULL, sizeof own_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return;
    memcpy(shared, own_entries, sizeof own_entries);
    entries = shared;
    removes_for_others = true;
}

static void remove_and_stop(int signal_number) {
    spw_temporary_remove_all();
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* Signals that end a program remove its temporary files first, and so does a library that ends it by exit(), as OpenMP does
 * without threads; a signal that is ignored stays ignored. */
static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGABRT, SIGBUS, SIGFPE,
                              SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

static atomic_bool installed;

void spw_temporary_leave_signals(void) { installed = true; }

static void watch_signals(void) {
    removes_for_others = false; /* this is the process that works */
    if (installed) return;
    installed = true;
    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) != 0 || old.sa_handler != SIG_DFL) continue;
        (void)sigaction(signals[i], &(struct sigaction){.sa_handler = remove_and_stop}, NULL);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a write past the limit then fails like any other */
    (void)atexit(spw_temporary_remove_all);
}

static void watch(const char *path) {
    watch_signals();
    for (int i = 0; i < MOST_FILES && strlen(path) < PATH_BYTES; i++) {
        if (entries[i].owner != 0) continue;
        memcpy(entries[i].path, path, strlen(path) + 1);
        entries[i].owner = getpid();
        return;
    }
}

void spw_temporary_forget(const char *temporary) {
    for (int i = 0; i < MOST_FILES; i++) {
        if (entries[i].owner == getpid() && strcmp(entries[i].path, temporary) == 0) entries[i].owner = 0;
    }
}

void spw_temporary_remove(const char *temporary) {
    (void)unlink(temporary);
    spw_temporary_forget(temporary);
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

/* A number for this start of this machine and this namespace of processes, in which a process id means one process; 0: not
 * known, and then nobody can tell whether a process is gone. */
static uint32_t world(void) {
    char text[128] = "";
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t boot = file >= 0 ? read(file, text, 36) : -1;
    if (file >= 0) (void)close(file);
    const ssize_t space = boot == 36 ? readlink("/proc/self/ns/pid", text + boot, sizeof text - 37) : -1;
    uint32_t sum = 2166136261u; /* FNV-1a */
    if (space <= 0) return 0;
    for (ssize_t i = 0; i < boot + space; i++) sum = (sum ^ (unsigned char)text[i]) * 16777619u;
    return sum != 0 ? sum : 1;
}

/* The process that a file beside an output belongs to, from the end of its name; 0: not such a file. */
static pid_t owner_of(const char *name, const char *prefix) {
    const size_t length = strlen(prefix);
    char *end = NULL;
    if (strncmp(name, prefix, length) != 0) return 0;
    const long owner = strtol(name + length, &end, 10);
    const bool named =
        end[0] == '-' && strlen(end) >= RANDOM_BYTES &&
        (end[RANDOM_BYTES] == '\0' || strncmp(end + RANDOM_BYTES, ".spw-", 5) == 0); /* or its own */
    return named && owner > 1 && owner <= INT32_MAX ? (pid_t)owner : 0;
}

/* Ended, though its parent may not have asked for its status yet, as in a container without an init. */
static bool is_gone(pid_t process) {
    char path[64], text[512] = "";
    if (kill(process, 0) != 0) return errno == ESRCH;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) (void)close(file);
    const char *state = bytes > 0 ? strrchr(text, ')') : NULL; /* its name may hold anything */
    return state != NULL && (strncmp(state, ") Z", 3) == 0 || strncmp(state, ") X", 3) == 0);
}

/* Removes what processes that are gone left in `folder` under names that begin with `prefix`. */
static void remove_stale(const char *folder, const char *prefix) {
    DIR *list = opendir(folder);
    for (const struct dirent *at = NULL; list != NULL && (at = readdir(list)) != NULL;) {
        const pid_t owner = owner_of(at->d_name, prefix);
        if (owner != 0 && is_gone(owner)) (void)unlinkat(dirfd(list), at->d_name, 0);
    }
    if (list != NULL) (void)closedir(list);
}

spw_status spw_temporary_create(const char *path, char **out, int *descriptor) {
    spw_status status = SPW_OK;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const size_t folder = (size_t)(name - path);
    const int shown = strlen(name) < MOST_NAME ? (int)strlen(name) : MOST_NAME;
    const uint32_t here = world();
    char prefix[MOST_NAME + SUFFIX_BYTES];
    *descriptor = -1;
    SPW_TRY(SPW_ALLOC(folder + sizeof prefix + SUFFIX_BYTES, out));
    (void)snprintf(prefix, sizeof prefix, "%.*s.spw-%08x-", shown, name, here);
    memcpy(*out, path, folder);
    (*out)[folder] = '\0';
    if (here != 0) remove_stale(folder > 0 ? *out : ".", prefix);
    (void)snprintf(*out + folder, sizeof prefix + SUFFIX_BYTES, "%s%d-XXXXXX", prefix, (int)getpid());
    *descriptor = create_watched(*out);
    if (*descriptor < 0) status = spw_fail(SPW_EIO, "%s: cannot be created: %s", path, strerror(errno));

cleanup:
    if (status != SPW_OK) {
        spw_free(*out);
        *out = NULL;
    }
    return status;
}
