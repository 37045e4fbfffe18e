#include "base/child.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 8192, EXIT_UNHEARD = 5 };

unsigned spw_child_patience_s = 20;

/* What comes through the pipe when the work is done, behind one byte that says that it begins. */
typedef struct reply_head {
    int code;
    size_t bytes;
    char message[MESSAGE_BYTES];
} reply_head;

static bool put(int pipe, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        const ssize_t done = write(pipe, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

/* One child and the end of its pipe. */
typedef struct listener {
    int pipe;
    pid_t child;
    unsigned patience_s;
    bool begun, broken, stuck; /* the work has begun; the pipe gave an error; the child sleeps */
} listener;

/* What a child may take, and what its end means. */
typedef struct terms {
    unsigned cpu_seconds, patience_s; /* cpu_seconds 0: as many as it needs */
    size_t most_bytes;
    bool own; /* its work is ours: a crash says nothing of a file */
} terms;

/* Whether a thread of the process could run, waits for a disk, or was stopped: then it does not sleep, however little processor
 * time a busy machine has for it. Where /proc says nothing, none. */
static bool could_run(pid_t process) {
    char path[64];
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%ld/task", (long)process);
    DIR *tasks = opendir(path);
    for (const struct dirent *task; !found && tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char text[512] = "";
        (void)snprintf(text, sizeof text, "%s/%.16s/stat", path, task->d_name);
        FILE *stat = task->d_name[0] != '.' ? fopen(text, "re") : NULL;
        if (stat == NULL) continue;
        text[fread(text, 1, sizeof text - 1, stat)] = '\0';
        (void)fclose(stat);
        const char *name_end = strrchr(text, ')');
        found = name_end != NULL && strlen(name_end) > 2 && strchr("RDTt", name_end[2]) != NULL;
    }
    if (tasks != NULL) (void)closedir(tasks);
    return found;
}

/* A copy of a process with threads may wait for a lock that no thread of its own holds: it uses no processor time, which
 * no limit on that ends; or next to none, where a sanitizer's own thread looks round from time to time. */
static bool sleeps(const listener *l) {
    const double next_to_none = 0.01; /* of a second */
    clockid_t clock;
    double used = 0.0, before = 0.0;
    if (clock_getcpuclockid(l->child, &clock) != 0) return false;
    for (unsigned idle = 0; idle < l->patience_s;) {
        struct pollfd word = {.fd = l->pipe, .events = POLLIN};
        const int heard = poll(&word, 1, 1000);
        if (heard < 0 && errno == EINTR) continue;
        if (heard != 0 || !spw_clock_read(clock, &used)) return false;
        idle = used - before < next_to_none && !could_run(l->child) ? idle + 1 : 0;
        before = used;
    }
    return true;
}

/* False at the end of what is said. */
static bool take(listener *l, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        l->stuck = sleeps(l);
        if (l->stuck) return false;
        const ssize_t got = read(l->pipe, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        l->broken = got < 0;
        if (got <= 0) return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

#ifdef SPW_SANITIZED
/* What HDF5 does to forged files inside of itself is known, and is why there is a child. The sanitizer asks for this by name. */
const char *__asan_default_suppressions(void);  /* NOLINT(bugprone-reserved-identifier) */
const char *__asan_default_suppressions(void) { /* NOLINT(bugprone-reserved-identifier) */
    return "interceptor_via_lib:libhdf5\n";
}

/* A sanitizer's word must be seen: the child keeps standard error, and an exit that a sanitizer made ends the parent too. A
 * library that runs into a wild pointer dies by its signal, as it does without a sanitizer. */
static void be_silent(void) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) (void)signal(crashes[i], SIG_DFL);
}

bool spw_child_is_apart(void) { return false; }

static void heed_sanitizer(int state) {
    if (WIFEXITED(state) && WEXITSTATUS(state) != 0 && WEXITSTATUS(state) != EXIT_UNHEARD) abort();
}
#else
/* A child speaks through its pipe alone: what the C library says when it ends a process is not for the user. */
static void be_silent(void) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) (void)dup2(nowhere, STDERR_FILENO);
}

