/* Pipeline schedules: which micro-batches a stage works on, in which order, and what that keeps alive.
 * One forward, one backward (1F1B, Narayanan et al., PipeDream 2019; Megatron-LM 2021, section 2.2) and its
 * interleaved form, where a stage holds several blocks of layers (chunks): NVIDIA/Megatron-LM
 * megatron/core/pipeline_parallel/schedules.py get_pp_rank_microbatches, get_schedule_table. One stage and one
 * chunk is gradient accumulation: the micro-batches follow one another. GPipe (Huang et al. 2019): torch 2.15
 * torch/distributed/pipelining/schedules.py ScheduleGPipe. */
#ifndef SPW_SIM_WEIGHTS_PIPELINE_H
#define SPW_SIM_WEIGHTS_PIPELINE_H

#include "sim/job/job_words.h"
#include "sim/job/stage_layout.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_block spw_block; /* sim/weights/stage.h */
typedef struct spw_stage spw_stage;

typedef struct spw_pipeline {
    size_t stages; /* P */
    size_t chunks; /* v, blocks of layers of one stage; 1: 1F1B; more: interleaved, P (or a turn) divides M */
    size_t micro_batches;           /* M, of one step */
    const spw_stage_layout *layout; /* the job's, borrowed; NULL: layers are shared out evenly */
    size_t predictions; /* layers of multi-token prediction behind the last block where no text has them */
    bool all_forward;   /* GPipe: all forward passes of a step before the first backward one */
    /* overlap_moe_expert_parallel_comm: one forward pass more comes first, and then each forward pass runs beside a backward one, layer
     * by layer: NVIDIA/Megatron-LM d98e8a64 megatron/core/pipeline_parallel/schedules.py get_pp_rank_microbatches, combined_1f1b.py */
    bool pairs;
    /* Micro-batches that go through a chunk before the next has its turn; 0: P, as Megatron-Core's. PyTorch has rounds = max(1, M / P), which
     * divide M, and M / rounds a turn: torch 2.15 torch/distributed/pipelining/schedules.py ScheduleInterleaved1F1B */
    size_t turn;
} spw_pipeline;
spw_pipeline spw_pipeline_of(const spw_job *job);

/* Tokens of one micro-batch of a GPU that has `sequences` in a step. */
size_t spw_micro_batch_tokens(const spw_job *job, size_t sequences);

/* One forward or backward pass of one micro-batch through one chunk. */
typedef struct spw_pass {
    bool backward;
    size_t micro_batch, chunk;
} spw_pass;
size_t spw_pipeline_passes(const spw_pipeline *pipeline); /* of one stage in one step: 2 M v */
/* The i-th pass of a stage. */
spw_pass spw_pipeline_pass(const spw_pipeline *pipeline, size_t stage, size_t i);

/* Forward passes before forward and backward ones take turns: at most P - 1 - s in 1F1B; one more with pairs. */
size_t spw_pipeline_warm_up(const spw_pipeline *pipeline, size_t stage);

/* Passes of the time in which forward and backward ones take turns: behind the warm-up, from the second `period` of them on, a stage
 * is where it was `period` passes before. kinds: micro-batches are as those so many before. More than there are: never. */
size_t spw_pipeline_period(const spw_pipeline *pipeline, size_t kinds);

/* Does pass i, a forward one, run beside pass i + 1, a backward one? */
bool spw_pipeline_is_pair(const spw_pipeline *pipeline, size_t stage, size_t i);

/* Forward passes whose backward pass is still to come, at most: min(M, P - s) in 1F1B,
 * min(M v, 2 (P - 1 - s) + (v - 1) P + 1) interleaved. */
size_t spw_pipeline_in_flight(const spw_pipeline *pipeline, size_t stage);

/* The greatest sum of what the passes in flight keep. kept [micro_batches][chunks]: micro-batches may differ,
 * as their routing does. Saturates at UINT64_MAX. */
uint64_t spw_pipeline_peak(const spw_pipeline *pipeline, size_t stage, const uint64_t *kept);

/* The layers of a chunk: P v blocks in order, block c P + s to chunk c of stage s, as many in each as the job's layout says;
 * without one they are shared out evenly, and where P v does not divide the layers the first blocks have one more. The
 * embedding is in the first block, final norm and head in the last. */
spw_block spw_pipeline_block(const spw_pipeline *pipeline, const spw_model *model, size_t stage,
                             size_t chunk);

/* Where each MoE layer of the model is: stage and chunk [layers], `layers` at least the model's. Layers beyond those begin anew. */
void spw_pipeline_place_layers(const spw_pipeline *pipeline, const spw_model *model, size_t layers,
                               size_t *stage, size_t *chunk);

/* What a stage holds, and what its passes in flight keep at most, counted in layers, those of multi-token prediction
 * included; the MoE layers among them are those of that moment. */
spw_stage spw_pipeline_stage(const spw_pipeline *pipeline, const spw_model *model, size_t stage);

#endif
