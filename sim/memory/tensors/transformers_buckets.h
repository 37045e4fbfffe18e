/* Buckets of PyTorch's DDP [read: torch 2.15 torch/nn/parallel/distributed.py, _sync_module_states and _ddp_init_helper;
 * torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size, initialize_buckets, rebuild_buckets,
 * broadcast_coalesced]. As transformers' Trainer has it [read: trainer.py, 5.24: find_unused_parameters is what is not
 * checkpointed, and always so for PEFT's models]:
 *   - at first weights are broadcast, those of a bucket as one copy, two copies at a time;
 *   - gradients have buckets beside them, all the time. Where unused parameters are searched for, they are of the weights in
 *     their order. Else there is one of all, until the second step makes those of the gradients in theirs;
 *   - that one stays until the first of these is reduced: ProcessGroupNCCL holds what it reduced until it is called again. (Where
 *     that is within the 100 ms after which it looks, until the third step: seen in a run, not counted.) */
#ifndef SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_BUCKETS_H
#define SPW_SIM_MEMORY_TENSORS_TRANSFORMERS_BUCKETS_H

#include "sim/memory/tensors/transformers_modules.h"

typedef struct spw_hf_bucketed { /* a tensor, or a bucket of `tensors` */
    uint64_t bytes;
    size_t tensors;
    bool wide; /* of another format */
} spw_hf_bucketed;

typedef struct spw_hf_buckets {
    const spw_transformers_shape *shape; /* borrowed, as the model is */
    const spw_hf_model *model;
    spw_tape *tape;
    spw_hf_bucketed *tensor, *size; /* [weights + 1], for whoever cuts them */
    spw_value *bucket;              /* [count] */
    size_t count, steps, held;      /* held: of one of all, behind `count` */
} spw_hf_buckets;

SPW_MUST_CHECK spw_status spw_hf_buckets_create(const spw_transformers_shape *shape,
                                                const spw_hf_model *model, spw_tape *tape,
                                                spw_hf_buckets *out);
void spw_hf_buckets_destroy(spw_hf_buckets *buckets);

/* Are unused parameters searched for? Then outputs of the model are copied, too (_DDPSink). */
bool spw_hf_searches_unused(const spw_transformers_shape *shape);
/* What DDP's construction does; what the forward pass of a step does first; what the first reduction does. Nothing without replicas. */
void spw_hf_buckets_begin(spw_hf_buckets *buckets);
void spw_hf_buckets_step(spw_hf_buckets *buckets);
void spw_hf_buckets_reduce(spw_hf_buckets *buckets);

/* Buckets of `count` tensors in their order: each ends with the tensor that brings it to its limit, `first` bytes for the first of a
 * format, `limit` for the others. out [count + 1]. Returns how many. */
size_t spw_hf_bucket_sizes(const spw_hf_bucketed *tensor, size_t count, uint64_t first, uint64_t limit,
                           spw_hf_bucketed *out);

#endif
