#include "sim/replay/balance.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"

#include <stdio.h>
#include <string.h>

static spw_balance_side side_of(const spw_result_row *row) {
    const spw_result_traffic *t = &row->traffic;
    return (spw_balance_side){.average = row->overload.run.mean[SPW_OVERLOAD_AVERAGE],
                              .max = row->overload.run.worst[SPW_OVERLOAD_MAX],
                              .rows_max = t->rows_max,
                              .dispatch_bytes = t->dispatch_bytes_per_gpu,
                              .dropped = row->drops.fraction,
                              .state_bytes = row->footprint.argument_bytes,
                              .peak_bytes = row->memory.max_bytes,
                              .step_s = row->timed ? row->time.step_s : 0.0,
                              .low_s = row->timed ? row->time.low_s : 0.0,
                              .high_s = row->timed ? row->time.high_s : 0.0};
}

static spw_status check(const spw_replay_request *q, const spw_balancer_spec *spec) {
    const spw_grid grid = spw_grid_of(q->job);
    if (q->stack != NULL || q->time_stack != NULL)
        return spw_fail(
            SPW_ECONFIG,
            "balancer '%s': programs that XLA compiles have no copies of experts; no --stack, or one of "
            "Megatron-Core, would be right",
            spec->text);
    if (q->splits > 1)
        return spw_fail(SPW_ECONFIG, "balancer '%s': one expert-parallel size at a time", spec->text);
    if (spw_grid_mesh_gpus(&grid) > 1)
        return spw_fail(
            SPW_ECONFIG,
            "balancer '%s': copies of experts are not modelled with MaxText's mesh axes tensor and context; "
            "sizes of 1 would be right",
            spec->text);
    if (spec->hierarchical && q->job->cluster.gpus_per_node % grid.expert_tensor != 0)
        return spw_fail(
            SPW_ECONFIG,
            "balancer '%s': expert_tensor %zu on nodes of %zu GPUs: an expert that lies on several nodes has "
            "no node to be placed on; an expert_tensor that divides them, or no hierarchical, would be right",
            spec->text, grid.expert_tensor, q->job->cluster.gpus_per_node);
    return SPW_OK;
}

/* What copies and moves cost, from what the placements were. A rank of the balancer is expert_tensor GPUs. */
static void cost(const spw_job *job, const spw_balancer_moves *moves, size_t layers, spw_result_balance *b) {
    const double expert =
                     (double)spw_model_parameters(&job->model).routed_per_layer / (double)job->model.experts,
                 stages = (double)spw_pipeline_of(job).stages, ranks = (double)job->expert,
                 sharers = (double)spw_grid_of(job).expert_tensor,
                 scale = (double)job->model.moe_layers / (double)layers / stages / ranks / sharers,
                 weights = expert * (double)job->precision.weights,
                 gradients = expert * (double)job->precision.gradients;
    b->expert_bytes = weights;
    b->copies = (double)moves->copy_steps / (double)moves->steps / (double)layers;
    b->step_bytes = (double)moves->copy_steps / (double)moves->steps * scale * (weights + gradients);
    if (moves->placements == 0) return;
    b->placement_bytes = (double)moves->moved / (double)moves->placements * scale * weights;
    b->placement_most_bytes = (double)moves->moved_most * scale * ranks * weights;
}

spw_status spw_balance_run(const spw_replay_request *request, const spw_balancer_spec *spec,
                           spw_result *result) {
    spw_replay_request one = *request;
    spw_result plain = {.rows = 0};
    spw_balancer_moves moves = {.placements = 0};
    spw_job *job = NULL;
    spw_status status = check(request, spec);
    if (status != SPW_OK) return status;
    SPW_TRY(SPW_ALLOC(1, &job));
    one.sink = (spw_replay_sink){.state = NULL};
    SPW_TRY(spw_replay_run(&one, &plain));
    *job = *request->job;
    job->model.experts += spec->replicas;
    job->model.replicas = spec->replicas;
    one = *request;
    one.job = job;
    one.balancer = spec;
    one.moves = &moves;
    one.newest = NULL;
    const size_t first = result->rows;
    SPW_TRY(spw_replay_run(&one, result));
    spw_result_balance *b = &result->balance;
    SPW_TRY(SPW_ALLOC(plain.rows, &b->row));
    b->rows = plain.rows;
    b->spec = *spec;
    b->slots = job->model.experts;
    b->ranks = job->expert;
    b->moves = moves;
    cost(job, &moves, plain.row[0].layers, b);
    for (size_t i = 0; i < plain.rows; i++) {
        b->row[i] = (spw_balance_row){.sequences = plain.row[i].sequences,
                                      .without = side_of(&plain.row[i]),
                                      .with = side_of(&result->row[first + i])};
        (void)snprintf(b->row[i].scheme, sizeof b->row[i].scheme, "%s", plain.row[i].scheme.text);
    }

cleanup:
    spw_result_clear(&plain);
    spw_free(job);
    return status;
}
