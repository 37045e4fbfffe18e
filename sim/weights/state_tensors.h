/* The tensors that the optimizer's state of one GPU is made of. Weights and gradients are buffers; master weights and moments are
 * tensors of their own, one a parameter [read: NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/distrib_optimizer.py
 * _build_model_and_main_param_groups, shard_main_param; NVIDIA/TransformerEngine 2.20 pytorch/optimizers/fused_adam.py
 * initialize_state and torch/optim/adam.py: exp_avg, then exp_avg_sq of the same parameter, in the first step].
 *   - a matrix of a layer is a parameter; gate and up of an expert are one, and so are queries, keys and values;
 *   - of n shards a GPU has 1 / n of the matrices, and a part of one (Megatron-Core cuts the buffer of all of them), or 1 / n of
 *     each (FSDP2, whose experts of a layer are one parameter a product);
 *   - norms and biases are left over: one tensor.
 * Megatron-Core's order is that of its buffers, from the last parameter to the first [read: param_and_grad_buffer.py; seen: every
 * allocation of a run], kinds of which a layer has none spread over all; experts come behind all else where they have an optimizer of
 * their own. FSDP2's is that of the model's parameters, as torchtitan's blocks name them [read: pytorch/torchtitan b5bcd76c
 * models/qwen3/model.py, models/common/{attention,moe,decoder}.py]: queries, keys and values, and gate and up are apart there. */
#ifndef SPW_SIM_WEIGHTS_STATE_TENSORS_H
#define SPW_SIM_WEIGHTS_STATE_TENSORS_H

#include "base/status.h"
#include "sim/job/job_words.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_stage spw_stage;

/* At most so many; beyond that several parameters of one kind are one tensor. */
enum { SPW_STATE_TENSORS = 1 << 14 };

typedef struct spw_state_tensors {
    double *elements; /* [count], of each parameter's part on the GPU */
    size_t count;
    double all; /* elements of which the GPU has the state */
} spw_state_tensors;

/* SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_state_tensors_create(const spw_job *job, const spw_stage *stage,
                                                   spw_state_tensors *out);
/* The weights as a model is built, each a tensor of its own, until the distributed optimizer's buffer takes them: from the last to the
 * first. count 0: they stay as they are built, or `bytes`, of all weights on a GPU, are not those of the listed tensors. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_weight_tensors_create(const spw_job *job, const spw_stage *stage,
                                                    uint64_t bytes, spw_state_tensors *out);
void spw_state_tensors_destroy(spw_state_tensors *tensors);

/* Overwrites out [count + 1] with the bytes of each where all state takes `bytes`; the last is what is left over, which may be 0.
 * They sum to `bytes`. */
void spw_state_tensors_bytes(const spw_state_tensors *tensors, uint64_t bytes, uint64_t *out);

#endif
