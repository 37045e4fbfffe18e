/* How the GPUs of a job are split, twice, as Megatron-Core does it (NVIDIA/Megatron-LM d98e8a64,
 * megatron/core/parallel_state.py initialize_model_parallel, order tp-cp-ep-dp-pp):
 *   attention, embedding, head, shared experts   tensor x context x data x pipeline
 *   routed experts                               expert_tensor x expert x expert_data x pipeline
 * The first factor is the fastest in the number of a GPU. Both products are all GPUs. `fsdp` of a job is expert_data: the
 * replicas of the experts. A sequence belongs to tensor x context GPUs; context parallelism gives each of `context` of
 * them its part, and sequence parallelism cuts that part once more, so that outside of the sharded matrices a GPU has
 * S / (tensor x context) tokens of every sequence (docs/schemes.md, section 5.10). */
#ifndef SPW_SIM_JOB_GRID_H
#define SPW_SIM_JOB_GRID_H

#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct spw_grid {
    size_t tensor, context, data, pipeline;
    size_t expert_tensor, expert, expert_data;
    size_t mesh_tensor, mesh_context; /* the same as tensor and context on MaxText's mesh, else 1 */
    size_t sequence_tensor;           /* GPUs of a tensor group that cut the sequence among them */
    size_t expert_sharers;            /* that have parts of an expert and rows of their own */
} spw_grid;

/* What a job leaves out is worked out: expert_tensor is as large as tensor, which is Megatron's default, and data is what
 * tensor, context and pipeline leave of the GPUs. A factor of 0 counts as 1. */
spw_grid spw_grid_of(const spw_job *job);
/* No tensor, context or expert-tensor parallelism. */
bool spw_grid_is_plain(const spw_job *job);
/* MaxText's mesh with an axis `tensor` or `context` (AI-Hypercomputer/maxtext e591f30, configs/base.yml mesh_axes and
 * logical_axis_rules): a job whose whole state is sharded. `tensor` cuts hidden sizes, heads and columns of every matrix, the
 * routed experts' too, and its GPUs have the same tokens; `context` cuts sequences, and shards weights as more fsdp, whose
 * number here counts its GPUs. In the order context, tensor, expert, the last the fastest (docs/schemes.md, section 2.8). */
size_t spw_grid_mesh_gpus(const spw_grid *g); /* of both axes together: 1 of any other job */
/* The GPUs among which that mesh cuts hidden sizes: its tensor, and 1 of any other job. */
size_t spw_grid_mesh_tensor(const spw_job *job);
/* Does a tensor group have more GPUs than the model has key and value heads, several of them to a head? Each then gathers what
 * the group's query, key and value product made, and takes its heads out of it (NVIDIA/Megatron-LM d98e8a64,
 * megatron/core/transformer/attention.py get_query_key_value_tensors; docs/schemes.md, section 5.10). */
bool spw_grid_shares_heads(const spw_job *job);
/* A kind of layers whose split is not described, where tensor or context cuts them; NULL: none. */
const char *spw_grid_unread_mixer(const spw_job *job);
/* Tokens of one sequence that one GPU has between the sharded matrices, where its router is. */
size_t spw_grid_sequence_tokens(const spw_job *job);
/* GPUs of one pipeline stage. */
size_t spw_grid_stage_gpus(const spw_job *job);
/* GPUs of the job that have tokens of their own: all but those of a mesh's tensor group behind its first. */
size_t spw_grid_token_ranks(const spw_job *job);

enum { SPW_GRID_ASSUMED_TEXT = 256 };
/* What is assumed where the job says nothing of expert_tensor beside tensor; false, and "", where nothing is. */
bool spw_grid_assumed(const spw_job *job, char out[SPW_GRID_ASSUMED_TEXT]);

/* SPW_ECONFIG for a grid that cannot be, or that the model's shapes do not divide by; `key` is where the job is to be
 * changed. The product of all is the GPUs already. */
SPW_MUST_CHECK spw_status spw_grid_check(const spw_job *job, const char **key);

/* " x expert_tensor 1; tensor 2 x context 4 x data 8", or nothing where the grid is plain. */
void spw_grid_print(const spw_job *job, FILE *out);
/* Who has the sequences of a batch: "a GPU", or "a data-parallel rank". */
const char *spw_grid_tokens_of(const spw_job *job);

#endif
