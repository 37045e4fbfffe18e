/* One expert-parallel group of a trace as the executed reference and the kernels want it: a shape and choices by rank. */
#ifndef SPW_SIM_VERIFY_TRACE_GROUP_H
#define SPW_SIM_VERIFY_TRACE_GROUP_H

#include "sim/job/job_words.h"
#include "sim/schemes/scheme.h"

typedef struct spw_trace_info spw_trace_info;

typedef struct spw_trace_group_settings {
    size_t expert_parallel; /* ranks of a group over expert_tensor; 0: the most that can be, up to 8 */
    size_t tokens;          /* of a rank, for a trace that knows no ranks */
    size_t shrink;          /* hidden and ffn are divided by it; at least 8 and 4 stay */
    size_t expert_tensor;   /* ranks of a group that share each expert; 0 counts as 1 */
} spw_trace_group_settings;

/* A job just large enough to lay the trace out: its own ranks, or one group when it knows none. Groups are
 * job->fsdp. SPW_EARG when the group does not divide the ranks, its sets of sharers do not divide the
 * experts, or the sharers do not divide the group. */
SPW_MUST_CHECK spw_status spw_trace_group_job(const spw_trace_info *info,
                                              const spw_trace_group_settings *settings, spw_job *job);

#endif
