/* The split of a job's GPUs, and its batch, where a part of it was left out. */
#ifndef SPW_SIM_JOB_JOB_SPLIT_H
#define SPW_SIM_JOB_JOB_SPLIT_H

#include "sim/job/job_words.h"

/* What is 0 of the split is worked out. Both expert and fsdp: expert is the most GPUs of a node that divide the experts, in which
 * MaxText's axis context must find its groups, and fsdp what is left. One of them: what the other leaves of the GPUs. On failure
 * *key is where the job is to be changed. SPW_ECONFIG. */
SPW_MUST_CHECK spw_status spw_job_split_fill(spw_job *job, const char **key);

/* The sequences of a data-parallel rank from those of all GPUs: global_batch / ranks, where ranks are the GPUs over tensor x context
 * x pipeline. Where the job says both, they must agree. SPW_ECONFIG, also where it says neither. */
SPW_MUST_CHECK spw_status spw_job_batch_fill(spw_job *job, const char **key);
/* Groups of GPUs that have sequences of their own; 0 where tensor x context x pipeline does not divide the GPUs. */
size_t spw_job_batch_ranks(const spw_job *job);

#endif
