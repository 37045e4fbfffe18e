/* The scorer of published training runs. */
#ifndef SPW_SIM_SCORE_RUNS_RUN_PRINT_H
#define SPW_SIM_SCORE_RUNS_RUN_PRINT_H

#include "sim/score/scorer.h"

SPW_MUST_CHECK spw_status spw_run_print(const spw_score_request *request);

#endif
