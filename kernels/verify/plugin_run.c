#include "kernels/verify/plugin_run.h"

#include "base/progress.h"
#include "kernels/verify/plugin_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const type_names[] = {
    [SPW_TYPE_BF16] = "bf16", [SPW_TYPE_FLOAT] = "float", [SPW_TYPE_FP16] = "fp16"};
enum { MOST_HANGS = 2, WALL_TIMES = 20, LOOK_MS = 1000 };

const char *spw_type_name(spw_type type) { return type_names[type]; }

/* --- Time --- */

/* How long the case under way has taken. */
typedef struct stopwatch {
    double cpu_s, wall_s, seen_s; /* at its begin; processor time when last looked at */
    double idle_s;
} stopwatch;

static double cpu_of(pid_t child) {
    clockid_t clock;
    double seconds = 0.0;
    return clock_getcpuclockid(child, &clock) == 0 && spw_clock_read(clock, &seconds) ? seconds : 0.0;
}

static stopwatch start(pid_t child) {
    const double cpu_s = cpu_of(child);
    return (stopwatch){.cpu_s = cpu_s, .seen_s = cpu_s, .wall_s = spw_clock_s()};
}

/* Called once a second: has the case had more than `limit` seconds of processor time, or slept as long? */
static bool is_late(stopwatch *w, pid_t child, double limit) {
    const double next_to_none = 0.01, cpu_s = cpu_of(child);
    w->idle_s = cpu_s - w->seen_s < next_to_none ? w->idle_s + LOOK_MS * 1e-3 : 0.0;
    w->seen_s = cpu_s;
    return cpu_s - w->cpu_s > limit || w->idle_s > limit || spw_clock_s() - w->wall_s > WALL_TIMES * limit;
}

/* --- A child --- */

typedef struct child {
    pid_t id;
    int pipe;
    stopwatch watch;
    bool loaded, late, silent;                             /* silent: its end of the pipe is closed */
    bool busy;                                             /* a case has begun and has no verdict */
    spw_plugin_word last;                                  /* what it said last */
    char left[sizeof(((spw_plugin_word *)NULL)->message)]; /* how it says that the plugin ends it */
} child;

/* False at the end of what it says, or when it takes too long. */
static bool take_word(child *c, double limit_s, spw_plugin_word *out) {
    size_t have = 0;
    while (have < sizeof *out) {
        struct pollfd look = {.fd = c->pipe, .events = POLLIN};
        const int heard = poll(&look, 1, LOOK_MS);
        if (heard < 0 && errno != EINTR) return false;
        if (heard == 0) c->late = is_late(&c->watch, c->id, limit_s);
        if (c->late) return false;
        if (heard <= 0) continue;
        const ssize_t got = read(c->pipe, (char *)out + have, sizeof *out - have);
        if (got < 0 && errno == EINTR) continue;
        c->silent = got == 0;
        if (got <= 0) return false;
        have += (size_t)got;
    }
    return true;
}

/* The state with which it ends. One that has closed the pipe may still run for as long as a case may; what said DONE, too. Who speaks out
 * of turn or is late is killed. */
static int wait_for(child *c, double limit_s) {
    enum { NAP_MS = 10 };
    int state = 0;
    bool kills = !c->silent;
    for (unsigned nap = 1;; nap++) {
        if (kills) (void)kill(-c->id, SIGKILL);
        const pid_t ended = waitpid(c->id, &state, kills ? 0 : WNOHANG);
        if (ended == c->id || (ended < 0 && errno != EINTR)) {
            (void)kill(-c->id, SIGKILL); /* what it has started, if any */
            return state;
        }
        (void)poll(NULL, 0, NAP_MS);
        if (nap % (LOOK_MS / NAP_MS) == 0) c->late = is_late(&c->watch, c->id, limit_s);
        kills = c->late;
    }
}

/* Why it ended, in `out`. */
static void describe_end(const child *c, int state, unsigned limit_s, char *out, size_t size) {
    if (c->late)
        (void)snprintf(
            out, size,
            "it did not come back: %u s of processor time, or of sleep, are the limit (--case-seconds)",
            limit_s);
    else if (c->left[0] != '\0')
        (void)snprintf(out, size, "%s", c->left);
    else if (WIFSIGNALED(state))
        (void)snprintf(out, size, "it crashed (%s)%s", strsignal(WTERMSIG(state)),
                       WTERMSIG(state) == SIGKILL ? ": killed, or memory ran out" : "");
    else
        (void)snprintf(out, size, "it ended its process (exit status %d)", WEXITSTATUS(state));
}

/* --- All of them --- */

typedef struct run {
    spw_plugin_work work;
    void (*take)(void *state, const spw_plugin_verdict *verdict);
    void *state;
    unsigned hangs[SPW_KERNELS][SPW_TYPES];
} run;

static void give(const run *r, const spw_plugin_word *w) {
    const spw_plugin_verdict verdict = {.kernel = w->kernel,
                                        .type = w->type,
                                        .number = w->number,
                                        .name = w->name,
                                        .status = w->status,
                                        .message = w->message,
                                        .left_out = w->left_out,
                                        .skipped = w->skipped,
                                        .judged = w->judged};
    r->take(r->state, &verdict);
}

