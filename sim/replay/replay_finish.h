/* From a row of a replay to a row of its result: means, quantiles over the steps, and every sentence that was assumed. */
#ifndef SPW_SIM_REPLAY_REPLAY_FINISH_H
#define SPW_SIM_REPLAY_REPLAY_FINISH_H

#include "base/status.h"
#include "sim/replay/replay_row.h"
#include "sim/replay/result.h"
#include "sim/routing/choice_tally.h"

/* After the last step. choices: of the row's batch. Fills *out, which is zeroed; sorts the row's peaks. */
SPW_MUST_CHECK spw_status spw_replay_row_finish(spw_replay_row *row, const spw_choice_tally *choices,
                                                spw_result_row *out);

/* Why it has no row in the result. */
void spw_replay_row_refusal(const spw_replay_row *row, spw_refusal *out);

#endif
