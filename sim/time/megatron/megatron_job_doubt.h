/* What of a Megatron-Core job's time rests on more than was measured: named in `outside`, and in the interval's width. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_JOB_DOUBT_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_JOB_DOUBT_H

#include "sim/time/megatron/megatron_job_time.h"

/* q: as predicted; tokens: of a micro-batch and GPU. */
void spw_megatron_job_doubt(const spw_megatron_job_request *q, size_t tokens, spw_timeline *out);

#endif
