#include "sim/time/megatron/megatron_host.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/kept/launches.h"
#include "sim/schemes/list.h"
#include "sim/weights/block.h"

#include <math.h>

/* Does the host wait for the rows that an all-to-all brings? */
static bool reads_counts(const spw_scheme *scheme) {
    return scheme->type->megatron.dispatcher == SPW_MEGATRON_ALL_TO_ALL && !scheme->type->megatron.unread &&
           !spw_scheme_fills_slots(scheme);
}

spw_megatron_host spw_megatron_host_of(const spw_megatron_coefficients *c, const spw_point *point) {
    const spw_job *job = point->job;
    const double passes = spw_remat_runs_again(job->remat, 0) ? 4.0 : 3.0;
    double share = passes / 3.0;
    if (spw_launches_are_one_graph(job, point->scheme))
        return (spw_megatron_host){.forward_share = 1.0 / passes, .floor_forward_share = 1.0 / passes};
    if (job->cuda_graph != SPW_GRAPH_NONE) share *= c->partial_graph_share.value;
    const double of_layer = job->model.half_layers ? 0.5 : 1.0;
    const bool recipe = job->precision.recipe != SPW_FP8_NONE;
    const double floor_share = share, experts = (double)point->shape.experts_per_rank,
                 floor_s =
                     share * of_layer * (c->host_floor_s.value + (recipe ? c->recipe_floor_s.value : 0.0)),
                 in_a_row_s = job->muon ? c->sequential_floor_s.value : 0.0;
    if (spw_grid_of(job).tensor > 1) share *= c->tensor_gap_share.value;
    const double recipe_s = recipe ? c->recipe_gap_s.value : 0.0;
    return (spw_megatron_host){.layer_s = share * of_layer * (c->layer_gap_s.value + recipe_s),
                               .moe_layer_s = share * experts * c->expert_gap_s.value,
                               .counts_s = reads_counts(point->scheme) ? share * c->counts_gap_s.value : 0.0,
                               .floor_s = floor_s,
                               .moe_floor_s = floor_share * experts * (c->expert_floor_s.value + in_a_row_s),
                               .unlike_s = floor_share * c->unlike_floor_s.value,
                               .forward_share = 1.0 / passes,
                               .floor_forward_share = 3.0 * c->floor_forward_share.value / passes};
}

double spw_megatron_gaps_s(const spw_megatron_host *host, const spw_block *block) {
    return (double)(block->layers + block->predictions) * host->layer_s +
           (double)(block->moe_layers + block->predictions) * host->moe_layer_s;
}

double spw_megatron_floor_s(const spw_megatron_host *host, const spw_block *block) {
    return (double)(block->layers + block->predictions) * host->floor_s +
           (double)(block->moe_layers + block->predictions) * host->moe_floor_s;
}

double spw_megatron_pass_s(const spw_megatron_host *host, const spw_block *block, bool back,
                           const spw_megatron_pass *pass) {
    const double share = back ? 1.0 - host->forward_share : host->forward_share;
    const double floor_share = back ? 1.0 - host->floor_forward_share : host->floor_forward_share;
    const double counts =
        fmax((double)(block->moe_layers + block->predictions) * host->counts_s * share - pass->wire_s, 0.0);
    return fmax(pass->seconds + spw_megatron_gaps_s(host, block) * share + counts,
                (spw_megatron_floor_s(host, block) + pass->unlike * host->unlike_s) * floor_share);
}
