/* Which software runs a job that does not say it: schemes, and who keeps the optimizer's state. */
#ifndef SPW_SIM_INPUT_JOB_SOFTWARE_H
#define SPW_SIM_INPUT_JOB_SOFTWARE_H

#include "sim/input/job_words.h"

#include <stdbool.h>

/* Of a job without a file and without schemes: those of Megatron-Core on NVIDIA's GPUs, of MaxText on others. Needs job->cluster. */
void spw_job_schemes_fill(spw_job *job);

/* optimizer: auto. Without a file and with schemes of Megatron-Core alone it is distributed, which Megatron-LM's recipes ask for
 * (--use-distributed-optimizer); else sharded. Needs the schemes. */
void spw_job_optimizer_fill(spw_job *job, bool bare);

#endif
