/* How long our own dispatch or combine takes between the GPUs of a node (docs/validation_time_kernels.md):
 *     seconds = start + rows x row + bytes / (share x rate)
 * rows and bytes that leave one GPU off-rank; rate: what leaves a GPU while all send to all, of the largest message of the
 * cluster's link points. Three coefficients an operation, fitted to measured runs with weights 1 / measured^2 (GSL). */
#ifndef SPW_SIM_TIME_DISPATCH_TIME_H
#define SPW_SIM_TIME_DISPATCH_TIME_H

#include "base/status.h"
#include "sim/machine/cluster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct spw_dispatch_speed {
    double start_s, row_s, share; /* share: of the rate of peer copies */
    double rate;                  /* bytes/s */
} spw_dispatch_speed;

typedef struct spw_dispatch_run {
    size_t line; /* in the table */
    bool combine;
    size_t tokens, hidden;
    double rows, bytes, seconds;
} spw_dispatch_run;

/* Fits the runs of one operation, `without` left out (an index; >= count: none). SPW_EARG: fewer than four runs, or a
 * cluster without link points. */
SPW_MUST_CHECK spw_status spw_dispatch_fit(const spw_cluster *cluster, const spw_dispatch_run *run,
                                           size_t count, bool combine, size_t without,
                                           spw_dispatch_speed *out);
double spw_dispatch_seconds(const spw_dispatch_speed *speed, double rows, double bytes);

/* A table of such runs (columns: notebooks_data/README.md) against predictions of each run by the others: the score of
 * `spillway score`. */
typedef struct spw_dispatch_score {
    spw_dispatch_run *run;
    double *predicted; /* [runs] seconds */
    size_t runs;
    spw_dispatch_speed speed[2];            /* of all runs: dispatch, combine */
    double median_abs_error, max_abs_error; /* parts of what was measured */
} spw_dispatch_score;

/* SPW_EIO, SPW_EFORMAT with file and line. Closed by spw_dispatch_score_close. */
SPW_MUST_CHECK spw_status spw_dispatch_score_open(const char *path, const spw_cluster *cluster,
                                                  spw_dispatch_score *out);
void spw_dispatch_score_close(spw_dispatch_score *score);

#endif
