/* A step of torchtitan by the parts that are known of Megatron-Core's (sim/time/megatron/megatron_job_time.h): torchtitan's all-to-all dispatcher
 * sends the rows of Megatron-Core's, its experts are one grouped product a matrix, and its attention is cuDNN's. As a job of
 * Megatron-Core it has
 *   row moves, router  by PyTorch's kernels, as with moe_permute_fusion and moe_router_fusion false
 *   loss               unfused; the interval has it as fast as TransformerEngine's
 *   host               layer_gap_s and counts_gap_s; expert_gap_s is 0: an expert is no launch of its own
 *   FSDP2              gathers of weights twice a step, with pipeline stages once, and reduce-scatters of gradients; hidden behind passes
 *                      as far as these reach, as with overlap_param_gather and overlap_grad_reduce (sim/time/megatron/megatron_hidden.h): the
 *                      next layer's gather is under way while one computes. The interval has them whole
 *   replicas           (HSDP) the sum of what a reduce-scatter left follows it, over the GPUs that have the same shard, and hides as it does
 *   remat              selective_op takes the time of full; the interval has what it may keep of attention, dense FFNs and shared
 *                      experts computed once less
 * No run of torchtitan was fitted: the interval is wider by foreign_half_width of the stack, for kernels of other software; and by its
 * scaled_half_width where no run of the GPU is in the fit. */
#ifndef SPW_SIM_TIME_MEGATRON_TORCHTITAN_TIME_H
#define SPW_SIM_TIME_MEGATRON_TORCHTITAN_TIME_H

#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/schemes/point.h"
#include "sim/time/megatron/megatron_job_time.h"

#include <stdbool.h>

/* Its all-to-all scheme, a whole model under FSDP2, tensor and context parallelism 1, products in bf16 or by
 * a recipe of torchao's, in stages or without, where weights are gathered for each micro-batch. */
bool spw_torchtitan_is_timed(const spw_job *job, const spw_scheme *scheme);

/* A job of torchtitan as one of Megatron-Core; borrowed are loads and the model. */
typedef struct spw_torchtitan_twin {
    spw_job job;
    spw_point point;
    spw_megatron_coefficients coefficients;
} spw_torchtitan_twin;
/* The request for `twin`, which it points to. */
spw_megatron_job_request spw_torchtitan_request(const spw_megatron_job_request *q, spw_torchtitan_twin *twin);

/* Names what is not measured of the twin's request, and widens the interval by the loss and by what `said` does not run again. */
void spw_torchtitan_doubt(const spw_megatron_job_request *twin, const spw_job *said, spw_timeline *out);

#endif
