/* A progress bar on standard error: drawn only on a terminal, and only once the work has taken a second. */
#ifndef SPW_BASE_PROGRESS_H
#define SPW_BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_progress {
    const char *what;
    size_t total;
    double start_s, drawn_s;
    bool terminal, drawn;
} spw_progress;

spw_progress spw_progress_begin(const char *what, size_t total);
void spw_progress_update(spw_progress *progress, size_t done); /* cheap: looks at the clock only */
void spw_progress_end(spw_progress *progress);                 /* clears the line */

double spw_clock_s(void); /* monotonic seconds */

#endif
