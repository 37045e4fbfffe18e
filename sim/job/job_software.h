/* Which software runs a job that does not say it: schemes, and who keeps the optimizer's state. */
#ifndef SPW_SIM_JOB_JOB_SOFTWARE_H
#define SPW_SIM_JOB_JOB_SOFTWARE_H

#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>

/* Of a job without a file and without schemes: those of Megatron-Core on NVIDIA's GPUs, of MaxText on others. Needs job->cluster. */
void spw_job_schemes_fill(spw_job *job);

/* The i-th of all schemes that some cluster's job without a file has, some several times; NULL: there are no more. */
const char *spw_job_scheme_assumed(size_t i);

/* The framework that all of the job's schemes are of; SPW_TRAINERS: it has no scheme, or they are of several. */
spw_trainer_id spw_job_trainer(const spw_job *job);

/* optimizer: auto. Without a file and with schemes of Megatron-Core alone it is distributed, which Megatron-LM's recipes ask for
 * (--use-distributed-optimizer); else sharded. Needs the schemes. */
void spw_job_optimizer_fill(spw_job *job, bool bare);

#endif
