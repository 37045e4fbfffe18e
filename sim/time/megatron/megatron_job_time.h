/* The time of a training step of a Megatron-Core job: its MoE layers by the model of a stack's clocks (sim/time/megatron/megatron_time.h),
 * the rest of the model by counted work (sim/time/model_work.h) at the stack's rates.
 *
 *   a block      the layers of one chunk of a pipeline stage: the stack's clocks over its MoE layers, plus
 *   outside      products / (dense_flops_share x peak), scores / (attention_flops_share x peak), bytes by element /
 *                copy_bytes_per_s, alike on all ranks; forward one pass of those that model_work counts, backward the rest
 *   micro-batch  each with its own rows; one after the other, or in the order of the pipeline (sim/time/pipeline_time.h)
 *   at the end   gradients to the optimizer's shards, weights back, by the rates of exchanges and of the NIC, behind one
 *                another and behind the backward pass, unless the job overlaps them (sim/time/megatron/megatron_hidden.h), and
 *                the optimizer's bytes / copy_bytes_per_s
 *   step         of the expert-parallel group that takes longest: groups meet at the gradients only
 *
 * What was fitted the stack says: bare layers on 4 ranks of one machine, or whole models of published and own runs (its `part`,
 * sim/machine/megatron_coefficients.h). What a job has beyond that is named in `outside`, and nothing is refused for it. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_JOB_TIME_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_JOB_TIME_H

#include "sim/job/job_words.h"
#include "sim/time/megatron/megatron_load.h"
#include "sim/time/megatron/megatron_means.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

/* Is there such a model? megatron-alltoall, -flex, -syncfree and -allgather, bf16, without padding to an alignment, with
 * a recompute module of Megatron-Core, none or full; GPUs that share experts are on one node. With tensor and context
 * parallelism the work outside the experts is divided by both, and their collectives are counted (sim/time/megatron/grid_time.h), as
 * those of expert_tensor are (sim/time/megatron/megatron_time.h): behind these no run stands. */
bool spw_megatron_job_covers(const spw_job *job, const spw_scheme *scheme);

typedef struct spw_megatron_job_request {
    const spw_megatron_coefficients *coefficients; /* scaled to the job's cluster */
    const spw_point *point;
    /* [micro_batches][groups][layers][ranks of the shape]; each is taken in turn where the job has more */
    const spw_megatron_load *load;
    size_t micro_batches, groups, layers;
} spw_megatron_job_request;

/* SPW_ECONFIG where spw_megatron_job_covers says no; SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_job_predict(const spw_megatron_job_request *request,
                                                   spw_timeline *out);

/* Seconds that such a step takes at least, whatever the routing, where every rank of a group has `rows` rows in the mean of a
 * micro-batch and layer: no exchange has a byte, no rank waits for another, and the optimizer takes no time. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_job_least_s(const spw_megatron_coefficients *coefficients,
                                                   const spw_point *point, double rows, double *out);

/* Seconds that the step of spw_megatron_job_predict() takes at least whose loads have these means: every stage works on all micro-batches
 * behind the first forward pass of the stages before it, and before their last backward pass; no rank waits for the host, and the
 * optimizer takes what it takes on the stage where that is least. 0 where ranks send unlike many rows. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_job_mean_s(const spw_megatron_coefficients *coefficients,
                                                  const spw_point *point, const spw_megatron_means *means,
                                                  double *out);

/* Seconds that the step of spw_megatron_job_predict() takes at least: the one group whose fullest ranks have the most rows, the
 * collectives of weights and gradients, and the optimizer. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_job_group_s(const spw_megatron_job_request *request, double *out);

/* Tokens of a step, by the GPUs that share them: over its seconds, tokens/s of a GPU. */
double spw_megatron_job_tokens(const spw_point *point);

#endif
