/* The memory of one row of a replay, pipeline stage by stage, where it follows the routing. Where layers are freed one by one
 * (spw_footprint_frees) the rows of every layer and micro-batch of the step under way are remembered, and all passes of every stage
 * are walked through when it ends: that is exact. Where a program keeps a stack, a rank needs, in every stage, the
 * layer where it holds most in any micro-batch, plus the greatest sum of what the micro-batches in flight keep. With one
 * micro-batch in one block that sum is what all layers keep; else the two need not fall together, and it is an upper bound. */
#ifndef SPW_SIM_REPLAY_STAGE_MEMORY_H
#define SPW_SIM_REPLAY_STAGE_MEMORY_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/live_law.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/weights/pipeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one rank holds in one stage in the step under way. */
typedef struct spw_stage_held {
    spw_live_set live; /* of the layer and micro-batch where it holds most */
    spw_rank_rows rows;
    size_t layer;  /* of the replay; SIZE_MAX: none yet */
    uint64_t last; /* saved by the stage's last MoE layer, in the micro-batch where that is least */
    uint64_t
        stays; /* of that layer, what offloading takes elsewhere, in the micro-batch where that is most */
} spw_stage_held;

typedef struct spw_stage_memory {
    spw_point point;
    spw_layer *layer;  /* [stages] of a micro-batch; [1] where all stages have the same */
    spw_live_law *law; /* of each of these, where layers are freed one by one; else NULL */
    spw_pipeline pipeline;
    size_t ranks, layers;     /* ranks of one stage; replayed layers */
    size_t kinds;             /* of micro-batches: those behind the first `kinds` are as these in turn */
    bool routed;              /* it follows the routing; else every step needs the footprint */
    spw_footprint *footprint; /* [stages] with balanced routing */
    uint64_t *step_peak;      /* [steps] of the rank and stage that hold most */
    uint64_t *stage_peak;     /* [stages] of the rank and step that hold most there */
    uint64_t *place_peak;     /* [stages][ranks] in the step that ended last; NULL where nothing is routed */
    size_t *stage, *chunk;    /* [the job's MoE layers, or the replayed ones if more] */
    spw_stage_held *held;     /* [stages][ranks] */
    spw_rank_rows *rows;      /* [ranks][layers] of the micro-batch with most, in the step under way */
    uint64_t *kept; /* [stages][ranks][micro-batches][chunks] bytes; NULL: layers are freed one by one */
    bool frees;     /* they are; then */
    spw_stage_walk **walk;   /* [stages] */
    spw_layer_use *use;      /* [stages, or 1][ranks][layers][kinds] */
    spw_rank_rows *all_rows; /* [ranks][layers][kinds] */
    /* At the greatest peak: positions in the replay. Before it only the stage says something. */
    size_t worst_stage, worst_step, worst_layer, worst_rank;
    uint64_t worst_bytes;
    spw_routed_memory worst;
    spw_rank_rows *worst_rows; /* [layers] of that rank in that step; NULL where nothing is routed */
} spw_stage_memory;

/* Footprints with balanced routing. What the point names is borrowed. kinds: of micro-batches, at least 1. follows: memory that follows
 * the routing is asked for; else all is as with balanced routing. */
SPW_MUST_CHECK spw_status spw_stage_memory_create(const spw_point *point, size_t ranks, size_t layers,
                                                  size_t steps, size_t kinds, bool follows,
                                                  spw_stage_memory *out);
void spw_stage_memory_destroy(spw_stage_memory *memory); /* a zeroed one is fine */

void spw_stage_memory_begin(spw_stage_memory *memory); /* a step */
/* The rows of one rank in one micro-batch of one replayed layer, wherever that stands in the job; where layers are freed one by one,
 * micro-batches behind the first `kinds` say nothing new. A layer that stands for
 * none is looked at all the same, and keeps nothing. */
void spw_stage_memory_note(spw_stage_memory *memory, size_t layer, size_t micro_batch, size_t rank,
                           spw_rank_rows rows);
void spw_stage_memory_end(spw_stage_memory *memory, size_t step);

/* That of the stage that needs most, with the rows of its worst rank. */
SPW_MUST_CHECK spw_status spw_stage_memory_footprint(const spw_stage_memory *memory, spw_footprint *out);

#endif
