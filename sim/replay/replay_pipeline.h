/* The replay of a job with micro-batches or pipeline stages. A rank's sequences are cut into consecutive
 * micro-batches, each with its own rows, drops and bytes. Ranks are those of one stage; every stage has as many
 * GPUs, which see the same tokens in other layers. Memory that follows the routing is looked at stage by stage:
 * the layer where a rank holds most in any micro-batch, plus the greatest sum of what the micro-batches in flight
 * keep. The two need not fall together, so the sum is an upper bound. */
#ifndef SPW_SIM_REPLAY_REPLAY_PIPELINE_H
#define SPW_SIM_REPLAY_REPLAY_PIPELINE_H

#include "sim/replay/replay.h"

bool spw_replay_needs_pipeline(const spw_job *job);

/* As spw_replay_run, for any job; with one stage and one micro-batch it says the same. Bytes per GPU are means
 * over stages. A stack and the allocator are left out: neither has been fitted to, or replayed with, stages
 * or micro-batches. SPW_ECONFIG with a stated imbalance. */
SPW_MUST_CHECK spw_status spw_replay_pipeline_run(const spw_replay_request *request, spw_result *result);

/* The part of a layout that is micro-batch `index` of `count`: sequences / count of every rank, numbered from 0.
 * Overwrites *out, which has the same ranks. */
SPW_MUST_CHECK spw_status spw_micro_batch_layout(const spw_layout *layout, size_t index, size_t count,
                                                 spw_layout *out);

#endif
