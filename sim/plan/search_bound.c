#include "sim/plan/search_bound.h"

#include "sim/job/recipe/remat.h"
#include "sim/memory/allocator/allocator_share.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/live/footprint.h"
#include "sim/replay/replay_row.h"
#include "sim/replay/replay_time.h"
#include "sim/time/time_bound.h"

#include <math.h>

/* Are all choices computed? */
static bool drops_nothing(const spw_scheme *scheme) {
    const double factor = spw_scheme_factor(scheme);
    return scheme->type->routing.keep == NULL && (isnan(factor) || !(fabs(factor) > 0.0));
}

static void note(const spw_footprint *f, spw_search_point_facts *out) {
    out->budget_bytes = f->budget_bytes;
    if (f->argument_bytes > out->state_bytes) out->state_bytes = f->argument_bytes;
    if (f->peak_bytes > out->bound.least_bytes) out->bound.least_bytes = f->peak_bytes;
}

/* Can what it takes at most lie within the budget (spw_result_row_judge())? Of the stage that needs most, which is not known here, the
 * state is at most the largest and the live bytes are at least the largest bound. */
static bool may_surely_fit(const spw_search_facts *facts, const spw_point *p,
                           const spw_search_point_facts *f) {
    const double share = spw_allocator_share(&p->job->allocator), state = (double)f->state_bytes,
                 more = fmax((double)f->bound.least_bytes - state, 0.0);
    if (spw_scheme_needs_stack(p->scheme->type)) return facts->plan->newest != NULL;
    if (spw_replay_row_replays(facts->plan->allocator, p)) return f->bound.least_bytes <= f->budget_bytes;
    return isfinite(share) && state + more * share <= (double)f->budget_bytes;
}

/* Are weights and optimizer of some stage over the budget? Then they are all that `out` says of the memory. */
static spw_status judge_state(const spw_point *p, spw_search_point_facts *out) {
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    spw_search_point_facts facts = *out;
    for (size_t s = 0; s < pipeline.stages; s++) {
        spw_footprint state;
        const spw_status status = spw_footprint_state_of_stage(p, s, &state);
        if (status != SPW_OK) return status;
        note(&state, &facts);
    }
    if (facts.state_bytes <= facts.budget_bytes) return SPW_OK;
    *out = facts;
    out->state_alone = true;
    return SPW_OK;
}

/* Live memory of every stage, of the rows that some rank must have. */
static spw_status bound_live(const spw_search_facts *facts, const spw_point *p, bool complete,
                             spw_search_point_facts *out) {
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    const bool whole = facts->generated && drops_nothing(p->scheme);
    spw_layer layer;
    spw_status status = complete ? SPW_OK : judge_state(p, out);
    out->bound.kind = SPW_MEMORY_LIVE;
    if (status != SPW_OK || out->state_alone) return status;
    status = spw_layer_build(p->scheme, &p->shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    const spw_rank_rows mean = {.held = whole ? p->shape.assignments : 0};
    const bool routed = spw_layer_is_dynamic(&layer);
    const spw_live_set live = spw_layer_live_set(&layer, &mean);
    spw_layer_destroy(&layer);
    for (size_t s = 0; s < pipeline.stages && status == SPW_OK; s++) {
        const spw_stage stage = spw_pipeline_stage(&pipeline, &p->job->model, s);
        const spw_routed_memory in_one = {.rows = mean},
                                kept = {
                                    .saved = {stage.kept_moe_layers * live.saved_bytes, live.saved_bytes}};
        spw_footprint footprint;
        status = spw_footprint_of_stage(p, s, routed ? &in_one : NULL, &footprint);
        if (status == SPW_OK) note(&footprint, out);
        if (status != SPW_OK || !routed || !spw_remat_keeps_experts(p->job->remat)) continue;
        status = spw_footprint_of_stage(p, s, &kept, &footprint);
        if (status == SPW_OK) note(&footprint, out);
    }
    out->bound.may_surely_fit = may_surely_fit(facts, p, out);
    return status;
}

static spw_status bound_memory(const spw_search_facts *facts, const spw_point *p, bool complete,
                               spw_search_point_facts *out) {
    char outside[SPW_OUTSIDE_TEXT];
    spw_footprint footprint;
    if (facts->plan->stack == NULL || !spw_compiled_footprint_covers(p->job, p->scheme))
        return bound_live(facts, p, complete, out);
    const spw_status status = spw_compiled_footprint_compute(facts->plan->stack, p->job, p->scheme,
                                                             p->sequences, &footprint, outside);
    if (status != SPW_OK) return status;
    out->bound.kind = SPW_MEMORY_ARENA;
    out->bound.may_surely_fit = footprint.high_bytes <= footprint.budget_bytes;
    note(&footprint, out);
    return SPW_OK;
}

spw_status spw_search_bound_of(const spw_search_facts *facts, const spw_point *p, bool complete,
                               spw_search_point_facts *out) {
    const spw_plan_request *q = facts->plan;
    const spw_replay_time_request time = {
        .stack = q->time_stack, .megatron = q->megatron, .listed = q->listed, .point = *p};
    const spw_replay_request request = spw_plan_point_request(q, p->job, p->scheme);
    *out = (spw_search_point_facts){.bound = {.gpus = spw_job_gpus(p->job),
                                              .step_tokens = spw_point_step_tokens(p),
                                              .turn_sequences = spw_search_turn_sequences(
                                                  p->sequences, p->job->micro_batches, p->job->pipeline),
                                              .tokens_per_s_most = INFINITY}};
    spw_status status = spw_replay_point_check(&request, p);
    if (status == SPW_OK) status = bound_memory(facts, p, complete, out);
    if (status != SPW_OK) return status;
    out->timed = spw_replay_time_covers(&time);
    if (!out->timed || out->bound.least_bytes > out->budget_bytes) return SPW_OK;
    out->bound.tokens_per_s_most = spw_tokens_per_s_most(p, q->time_stack, facts->megatron,
                                                         facts->generated && drops_nothing(p->scheme));
    return SPW_OK;
}
