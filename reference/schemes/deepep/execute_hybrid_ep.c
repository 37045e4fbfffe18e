/* HybridEP under Megatron-Core's flex dispatcher, executed (docs/schemes.md, section 4.8). */
#include "reference/schemes/deepep/fused_experts.h"
#include "reference/schemes/deepep/hybrid_rows.h"
#include "reference/schemes/execute_list.h"

typedef struct hybrid_ep {
    spw_fused_experts experts;
    spw_hybrid_rows rows;
    spw_spread row_weight;
} hybrid_ep;

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    SPW_TRY(spw_hybrid_preprocess(run, &g->rows));
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.x, "x", run->shape.hidden, 0));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->row_weight, "row_weight", 1, 4));
    SPW_TRY(spw_hybrid_move(run, &g->rows, &g->row_weight, spw_rank_x, &g->experts.x));
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_hybrid_return(run, &g->rows, NULL, &g->experts.y, run->out.y));
    spw_dies(run, &g->experts.y);
    if (run->pass == SPW_PASS_FORWARD) spw_hybrid_maps_die(run, &g->rows);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_fused_born(run, &g->experts, &g->experts.dy, "dy", run->shape.hidden, 0));
    SPW_TRY(spw_hybrid_move(run, &g->rows, NULL, spw_rank_dy, &g->experts.dy));
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    hybrid_ep *g = state;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_hybrid_return(run, &g->rows, &g->experts.d_weight, &g->experts.dx, run->out.dx));
    spw_dies(run, &g->experts.dx), spw_dies(run, &g->experts.d_weight);
    spw_hybrid_maps_die(run, &g->rows);
cleanup:
    return status;
}

static const spw_scheme_passes layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_hybrid_ep(spw_execution *run) {
    const double budget = spw_execution_number(&run->shape, "budget", 0.0);
    hybrid_ep *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(spw_hybrid_create(run, (size_t)spw_execution_number(&run->shape, "pad", 1.0), budget > 0.0,
                              (size_t)((double)run->assignments * budget), &g->rows));
    SPW_TRY(spw_fused_create(run, g->rows.held, &g->experts));
    g->experts.begin = g->rows.begin, g->experts.count = g->rows.count;
    g->experts.weight = &g->row_weight;
    status = spw_run_passes(run, &layer, g, &spw_fused_passes, &g->experts);
cleanup:
    return status;
}
