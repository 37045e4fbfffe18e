#include "base/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 30 };

double spw_clock_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

spw_progress spw_progress_begin(const char *what, size_t total) {
    return (spw_progress){what, total, spw_clock_s(), 0.0, isatty(STDERR_FILENO) == 1, false};
}

void spw_progress_update(spw_progress *p, size_t done) {
    if (!p->terminal || p->total == 0) return;
    double now = spw_clock_s();
    if (now - p->start_s < 1.0 || now - p->drawn_s < 0.1) return;
    double share = (double)done / (double)p->total;
    int filled = (int)(share * WIDTH);
    double left_s = done > 0 ? (now - p->start_s) * (1.0 - share) / share : 0.0;
    fprintf(stderr, "\r%s [%.*s%.*s] %3.0f%% %.0f s left ", p->what, filled, "##############################",
            WIDTH - filled, "..............................", share * 100.0, left_s);
    p->drawn_s = now;
    p->drawn = true;
}

void spw_progress_end(spw_progress *p) {
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = false;
}
