/* One expert-parallel group of a trace as the executed reference and the kernels want it: a shape and choices by rank. */
#ifndef SPW_SIM_VERIFY_TRACE_GROUP_H
#define SPW_SIM_VERIFY_TRACE_GROUP_H

#include "sim/input/job.h"
#include "sim/routing/counts.h"
#include "sim/schemes/scheme.h"

typedef struct spw_trace_group_settings {
    size_t expert_parallel; /* ranks of a group; 0: the most that divide experts and ranks, up to 8 */
    size_t tokens;          /* of a rank, for a trace that knows no ranks */
    size_t shrink;          /* hidden and ffn are divided by it; at least 8 and 4 stay */
} spw_trace_group_settings;

/* A job just large enough to lay the trace out: its own ranks, or one group when it knows none. Groups are
 * job->fsdp. SPW_EARG when expert_parallel does not divide experts and ranks. */
SPW_MUST_CHECK spw_status spw_trace_group_job(const spw_trace_info *info,
                                              const spw_trace_group_settings *settings, spw_job *job);

#endif
