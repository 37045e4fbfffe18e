/* The split of a job's GPUs where a part of it was left out. */
#ifndef SPW_SIM_INPUT_JOB_SPLIT_H
#define SPW_SIM_INPUT_JOB_SPLIT_H

#include "sim/input/job.h"

/* What is 0 of the split is worked out. Both expert and fsdp: expert is the most GPUs of a node that divide the experts, in which
 * MaxText's axis context must find its groups, and fsdp what is left. One of them: what the other leaves of the GPUs. On failure
 * *key is where the job is to be changed. SPW_ECONFIG. */
SPW_MUST_CHECK spw_status spw_job_split_fill(spw_job *job, const char **key);

#endif
