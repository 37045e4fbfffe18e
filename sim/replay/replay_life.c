#include "sim/replay/replay_life.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/replay/replay_ranks.h"
#include "sim/schemes/flow_lines.h"
#include "traces/generate/made_trace.h"

bool spw_replay_skips(const spw_replay_work *r, size_t row) {
    return r->request->skip != NULL && r->request->skip[row];
}

bool spw_replay_skips_place(const spw_replay_work *r, size_t place) {
    size_t left_out = 0;
    for (size_t i = 0; i < r->request->schemes; i++)
        left_out += spw_replay_skips(r, place * r->request->schemes + i);
    return left_out == r->request->schemes;
}

bool spw_replay_same_groups(const spw_replay_work *r, size_t split, size_t other) {
    const spw_grid a = spw_grid_of(&r->request->job[split]), b = spw_grid_of(&r->request->job[other]);
    return a.expert == b.expert && a.expert_tensor == b.expert_tensor;
}

/* A place that is left out leads none, and is led by none. */
static size_t leader_of(const spw_replay_work *r, size_t place) {
    size_t first = place % r->batches;
    while (first < place && (spw_replay_skips_place(r, first) ||
                             !spw_replay_same_groups(r, first / r->batches, place / r->batches)))
        first += r->batches;
    return spw_replay_skips_place(r, place) ? SIZE_MAX : first;
}

void spw_replay_work_destroy(spw_replay_work *r) {
    for (size_t i = 0; i < r->row_count && r->row != NULL; i++) spw_replay_row_destroy(&r->row[i]);
    spw_free(r->row);
    spw_free(r->chosen);
    for (size_t k = 0; k < SPW_REPLAY_COUNTS_KINDS; k++) {
        for (size_t i = 0; i < r->places && r->counts[k] != NULL; i++) spw_counts_destroy(r->counts[k][i]);
        for (size_t i = 0; i < r->splits && r->cache[k] != NULL; i++)
            spw_segment_counts_destroy(r->cache[k][i]);
        spw_free(r->counts[k]);
        spw_free(r->cache[k]);
    }
    for (size_t i = 0; i < r->places; i++) {
        if (r->selection != NULL) spw_selection_destroy(r->selection[i]);
    }
    spw_free(r->leader);
    spw_free(r->selection);
    for (size_t b = 0; b < SPW_JOB_MAX_BATCHES; b++) spw_layout_destroy(r->part[b]);
    spw_composer_destroy(r->composer);
    spw_balancer_destroy(r->balancer);
    spw_free(r->data);
}

static spw_status check(const spw_replay_work *r) {
    const spw_replay_request *q = r->request;
    if (q->balancer != NULL && !r->plain)
        return spw_fail(SPW_EARG,
                        "a balancer goes by the load of the steps before: it runs as one process, without "
                        "a checkpoint");
    if (r->places * q->schemes == 0) return spw_fail(SPW_EARG, "no scheme or no batch to replay");
    for (size_t i = 0; i < r->splits; i++) {
        const spw_grid grid = spw_grid_of(&q->job[i]);
        if (grid.expert * grid.expert_tensor > SPW_TRAFFIC_MAX_RANKS)
            return spw_fail(SPW_ECONFIG, "expert-parallel size %zu is above the %d that are supported",
                            grid.expert * grid.expert_tensor, SPW_TRAFFIC_MAX_RANKS);
    }
    return q->stack != NULL || q->time_stack != NULL ? spw_job_is_whole(q->job, "--stack") : SPW_OK;
}

/* Must choices of a place be looked at one by one? */
static bool looks_at_choices(const spw_replay_work *r, size_t place, size_t scheme, bool drops_alone) {
    const spw_job *job = &r->request->job[place / r->batches];
    const spw_scheme *of = &r->request->scheme[scheme];
    const spw_layer_shape shape =
        spw_layer_shape_of(job, job->sequences_per_gpu[place % r->batches] / r->frame.micro_batches);
    return spw_scheme_drop_rule(of) != SPW_DROP_BY_LIMIT &&
           !spw_selection_by_counts(of, &shape, job->cluster.gpus_per_node, drops_alone);
}

bool spw_replay_draws_counts(const spw_replay_request *q) {
    return q->balancer == NULL && q->skips_lost_tokens && spw_trace_made_tokens(q->trace) > 0;
}

spw_replay_counts spw_replay_kind_of(const spw_replay_work *r, size_t place, size_t scheme) {
    return r->all_tokens || looks_at_choices(r, place, scheme, false) ? SPW_REPLAY_OF_TOKENS
                                                                      : SPW_REPLAY_BY_LAW;
}

static void find_kinds(spw_replay_work *r) {
    const spw_replay_request *q = r->request;
    r->reads = q->balancer != NULL || !q->skips_lost_tokens;
    r->all_tokens = !spw_replay_draws_counts(q);
    for (size_t i = 0; i < r->row_count; i++) {
        const size_t place = i / q->schemes, scheme = i % q->schemes;
        if (spw_replay_skips(r, i)) continue;
        r->wants[spw_replay_kind_of(r, place, scheme)] = true;
        r->reads = r->reads || (looks_at_choices(r, place, scheme, false) &&
                                looks_at_choices(r, place, scheme, r->frame.drops_alone));
    }
}

static spw_status create_balancer(spw_replay_work *r) {
    const spw_job *job = r->data;
    const size_t gpus = job->cluster.gpus_per_node, sharers = spw_grid_of(job).expert_tensor,
                 node = gpus > sharers ? gpus / sharers : 1;
    const spw_balancer_shape shape = {.experts = job->model.experts,
                                      .ranks = job->expert,
                                      .node_ranks = job->expert < node ? job->expert : node,
                                      .groups = job->model.groups,
                                      .layers = r->frame.layers};
    return spw_balancer_create(r->request->balancer, &shape, &r->balancer);
}

