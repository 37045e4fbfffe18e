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

void spw_replay_stage_job(const spw_job *job, size_t ranks, spw_job *out) {
    *out = *job;
    out->pipeline = 1;
    if (ranks == spw_grid_token_ranks(out)) return;
    const spw_grid g = spw_grid_of(out);
    out->fsdp = ranks / (g.expert * g.expert_tensor);
    if (out->data > 0) out->data = ranks / (g.tensor * g.context);
}
