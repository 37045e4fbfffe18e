/* Megatron-Core's optimizer on the host (NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py) at the
 * end of a step, as it is without --overlap-cpu-optimizer-d2h-h2d: gradients of the host's share go there, in the format of the master
 * weights; Adam in the host's memory, beside which the GPU works on its own share; the new master weights come back, and the GPU casts
 * them. Of n parameters with m bytes of a master weight and o of a moment:
 *   host_gradients   n m / link         host_weights   n m / link
 *   host_optimizer   n (3 m + 4 o) / memory; the step waits for what is longer than the GPU's own share
 * [measured: fused AdamW by 16 threads on the host of one H200, one GPU at work, notebooks_data/measured/h200_optimizer.csv]. */
#ifndef SPW_SIM_TIME_MEGATRON_HOST_OPTIMIZER_TIME_H
#define SPW_SIM_TIME_MEGATRON_HOST_OPTIMIZER_TIME_H

#include "sim/job/job_words.h"
#include "sim/time/timeline.h"

typedef struct spw_megatron_coefficients spw_megatron_coefficients; /* sim/machine/megatron_coefficients.h */

/* parameters: of a GPU, those that the host updates; gpu_s: what the GPU takes for the others. Adds nothing where there are none. */
SPW_MUST_CHECK spw_status spw_host_optimizer_add(const spw_megatron_coefficients *coefficients,
                                                 const spw_job *job, double parameters, double gpu_s,
                                                 spw_timeline *out);

/* Widens the interval of a finished timeline: copies hidden behind a host that is twice as fast, and nothing hidden behind one that is
 * half as fast. */
void spw_host_optimizer_doubt(spw_timeline *timeline);

#endif
