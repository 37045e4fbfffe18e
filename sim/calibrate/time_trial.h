/* One fit of the coefficients of time stacks, of all rows of a calibration or without those that have one label in common:
 * what sim/calibrate/calibrate_time.h describes, tried again for everything that can be left out. */
#ifndef SPW_SIM_CALIBRATE_TIME_TRIAL_H
#define SPW_SIM_CALIBRATE_TIME_TRIAL_H

#include "sim/calibrate/calibrate_time.h"

#include <stdbool.h>

typedef struct spw_time_trial {
    spw_time_calibration *calibration; /* borrowed; its score, loads and partners are read */
    spw_time_label label;              /* rows that have this label ... */
    const char *name;                  /* ... with this name are left out; NULL: none */
    double value[SPW_TIME_ROWS];       /* of the coefficients */
    double error[SPW_TIME_ROWS];       /* standard errors of their logarithms */
    bool silent[SPW_TIME_ROWS];        /* the rows do not speak of it: it is where the fit begins */
} spw_time_trial;

/* The row's name under a label. */
void spw_time_label_text(const spw_score_cell *cell, spw_time_label label, char out[SPW_TIME_LABEL_TEXT]);

/* Is a row fitted? Is it a run with a speed? */
bool spw_time_trial_takes(const spw_time_trial *trial, size_t row);
bool spw_time_trial_is_run(const spw_time_trial *trial, size_t row);
size_t spw_time_trial_runs(const spw_time_trial *trial); /* fitted */

/* log(predicted / true) of a row's seconds. NAN when it cannot be predicted. */
double spw_time_trial_log_error(const spw_time_trial *t, size_t index);

/* Fits value, error and silent. SPW_ECONFIG when fewer runs than coefficients are left. */
SPW_MUST_CHECK spw_status spw_time_trial_fit(spw_time_trial *trial);

/* Writes what was found into a stack: coefficients, what the fit has seen, and the interval of its own runs. */
SPW_MUST_CHECK spw_status spw_time_trial_describe(const spw_time_trial *trial, spw_time_stack *stack);

#endif
