#include "base/supervise.h"

#include "base/temporary.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_FAULT = 3 };

static const int passed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGKILL};
enum { PASSED_ON = sizeof passed_on / sizeof passed_on[0], CRASHES = sizeof crashes / sizeof crashes[0] };

static volatile pid_t child;

static void pass_on(int signal_number) {
    const int before = errno;
    if (child > 0) (void)kill(child, signal_number);
    errno = before;
}

static bool is_crash(int signal_number) {
    for (int i = 0; i < CRASHES; i++) {
        if (crashes[i] == signal_number) return true;
    }
    return false;
}

/* What the child's end means for this process. `returned`: it came from `work`. */
static int conclude(int state, bool returned) {
    if (WIFEXITED(state)) {
        const int code = WEXITSTATUS(state);
        if (returned || code == 0 || code == 2 || code == EXIT_FAULT) return code;
        fprintf(stderr, "spillway: a library ended the program (exit status %d): memory or threads ran out\n",
                code);
        return EXIT_FAULT;
    }
    const int signal_number = WTERMSIG(state);
    if (is_crash(signal_number)) {
        fprintf(stderr, "spillway: ended by signal %d (%s): %s; no output was replaced\n", signal_number,
                strsignal(signal_number),
                signal_number == SIGKILL ? "out of memory, if nobody else sent it"
                                         : "out of memory, or an error of the program or of a library");
        return EXIT_FAULT;
    }
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
    return EXIT_FAULT;
}

/* The child's side. It ends with its supervisor, even when that is killed. */
static int work_supervised(pid_t supervisor, atomic_bool *returned, int argc, char **argv,
                           int (*work)(int argc, char **argv)) {
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != supervisor) return EXIT_FAULT;
    const int code = work(argc, argv);
    *returned = true;
    return code;
}

static int supervise(atomic_bool *returned, int argc, char **argv, int (*work)(int argc, char **argv)) {
    const pid_t supervisor = getpid();
    sigset_t waiting, before;
    int state = 0;
    (void)sigemptyset(&waiting);
    for (int i = 0; i < PASSED_ON; i++) (void)sigaddset(&waiting, passed_on[i]);
    (void)sigprocmask(SIG_BLOCK, &waiting, &before);
    const pid_t made = fork();
    if (made == 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return work_supervised(supervisor, returned, argc, argv, work);
    }
    child = made;
    for (int i = 0; i < PASSED_ON && made > 0; i++) {
        struct sigaction old;
        if (sigaction(passed_on[i], NULL, &old) != 0 || old.sa_handler == SIG_IGN) continue;
        (void)sigaction(passed_on[i], &(struct sigaction){.sa_handler = pass_on, .sa_flags = SA_RESTART},
                        NULL);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (made < 0) return work(argc, argv);
    while (waitpid(made, &state, 0) < 0 && errno == EINTR) {
    }
    child = 0;
    spw_temporary_remove_all();
    return conclude(state, *returned);
}

#ifdef SPW_SANITIZED
enum { SUPERVISES = false };
#else
enum { SUPERVISES = true };
#endif

int spw_supervise(int argc, char **argv, int (*work)(int argc, char **argv)) {
    if (!SUPERVISES) return work(argc, argv);
    atomic_bool *returned =
        mmap(NULL, sizeof *returned, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    spw_temporary_share();
    (void)fflush(NULL);
    return returned == MAP_FAILED ? work(argc, argv) : supervise(returned, argc, argv, work);
}
