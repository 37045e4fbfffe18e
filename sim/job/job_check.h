/* Whether the keys of a job go together: splits, batches, precision, allocator. Others than sim/job call spw_job_check. */
#ifndef SPW_SIM_JOB_JOB_CHECK_H
#define SPW_SIM_JOB_JOB_CHECK_H

#include "sim/job/job_words.h"

#include <stdbool.h>

/* all_batches: every batch must go into the micro-batches; else one of them is enough. On failure *key is where the job
 * file is to be changed. SPW_ECONFIG. */
SPW_MUST_CHECK spw_status spw_job_check_key(const spw_job *job, bool all_batches, const char **key);

/* What to say of an expert-parallel size that does not divide the `gpus` GPUs of expert x fsdp: SPW_ECONFIG, with those that do. In
 * job_split.c. */
SPW_MUST_CHECK spw_status spw_job_fail_expert_size(const spw_job *job, size_t expert, size_t gpus);

/* The largest number that divides both and is at most `limit`. */
size_t spw_largest_common_divisor(size_t a, size_t b, size_t limit);

#endif
