/* How a score is printed. */
#ifndef SPW_SIM_SCORE_PUBLISHED_SCORE_PRINT_H
#define SPW_SIM_SCORE_PUBLISHED_SCORE_PRINT_H

#include "sim/print/table.h"
#include "sim/score/published/score.h"
#include "sim/score/scorer.h"

/* table: every row, the rows left out, wrong verdicts by name, a summary a scheme and of all; json: one
 * object; csv: the rows. */
SPW_MUST_CHECK spw_status spw_score_print(const spw_score_request *request);

#endif
