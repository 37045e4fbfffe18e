#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WIDTH = 30, TEXT = 32 };
static const double FIRST_DRAWN_S = 1.0, DRAWN_EVERY_S = 0.1, SAID_EVERY_S = 60.0, KNOWN_AFTER_S = 5.0;

bool spw_clock_read(clockid_t clock, double *seconds) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) return false;
    *seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return true;
}

double spw_clock_s(void) {
    double now = 0.0;
    (void)spw_clock_read(CLOCK_MONOTONIC, &now);
    return now;
}

/* Seconds between two lines; 0: none is written. */
static double interval(void) {
    const char *text = getenv("SPILLWAY_PROGRESS_S");
    char *end = NULL;
    const double asked = text != NULL ? strtod(text, &end) : 0.0;
    return text != NULL && end != text && *end == '\0' && asked >= 0.0 ? asked : SAID_EVERY_S;
}

spw_progress spw_progress_begin(const char *what, const char *unit, size_t total) {
    const double now = spw_clock_s();
    return (spw_progress){.what = what,
                          .unit = unit,
                          .total = total,
                          .start_s = now,
                          .said_s = now,
                          .every_s = interval(),
                          .terminal = isatty(STDERR_FILENO) == 1};
}

void spw_progress_skip(spw_progress *p, size_t done) {
    p->first = done;
    p->start_s = spw_clock_s();
}

static const char *amount(double seconds, char text[TEXT]) {
    static const struct {
        double below, seconds;
        const char *name;
    } units[] = {{100.0, 1.0, "s"}, {6000.0, 60.0, "min"}, {360000.0, 3600.0, "h"}, {0.0, 86400.0, "days"}};
    size_t i = 0;
    while (units[i].below > 0.0 && seconds >= units[i].below) i++;
    (void)snprintf(text, TEXT, "%.0f %s", seconds / units[i].seconds, units[i].name);
    return text;
}

static void draw(spw_progress *p, double share, double rate, const char *left) {
    const int filled = (int)(share * WIDTH);
    fprintf(stderr, "\r%s [%.*s%.*s] %3.0f%% %.4g %s/s, %s left\033[K", p->what, filled,
            "##############################", WIDTH - filled, "..............................", share * 100.0,
            rate, p->unit, left);
    p->drawn = true;
}

/* Of long work, as soon as its rate is known. */
static void say_less(spw_progress *p, double left_s, double passed_s) {
    char left[TEXT];
    const double known_after_s = p->every_s < KNOWN_AFTER_S ? p->every_s : KNOWN_AFTER_S;
    if (p->less == NULL || p->every_s <= 0.0 || passed_s < known_after_s || left_s < p->every_s) return;
    spw_progress_end(p);
    fprintf(stderr, "spillway: %s: %zu %s, about %s left; %s\n", p->what, p->total, p->unit,
            amount(left_s, left), p->less);
    p->less = NULL;
}

void spw_progress_update(spw_progress *p, size_t done) {
    if (done > p->total) done = p->total;
    if (done <= p->first) return;
    const double now = spw_clock_s(), passed = now - p->start_s;
    if (passed <= 0.0) return;
    const double rate = (double)(done - p->first) / passed, left_s = (double)(p->total - done) / rate;
    say_less(p, left_s, passed);
    if (p->terminal ? passed < FIRST_DRAWN_S || now - p->said_s < DRAWN_EVERY_S
                    : p->every_s <= 0.0 || now - p->said_s < p->every_s)
        return;
    char left[TEXT];
    (void)amount(left_s, left);
    p->said_s = now;
    if (p->terminal) {
        draw(p, (double)done / (double)p->total, rate, left);
    } else {
        fprintf(stderr, "spillway: %s: %zu of %zu %s, %.1f %%, %.4g a second, %s left\n", p->what, done,
                p->total, p->unit, 100.0 * (double)done / (double)p->total, rate, left);
    }
}

void spw_progress_end(spw_progress *p) {
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = false;
}
