#include "sim/library/gate.h"

#include "base/run_files.h"
#include "base/temporary.h"
#include "sim/command/job_options.h"

#include <assert.h>
#include <hdf5.h>
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

static_assert((int)SPW_CODE_OK == (int)SPW_OK && (int)SPW_CODE_MISMATCH == (int)SPW_EMISMATCH &&
                  (int)SPW_CODE_ARGUMENT == (int)SPW_EARG && (int)SPW_CODE_CONFIG == (int)SPW_ECONFIG &&
                  (int)SPW_CODE_IO == (int)SPW_EIO && (int)SPW_CODE_FORMAT == (int)SPW_EFORMAT &&
                  (int)SPW_CODE_MEMORY == (int)SPW_ENOMEM && (int)SPW_CODE_DEVICE == (int)SPW_EDEVICE,
              "the codes of the public header are those of base/status.h");

long spw_gate_patience_ms = 10000;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT, once_forks = PTHREAD_ONCE_INIT;
static _Thread_local bool inside, held_for_fork;
static bool own_child; /* this process works for its parent's call, in whatever thread */
static bool torn;      /* this process was forked in the middle of another thread's call */
static size_t run;
static bool run_stays;

/* --- fork(): the child has one thread, and what other threads were doing stays half done --- */

/* A call that forks a child of its own is inside already. */
static void before_fork(void) {
    struct timespec until;
    held_for_fork = false;
    if (inside || own_child || clock_gettime(CLOCK_REALTIME, &until) != 0) return;
    until.tv_sec += spw_gate_patience_ms / 1000;
    until.tv_nsec += spw_gate_patience_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    held_for_fork = pthread_mutex_timedlock(&gate, &until) == 0;
}

static void after_fork(void) {
    if (held_for_fork) (void)pthread_mutex_unlock(&gate);
    held_for_fork = false;
}

static void in_child(void) {
    omp_set_num_threads(1);
    own_child = own_child || inside;
    if (!own_child && !held_for_fork) {
        torn = true;
        gate = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
    after_fork();
}

static void watch_forks(void) {
    (void)
        omp_get_max_threads(); /* some OpenMP begins anew in a child: its handler must come before this one */
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

void spw_gate_watch_forks(void) { (void)pthread_once(&once_forks, watch_forks); }

/* --- */

static void begin(void) {
    (void)H5dont_atexit(); /* HDF5's own tidying ends a program whose disk was full */
    spw_temporary_leave_signals();
    spw_job_argp_fill();
}

spw_status spw_gate_enter(void) {
    (void)pthread_once(&once, begin);
    spw_gate_watch_forks();
    (void)pthread_mutex_lock(&gate);
    if (torn) {
        (void)pthread_mutex_unlock(&gate);
        return spw_fail(SPW_EIO, "this process was forked while another thread was in a call of the library; "
                                 "fork between calls, or start the process anew (spawn)");
    }
    inside = true;
    spw_forget_causes();
    run = spw_run_begin();
    run_stays = false;
    return SPW_OK;
}

size_t spw_gate_keep_files(void) {
    run_stays = true;
    return run;
}

spw_code spw_gate_leave(spw_status status) {
    status = spw_settle(status);
    if (!run_stays) spw_run_end(run);
    inside = false;
    (void)pthread_mutex_unlock(&gate);
    return (spw_code)status;
}

spw_status spw_check_given(const char *function, const spw_given *list) {
    for (; list->name != NULL; list++) {
        if (list->pointer == NULL)
            return spw_fail(SPW_EARG, "%s: %s is NULL; it must point to something", function, list->name);
    }
    return SPW_OK;
}
