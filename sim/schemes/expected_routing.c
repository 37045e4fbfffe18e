#include "sim/schemes/expected_routing.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/routing/segment_counts.h"
#include "sim/schemes/point.h"
#include "traces/generate/expected_drops.h"
#include "traces/generate/made_trace.h"

#include <math.h>
#include <stdint.h>

/* What a scheme drops of so many tokens: every expert what it has over its capacity. */
typedef struct drop_unit {
    size_t tokens, capacity;
    double each; /* of one source; less than 1 where several share a sequence */
} drop_unit;

static bool drop_unit_of(const spw_point *point, drop_unit *out) {
    const spw_scheme_routing *routing = &point->scheme->type->routing;
    const spw_layer_shape *s = &point->shape;
    if (routing->limit_per_sequence) {
        *out = (drop_unit){.tokens = spw_whole_sequence(s),
                           .capacity = spw_scheme_capacity(point->scheme, s),
                           .each = (double)s->sequences / (double)spw_layer_context(s)};
        return true;
    }
    if (routing->keep == NULL || routing->expert_capacity == NULL || routing->limits) return false;
    *out =
        (drop_unit){.tokens = s->tokens, .capacity = routing->expert_capacity(point->scheme, s), .each = 1.0};
    return out->capacity != SIZE_MAX;
}

/* Sums over the layers. */
typedef struct sums {
    double variance, fullest, ranks, nodes;
    spw_moments dropped;
} sums;

/* Of one level: what a token reaches of the blocks beside the one that it comes from, which may be any. */
static spw_status add_reach(const spw_count_tree *t, size_t block, double *sum) {
    const size_t blocks = t->experts / block;
    spw_moments reach = {1.0, 0.0};
    if (block == t->experts) return SPW_OK;
    const spw_status status = spw_expected_reach(t, block, &reach);
    *sum += reach.mean * (double)(blocks - 1) / (double)blocks;
    return status;
}

static spw_status add_layer(const spw_count_tree *t, const spw_point *point, const drop_unit *unit,
                            size_t node_block, sums *sum) {
    const spw_layer_shape *s = &point->shape;
    const size_t block = s->experts_per_rank, blocks = s->experts / block;
    const double tokens = (double)s->ranks * (double)s->tokens,
                 most = tokens * (double)(block < s->top_k ? block : s->top_k); /* of a rank */
    spw_block_law *law = NULL;
    spw_moments dropped = {0.0, 0.0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(blocks, &law));
    SPW_TRY(spw_expected_blocks(t, block, law));
    for (size_t b = 0; b < blocks; b++)
        sum->variance += spw_expected_rows(&law[b], tokens).variance / (double)blocks;
    sum->fullest += fmin(most, spw_expected_fullest(law, blocks, tokens));
    SPW_TRY(add_reach(t, block, &sum->ranks));
    if (node_block > 0) SPW_TRY(add_reach(t, node_block, &sum->nodes));
    if (unit != NULL) SPW_TRY(spw_expected_drops(t, unit->tokens, unit->capacity, &dropped));
    sum->dropped.mean += dropped.mean;
    sum->dropped.variance += dropped.variance;

cleanup:
    spw_free(law);
    return status;
}

/* Experts of a node; 0: groups straddle nodes. */
static size_t node_block_of(const spw_point *point) {
    const spw_layer_shape *s = &point->shape;
    const spw_placement placement = {s->ranks, s->ranks, point->job->cluster.gpus_per_node, s->experts,
                                     s->expert_tensor};
    spw_expert_blocks blocks;
    return spw_segment_counts_law(&placement, &blocks) ? blocks.node : 0;
}

spw_status spw_expected_routing_of(const spw_expected_request *q, spw_expected_routing *out) {
    const spw_layer_shape *s = &q->point->shape;
    const double layers = (double)q->layers;
    const size_t node_block = node_block_of(q->point);
    drop_unit unit = {.tokens = 0};
    sums sum = {.variance = 0.0};
    const bool drops = drop_unit_of(q->point, &unit);
    *out = (spw_expected_routing){.there = false};
    for (size_t l = 0; l < q->layers; l++) {
        const spw_count_tree *tree = NULL;
        spw_status status = spw_trace_read_tree(q->trace, q->step, q->layer_begin + l, &tree);
        if (status == SPW_OK && tree != NULL)
            status = add_layer(tree, q->point, drops ? &unit : NULL, node_block, &sum);
        if (status != SPW_OK || tree == NULL) return status;
    }
    const double choices = (double)unit.tokens * (double)s->top_k,
                 units = (double)q->sources * unit.each * (double)q->point->job->model.moe_layers;
    *out = (spw_expected_routing){.there = true,
                                  .rows_mean = (double)s->ranks * (double)s->assignments *
                                               (double)s->experts_per_rank / (double)s->experts,
                                  .rows_deviation = sqrt(sum.variance / layers),
                                  .rows_fullest = sum.fullest / layers,
                                  .other_ranks = sum.ranks / layers,
                                  .other_nodes = node_block > 0 ? sum.nodes / layers : NAN,
                                  .drop_fraction = drops ? sum.dropped.mean / layers / choices : NAN,
                                  .drop_deviation =
                                      drops ? sqrt(sum.dropped.variance / layers / units) / choices : NAN};
    return SPW_OK;
}
