/* Fits sim/input/megatron_coefficients.h to tables of measured runs and their phases.
 *
 * Least squares (GSL, Levenberg-Marquardt) over the logarithms of the coefficients. Residuals, in units of what is to be
 * reached: log(step / measured) / 2 %; for every phase of a run log((phase + 20 us a layer) / (measured + the same)) / 15 %;
 * and 0.3 x (log coefficient - its start) / its spread, so that what the tables do not speak of stays. The sum is robust (soft
 * L1 at 1). */
#ifndef SPW_SIM_SCORE_FIT_CALIBRATE_MEGATRON_TIME_H
#define SPW_SIM_SCORE_FIT_CALIBRATE_MEGATRON_TIME_H

#include "sim/score/megatron/measured_time_score.h"

enum { SPW_CALIBRATE_SHAPES = 16 };

/* A shape by its name in the tables: the fit without its runs, scored on them. */
typedef struct spw_left_out_shape {
    const char *model; /* lives as long as the tables */
    spw_measured_time_errors errors;
} spw_left_out_shape;

typedef struct spw_megatron_calibration {
    spw_measured_time time; /* predicted by the fitted coefficients */
    spw_megatron_coefficients before, fitted;
    spw_left_out_shape shape[SPW_CALIBRATE_SHAPES];
    size_t shapes, steps, phases; /* shapes: 0 when there is one only; residuals of steps and of phases */
} spw_megatron_calibration;

/* `from`: preset or file; gives the name and what is not fitted. What is fitted begins at its start in
 * sim/input/megatron_coefficients.h. SPW_ECONFIG when there are fewer runs than coefficients. Closed by
 * spw_megatron_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_megatron_time(const char *const *runs, size_t run_count,
                                                      const char *const *phases, size_t phase_count,
                                                      const char *from, spw_megatron_calibration *out);
void spw_megatron_calibration_close(spw_megatron_calibration *c);

#endif
