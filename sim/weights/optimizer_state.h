/* Weights, gradients and optimizer state of one GPU. Three ways to keep them:
 *   sharded      everything over all GPUs of the stage, weights gathered layer by layer (MaxText fsdp with
 *                expert parallelism: experts over expert x fsdp, the rest over the same GPUs)
 *   distributed  weights and gradients whole, master weights and moments over the replicas: the rest over
 *                data x context GPUs (expert x fsdp without tensor parallelism), experts over fsdp (Megatron-Core distributed optimizer with expert data
 *                parallelism: expert weights have as many replicas as the experts leave GPUs)
 *   replicated   everything whole on every replica
 *                With optimizer_instances n (--num-distributed-optimizer-instances): over the replicas / n; each of n groups of
 *                replicas holds all of it (megatron/core/parallel_state.py, intra_partial_data_parallel_size).
 * With bf16 weights and fp32 gradients, master and moments: 18 bytes a parameter replicated, 6 + 12 / replicas
 * distributed (NVIDIA/Megatron-LM megatron/training/theoretical_memory_usage.py). */
#ifndef SPW_SIM_WEIGHTS_OPTIMIZER_STATE_H
#define SPW_SIM_WEIGHTS_OPTIMIZER_STATE_H

#include "sim/job/job_words.h"
#include "sim/model/model.h"

#include <stdint.h>

typedef struct spw_stage spw_stage;

typedef struct spw_held_parameters {
    double routed, rest;                   /* of one stage, all of its GPUs together */
    double replicated;                     /* of `rest`: what tensor parallelism does not share */
    double routed_adapters, rest_adapters; /* among routed and rest */
} spw_held_parameters;
/* Norms, router, the gate of shared experts, biases behind a row-parallel product, and of MLA both down projections and all of
 * a sparse indexer, which Megatron-Core duplicates: NVIDIA/Megatron-LM d98e8a64 multi_latent_attention.py (parallel_mode
 * duplicated), experimental_attention_variant/dsa.py (DSAIndexer), moe/router.py, moe/shared_experts.py. Of Gated DeltaNet the norm
 * of its output: ssm/gated_delta_net/common.py. */
typedef struct spw_replicated_parameters {
    uint64_t norms, mixers;   /* norms of any layer; of all layers' attention and other mixers together */
    uint64_t attention;       /* of them, of a layer that attends */
    double layer;             /* norms and mixer of any layer, on average where layers differ */
    uint64_t moe_layer, head; /* more of a layer with experts; of the stage with the head */
} spw_replicated_parameters;
spw_replicated_parameters spw_replicated_parameters_of(const spw_model *model);
/* Elements of indexers that a stage's layers lack because they use the choice of one before. */
double spw_stage_shared_indexers(const spw_model *model, const spw_stage *stage);
/* Embedding in the first stage, final norm and head in the last; a tied head is held by both, and a stage of multi-token
 * prediction has the embedding once more (NVIDIA/Megatron-LM d98e8a64 megatron/core/models/gpt/gpt_model.py). */
spw_held_parameters spw_stage_parameters(const spw_model *model, const spw_stage *stage);

/* The same with the adapters of the job. */
spw_held_parameters spw_job_parameters(const spw_job *job, const spw_stage *stage);

/* Those that have gradients, and those that an optimizer keeps moments of: of these, without a balancer's copies of experts. */
spw_held_parameters spw_trained_parameters(const spw_job *job, const spw_held_parameters *held);
spw_held_parameters spw_optimized_parameters(const spw_job *job, const spw_held_parameters *held);

/* Of a stage's, those that Adam keeps two moments of beside Muon: embedding, head, norms. Biases and norms inside of attention, less
 * than a thousandth, count with the matrices. NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/layer_wise_optimizer.py. */
spw_held_parameters spw_adam_parameters(const spw_model *model, const spw_stage *stage);

/* Elements on one GPU before anything is sharded: expert and tensor parallelism cut them. */
typedef struct spw_cut_parameters {
    double routed, rest;
} spw_cut_parameters;
spw_cut_parameters spw_cut_parameters_of(const spw_job *job, const spw_held_parameters *held);

typedef struct spw_optimizer_state {
    double weights, gradients, master, moments; /* bytes of one GPU */
    double updated;                        /* parameters of which a GPU has the state, or its host for it */
    double routed_replicas, rest_replicas; /* GPUs that hold, or share, one copy of the optimizer's part */
} spw_optimizer_state;
/* How often what is sharded is held in all: 1, the replicas of HSDP, or the instances of Megatron's distributed optimizer. */
size_t spw_state_copies(const spw_job *job);
/* Two moments of every parameter, as Adam has. */
spw_optimizer_state spw_optimizer_state_of(const spw_job *job, const spw_held_parameters *held);

#endif
