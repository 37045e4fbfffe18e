#include "sim/replay/replay_ranks.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/job_check.h"
#include "sim/machine/cluster_levels.h"
#include "traces/generate/made_trace.h"

enum { ENOUGH_RANKS = 2048 };

static size_t least_multiple(size_t a, size_t b) { return a / spw_largest_common_divisor(a, b, a) * b; }

/* Ranks after which groups of all splits lie on nodes, and sequences on groups, as from the first on. */
static size_t unit_of(const spw_replay_request *q) {
    const spw_grid grid = spw_grid_of(q->job);
    size_t unit = least_multiple(q->job->cluster.gpus_per_node, grid.tensor * grid.context);
    for (size_t i = 0; i < (q->splits > 0 ? q->splits : 1); i++) {
        const spw_grid g = spw_grid_of(&q->job[i]);
        unit = least_multiple(unit, g.expert * g.expert_tensor);
    }
    return unit;
}

size_t spw_replay_ranks(const spw_replay_request *q) {
    const spw_grid grid = spw_grid_of(q->job);
    const size_t ranks = spw_grid_token_ranks(q->job) / spw_pipeline_of(q->job).stages;
    const bool heard = q->sink.state != NULL || q->sink.elsewhere || q->overload || q->balancer != NULL;
    if (ranks <= ENOUGH_RANKS || heard || spw_trace_made_tokens(q->trace) == 0 ||
        spw_grid_mesh_gpus(&grid) > 1 || spw_levels_are_several(&q->job->cluster))
        return ranks;
    const size_t unit = unit_of(q), fewer = (ENOUGH_RANKS + unit - 1) / unit * unit;
    return fewer < ranks && fewer > spw_trace_get_info(q->trace)->ranks ? fewer : ranks;
}

/* As many as have all sequences that were made, and a spread among them. */
size_t spw_replay_micro_batch_kinds(const spw_replay_request *q) {
    enum { FEWEST = 8 };
    const spw_pipeline pipeline = spw_pipeline_of(q->job);
    const size_t made = spw_trace_made_tokens(q->trace), all = pipeline.micro_batches,
                 length = spw_grid_sequence_tokens(q->job);
    size_t sequences = SIZE_MAX;
    if (made == 0 || all <= FEWEST || q->balancer != NULL) return all;
    for (size_t b = 0; b < q->job->batches; b++)
        if (q->job->sequences_per_gpu[b] < sequences) sequences = q->job->sequences_per_gpu[b];
    const size_t there = made / length * spw_trace_get_info(q->trace)->ranks,
                 each = spw_replay_ranks(q) * (sequences / all);
    if (each == 0) return all;
    const size_t kinds = (there + each - 1) / each;
    return kinds < FEWEST ? FEWEST : kinds < all ? kinds : all;
}

void spw_replay_stage_job(const spw_job *job, size_t ranks, spw_job *out) {
    *out = *job;
    out->pipeline = 1;
    if (ranks == spw_grid_token_ranks(out)) return;
    const spw_grid g = spw_grid_of(out);
    out->fsdp = ranks / (g.expert * g.expert_tensor);
    if (out->data > 0) out->data = ranks / (g.tensor * g.context);
}
