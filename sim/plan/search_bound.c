#include "sim/plan/search_bound.h"

#include "base/memory.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/allocator/allocator_share.h"
#include "sim/memory/allocator/device_budget.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/live/footprint.h"
#include "sim/replay/replay_row.h"
#include "sim/replay/replay_time.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/time/time_bound.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static void note(const spw_footprint *f, spw_search_point_facts *out) {
    out->budget_bytes = f->budget_bytes;
    if (f->argument_bytes > out->state_bytes) out->state_bytes = f->argument_bytes;
    if (f->peak_bytes > out->bound.least_bytes) out->bound.least_bytes = f->peak_bytes;
}

/* Over the budget, and no more is to be known of it. */
static bool is_enough(const spw_search_point_facts *f, const spw_search_asked *asked) {
    return f->bound.least_bytes > f->budget_bytes && f->bound.least_bytes >= asked->enough;
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

/* Weights and optimizer of the stage that has most. */
static spw_status find_state(const spw_point *p, const spw_search_asked *asked, uint64_t *out) {
    const size_t stages = spw_pipeline_of(p->job).stages, place = asked->key % SPW_SEARCH_STATES;
    *out = 0;
    if (asked->states != NULL && asked->states->state[place].key == asked->key) {
        *out = asked->states->state[place].bytes;
        return SPW_OK;
    }
    for (size_t s = 0; s < stages; s++) {
        spw_footprint state;
        const spw_status status = spw_footprint_state_of_stage(p, s, &state);
        if (status != SPW_OK) return status;
        *out = state.peak_bytes > *out ? state.peak_bytes : *out;
    }
    if (asked->states == NULL) return SPW_OK;
    asked->states->state[place].key = asked->key;
    asked->states->state[place].bytes = *out;
    return SPW_OK;
}

/* Do they hold the same? */
static bool is_alike(const spw_stage *a, const spw_stage *b) {
    return a->layers == b->layers && a->moe_layers == b->moe_layers && a->predictions == b->predictions &&
           a->bare_layers == b->bare_layers && a->hash_layers == b->hash_layers &&
           a->shared_indexers == b->shared_indexers && a->lacking_experts == b->lacking_experts &&
           a->embedding == b->embedding && a->head == b->head &&
           memcmp(a->mixer_layers, b->mixer_layers, sizeof a->mixer_layers) == 0;
}

/* Stages that are looked at: of those that hold the same the first, which has most passes in flight, and the last. All, where it is
 * not the one that needs most of which is asked. */
static spw_status choose_stages(const spw_search_facts *facts, const spw_point *p, bool **out) {
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    const bool all = !spw_replay_row_replays(facts->plan->allocator, p);
    bool *asked = NULL;
    spw_stage *stage = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(pipeline.stages, &asked));
    SPW_TRY(SPW_ALLOC(pipeline.stages, &stage));
    for (size_t s = 0; s < pipeline.stages; s++) {
        size_t last = SIZE_MAX;
        stage[s] = spw_pipeline_stage(&pipeline, &p->job->model, s);
        asked[s] = true;
        for (size_t e = s; e-- > 0 && last == SIZE_MAX && !all;)
            if (asked[e] && is_alike(&stage[e], &stage[s])) last = e;
        for (size_t e = last; last != SIZE_MAX && e-- > 0;) /* it is the first, or gives way */
            if (asked[e] && is_alike(&stage[e], &stage[s])) asked[last] = false;
    }
    *out = asked;
    asked = NULL;

cleanup:
    spw_free(asked), spw_free(stage);
    return status;
}

/* With the rows `mean` in one layer, and with those that all layers keep. */
static spw_status bound_stage(const spw_point *p, size_t index, const spw_live_set *live,
                              const spw_rank_rows *mean, spw_search_point_facts *out) {
    const spw_pipeline pipeline = spw_pipeline_of(p->job);
    const spw_routed_memory in_one = {.rows = *mean};
    spw_footprint footprint;
    spw_status status = spw_footprint_of_stage(p, index, live != NULL ? &in_one : NULL, &footprint);
    if (status != SPW_OK) return status;
    note(&footprint, out);
    if (live == NULL || !spw_remat_keeps_experts(p->job->remat)) return SPW_OK;
    const spw_stage stage = spw_pipeline_stage(&pipeline, &p->job->model, index);
    const spw_routed_memory kept = {.saved = {stage.kept_moe_layers * live->saved_bytes, live->saved_bytes}};
    status = spw_footprint_of_stage(p, index, &kept, &footprint);
    if (status == SPW_OK) note(&footprint, out);
    return status;
}

