/* How a job's weights, gradients and optimizer state are kept, as a row of a table: key `optimizer`, and FSDP2, which is a way to shard
 * all of it (sim/weights/fsdp2.h). Formulas: sim/weights/optimizer_state.h. Who asks what a way does, asks its row. */
#ifndef SPW_SIM_JOB_STATE_LAW_H
#define SPW_SIM_JOB_STATE_LAW_H

#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes of an element that a framework takes where the job says `auto`. 0: as the weights. */
typedef struct spw_state_formats {
    size_t weights, gradients, moments;
} spw_state_formats;

typedef struct spw_state_law {
    const char *source;    /* of the state's bytes, with its section of docs/schemes.md */
    const char *gradients; /* the same of the gradients' */
    bool shares_weights;   /* weights and gradients: each once over all GPUs, gathered where a layer works */
    bool shares_moments;   /* master weights and moments: each once over the replicas */
    bool by_units;         /* of FSDP2: layers are units, whose tensors are sharded each by itself */
    bool sums_gradients;   /* an all-reduce, not a reduce-scatter */
    unsigned gathers_a_step; /* of each weight, where nothing gathered is kept */
    bool megatron;           /* Megatron-Core's optimizer, with its options */
    size_t master_bytes;     /* of a second copy of smaller weights, where the job says nothing; 0: none */
    bool follows_weights;    /* of fp32 weights: gradients and moments are never kept in a smaller format */
    spw_state_formats formats;
    size_t expert_tensor; /* that a search takes where the job says none; 0: as many as tensor */
} spw_state_law;

const spw_state_law *spw_state_law_of(const spw_job *job);

/* Bytes of one master weight: as the job says, or the law's where weights are smaller. */
size_t spw_master_bytes(const spw_job *job);
/* What a GPU keeps of one: all, or beside a bf16 weight the other half (store_param_remainders). */
size_t spw_master_kept_bytes(const spw_job *job);

/* Is it a whole model under Megatron-Core's optimizer? What Megatron-Core's options speak of is described for these. */
bool spw_state_is_megatron(const spw_job *job);
/* Is it a whole model whose weights are shared out among all GPUs? */
bool spw_state_is_sharded(const spw_job *job);

#endif
