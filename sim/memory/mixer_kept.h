/* What a recurrence keeps between the forward and the backward pass of its layer, in place of what attention does (docs/schemes.md,
 * section 7.18), wherever a step is summed by components. Tensor by tensor of Megatron-Core's modules with the kernels that it calls
 * [read: NVIDIA/Megatron-LM d98e8a64 megatron/core/ssm/mamba_mixer.py, gated_delta_net/; mamba-ssm 2.3.2
 * ops/triton/ssd_combined.py; fla-core 0.6.0 ops/gated_delta_rule/chunk.py, ops/kda/chunk.py, modules/convolution.py]; of Kimi Delta
 * Attention, which Megatron-Core lacks, of transformers' module. Not measured. */
#ifndef SPW_SIM_MEMORY_MIXER_KEPT_H
#define SPW_SIM_MEMORY_MIXER_KEPT_H

#include "sim/input/job.h"
#include "sim/schemes/scheme.h"

/* Bytes a token of a recurrence, of elements of `element_bytes`, without what norms of [hidden] read and give; 0 where it is not
 * described. */
double spw_recurrence_kept(const spw_recurrence *r, size_t element_bytes);

/* Of layers with an FFN of one kind (experts: of routed experts): bytes on average over the model's layers, and of the recurrence that
 * has most, where a layer of attention keeps `attention`. most: 0 where the model has no recurrence that is described. */
typedef struct spw_mixers_kept {
    double mean, most;
} spw_mixers_kept;
spw_mixers_kept spw_mixers_kept_of(const spw_job *job, const spw_layer_shape *shape, bool experts,
                                   double attention);

#endif
