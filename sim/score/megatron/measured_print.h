/* Measured runs beside their predictions, printed. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_PRINT_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_PRINT_H

#include "base/status.h"
#include "sim/print/table.h"
#include "sim/score/megatron/measured_score.h"
#include "sim/score/megatron/measured_time_score.h"
#include "sim/score/scorer.h"

#include <stdio.h>

/* Scores tables of measured runs and of their phases and prints them: one row a run and rank (or step and rank);
 * for a person a summary follows, in JSON its keys stand beside `rows`: cells, composed, not_replayed, rows_agreement (share of the composed
 * cells whose rows, drops and bytes are equal), and FIGURE_median_abs_error, FIGURE_max_abs_error (parts of what was
 * measured) and FIGURE_within_1_mb for allocated (peak), allocated_after_forward, requested and reserved. Of the time, by
 * the time stack (sim/machine/megatron_coefficients.h): steps, step_mape, step_max_abs_error, real_over_balanced_median_abs_error,
 * real_over_balanced_max_abs_error, and with tables of phases `phases`, one object each. */
SPW_MUST_CHECK spw_status spw_measured_print(const spw_score_request *request);

/* The summary of the time, for a person. */
SPW_MUST_CHECK spw_status spw_measured_time_print(const spw_measured_time *time, FILE *out);

#endif
