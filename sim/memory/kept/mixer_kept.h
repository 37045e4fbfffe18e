/* What a recurrence keeps between the forward and the backward pass of its layer, in place of what attention does (docs/schemes.md,
 * section 7.18), wherever a step is summed by components. Tensor by tensor of Megatron-Core's modules with the kernels that it calls
 * [read: NVIDIA/Megatron-LM d98e8a64 megatron/core/ssm/mamba_mixer.py, gated_delta_net/; mamba-ssm 2.3.2
 * ops/triton/ssd_combined.py; fla-core 0.6.0 ops/gated_delta_rule/chunk.py, ops/kda/chunk.py, modules/convolution.py]; of Kimi Delta
 * Attention, which Megatron-Core lacks, of transformers' module. Not measured. */
#ifndef SPW_SIM_MEMORY_KEPT_MIXER_KEPT_H
#define SPW_SIM_MEMORY_KEPT_MIXER_KEPT_H

#include "sim/job/job.h"
#include "sim/model/compressed_attention.h"
#include "sim/schemes/scheme.h"

/* Bytes a token of a recurrence, of elements of `element_bytes`, without what norms of [hidden] read and give; 0 where it is not
 * described. */
double spw_recurrence_kept(const spw_recurrence *r, size_t element_bytes);

/* DeepSeek-V4's attention as Megatron-Core's own class has it [read: NVIDIA/Megatron-LM d48bd6be, branch dev,
 * megatron/core/transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py, csa.py,
 * csa_utils/fused_sparse_attention.py; executed on a CPU without its kernels: notebooks_data/measured/megatron_cpu_v4.csv].
 * Bytes of sequences of `length` tokens in elements of `b` bytes, without what norms of [hidden] read and give. With T tokens, W of all
 * heads, d of one, r of the queries' latent, C joined keys:
 *   queries     T (2 r b + 4 + 2 W b + heads b): their latent before and behind its norm, then they, 1 / rms of a head
 *   keys        T (d b + 4) before the norm, (T + C) d b that the kernel reads
 *   core        T (2 W b + 4 heads + 4 indices): its output before and behind the rotation back, log-sum-exps, which keys
 *   output      T groups latent b
 *   compressor  C every parts d (2 b + 4) + C (d b + 4): keys and shares of windows, shares in fp32 too, their sum
 *   indexer     such a compressor; the gradients of its queries, keys and weights, made in the forward pass. */
double spw_compressed_kept(const spw_compressed_attention *a, size_t sequences, size_t length, size_t b);
/* Of it, what comes back where Megatron-Core's module mla_up_proj runs again: queries, with what made them, and keys. */
double spw_compressed_again(const spw_compressed_attention *a, size_t sequences, size_t length, size_t b);

/* Of layers with an FFN of one kind (experts: of routed experts): bytes on average over the model's layers, and of the recurrence that
 * has most, where a layer of attention keeps `attention`. most: 0 where the model has no recurrence that is described. */
typedef struct spw_mixers_kept {
    double mean, most;
} spw_mixers_kept;
spw_mixers_kept spw_mixers_kept_of(const spw_job *job, const spw_layer_shape *shape, bool experts,
                                   double attention);

#endif
