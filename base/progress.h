/* How far a long piece of work is, on standard error: on a terminal a bar in one line that is drawn over itself, once the work has
 * taken a second; else a line a minute, or every SPILLWAY_PROGRESS_S seconds (0: none), so that short work says nothing. */
#ifndef SPW_BASE_PROGRESS_H
#define SPW_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

typedef struct spw_progress {
    const char *what, *unit; /* "replay", "layers" */
    size_t total, first;     /* first: units that were done before the clock began */
    /* How to have less of it: said once, in a line of its own, of work that takes longer than the time between two lines.
     * NULL: nothing, and after it was said. */
    const char *less;
    double start_s, said_s, every_s;
    bool terminal, drawn;
} spw_progress;

spw_progress spw_progress_begin(const char *what, const char *unit, size_t total);
/* An earlier run has done the first `done` units: they count as done, not for the rate, which is measured from here. */
void spw_progress_skip(spw_progress *progress, size_t done);
void spw_progress_update(spw_progress *progress, size_t done); /* cheap: looks at the clock only */
void spw_progress_end(spw_progress *progress);                 /* clears the line */

double spw_clock_s(void); /* monotonic seconds */
/* Seconds of any clock; false, and nothing, where it cannot be read. */
bool spw_clock_read(clockid_t clock, double *seconds);

#endif
