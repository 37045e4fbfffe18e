/* What a replay fills of a scheme's page pool (sim/memory/kept/page_pool.h), rank by rank in the order of the pipeline schedule. A
 * layer's tensors take pages when its forward pass is done, all of one tensor on the GPU, or where those do not suffice in
 * host memory; else the step overflows. They give them back before its backward pass. A layer whose backward pass follows at
 * once stays where it is. A step that overflows, or in which a rank has more rows than it may hold, runs once more without
 * limit and without the pool (NVIDIA/Megatron-LM megatron/core/transformer/moe/paged_stash.py). */
#ifndef SPW_SIM_REPLAY_PAGE_USE_H
#define SPW_SIM_REPLAY_PAGE_USE_H

#include "base/status.h"
#include "sim/memory/kept/page_pool.h"
#include "sim/weights/pipeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

/* Over the steps of a run. Bytes of the host are one way: they come back. */
typedef struct spw_page_run {
    bool there;
    size_t steps, overflow_steps, rerun_steps, spill_steps;
    uint64_t pool_bytes, host_bytes; /* of a GPU, on the stage that has most */
    double fullest;                  /* pages that a buffer needs, over those on the GPU, at most */
    int64_t fullest_step;            /* its id */
    double spilled_bytes;            /* of a GPU and step, in the mean */
    uint64_t spilled_most;
} spw_page_run;

typedef struct spw_page_pass { /* of one MoE layer */
    size_t layer, micro_batch;
    bool backward, stays;
} spw_page_pass;

typedef struct spw_page_use {
    spw_page_pool pool;
    spw_pipeline pipeline;
    size_t ranks, layers; /* ranks of one stage; layers of the replay */
    size_t trace_layers,
        job_layers; /* MoE layers of the job that have rows of the trace; with multi-token prediction */
    uint64_t predicted_rows; /* of layers of multi-token prediction, which have balanced routing's */
    spw_stage_pages *pages;  /* [stages] */
    spw_page_pass *pass;     /* [stages][passes], of a stage the first count[stage] */
    size_t passes, *count;
    uint64_t *rows; /* [ranks][job_layers][micro_batches] of the step under way */
    bool *on_host;  /* [tensors][job_layers][micro_batches] of the rank under way */
    spw_page_run run;
    double spilled;
} spw_page_use;

/* What the scheme has no pool for leaves run.there false, and the others do nothing. */
SPW_MUST_CHECK spw_status spw_page_use_create(const spw_point *point, size_t ranks, size_t layers,
                                              spw_page_use *out);
void spw_page_use_destroy(spw_page_use *use); /* a zeroed one is fine */
void spw_page_use_begin(spw_page_use *use);   /* a step */
/* Rows in use of one rank in one micro-batch of one replayed layer, wherever that stands in the job. */
void spw_page_use_note(spw_page_use *use, size_t layer, size_t micro_batch, size_t rank, uint64_t rows);
void spw_page_use_end(spw_page_use *use, bool dropped, int64_t step_id);
spw_page_run spw_page_use_run(const spw_page_use *use);

#endif
