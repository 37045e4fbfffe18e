/* How many ranks of a stage are replayed. */
#ifndef SPW_SIM_REPLAY_REPLAY_RANKS_H
#define SPW_SIM_REPLAY_REPLAY_RANKS_H

#include "sim/replay/replay_request.h"

/* All GPUs of a stage that have tokens of their own. Of generated routing, whose expert-parallel groups differ by chance alone, no more
 * whole groups than have 2,048 ranks, of at least one that lies on its nodes in each way. Not where somebody listens, and not where nodes
 * share a network in levels, whose ports add up what groups send. */
size_t spw_replay_ranks(const spw_replay_request *q);

/* Kinds of micro-batches: of generated routing, which differ by chance alone, no more than have all sequences that were made, and at least
 * 8. Those behind them are as these in turn: what a step does grows with its kinds, not with its micro-batches. */
size_t spw_replay_micro_batch_kinds(const spw_replay_request *q);

/* The job of one stage of so many ranks. */
void spw_replay_stage_job(const spw_job *job, size_t ranks, spw_job *out);

#endif
