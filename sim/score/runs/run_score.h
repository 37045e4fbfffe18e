/* Published training runs, predicted: the step of balanced routing and what a GPU holds, as `plan` says them. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_SCORE_H
#define SPW_SIM_SCORE_RUNS_RUN_SCORE_H

#include "sim/job/software.h"
#include "sim/memory/kept/verdict.h"
#include "sim/score/runs/run_job.h"
#include "sim/time/timeline.h"

typedef enum spw_run_status { SPW_RUN_FITS, SPW_RUN_OOM, SPW_RUN_UNKNOWN } spw_run_status;
const char *spw_run_status_name(spw_run_status status); /* "fits", "oom", "" */

typedef struct spw_run_row {
    const char *table; /* path */
    size_t line;
    spw_run_question question;
    char no_job
        [SPW_RUN_REASON]; /* why there is no job, and then nothing of what follows but the published figures; else "" */
    char no_time[SPW_RUN_REASON];  /* why there is no time as asked; else "" */
    char stack[SPW_SOFTWARE_TEXT]; /* whose coefficients are asked, between commas; "": none */
    spw_timeline time;             /* without components where there is none */
    spw_verdict verdict;
    uint64_t peak_bytes, budget_bytes;
    bool live; /* the peak is of what must be live alone, a lower bound */
    double true_tokens_per_s_per_gpu, true_memory_gib; /* NAN: not published */
    spw_run_status true_status;
} spw_run_row;

typedef struct spw_run_score {
    spw_csv **csv; /* [tables] whose text the questions borrow */
    size_t tables;
    spw_run_row *row;
    size_t rows;
} spw_run_score;

/* `stack`: in place of the newest for the row's GPU, as --stack of plan; or NULL. Closed by spw_run_score_close. */
SPW_MUST_CHECK spw_status spw_run_score_open(const char *const *tables, size_t count, const char *stack,
                                             spw_run_score *out);
void spw_run_score_close(spw_run_score *score);

bool spw_run_is_timed(const spw_run_row *row);
/* Predicted over published, minus 1; NAN where one of them is not there. */
double spw_run_throughput_error(const spw_run_row *row);
double spw_run_memory_error(const spw_run_row *row);
bool spw_run_is_inside(
    const spw_run_row *row); /* published within the interval; false also where one of them is not there */
/* Predicted; UNKNOWN without a job. */
spw_run_status spw_run_predicted_status(const spw_run_row *row);

/* Of two rows with one model and equal GPUs, and unequal published throughputs: which is faster (spw_timeline_faster). */
typedef struct spw_run_pairs {
    size_t pairs, tied;  /* tied: the prediction is the same for both */
    size_t order_right;  /* the prediction has the same order */
    size_t called;       /* the plan says at least 90 of 100 for one of them */
    size_t called_right; /* of these, for the one that is faster */
} spw_run_pairs;

typedef struct spw_run_summary {
    size_t rows, skipped, untimed;   /* skipped: without a time as asked; untimed: of them, with a job */
    size_t throughput_cells, inside; /* with a predicted and a published throughput */
    size_t verdicts, verdicts_wrong;
    size_t memory_cells;
    double throughput_mape, throughput_median, throughput_bias,
        throughput_max;  /* of |error|, the bias of the error; NAN: none */
    double width_median; /* high over low */
    double memory_mean;  /* of |error| */
    spw_run_pairs pairs;
} spw_run_summary;
/* Of the rows for which `with` says so; NULL: of all. */
SPW_MUST_CHECK spw_status spw_run_summarise(const spw_run_score *score,
                                            bool (*with)(const spw_run_row *row, const void *state),
                                            const void *state, spw_run_summary *out);

#endif