bool spw_child_is_apart(void) { return true; }

static void heed_sanitizer(int state) { (void)state; }
#endif

/* A child that works for its parent ends with it, and by the signals that would end it: handlers of the parent's are not its own. */
static void be_ended(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction action;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            (void)signal(signals[i], SIG_DFL);
}

/* The exit status of the child. */
static int answer(int pipe, const terms *t, spw_child_work work, void *context) {
    const struct rlimit seconds = {t->cpu_seconds, t->cpu_seconds}, none = {0, 0};
    static const char begun = 1;
    reply_head head = {.code = SPW_ENOMEM, .message = "cannot allocate an answer"};
    char *text = NULL;
    be_silent();
    if (t->own) be_ended();
    if (t->cpu_seconds > 0) (void)setrlimit(RLIMIT_CPU, &seconds);
    (void)setrlimit(RLIMIT_CORE, &none);
    if (!put(pipe, &begun, sizeof begun)) return EXIT_UNHEARD;
    FILE *out = open_memstream(&text, &head.bytes);
    if (out != NULL) {
        const spw_status status = spw_settle(work(context, out));
        const bool written = fclose(out) == 0;
        if (status != SPW_OK || written) head.code = (int)status;
        if (head.code != SPW_OK) head.bytes = 0;
        if (status != SPW_OK) (void)snprintf(head.message, sizeof head.message, "%s", spw_last_error());
    }
    const bool said = put(pipe, &head, sizeof head) && put(pipe, text, head.bytes);
    free(text);
    return said ? 0 : EXIT_UNHEARD;
}

/* What the child said; false when it said nothing that can be true. */
static bool listen_to(listener *l, size_t most_bytes, reply_head *head, char **reply, spw_status *status) {
    char begun;
    l->begun = take(l, &begun, sizeof begun);
    if (!l->begun || !take(l, head, sizeof *head)) return false;
    if (head->code < 0 || head->code >= SPW_STATUS_COUNT || head->bytes > most_bytes) return false;
    head->message[MESSAGE_BYTES - 1] = '\0';
    *status = (spw_status)head->code;
    if (*status != SPW_OK) return true;
    *status = SPW_ALLOC(head->bytes + 1, reply);
    return *status != SPW_OK || take(l, *reply, head->bytes);
}

/* Why the child said nothing. */
static spw_status no_answer(const char *path, int state, const listener *l) {
    if (l->stuck)
        return spw_fail(SPW_EIO, "%s: no answer: what reads it has slept for %u seconds", path,
                        l->patience_s);
    if (l->broken) return spw_fail(SPW_EIO, "%s: no answer from the process that reads it", path);
    if (WIFSIGNALED(state))
        return spw_fail(SPW_EFORMAT, "%s: damaged, or memory ran out: what reads it fails (%s)", path,
                        strsignal(WTERMSIG(state)));
    const int code = WEXITSTATUS(state);
    if (code == 0) return spw_fail(SPW_EFORMAT, "%s: damaged: what reads it fails (no answer)", path);
    if (code == EXIT_UNHEARD) return spw_fail(SPW_EIO, "%s: the process that reads it cannot answer", path);
    return spw_fail(SPW_ENOMEM,
                    "%s: a library ended what reads it (exit status %d): memory or threads ran out", path,
                    code);
}

static bool is_crash(int signal_number) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGKILL};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (crashes[i] == signal_number) return true;
    return false;
}

/* Why our own work came to no end. */
static spw_status no_end(const char *what, int state, const listener *l) {
    if (l->stuck) return spw_fail(SPW_EIO, "%s: has slept for %u seconds", what, l->patience_s);
    if (WIFSIGNALED(state) && !is_crash(WTERMSIG(state)))
        return spw_fail(SPW_EIO, "%s: ended by signal %d (%s)", what, WTERMSIG(state),
                        strsignal(WTERMSIG(state)));
    if (WIFSIGNALED(state))
        return spw_fail(
            SPW_ENOMEM,
            "%s: ended by signal %d (%s): out of memory, or an error of the library or of one that "
            "it uses; no output was replaced",
            what, WTERMSIG(state), strsignal(WTERMSIG(state)));
    return spw_fail(SPW_ENOMEM, "%s: a library ended it (exit status %d): memory or threads ran out", what,
                    WEXITSTATUS(state));
}

