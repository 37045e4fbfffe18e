/* A process that trains a model of Hugging Face transformers, on one GPU, under PyTorch's DDP (transformers_buckets.h) or FSDP2, tensor by tensor (docs/schemes.md,
 * section 6.9). FSDP2 as transformers' and accelerate's users have it: each decoder layer is a unit, the rest of the model the root
 * [read: torch 2.11 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_param.py]:
 *   - a unit is gathered into one buffer on the stream of gathers and copied out into one tensor a parameter; the buffer goes when
 *     the next unit is copied out, the last one when the backward pass begins;
 *   - the backward pass copies a layer out, then gathers the layer before it;
 *   - behind a layer's backward pass the reduce-scatter's input is made of its gradients, which go; it stays until that of the next
 *     unit; the output is the sharded gradients, on a stream of its own.
 * A step gives up the gradients of the step before (zero_grad), runs its micro-batches, and leaves gradients for the optimizer. */
#ifndef SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_STEP_H
#define SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_STEP_H

#include "sim/memory/tensors/transformers_modules.h"

typedef struct spw_transformers_step spw_transformers_step;

/* The shape's model is borrowed. */
SPW_MUST_CHECK spw_status spw_transformers_step_create(const spw_transformers_shape *shape,
                                                       spw_transformers_step **out);
void spw_transformers_step_destroy(spw_transformers_step *step); /* NULL is fine */
/* Slots of all lists of such a process, for whoever replays them: it runs three steps to count them. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_transformers_step_slots(const spw_transformers_shape *shape, size_t *slots);

/* Overwrite `list`: what is there before the first step; the moments, which the optimizer's first step allocates; a step. */
SPW_MUST_CHECK spw_status spw_transformers_step_begin(spw_transformers_step *step, spw_event_list *list);
SPW_MUST_CHECK spw_status spw_transformers_step_optimizer(spw_transformers_step *step, spw_event_list *list);
SPW_MUST_CHECK spw_status spw_transformers_step_run(spw_transformers_step *step, spw_event_list *list);

spw_tape_work spw_transformers_step_work(const spw_transformers_step *step); /* of the last step */
/* Bytes of weights that a GPU gathers in a step, and of gradients that it reduces. */
typedef struct spw_transformers_exchange {
    double gathered_bytes, reduced_bytes, gathers, reductions;
} spw_transformers_exchange;
spw_transformers_exchange spw_transformers_step_exchange(const spw_transformers_step *step);
uint64_t spw_transformers_step_trained(
    const spw_transformers_step *step); /* parameters of this GPU that are trained */

#endif