/* Live memory of the stages, of the rows that some rank must have. */
static spw_status bound_live(const spw_search_facts *facts, const spw_point *p, const spw_search_asked *asked,
                             spw_search_point_facts *out) {
    const spw_device_budget budget = spw_device_budget_of(p->job, p->scheme);
    const size_t stages = spw_pipeline_of(p->job).stages;
    const bool whole = facts->generated && spw_scheme_drops_nothing(p->scheme);
    bool *looked_at = NULL;
    spw_layer layer = {.tensors = 0};
    spw_status status = SPW_OK;
    out->bound.kind = SPW_MEMORY_LIVE;
    out->budget_bytes = spw_device_budget_bytes(&budget);
    SPW_TRY(find_state(p, asked, &out->state_bytes));
    out->bound.least_bytes = out->state_bytes;
    if (is_enough(out, asked)) goto cleanup;
    SPW_TRY(choose_stages(facts, p, &looked_at));
    SPW_TRY(spw_layer_build(p->scheme, &p->shape, SPW_FLAVOUR_LIVE, &layer));
    const spw_rank_rows mean = {.held = whole ? p->shape.assignments : 0};
    const spw_live_set live = spw_layer_live_set(&layer, &mean);
    const bool routed = spw_layer_is_dynamic(&layer);
    for (size_t s = 0; s < stages && !is_enough(out, asked); s++)
        if (looked_at[s]) SPW_TRY(bound_stage(p, s, routed ? &live : NULL, &mean, out));
    out->bound.may_surely_fit = may_surely_fit(facts, p, out);

cleanup:
    spw_layer_destroy(&layer);
    spw_free(looked_at);
    return status;
}

static spw_status bound_memory(const spw_search_facts *facts, const spw_point *p,
                               const spw_search_asked *asked, spw_search_point_facts *out) {
    char outside[SPW_OUTSIDE_TEXT];
    spw_footprint footprint;
    if (facts->plan->stack == NULL || !spw_compiled_footprint_covers(p->job, p->scheme))
        return bound_live(facts, p, asked, out);
    const spw_status status = spw_compiled_footprint_compute(facts->plan->stack, p->job, p->scheme,
                                                             p->sequences, &footprint, outside);
    if (status != SPW_OK) return status;
    out->bound.kind = SPW_MEMORY_ARENA;
    out->bound.may_surely_fit = footprint.high_bytes <= footprint.budget_bytes;
    note(&footprint, out);
    return SPW_OK;
}

spw_status spw_search_bound_of(const spw_search_facts *facts, const spw_point *p,
                               const spw_search_asked *asked, spw_search_point_facts *out) {
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
    if (status == SPW_OK) status = bound_memory(facts, p, asked, out);
    if (status != SPW_OK) return status;
    out->timed = spw_replay_time_covers(&time);
    if (!out->timed || out->bound.least_bytes > out->budget_bytes) return SPW_OK;
    out->bound.tokens_per_s_most = spw_tokens_per_s_most(
        p, q->time_stack, facts->megatron, facts->generated && spw_scheme_drops_nothing(p->scheme));
    return SPW_OK;
}

/* Tokens/s of a GPU with the means of its loads. */
static spw_status sharpen_speed(const spw_search_facts *facts, const spw_point *p,
                                const spw_search_means *means, spw_search_bound *bound) {
    double least = 0.0;
    if (!spw_megatron_job_covers(p->job, p->scheme)) return SPW_OK;
    const spw_status status = spw_megatron_job_mean_s(facts->megatron, p, &means->loads, &least);
    if (status == SPW_OK && least > 0.0)
        bound->tokens_per_s_most = fmin(bound->tokens_per_s_most, spw_megatron_job_tokens(p) / least);
    return status;
}

/* What PyTorch's allocator followed tensor by tensor is another word on what is live. */
spw_status spw_search_bound_sharpen(const spw_search_facts *facts, const spw_point *p,
                                    const spw_search_means *means, spw_search_point_facts *known) {
    spw_search_bound *bound = &known->bound;
    const bool whole = p->job->part == SPW_PART_WHOLE && p->job->snapshot == NULL;
    uint64_t bytes = 0;
    spw_status status = SPW_OK;
    if (!means->there || facts->megatron == NULL) return SPW_OK;
    if (bound->kind == SPW_MEMORY_LIVE && whole) SPW_TRY(spw_search_means_bytes(means, p, &bytes));
    if (bytes > bound->least_bytes) {
        bound->least_bytes = bytes;
        bound->may_surely_fit = bound->may_surely_fit && may_surely_fit(facts, p, known);
    }
    if (bound->least_bytes <= known->budget_bytes) SPW_TRY(sharpen_speed(facts, p, means, bound));

cleanup:
    return status;
}