/* The words of one child to its end: true when it has said DONE. A word that does not fit those before it is no word. */
static bool listen_to(const run *r, child *c, double limit_s) {
    spw_plugin_word w;
    while (take_word(c, limit_s, &w)) {
        const bool ours =
            w.tag == r->work.tag && (unsigned)w.kernel < SPW_KERNELS && (unsigned)w.type < SPW_TYPES;
        w.name[sizeof w.name - 1] = w.message[sizeof w.message - 1] = '\0';
        if (!ours) return false;
        switch (w.says) {
        case SPW_PLUGIN_LOADED: c->loaded = true; break;
        case SPW_PLUGIN_BEGINS:
            if (c->busy) return false;
            c->busy = true;
            c->watch = start(c->id);
            break;
        case SPW_PLUGIN_CALLS:
        case SPW_PLUGIN_VERDICT:
            if (!c->busy || w.position != c->last.position) return false;
            c->busy = w.says == SPW_PLUGIN_CALLS;
            if (!c->busy) give(r, &w);
            break;
        case SPW_PLUGIN_LEAVES: (void)snprintf(c->left, sizeof c->left, "%s", w.message); continue;
        case SPW_PLUGIN_DONE:
            if (c->busy) return false;
            c->last = w;
            return true;
        default: return false;
        }
        c->last = w;
    }
    return false;
}

/* The case under way failed with its child; what is run next follows it. */
static spw_status fail_case(run *r, child *c, const char *why) {
    spw_plugin_word *w = &c->last;
    spw_plugin_work *work = &r->work;
    if (!c->busy && !c->loaded)
        return spw_fail(SPW_EARG, "--plugin %s: it cannot be loaded: %s", work->request->path, why);
    if (!c->busy)
        return spw_fail(SPW_EMISMATCH, "--plugin %s: between two cases %s", work->request->path, why);
    if (w->says == SPW_PLUGIN_BEGINS && !c->late) /* not the kernel's fault: it was not called */
        (void)snprintf(w->message, sizeof w->message, "before its kernel was called %.900s", why);
    else
        (void)snprintf(w->message, sizeof w->message, "%s", why);
    w->status = SPW_EMISMATCH;
    give(r, w);
    work->first = w->position + 1;
    if (c->late && ++r->hangs[w->kernel][w->type] == MOST_HANGS && work->request->number < 0) {
        work->stopped[w->kernel][w->type] = true;
        w->skipped = true;
        w->status = SPW_OK;
        (void)snprintf(w->message, sizeof w->message,
                       "the cases behind it are not run, as %d did not come back", MOST_HANGS);
        give(r, w);
    }
    return SPW_OK;
}

/* *done: all cases have run, and `status` is that of all. */
static spw_status run_child(run *r, bool *done) {
    const unsigned limit_s = r->work.request->case_seconds;
    char why[sizeof(((spw_plugin_word *)NULL)->message)];
    int ends[2] = {-1, -1}, state = 0;
    child c = {.pipe = -1};
    if (pipe(ends) != 0) return spw_fail(SPW_EIO, "no pipe: %s", strerror(errno));
    (void)fflush(NULL); /* or the child might print what waits in a buffer here */
    r->work.tag++;
    c.id = fork();
    if (c.id == 0) {
        (void)close(ends[0]);
        (void)setpgid(0, 0); /* a group of its own, which ends with it */
        spw_plugin_serve(&r->work, ends[1]);
    }
    (void)close(ends[1]);
    c.pipe = ends[0];
    if (c.id < 0) {
        (void)close(c.pipe);
        return spw_fail(SPW_EIO, "no child process: %s", strerror(errno));
    }
    (void)setpgid(c.id, c.id); /* whoever of the two comes first */
    c.watch = start(c.id);
    const bool finished = listen_to(r, &c, limit_s);
    c.silent = c.silent || finished;
    state = wait_for(&c, limit_s);
    (void)close(c.pipe);
    *done = finished;
    if (!finished) {
        describe_end(&c, state, limit_s, why, sizeof why);
        return fail_case(r, &c, why);
    }
    if (c.last.status != SPW_OK) return spw_fail(c.last.status, "%s", c.last.message);
    if (!c.last.any)
        return spw_fail(SPW_EARG, "--plugin %s: it has no kernel%s%s to run", r->work.request->path,
                        r->work.request->kernel != NULL ? " " : "",
                        r->work.request->kernel != NULL ? r->work.request->kernel : "");
    return SPW_OK;
}

spw_status spw_plugin_run(const spw_plugin_request *request,
                          void (*take)(void *state, const spw_plugin_verdict *verdict), void *state) {
    spw_record record = {.ranks = 0};
    run r = {.work = {.request = request, .kernel = SPW_KERNELS, .tag = (uint64_t)getpid() << 32},
             .take = take,
             .state = state};
    spw_status status = SPW_OK;
    if (request->kernel != NULL) SPW_TRY(spw_kernel_parse(request->kernel, &r.work.kernel));
    if (request->record != NULL) {
        SPW_TRY(spw_record_read(request->record, &record));
        r.work.record = &record;
    }
    for (bool done = false; !done;) SPW_TRY(run_child(&r, &done));

cleanup:
    spw_record_destroy(&record);
    return status;
}
