/* Measured runs of whole models beside what a job like theirs is said to take: bytes that its tensors ask for and that the allocator
 * reserves, rank by rank, and the step. */
#ifndef SPW_SIM_SCORE_WHOLE_WHOLE_SCORE_H
#define SPW_SIM_SCORE_WHOLE_WHOLE_SCORE_H

#include "sim/job/software.h"
#include "sim/score/whole/whole_cell.h"
#include "sim/time/timeline.h"

/* A row: one GPU of a run. Figures that are not there are NAN. */
typedef struct spw_whole_row {
    const char *table, *name, *routing, *remat;
    size_t line, rank, gpus, expert_parallel;
    char skipped[SPW_WHOLE_REASON]; /* why there is no memory; "" */
    char no_time[SPW_WHOLE_REASON]; /* why there is no time; "" */
    spw_whole_rows rows;
    double requested_bytes, reserved_bytes, true_requested_bytes, true_reserved_bytes;
    char stack[SPW_SOFTWARE_TEXT]; /* whose coefficients are asked; "": none */
    spw_timeline time;             /* of the run, the same in all its rows; without components: none */
    double optimizer_s, true_step_s, true_optimizer_s;
} spw_whole_row;

typedef struct spw_whole_score {
    spw_csv **csv; /* [tables] */
    size_t tables;
    spw_whole_row *row;
    size_t rows;
} spw_whole_score;

/* traces: a folder, or NULL. stack: as --stack of plan, or NULL; cluster: of the GPUs, NULL: of a column of that name, or h100. Closed
 * by spw_whole_score_close. */
typedef struct spw_whole_request {
    const char *const *table;
    size_t tables;
    const char *traces, *stack, *cluster;
} spw_whole_request;
SPW_MUST_CHECK spw_status spw_whole_score_open(const spw_whole_request *request, spw_whole_score *out);
void spw_whole_score_close(spw_whole_score *score);

/* Predicted over measured, minus 1; NAN where one is not there. */
double spw_whole_requested_error(const spw_whole_row *row);
double spw_whole_reserved_error(const spw_whole_row *row);
double spw_whole_step_error(const spw_whole_row *row);
double spw_whole_optimizer_error(const spw_whole_row *row);

/* Of |error|, over the rows that have one. */
typedef struct spw_whole_errors {
    size_t count;
    double mean, median, max, bias; /* NAN when there are none; bias: the mean with its sign */
} spw_whole_errors;
SPW_MUST_CHECK spw_status spw_whole_errors_of(const spw_whole_score *score,
                                              double (*error)(const spw_whole_row *row),
                                              spw_whole_errors *out);

typedef struct spw_whole_summary {
    size_t skipped, untimed; /* untimed: rows without a time, skipped ones among them */
    size_t composed, agreed; /* rows whose routing was composed; and is the table's */
    size_t inside;           /* steps within their interval */
    double width_median;     /* of the intervals, high over low */
} spw_whole_summary;
SPW_MUST_CHECK spw_status spw_whole_summarise(const spw_whole_score *score, spw_whole_summary *out);

#endif
