#include "base/stop.h"

#include "base/progress.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static const double SAME_S = 1.0; /* two signals of one ^C are not farther apart */

static atomic_bool asked;
static bool listening;
static _Atomic double asked_s;
static struct sigaction before;

static void stop(int signal_number) {
    const double now = spw_clock_s();
    if (asked && now - asked_s > SAME_S) {
        (void)sigaction(signal_number, &before, NULL);
        (void)raise(signal_number);
    }
    if (!asked) asked_s = now;
    asked = true;
}

void spw_stop_listen(void) {
    if (listening || sigaction(SIGINT, NULL, &before) != 0 || before.sa_handler == SIG_IGN) return;
    listening = sigaction(SIGINT, &(struct sigaction){.sa_handler = stop, .sa_flags = SA_RESTART}, NULL) == 0;
}

void spw_stop_leave(void) {
    if (listening) (void)sigaction(SIGINT, &before, NULL);
    listening = false;
}

bool spw_stop_is_asked(void) { return asked; }

void spw_stop_end(void) {
    if (!asked) return;
    (void)signal(SIGINT, SIG_DFL);
    (void)raise(SIGINT);
}
