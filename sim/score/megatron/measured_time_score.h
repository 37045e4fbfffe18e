/* The steps of measured runs beside what sim/time/megatron_time.h says of them. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_SCORE_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_SCORE_H

#include "sim/score/megatron/measured_time.h"

/* Predicts every run. */
SPW_MUST_CHECK spw_status spw_measured_time_predict(const spw_megatron_coefficients *c,
                                                    spw_measured_time *time);

/* step / the partner's step, predicted and measured; NAN without a partner. */
double spw_measured_ratio(const spw_measured_time *time, const spw_measured_time_run *run);
double spw_measured_true_ratio(const spw_measured_time *time, const spw_measured_time_run *run);

/* Absolute errors as parts of what was measured; NAN when there are none. */
typedef struct spw_measured_time_errors {
    size_t steps, ratios;
    double step_mean, step_max, ratio_median, ratio_max;
} spw_measured_time_errors;
/* Of the runs of one model, or of all (NULL). */
SPW_MUST_CHECK spw_status spw_measured_time_score(const spw_measured_time *time, const char *model,
                                                  spw_measured_time_errors *out);

/* One phase over all runs that have it. */
typedef struct spw_measured_phase_errors {
    size_t runs;
    double mean, most,
        pooled; /* mean and most of the runs' absolute errors; error of the sum over runs, with sign */
    double seconds, true_seconds; /* mean of a run */
} spw_measured_phase_errors;
spw_measured_phase_errors spw_measured_phase_score(const spw_measured_time *time, spw_megatron_phase phase);

#endif
