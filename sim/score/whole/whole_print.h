/* The scorer of measured runs of whole models. */
#ifndef SPW_SIM_SCORE_WHOLE_WHOLE_PRINT_H
#define SPW_SIM_SCORE_WHOLE_WHOLE_PRINT_H

#include "sim/score/scorer.h"

SPW_MUST_CHECK spw_status spw_whole_print(const spw_score_request *request);

#endif
