/* A table of whole layers of our own kernels, timed (`spillway-bench-kernels layer --csv`; columns: notebooks_data/README.md), beside
 * what sim/time/layer_time.h says of each phase. The routings of the benchmark are drawn again by its own function, so rows of
 * every expert and bytes of every exchange are known, and are compared with what the table has. */
#ifndef SPW_SIM_SCORE_KERNELS_OWN_LAYER_SCORE_H
#define SPW_SIM_SCORE_KERNELS_OWN_LAYER_SCORE_H

#include "base/status.h"
#include "sim/machine/cluster.h"
#include "sim/read/csv.h"
#include "sim/time/layer_time.h"

#include <stddef.h>

enum { SPW_OWN_ROUTINGS = 4 }; /* of a point: the benchmark's sets, one after the other */

/* One scheme, shape and routing. seconds: mean over its routings. */
typedef struct spw_own_point {
    const char *scheme, *routing; /* as the table has them */
    spw_own_layer layer;
    spw_own_times times;
} spw_own_point;

typedef struct spw_own_row {
    size_t point, line;
    int pass; /* 0 forward, 1 backward */
    spw_own_phase phase;
    double true_s, predicted_s, true_bytes, predicted_bytes;
} spw_own_row;

/* Errors are parts of what was measured. */
typedef struct spw_own_errors {
    size_t rows;
    double median, most; /* absolute */
    double sum;          /* of the sums, with sign */
} spw_own_errors;

typedef struct spw_own_score {
    spw_csv *csv;
    spw_own_point *point;
    spw_own_row *row;
    size_t points, rows;
    size_t bytes_agree, bytes_known; /* exchanges whose bytes are those of the table, of so many */
} spw_own_score;

/* SPW_EIO; SPW_EFORMAT with file and line: a field, an unknown scheme, routing or phase, or rows that are not those of the
 * routing. Closed by spw_own_score_close. */
SPW_MUST_CHECK spw_status spw_own_score_open(const char *path, const spw_cluster *cluster,
                                             spw_own_score *out);
void spw_own_score_close(spw_own_score *score);

/* Over all rows of a phase and pass; over all points of the phase where `scheme` is given. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_own_errors_of(const spw_own_score *score, const char *scheme, int pass,
                                            spw_own_phase phase, spw_own_errors *out);

#endif
