/* Fits the coefficients of a stack (sim/input/stack.h) to tables of compiled or published runs.
 *
 * Least squares (GSL, Levenberg-Marquardt) over log(predicted / true) of every row with a figure; a row
 * that says only fits or oom counts with twice the logarithm by which the prediction is on the wrong side,
 * or nearer than 1 %. The sum is robust (soft L1 at 5 %), since the scheduler's bumps are no noise around a
 * mean. Every coefficient is held to its value before the fit by 5 % over its spread, so what the tables do
 * not speak of stays. */
#ifndef SPW_SIM_SCORE_FIT_CALIBRATE_MEMORY_H
#define SPW_SIM_SCORE_FIT_CALIBRATE_MEMORY_H

#include "sim/score/published/score.h"

enum { SPW_CALIBRATE_LEFT_OUT = 64, SPW_CALIBRATE_MODELS = 16 };

typedef struct spw_calibrate_request {
    const char *const *tables;
    size_t table_count;
    const char *stack;           /* preset or file: whose rows to fit, and its name */
    const char *from;            /* preset or file: the coefficients before the fit */
    const char *const *left_out; /* ids of rows not to fit */
    size_t left_out_count;
} spw_calibrate_request;

typedef struct spw_calibrate_model {
    char name[SPW_MODEL_NAME];
    size_t rows;
    double
        median_error; /* |predicted / true - 1| by a fit without the model's rows; NAN when it is the only one */
} spw_calibrate_model;

typedef struct spw_calibration {
    spw_score score;     /* all rows of the tables, predicted by the fitted stack */
    unsigned char *used; /* [score.rows] 1: figure, 2: verdict only, 0: not fitted */
    size_t figures, verdicts, other_stack, left_out, skipped;
    spw_stack before, fitted;
    double median_error, rms_error, max_error; /* of the fitted figures */
    spw_calibrate_model model[SPW_CALIBRATE_MODELS];
    size_t models;
} spw_calibration;

/* SPW_ECONFIG when the tables have fewer rows for the stack than it has coefficients. Closed by
 * spw_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_memory(const spw_calibrate_request *request, spw_calibration *out);
void spw_calibration_close(spw_calibration *calibration);

#endif
