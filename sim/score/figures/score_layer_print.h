/* Bars of activation memory beside their predictions, printed. */
#ifndef SPW_SIM_SCORE_FIGURES_SCORE_LAYER_PRINT_H
#define SPW_SIM_SCORE_FIGURES_SCORE_LAYER_PRINT_H

#include "base/status.h"
#include "sim/print/table.h"
#include "sim/score/figures/score_layer_memory.h"
#include "sim/score/scorer.h"

#include <stdio.h>

/* One row a bar; for a person a summary by method follows. JSON keys: format "spillway-score-layer-memory", version, cells
 * (scored bars), median_abs_error, max_abs_error (parts of the bar), methods[] with the same by method, rows[]. */
SPW_MUST_CHECK spw_status spw_layer_score_print(const spw_score_request *request);

#endif
