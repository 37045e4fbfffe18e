/* What is left of a replay when all of its steps are taken, and many processes can share. */
#ifndef SPW_SIM_REPLAY_REPLAY_LATER_H
#define SPW_SIM_REPLAY_REPLAY_LATER_H

#include "base/status.h"
#include "sim/replay/replay_row.h"

/* Together: the allocators of rows that were left for later. */
SPW_MUST_CHECK spw_status spw_replay_later_run(spw_replay_row *row, size_t rows);

#endif