/* What came of a child: *heard when it answered, with this status and reply. */
typedef struct outcome {
    reply_head head;
    listener l;
    spw_status status;
    int state; /* as waitpid() says */
    bool heard;
} outcome;

static spw_status run_child(const char *path, const terms *t, spw_child_work work, void *context,
                            char **reply, outcome *out) {
    int ends[2] = {-1, -1};
    *out = (outcome){.status = SPW_OK};
    if (pipe(ends) != 0) return spw_fail(SPW_EIO, "%s: no pipe: %s", path, strerror(errno));
    void *files = t->own ? spw_temporary_lend() : NULL;
    (void)fflush(NULL); /* or the child might print what waits in a buffer here */
    const pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        spw_temporary_borrow(files);
        _exit(answer(ends[1], t, work, context));
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        spw_temporary_take_back(files);
        return spw_fail(SPW_EIO, "%s: no child process: %s", path, strerror(errno));
    }
    out->l = (listener){.pipe = ends[0], .child = child, .patience_s = t->patience_s};
    out->heard = listen_to(&out->l, t->most_bytes, &out->head, reply, &out->status);
    (void)close(ends[0]);
    if (out->l.stuck) (void)kill(child, SIGKILL);
    while (waitpid(child, &out->state, 0) < 0 && errno == EINTR) {
    }
    spw_temporary_take_back(files);
    return SPW_OK;
}

/* A child may end before its work begins: what a library does in every new process (OpenMP's team, a sanitizer's threads) met
 * another thread at a bad moment. Then there is another child; nothing is done twice. */
static spw_status run_once(const char *path, const terms *t, spw_child_work work, void *context, char **reply,
                           size_t *bytes, bool *stuck) {
    enum { MOST_CHILDREN = 2 };
    outcome o = {.heard = false};
    *reply = NULL;
    *bytes = 0;
    for (int i = 0; i < MOST_CHILDREN && !o.l.begun && !o.l.stuck; i++) {
        const spw_status status = run_child(path, t, work, context, reply, &o);
        if (status != SPW_OK) return status;
    }
    heed_sanitizer(o.state);
    if (!o.heard || !WIFEXITED(o.state) || WEXITSTATUS(o.state) != 0) {
        o.status = t->own ? no_end(path, o.state, &o.l) : no_answer(path, o.state, &o.l);
    } else if (o.head.code != SPW_OK) {
        o.status = spw_fail(o.status, "%s", o.head.message);
    }
    *bytes = o.head.bytes;
    *stuck = o.l.stuck;
    if (o.status != SPW_OK) {
        spw_free(*reply);
        *reply = NULL;
    }
    return o.status;
}

/* Damaged is what two readings find damaged: a library that is short of memory errs, too. A child that slept met a lock
 * that a thread held for a moment: the next one is born at another moment. */
spw_status spw_child_run(const char *path, unsigned cpu_seconds, size_t most_bytes, spw_child_work work,
                         void *context, char **reply, size_t *bytes) {
    const terms t = {
        .cpu_seconds = cpu_seconds, .patience_s = spw_child_patience_s, .most_bytes = most_bytes};
    bool stuck = false;
    spw_status status = spw_file_reads(path); /* the child's own list ends with it */
    if (status == SPW_OK) status = run_once(path, &t, work, context, reply, bytes, &stuck);
    if (status == SPW_EFORMAT || stuck) status = run_once(path, &t, work, context, reply, bytes, &stuck);
    return status;
}

spw_status spw_child_do(const char *what, spw_child_work work, void *context, char **reply, size_t *bytes) {
    enum { PATIENCE_S = 600 };
    const terms t = {.patience_s = PATIENCE_S, .most_bytes = SIZE_MAX - 1, .own = true};
    bool stuck = false;
    return run_once(what, &t, work, context, reply, bytes, &stuck);
}
