/* The steps of measured runs beside what sim/time/megatron/megatron_time.h says of them. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_SCORE_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_TIME_SCORE_H

#include "sim/score/megatron/measured_time.h"

/* Predicts every run. */
SPW_MUST_CHECK spw_status spw_measured_time_predict(const spw_megatron_coefficients *c,
                                                    spw_measured_time *time);

/* step / the partner's step, predicted and measured; NAN without a partner. */
double spw_measured_ratio(const spw_measured_time *time, const spw_measured_time_run *run);
double spw_measured_true_ratio(const spw_measured_time *time, const spw_measured_time_run *run);

/* Whether the measured step lies in the interval of the predicted one. */
bool spw_measured_inside(const spw_measured_time_run *run);

/* Absolute errors as parts of what was measured; NAN when there are none. */
typedef struct spw_measured_time_errors {
    size_t steps, ratios, inside; /* inside: steps in their interval */
    double step_mean, step_max, ratio_median, ratio_max;
} spw_measured_time_errors;
/* What runs are told apart by when some of them are left out. */
#define SPW_MEASURED_LABEL_LIST(X) X(MODEL, "shape", model) X(ROUTING, "routing", routing)
#define SPW_MEASURED_LABEL_ENUM(name, text, field) SPW_MEASURED_##name,
typedef enum spw_measured_label {
    SPW_MEASURED_LABEL_LIST(SPW_MEASURED_LABEL_ENUM) SPW_MEASURED_LABELS
} spw_measured_label;
#undef SPW_MEASURED_LABEL_ENUM
const char *spw_measured_label_name(spw_measured_label label); /* "shape", "routing" */
const char *spw_measured_label_of(const spw_measured_time_run *run, spw_measured_label label);

/* Of the runs whose `label` is `name`, or of all (NULL). */
SPW_MUST_CHECK spw_status spw_measured_time_score(const spw_measured_time *time, spw_measured_label label,
                                                  const char *name, spw_measured_time_errors *out);

/* One phase over all runs that have it. */
typedef struct spw_measured_phase_errors {
    size_t runs;
    double mean, most,
        pooled; /* mean and most of the runs' absolute errors; error of the sum over runs, with sign */
    double seconds, true_seconds; /* mean of a run */
} spw_measured_phase_errors;
spw_measured_phase_errors spw_measured_phase_score(const spw_measured_time *time, spw_megatron_phase phase);

#endif
