/* A ^C that asks for the answer so far: it comes from the terminal and once more from the supervisor, in any order, however late. */
#include "base/stop.h"
#include "tests/unit/check.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STAYED = 5, NOT_ASKED = 6 };

/* What the child does: to itself as the terminal does, and by its parent as a supervisor. */
typedef struct deed {
    const char *steps; /* l: listen, v: leave, o: own signal, p: the parent's signal, e: the end */
    int ends_by;       /* this signal; 0: stays */
    bool asked;
} deed;

static void act(const char *steps, int ask, int told) {
    char byte = 0;
    for (const char *step = steps; *step != '\0'; step++) {
        if (*step == 'l') spw_stop_listen();
        if (*step == 'v') spw_stop_leave();
        if (*step == 'e') spw_stop_end();
        if (*step == 'o') (void)kill(getpid(), SIGINT);
        if (*step == 'p' && (write(ask, step, 1) != 1 || read(told, &byte, 1) != 1)) _exit(1);
    }
    _exit(spw_stop_is_asked() ? STAYED : NOT_ASKED);
}

static int state_after(const char *steps) {
    int ask[2], told[2], state = 0;
    char byte = 0;
    if (pipe(ask) != 0 || pipe(told) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)close(ask[0]), (void)close(told[1]);
        act(steps, ask[1], told[0]);
    }
    (void)close(ask[1]), (void)close(told[0]);
    (void)signal(SIGPIPE, SIG_IGN);
    while (child > 0 && read(ask[0], &byte, 1) == 1) {
        (void)kill(child, SIGINT);
        (void)!write(told[1], &byte, 1);
    }
    if (child < 0 || waitpid(child, &state, 0) != child) state = -1;
    (void)close(ask[0]), (void)close(told[1]);
    return state;
}

int main(void) {
    static const deed deeds[] = {
        {"l", 0, false},         {"lo", 0, true},        {"lp", 0, true},        {"lop", 0, true},
        {"lpo", 0, true},        {"loo", SIGINT, true},  {"lopo", SIGINT, true}, {"o", SIGINT, false},
        {"lvo", SIGINT, false},  {"lvp", SIGINT, false}, {"lovp", 0, true},      {"lpvo", 0, true},
        {"lovpo", SIGINT, true}, {"lve", 0, false},      {"loe", SIGINT, true},  {"lovpe", SIGINT, true},
    };
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        const int state = state_after(deeds[i].steps);
        const bool good =
            deeds[i].ends_by != 0
                ? WIFSIGNALED(state) && WTERMSIG(state) == deeds[i].ends_by
                : WIFEXITED(state) && WEXITSTATUS(state) == (deeds[i].asked ? STAYED : NOT_ASKED);
        if (!good) (void)fprintf(stderr, "%s ends with state %x\n", deeds[i].steps, (unsigned)state);
        CHECK(good);
    }
    return check_done();
}