spw_status spw_replay_compose(const spw_replay_request *q, bool counts, spw_job *data, spw_composer **out) {
    spw_replay_stage_job(q->job, spw_replay_ranks(q), data);
    data->model.experts -= data->model.replicas;
    data->model.replicas = 0;
    const spw_composer_request request = {.trace = q->trace,
                                          .job = data,
                                          .sequences = q->job->sequences_per_gpu,
                                          .batches = q->job->batches,
                                          .step_begin = q->step_begin,
                                          .step_end = q->step_end,
                                          .layer_begin = q->layer_begin,
                                          .layer_end = q->layer_end,
                                          .seed = q->seed,
                                          .drawn_sequences = q->drawn_sequences,
                                          .micro_batches = spw_pipeline_of(q->job).micro_batches,
                                          .kinds = spw_replay_micro_batch_kinds(q),
                                          .store = q->store,
                                          .weights = spw_schemes_need_weights(q->scheme, q->schemes),
                                          .counts = counts};
    return spw_composer_create(&request, out);
}

static spw_status compose(spw_replay_work *r) {
    const spw_replay_request *q = r->request;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &r->data));
    SPW_TRY(spw_replay_compose(q, r->wants[SPW_REPLAY_BY_LAW], r->data, &r->composer));
    r->begun = SIZE_MAX;
    r->frame.composer = r->composer;
    r->frame.ranks = spw_grid_token_ranks(r->data);
    r->frame.layers = spw_composer_layers(r->composer);
    r->frame.steps = spw_composer_steps(r->composer);
    if (q->balancer != NULL) SPW_TRY(create_balancer(r));

cleanup:
    return status;
}

/* Counts and selections of the places that lead, what the places of a split share, and layouts of micro-batches. */
static spw_status create_places(spw_replay_work *r) {
    const size_t ranks = r->frame.ranks, micro_batches = r->frame.micro_batches;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(r->places, &r->leader));
    for (size_t k = 0; k < SPW_REPLAY_COUNTS_KINDS; k++) {
        SPW_TRY(SPW_ALLOC(r->places, &r->counts[k]));
        SPW_TRY(SPW_ALLOC(r->splits, &r->cache[k]));
    }
    SPW_TRY(SPW_ALLOC(r->places, &r->selection));
    for (size_t i = 0; i < r->places; i++) {
        const spw_job *job = &r->request->job[i / r->batches];
        const size_t b = i % r->batches, sequences = job->sequences_per_gpu[b] / micro_batches;
        const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
        const spw_placement placement = {ranks, shape.ranks, job->cluster.gpus_per_node, job->model.experts,
                                         shape.expert_tensor};
        r->leader[i] = leader_of(r, i);
        if (i == 0 && r->request->tally != NULL)
            SPW_TRY(spw_load_tally_create(shape.tokens, r->frame.steps, r->request->tally));
        if (r->leader[i] == i) {
            for (size_t k = 0; k < SPW_REPLAY_COUNTS_KINDS; k++)
                if (r->wants[k])
                    SPW_TRY(spw_counts_create_parts(
                        placement, sequences, spw_counts_parts_of(r->request->scheme, r->request->schemes),
                        &r->counts[k][i]));
            SPW_TRY(spw_selection_create(placement, &shape, &r->selection[i]));
            if (r->frame.drops_alone) spw_selection_drops_alone(r->selection[i]);
        }
        for (size_t k = 0; k < SPW_REPLAY_COUNTS_KINDS && b == 0; k++)
            if (r->wants[k]) SPW_TRY(spw_segment_counts_create(placement, &r->cache[k][i / r->batches]));
        if (i < r->batches && micro_batches > 1) SPW_TRY(spw_layout_create(ranks, sequences, &r->part[b]));
    }

cleanup:
    return status;
}

bool spw_replay_any_can_be(const spw_replay_work *r) {
    for (size_t i = 0; i < r->row_count; i++)
        if (!r->row[i].refused) return true;
    return r->row_count == 0;
}

spw_status spw_replay_work_create(spw_replay_work *r) {
    const spw_replay_request *q = r->request;
    const spw_pipeline pipeline = spw_pipeline_of(q->job);
    spw_status status = SPW_OK;
    r->plain = spw_walk_is_plain(q->checkpoint);
    r->splits = q->splits > 0 ? q->splits : 1;
    r->batches = q->job->batches;
    r->places = r->splits * r->batches;
    r->row_count = r->places * q->schemes;
    r->frame = (spw_replay_frame){.request = q,
                                  .parts = pipeline.stages > 1 || pipeline.micro_batches > 1,
                                  .micro_batches = pipeline.micro_batches,
                                  .kinds = spw_replay_micro_batch_kinds(q),
                                  .stages = pipeline.stages,
                                  .drops_alone = q->drops_alone && q->imbalance == NULL};
    find_kinds(r);
    SPW_TRY(check(r));
    SPW_TRY(compose(r));
    if (q->sink.state != NULL) SPW_TRY(SPW_ALLOC(r->frame.layers * q->job->model.experts, &r->chosen));
    SPW_TRY(SPW_ALLOC(r->row_count, &r->row));
    for (size_t i = 0; i < r->row_count; i++) {
        const size_t place = i / q->schemes;
        if (spw_replay_skips(r, i)) {
            r->row[i] = (spw_replay_row){.frame = &r->frame, .refused = true};
            continue;
        }
        SPW_TRY(spw_replay_row_create(&r->frame, &q->job[place / r->batches], &q->scheme[i % q->schemes],
                                      place % r->batches, &r->row[i]));
    }
    if (spw_replay_any_can_be(r)) SPW_TRY(create_places(r));

cleanup:
    return status;
}
