/* Fits sim/machine/megatron_coefficients.h to tables of measured runs and their phases.
 *
 * Least squares (GSL, Levenberg-Marquardt) over the logarithms of the coefficients. Residuals, in units of what is to be
 * reached: log(step / measured) / 2 %; for every phase of a run log((phase + 20 us a layer) / (measured + the same)) / 15 %;
 * and 0.3 x (log coefficient - its start) / its spread, so that what the tables do not speak of stays. The sum is robust (soft
 * L1 at 1).
 *
 * The fit is tried without each shape and without each routing of the tables. The interval is that of the routings: half_width
 * = sqrt(q^2 + spread^2), q the 0.9 quantile of |log(predicted / measured)| of steps whose routing was left out, spread 0.03:
 * what equal GPUs differ by (2 to 4 % between the machines of docs/validation_gpu.md). */
#ifndef SPW_SIM_CALIBRATE_CALIBRATE_MEGATRON_TIME_H
#define SPW_SIM_CALIBRATE_CALIBRATE_MEGATRON_TIME_H

#include "sim/score/megatron/measured_time_score.h"

enum { SPW_CALIBRATE_LEFT_OUT_RUNS = 64 };

/* A shape or a routing by its name in the tables: the fit without its runs, scored on them. */
typedef struct spw_left_out_runs {
    spw_measured_label label;
    const char *name; /* lives as long as the tables */
    spw_measured_time_errors errors;
} spw_left_out_runs;

typedef struct spw_megatron_calibration {
    spw_measured_time time; /* predicted by the fitted coefficients */
    spw_megatron_coefficients before, fitted;
    spw_left_out_runs left_out[SPW_CALIBRATE_LEFT_OUT_RUNS]; /* by label */
    size_t left_outs;                                        /* none of a label that has one name only */
    size_t left_out_steps, left_out_inside;                  /* of routings left out; in the interval */
    size_t steps, phases;                                    /* residuals */
} spw_megatron_calibration;

/* `from`: preset or file; gives the name and what is not fitted. What is fitted begins at its start in
 * sim/machine/megatron_coefficients.h. SPW_ECONFIG when there are fewer runs than coefficients. Closed by
 * spw_megatron_calibration_close. */
SPW_MUST_CHECK spw_status spw_calibrate_megatron_time(const char *const *runs, size_t run_count,
                                                      const char *const *phases, size_t phase_count,
                                                      const char *from, spw_megatron_calibration *out);
void spw_megatron_calibration_close(spw_megatron_calibration *c);

#endif
