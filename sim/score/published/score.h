/* Predictions beside published and compiled figures. */
#ifndef SPW_SIM_SCORE_PUBLISHED_SCORE_H
#define SPW_SIM_SCORE_PUBLISHED_SCORE_H

#include "sim/memory/compiled/compiled_memory.h"
#include "sim/score/published/peak_match.h"
#include "sim/score/published/score_cell.h"
#include "sim/time/compiled/compiled_time.h"

typedef struct spw_score_row {
    spw_score_cell cell;
    spw_compiled_memory memory; /* zero when the cell is skipped */
    spw_peak_match peak;        /* zero when the row has no peak list */
    spw_timeline time;          /* without components when the cell has no time stack */
} spw_score_row;

typedef struct spw_score {
    spw_score_row *row;
    size_t rows;
    spw_score_stacks stacks;
} spw_score;

/* Reads the tables and predicts every row with the stack that it names, or with `stack` and `time_stack` (a preset
 * or a file) when they are not NULL. Closed by spw_score_close. */
SPW_MUST_CHECK spw_status spw_score_open(const char *const *tables, size_t count, const char *stack,
                                         const char *time_stack, spw_score *out);
void spw_score_close(spw_score *score);

/* Predicted over true, minus 1; NAN when the row gives no such figure. */
double spw_score_temporary_error(const spw_score_row *row);
double spw_score_total_error(const spw_score_row *row);
spw_outcome spw_score_verdict(const spw_score_row *row); /* predicted */
/* Is the row's figure (temporary, else total) inside the interval? false also when it gives none. */
bool spw_score_inside(const spw_score_row *row);

/* SPW_EARG when no row, predicted or not, has one of these ids. */
SPW_MUST_CHECK spw_status spw_score_has_rows(const spw_score *score, const char *const *ids, size_t count);

/* What a row's time is predicted from: its stack, its job, and for real text the stack's imbalance and wait. `load` is
 * filled and borrowed by the request. */
SPW_MUST_CHECK spw_status spw_score_time_request(const spw_score_cell *cell, const spw_time_stack *stack,
                                                 spw_routing_layer *load, spw_time_request *out);
/* The row's step by a stack, as a user gets it. Where no run on real text was fitted, imbalance and wait are in doubt, and the
 * interval is wider by what two standard deviations of each do to the step. */
SPW_MUST_CHECK spw_status spw_score_time_of(const spw_score_cell *cell, const spw_time_stack *stack,
                                            spw_timeline *out);
double spw_score_throughput_error(const spw_score_row *row); /* tokens/s; NAN as above */
/* Seconds of the row's family of kernels, predicted; NAN when it is no row of a profile. */
double spw_score_kernel_seconds(const spw_score_cell *cell, const spw_timeline *time);
double spw_score_kernel_error(const spw_score_row *row);

typedef struct spw_score_summary {
    size_t cells, skipped;      /* predicted rows, others */
    size_t verdicts, agreed;    /* rows that say fits or oom; predicted alike */
    size_t temporaries, totals; /* rows with such a figure */
    size_t peaks, peak_matched, peak_missing,
        peak_extra; /* programs with a peak list, below their limit; values */
    size_t within_12, figures, inside, outside_fit;
    double temporary_median, temporary_max, total_median, total_max; /* of |error|; NAN when there is none */
    double interval_width_median;                                    /* (high - low) / temporary */
    size_t speeds, speeds_inside, kernels, kernels_within_20;
    double throughput_mape, throughput_max, kernel_max; /* of |error|; NAN when there is none */
} spw_score_summary;

/* Of the rows whose scheme is `scheme` and whose table is `table`; NULL: of all. */
SPW_MUST_CHECK spw_status spw_score_summarise(const spw_score *score, const char *scheme, const char *table,
                                              spw_score_summary *out);

#endif
