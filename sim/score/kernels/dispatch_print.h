/* The score of our own dispatch and combine: measured beside predicted, every run by the others. */
#ifndef SPW_SIM_SCORE_KERNELS_DISPATCH_PRINT_H
#define SPW_SIM_SCORE_KERNELS_DISPATCH_PRINT_H

#include "sim/score/scorer.h"
#include "sim/time/dispatch_time.h"

/* Prints the table beside the links of the cluster that its column `cluster` names. JSON: `cells`, `dispatch_median_abs_error`,
 * `dispatch_max_abs_error`, `rows`. */
SPW_MUST_CHECK spw_status spw_dispatch_print(const spw_score_request *request);

#endif
