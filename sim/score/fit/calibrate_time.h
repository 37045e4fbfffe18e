/* Fits the coefficients of a family of time stacks (sim/input/time_stack.h) to tables of published runs and profiles.
 *
 * Least squares (GSL, Levenberg-Marquardt) over log(predicted / true) of the step of every run, and of the seconds of
 * every family of kernels, which count KERNEL_WEIGHT times: a profile is right to some 10 %, a step to some 3 %. All
 * stacks have the coefficients in common; what differs between them is published (gather_limit_gib). Every coefficient
 * is held to where the fit begins by HOLD times the logarithm, so what the tables do not speak of stays. Runs under a
 * remat policy other than full are not fitted. What real text adds is fitted to what it adds: a run on real text
 * counts by its ratio to the same run on synthetic data in its table, where there is one. */
#ifndef SPW_SIM_SCORE_FIT_CALIBRATE_TIME_H
#define SPW_SIM_SCORE_FIT_CALIBRATE_TIME_H

#include "sim/score/published/score.h"

enum { SPW_CALIBRATE_TIME_STACKS = 8, SPW_CALIBRATE_TIME_SCHEMES = 32 };

typedef struct spw_calibrate_time_request {
    const char *const *tables;
    size_t table_count;
    const char *const *stacks; /* presets or files: names, and what is not fitted */
    size_t stack_count;
    const char *const *left_out; /* ids of rows not to fit */
    size_t left_out_count;
} spw_calibrate_time_request;

typedef struct spw_calibrate_time_scheme {
    char text[SPW_SCHEME_TEXT];
    size_t rows;
    double
        mape; /* of its runs, by a fit without them and without its profiles; NAN when it is the only one */
} spw_calibrate_time_scheme;

typedef struct spw_time_calibration {
    spw_score score;     /* all rows of the tables, predicted by the fitted stacks */
    unsigned char *used; /* [score.rows] 1: fitted */
    size_t runs, kernels, other_stack, left_out, not_full, silent; /* silent: no speed */
    spw_time_stack stack[SPW_CALIBRATE_TIME_STACKS];
    size_t stacks;
    double mape, max_error; /* of the fitted runs' tokens/s */
    spw_calibrate_time_scheme scheme[SPW_CALIBRATE_TIME_SCHEMES];
    size_t schemes;
    double left_out_mape; /* mean over the runs of all schemes, each by the fit without it */
    /* the fit's own memory */
    spw_routing_layer *load; /* [score.rows] of synthetic data */
    size_t *partner;         /* [score.rows] the run on synthetic data; the row itself when there is none */
} spw_time_calibration;

/* SPW_ECONFIG when the tables have fewer rows for the stacks than there are coefficients. Closed by
 * spw_time_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_time(const spw_calibrate_time_request *request,
                                             spw_time_calibration *out);
void spw_time_calibration_close(spw_time_calibration *calibration);

#endif
