/* Scores of every kind of table, printed. */
#ifndef SPW_SIM_SCORE_SCORE_PRINTS_H
#define SPW_SIM_SCORE_SCORE_PRINTS_H

#include "base/status.h"
#include "sim/print/table.h"
#include "sim/score/figures/score_layer_memory.h"
#include "sim/score/published/score.h"
#include "sim/score/scorer.h"
#include "sim/time/dispatch_time.h"

#include <stdio.h>

/* The scorer of published benchmarks of single layers of Megatron-Core. */
SPW_MUST_CHECK spw_status spw_bare_print(const spw_score_request *request);

/* One row a bar; for a person a summary by method follows. JSON keys: format "spillway-score-layer-memory", version, cells
 * (scored bars), median_abs_error, max_abs_error (parts of the bar), methods[] with the same by method, rows[]. */
SPW_MUST_CHECK spw_status spw_layer_score_print(const spw_score_request *request);

/* Prints the table beside the links of the cluster that its column `cluster` names. JSON: `cells`, `dispatch_median_abs_error`,
 * `dispatch_max_abs_error`, `rows`. */
SPW_MUST_CHECK spw_status spw_dispatch_print(const spw_score_request *request);

/* With the figures of the cluster that the column `cluster` of the table names. Table: totals by point and a summary by phase; CSV and
 * JSON: every row. */
SPW_MUST_CHECK spw_status spw_own_layer_print(const spw_score_request *request);

/* table: every row, the rows left out, wrong verdicts by name, a summary a scheme and of all; json: one
 * object; csv: the rows. */
SPW_MUST_CHECK spw_status spw_score_print(const spw_score_request *request);

/* The scorer of published training runs. */
SPW_MUST_CHECK spw_status spw_run_print(const spw_score_request *request);

/* The scorer of measured runs of whole models. */
SPW_MUST_CHECK spw_status spw_whole_print(const spw_score_request *request);

#endif
