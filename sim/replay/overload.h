/* Overload factors: how uneven the rows of expert-parallel ranks are, by step, layer and run. Rows R(l, m, r) are those that
 * rank r holds for its experts in MoE layer l and micro-batch m; G ranks form a group g, and B(l, m, g) is the mean of R
 * over its ranks. The factor of one layer, micro-batch and group is
 *
 *     F(l, m, g) = max over r in g of R(l, m, r) / B(l, m, g).
 *
 * Of a step, each at least 1:
 *     max               max over l, m, g of F
 *     average           mean over l, m, g of F
 *     cumulative        max over ranks of (the most rows that forward passes have left for backward passes to come) over the
 *                       same of B, in the order of the pipeline schedule: what sizes saved activations
 *     slowest_by_layer  max over g of (sum over l, m of max over r of R) / (sum over l, m of B): every layer waits for its own
 *                       slowest rank, as exchanges make it
 *     slowest_rank      max over r of (sum over l, m of R) / (sum over l, m of B): what would be waited for if ranks met at
 *                       the end of a step only; slowest_by_layer over it is the price of meeting in every layer
 * The first three are what Megatron-LM logs with log_moe_overload_factor as moe/max_overload_factor, avg_overload_factor
 * and max_cum_overload_factor (branch dev, commit d48bd6b, megatron/core/transformer/moe/moe_logging.py
 * MoEOverloadFactorTracker), except that there B counts assignments before drops; both are alike where nothing is dropped.
 * With one micro-batch and one stage cumulative equals slowest_rank. A layer, micro-batch and group without rows counts for nothing.
 * Layers are those of the job: a layer of the trace counts as often as it stands for one. */
#ifndef SPW_SIM_REPLAY_OVERLOAD_H
#define SPW_SIM_REPLAY_OVERLOAD_H

#include "base/status.h"
#include "base/walk.h"
#include "sim/weights/pipeline.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SPW_OVERLOAD_MAX,
    SPW_OVERLOAD_AVERAGE,
    SPW_OVERLOAD_CUMULATIVE,
    SPW_OVERLOAD_BY_LAYER,
    SPW_OVERLOAD_RANK,
    SPW_OVERLOADS
};
const char *spw_overload_name(int factor); /* max, average, cumulative, slowest_by_layer, slowest_rank */
const char *spw_overload_meaning(int factor);

/* F of one layer. */
typedef struct spw_layer_overload {
    double average, max; /* over what was added; 0: no rows */
} spw_layer_overload;

typedef struct spw_overload_shape {
    size_t ranks, group_ranks; /* of one pipeline stage */
    size_t layers;             /* that rows are given of */
    const spw_model *model;    /* its MoE layers, which those stand for in turn; NULL: for themselves */
    spw_pipeline pipeline;
} spw_overload_shape;

/* Sums under way. */
typedef struct spw_overload_sum {
    double average, max;
    uint64_t count;
} spw_overload_sum;

typedef struct spw_overload {
    spw_overload_shape shape;
    size_t job_layers, *stage, *chunk;         /* [max(layers, job_layers)] */
    double *waited, *mean;                     /* [groups] of the step: sums of the max and of B */
    double *run_mean;                          /* [groups] */
    uint64_t *by_rank, *run_by_rank;           /* [ranks] */
    uint64_t *kept, *kept_all;                 /* [stages][ranks or groups][micro_batches][chunks] */
    spw_overload_sum step, *layer, *run_layer; /* layer [layers]: of the step; run_layer: of the run */
} spw_overload;

/* The model is borrowed. */
SPW_MUST_CHECK spw_status spw_overload_create(const spw_overload_shape *shape, spw_overload *out);
void spw_overload_destroy(spw_overload *overload); /* a zeroed one is fine */

void spw_overload_begin(spw_overload *overload); /* a step */
/* rows [group_ranks] of the group whose first rank is `first`. */
void spw_overload_add(spw_overload *overload, size_t layer, size_t micro_batch, size_t first,
                      const uint64_t *rows);
/* All that ended steps have left. */
SPW_MUST_CHECK spw_status spw_overload_state(const spw_overload *overload, const spw_state *state);
/* The step is done: its factors; 0 each where it has no rows. */
void spw_overload_end(spw_overload *overload, double factor[SPW_OVERLOADS]);
/* Of one layer in the step that ended last, and in all steps. */
spw_layer_overload spw_overload_step_layer(const spw_overload *overload, size_t layer);
spw_layer_overload spw_overload_run_layer(const spw_overload *overload, size_t layer);
/* slowest_rank of all steps together: above 1 where the same rank is busy in step after step. */
double spw_overload_run_rank(const spw_overload *overload);

/* Factors over the steps of a run. */
typedef struct spw_overload_run {
    size_t steps; /* that had rows */
    double mean[SPW_OVERLOADS], worst[SPW_OVERLOADS];
    int64_t worst_step[SPW_OVERLOADS]; /* id */
} spw_overload_run;
/* Adds one step; mean holds the sum until spw_overload_run_finish(). */
void spw_overload_run_add(spw_overload_run *run, const double factor[SPW_OVERLOADS], int64_t step_id);
void spw_overload_run_finish(spw_overload_run *run);

#endif
