/* Fits the coefficients of a stack (sim/machine/stack.h) to tables of compiled or published runs.
 *
 * Only the recovered shares are fitted: the lists of tensors have no coefficient. Each is found on a grid of 1/200 from the
 * rows that are past their limit: the least sum over log(predicted / true) of those with a figure; a row that says only fits or
 * oom counts with twice the logarithm by which the prediction is on the wrong side, or nearer than 1 %. The sum is robust
 * (soft L1 at 5 %), since the scheduler's bumps are no noise around a mean, and holds a share to its value before the fit by 5 %
 * over its spread. Then half_width: as much as holds 97.5 % of the figures, 4 % at least. */
#ifndef SPW_SIM_CALIBRATE_CALIBRATE_MEMORY_H
#define SPW_SIM_CALIBRATE_CALIBRATE_MEMORY_H

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
    /* By a fit without the model's rows, NAN and 0 when it is the only one: |predicted / true - 1|; figures inside the
     * interval; its width / temporary. */
    double median_error, median_width;
    size_t figures, inside;
} spw_calibrate_model;

typedef struct spw_calibration {
    spw_score score;     /* all rows of the tables, predicted by the fitted stack */
    unsigned char *used; /* [score.rows] 1: figure, 2: verdict only, 0: not fitted */
    size_t figures, verdicts, other_stack, left_out, skipped;
    spw_stack before, fitted;
    double before_share[SPW_STACK_FITTED];
    double median_error, rms_error, max_error; /* of the fitted figures */
    spw_calibrate_model model[SPW_CALIBRATE_MODELS];
    size_t models;
} spw_calibration;

/* SPW_ECONFIG when the tables have fewer rows for the stack than it has coefficients. Closed by
 * spw_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_memory(const spw_calibrate_request *request, spw_calibration *out);
void spw_calibration_close(spw_calibration *calibration);

#endif
