/* The largest number of sequences a GPU with which a job fits, found by replaying the trace. */
#ifndef SPW_SIM_REPLAY_LARGEST_BATCH_H
#define SPW_SIM_REPLAY_LARGEST_BATCH_H

#include "base/status.h"
#include "sim/replay/replay.h"

enum { SPW_LARGEST_BATCH = 4096 };

/* For every scheme of the request: the largest number of sequences per GPU, up to SPW_LARGEST_BATCH, with which at least
 * the share `at` of the steps do not run out of memory. What has no room when routing is balanced has none otherwise, which
 * bounds the search; then it bisects, replaying the trace each time where memory follows the routing. The numbers of
 * sequences of the job are not looked at; with micro-batches only their multiples are tried. Appends to result->batch. */
SPW_MUST_CHECK spw_status spw_largest_batches(const spw_replay_request *request, double at,
                                              spw_result *result);

#endif
