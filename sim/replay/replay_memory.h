/* What a replay needs of memory, from its sizes: ranks, experts, layers, steps, schemes, splits and batches. */
#ifndef SPW_SIM_REPLAY_REPLAY_MEMORY_H
#define SPW_SIM_REPLAY_REPLAY_MEMORY_H

#include "sim/replay/replay_request.h"

/* Holds the bound of the request, if it has one: chooses how much of the trace is kept. SPW_EARG when the replay needs more,
 * with the least that it needs. An upper bound but for PyTorch's allocator, whose blocks are estimated: an allocation beyond it fails. */
SPW_MUST_CHECK spw_status spw_replay_fit_memory(const spw_replay_request *request);

#endif
