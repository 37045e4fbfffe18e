/* The scorer of published benchmarks of single layers of Megatron-Core. */
#ifndef SPW_SIM_SCORE_BARE_BARE_PRINT_H
#define SPW_SIM_SCORE_BARE_BARE_PRINT_H

#include "sim/score/scorer.h"

SPW_MUST_CHECK spw_status spw_bare_print(const spw_score_request *request);

#endif
