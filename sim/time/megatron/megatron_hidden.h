/* What the keys of Megatron-Core's recipes (sim/job/recipe/megatron_keys.h) change in a step's time. Behind none of it but the kernels of
 * permutation and router stands a run, so the interval has the other end of each.
 *
 *   overlap_grad_reduce        sums of gradients S: min(S (1 - 1/n), B) hides behind B, the last micro-batch's backward passes of the
 *                              stage, and of the rest what the stages before it still have to do. n: buckets of max(40e6, 1e6 x
 *                              data-parallel ranks) gradients on the first stage, the chunks on all others, which have one each
 *   overlap_param_gather       gathers of weights, the same of the first micro-batch's forward passes
 *   delay_wgrad_compute        as without it; the interval has no exchange waited for that has work to hide behind
 *   moe_shared_expert_overlap  of each pass of a block, min(shared experts, exchanges)
 *   moe_permute_fusion: false  unpermutation and the permutation's gradient at PyTorch's share of the rates (measured alone)
 *   moe_router_fusion: false   unfused_router_bytes T H at copy_bytes_per_s in every forward pass of a MoE layer (measured alone)
 *   apply_rope_fusion: false   18 more passes over what is rotated, 10 of them forward (counted below); the interval has none of them
 *   fused experts              as without; the interval has the activation take no time
 *
 * NVIDIA/Megatron-LM d98e8a64 megatron/core/distributed/distributed_data_parallel.py (bucket_size), models/common/embeddings/rope_utils.py
 * (_apply_rotary_pos_emb_bshd), moe/shared_experts.py, TransformerEngine 2.20.2 on one H100. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_HIDDEN_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_HIDDEN_H

#include "sim/time/megatron/megatron_parts.h"

/* The coefficients with the kernels that the job says. */
void spw_megatron_kernels_said(const spw_job *job, spw_megatron_coefficients *c);

/* Seconds of a micro-batch, all layers of the model; *forward_share: of them, in the first forward pass. 0 where nothing is said, or the
 * runs behind the stack had them so. */
double spw_unfused_router_s(const spw_megatron_coefficients *c, const spw_point *point,
                            double *forward_share);
double spw_unfused_rotation_s(const spw_megatron_coefficients *c, const spw_point *point,
                              double *forward_share);

/* Of so many seconds of the collectives of gradients, or of weights, what hides on a stage; blocks are timed. */
double spw_hidden_gradients_s(const spw_prediction *p, size_t stage, double seconds);
double spw_hidden_gathers_s(const spw_prediction *p, size_t stage, double seconds);

/* Widens the interval of a finished timeline, and says why. */
void spw_megatron_hidden_doubt(const spw_prediction *p, spw_timeline *timeline);

#endif
