#include "base/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int own, passed_on; /* signals to this process, and those that its supervisor passed on */
static bool listening;
static struct sigaction before;

static int times_asked(void) { return own > passed_on ? own : passed_on; }

static void stop(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    atomic_fetch_add(info->si_code == SI_USER && info->si_pid == getppid() ? &passed_on : &own, 1);
    if (times_asked() < 2) return;
    (void)sigaction(signal_number, &before, NULL);
    (void)raise(signal_number);
}

void spw_stop_listen(void) {
    if (listening || sigaction(SIGINT, NULL, &before) != 0 || before.sa_handler == SIG_IGN) return;
    listening =
        sigaction(SIGINT, &(struct sigaction){.sa_sigaction = stop, .sa_flags = SA_RESTART | SA_SIGINFO},
                  NULL) == 0;
}

void spw_stop_leave(void) {
    if (spw_stop_is_asked()) return;
    if (listening) (void)sigaction(SIGINT, &before, NULL);
    listening = false;
}

bool spw_stop_is_asked(void) { return times_asked() > 0; }

void spw_stop_end(void) {
    if (!spw_stop_is_asked()) return;
    (void)signal(SIGINT, SIG_DFL);
    (void)raise(SIGINT);
}
