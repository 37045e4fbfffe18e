/* The main job: every step and layer of a trace through every scheme and batch size. A rank's sequences are cut into
 * consecutive micro-batches, each with its own rows, drops and bytes. Ranks are those of one pipeline stage; every stage has
 * as many GPUs, which see the same tokens in other layers. */
#ifndef SPW_SIM_REPLAY_REPLAY_H
#define SPW_SIM_REPLAY_REPLAY_H

#include "base/status.h"
#include "sim/replay/replay_request.h"
#include "sim/replay/result.h"

/* Appends splits x batches x schemes rows to `result`, split by split and batch by batch. A split that a scheme cannot run
 * on, or not as unevenly as stated, is a refusal when there are several splits, else SPW_ECONFIG. With several stages or micro-batches bytes of a step are
 * means over the stages; stack, time_stack and allocator are left out (none was fitted to, or replayed with, them), and a stated
 * imbalance is SPW_ECONFIG. */
SPW_MUST_CHECK spw_status spw_replay_run(const spw_replay_request *request, spw_result *result);

/* Holds the bound of the request, if it has one: chooses how much of the trace is kept. SPW_EARG when the replay needs more,
 * with the least that it needs. An upper bound but for PyTorch's allocator, whose blocks are estimated: an allocation beyond it fails. */
SPW_MUST_CHECK spw_status spw_replay_fit_memory(const spw_replay_request *request);

#endif
