/* The score of a table of whole layers, as `spillway score` prints it. */
#ifndef SPW_SIM_SCORE_KERNELS_OWN_LAYER_PRINT_H
#define SPW_SIM_SCORE_KERNELS_OWN_LAYER_PRINT_H

#include "base/status.h"
#include "sim/score/scorer.h"

#include <stdio.h>

/* With the figures of the cluster that the column `cluster` of the table names. Table: totals by point and a summary by phase; CSV and
 * JSON: every row. */
SPW_MUST_CHECK spw_status spw_own_layer_print(const spw_score_request *request);

#endif
