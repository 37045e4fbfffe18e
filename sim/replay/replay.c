#include "sim/replay/replay.h"

#include "base/memory.h"
#include "base/walk.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/replay/replay_finish.h"
#include "sim/replay/replay_memory.h"
#include "sim/replay/replay_ranks.h"
#include "sim/replay/replay_row.h"
#include "sim/routing/choice_tally.h"
#include "sim/routing/micro_batch.h"
#include "sim/routing/segment_counts.h"
#include "sim/schemes/selection.h"
#include "sim/schemes/traffic.h"
#include "traces/generate/made_trace.h"
#include "traces/trace.h"

#include <string.h>

/* Counts of generated routing are drawn by their law, or are those of drawn tokens where a scheme looks at choices one by one. A row's
 * are of its scheme's kind, whatever schemes stand beside it. Of a trace that is read all are tokens'. */
typedef enum counts_kind { BY_LAW, OF_TOKENS, COUNTS_KINDS } counts_kind;

/* A place is a parallel split and a batch: split x batches + batch. Every split has the same tokens and choices. */
typedef struct replay {
    const spw_replay_request *request;
    spw_replay_frame frame;
    spw_job *data; /* the job of one stage: its ranks hold the tokens */
    size_t splits, batches, places, row_count;
    spw_composer *composer;   /* reads the steps that this process computes, and knows what all rest on */
    bool plain;               /* steps are computed in their turn, by this process */
    bool all_tokens;          /* whatever the scheme */
    bool wants[COUNTS_KINDS]; /* of a row that is not left out */
    bool reads;               /* every record is read, as more than counts of its pieces is asked for */
    size_t begun;             /* step of the composer; SIZE_MAX: none */
    spw_balancer *balancer;   /* NULL: none */
    size_t *leader;           /* [places] the first place of the batch whose counts are these */
    spw_counts **counts[COUNTS_KINDS];        /* [places] of those that lead */
    spw_selection **selection;                /* [places] the same */
    spw_segment_counts **cache[COUNTS_KINDS]; /* [splits] of the first whose groups are these */
    spw_layout *part[SPW_JOB_MAX_BATCHES];    /* of a micro-batch, where there are several */
    spw_choice_tally choices[SPW_JOB_MAX_BATCHES];
    spw_replay_row *row; /* [places][schemes] */
    uint64_t *chosen; /* [layers][experts] of the step under way, of the first place; NULL: nobody listens */
} replay;

static bool skips(const replay *r, size_t row) { return r->request->skip != NULL && r->request->skip[row]; }

static bool skips_place(const replay *r, size_t place) {
    size_t left_out = 0;
    for (size_t i = 0; i < r->request->schemes; i++) left_out += skips(r, place * r->request->schemes + i);
    return left_out == r->request->schemes;
}

/* Are the choices of its batch counted at this place? All splits have the same, so one place does. */
static bool tallies(const replay *r, size_t place) {
    size_t first = place % r->batches;
    while (skips_place(r, first) && first < place) first += r->batches;
    return first == place;
}

static bool same_groups(const replay *r, size_t split, size_t other) {
    const spw_grid a = spw_grid_of(&r->request->job[split]), b = spw_grid_of(&r->request->job[other]);
    return a.expert == b.expert && a.expert_tensor == b.expert_tensor;
}

static size_t first_with_groups(const replay *r, size_t split) {
    size_t first = 0;
    while (!same_groups(r, first, split)) first++;
    return first;
}

/* A place that is left out leads none, and is led by none. */
static size_t leader_of(const replay *r, size_t place) {
    size_t first = place % r->batches;
    while (first < place &&
           (skips_place(r, first) || !same_groups(r, first / r->batches, place / r->batches)))
        first += r->batches;
    return skips_place(r, place) ? SIZE_MAX : first;
}

/* The next place that is led by `leader`, from `place` on; r->places: none. */
static size_t next_led(const replay *r, size_t leader, size_t place) {
    while (place < r->places && r->leader[place] != leader) place += r->batches;
    return place < r->places ? place : r->places;
}

/* --- Life --- */

static void destroy(replay *r) {
    for (size_t i = 0; i < r->row_count && r->row != NULL; i++) spw_replay_row_destroy(&r->row[i]);
    spw_free(r->row);
    spw_free(r->chosen);
    for (size_t k = 0; k < COUNTS_KINDS; k++) {
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

static spw_status check(const replay *r) {
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

/* Must choices be looked at one by one? */
static bool looks_at_choices(const spw_scheme *scheme) {
    return spw_scheme_drop_rule(scheme) != SPW_DROP_BY_LIMIT;
}

static counts_kind kind_of(const replay *r, size_t scheme) {
    return r->all_tokens || looks_at_choices(&r->request->scheme[scheme]) ? OF_TOKENS : BY_LAW;
}

static void find_kinds(replay *r) {
    const spw_replay_request *q = r->request;
    r->reads = q->balancer != NULL || !q->skips_lost_tokens;
    r->all_tokens = r->reads || spw_trace_made_tokens(q->trace) == 0;
    for (size_t i = 0; i < r->row_count; i++) {
        if (skips(r, i)) continue;
        r->wants[kind_of(r, i % q->schemes)] = true;
        r->reads = r->reads || looks_at_choices(&q->scheme[i % q->schemes]);
    }
}

static spw_status create_balancer(replay *r) {
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

static spw_status compose(replay *r) {
    const spw_replay_request *q = r->request;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &r->data));
    spw_replay_stage_job(q->job, spw_replay_ranks(q), r->data);
    r->data->model.experts -= r->data->model.replicas;
    r->data->model.replicas = 0;
    const spw_composer_request request = {.trace = q->trace,
                                          .job = r->data,
                                          .sequences = q->job->sequences_per_gpu,
                                          .batches = r->batches,
                                          .step_begin = q->step_begin,
                                          .step_end = q->step_end,
                                          .layer_begin = q->layer_begin,
                                          .layer_end = q->layer_end,
                                          .seed = q->seed,
                                          .drawn_sequences = q->drawn_sequences,
                                          .store = q->store,
                                          .weights = spw_schemes_need_weights(q->scheme, q->schemes),
                                          .counts = r->wants[BY_LAW]};
    SPW_TRY(spw_composer_create(&request, &r->composer));
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
static spw_status create_places(replay *r) {
    const size_t ranks = r->frame.ranks, micro_batches = r->frame.micro_batches;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(r->places, &r->leader));
    for (size_t k = 0; k < COUNTS_KINDS; k++) {
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
        if (r->leader[i] == i) {
            for (size_t k = 0; k < COUNTS_KINDS; k++)
                if (r->wants[k]) SPW_TRY(spw_counts_create(placement, sequences, &r->counts[k][i]));
            SPW_TRY(spw_selection_create(placement, &shape, &r->selection[i]));
        }
        for (size_t k = 0; k < COUNTS_KINDS && b == 0; k++)
            if (r->wants[k]) SPW_TRY(spw_segment_counts_create(placement, &r->cache[k][i / r->batches]));
        if (i < r->batches && micro_batches > 1) SPW_TRY(spw_layout_create(ranks, sequences, &r->part[b]));
    }

cleanup:
    return status;
}

/* Where every row is refused nothing is counted. */
static bool any_can_be(const replay *r) {
    for (size_t i = 0; i < r->row_count; i++)
        if (!r->row[i].refused) return true;
    return r->row_count == 0;
}

static spw_status create(replay *r) {
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
                                  .stages = pipeline.stages};
    find_kinds(r);
    SPW_TRY(check(r));
    SPW_TRY(compose(r));
    if (q->sink.state != NULL) SPW_TRY(SPW_ALLOC(r->frame.layers * q->job->model.experts, &r->chosen));
    SPW_TRY(SPW_ALLOC(r->row_count, &r->row));
    for (size_t i = 0; i < r->row_count; i++) {
        const size_t place = i / q->schemes;
        if (skips(r, i)) {
            r->row[i] = (spw_replay_row){.frame = &r->frame, .refused = true};
            continue;
        }
        SPW_TRY(spw_replay_row_create(&r->frame, &q->job[place / r->batches], &q->scheme[i % q->schemes],
                                      place % r->batches, &r->row[i]));
    }
    if (any_can_be(r)) SPW_TRY(create_places(r));

cleanup:
    return status;
}

/* --- The walk --- */

/* Counts of a place that leads, of either kind. */
static const spw_counts *some_counts(const replay *r, size_t leader) {
    return r->counts[r->wants[BY_LAW] ? BY_LAW : OF_TOKENS][leader];
}

/* Does anybody ask for the choices of every expert? Of records that are kept, or made elsewhere, it may be somebody later. */
static bool is_heard(const replay *r) { return r->request->sink.state != NULL || !r->plain; }

/* Choices of every expert, by all ranks: [experts]. */
static spw_status note_chosen(const replay *r, spw_note *out) {
    const spw_counts *counts = some_counts(r, 0);
    const size_t experts = counts->placement.experts;
    void *at = NULL;
    const spw_status status = spw_note_add(out, experts * sizeof *r->chosen, &at);
    for (size_t i = 0; i < counts->placement.ranks * experts && status == SPW_OK; i++)
        ((uint64_t *)at)[i % experts] += counts->routed[i];
    return status;
}

static spw_status take_chosen(replay *r, size_t layer, spw_note_reader *record) {
    const size_t experts = r->request->job->model.experts;
    const void *at = NULL;
    const spw_status status = spw_note_next(record, experts * sizeof *r->chosen, &at);
    for (size_t x = 0; x < experts && r->chosen != NULL && status == SPW_OK; x++)
        r->chosen[layer * experts + x] += ((const uint64_t *)at)[x];
    return status;
}

/* What one row noted of a micro-batch of a layer. */
typedef struct row_note {
    const spw_replay_row *row; /* NULL: none yet */
    size_t begin, bytes;       /* in the record */
} row_note;

static spw_status note_row(replay *r, size_t at_row, size_t leader, row_note *known, spw_note *out) {
    const spw_replay_row *row = &r->row[at_row];
    const spw_counts *counts = r->counts[kind_of(r, at_row % r->request->schemes)][leader];
    void *at = NULL;
    spw_status status = SPW_OK;
    if (known->row != NULL && spw_replay_row_notes_as(row, known->row)) {
        SPW_TRY(spw_note_add(out, known->bytes, &at));
        memcpy(at, out->data + known->begin, known->bytes);
        return SPW_OK;
    }
    *known = (row_note){.row = row, .begin = out->bytes};
    SPW_TRY(spw_replay_row_note(row, counts, r->selection[leader], out));
    known->bytes = out->bytes - known->begin;

cleanup:
    return status;
}

/* One micro-batch of one layer, one scheme of the places that are led by one. */
static spw_status note_scheme(replay *r, size_t leader, size_t scheme, const spw_trace_record *record,
                              const spw_layout *layout, spw_note *out) {
    row_note known[2] = {{NULL, 0, 0}}; /* by whether the experts are kept */
    const bool weights = spw_trace_get_info(r->request->trace)->has_weights;
    bool ran = false;
    spw_scheme own;
    spw_status status = SPW_OK;
    for (size_t p = leader; p < r->places; p = next_led(r, leader, p + r->batches)) {
        const spw_replay_row *row = &r->row[p * r->request->schemes + scheme];
        if (row->refused) continue;
        if (!ran)
            SPW_TRY(spw_selection_run(r->selection[leader],
                                      spw_selection_scheme(row->point.scheme, weights, &own),
                                      r->counts[kind_of(r, scheme)][leader], record, layout));
        ran = true;
        SPW_TRY(note_row(r, p * r->request->schemes + scheme, leader,
                         &known[spw_remat_keeps_experts(row->point.job->remat)], out));
    }

cleanup:
    return status;
}

/* The choices of a layer, once they are asked for. */
static spw_status read_layer(replay *r, size_t layer, size_t batch, spw_trace_record *record) {
    const spw_layout *layout = NULL;
    if (record->expert_id != NULL) return SPW_OK;
    return spw_composer_layer(r->composer, layer, batch, record, &layout);
}

/* Counts of a place that leads; what a store has counted needs no record. */
static spw_status fill_counts(replay *r, size_t leader, counts_kind kind, size_t layer,
                              spw_trace_record *record, const spw_layout *layout) {
    const size_t split = first_with_groups(r, leader / r->batches), batch = leader % r->batches;
    spw_counts *counts = r->counts[kind][leader];
    spw_segment_counts *cache = NULL;
    spw_trace_record law = {.law = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_store(r->composer, layer, &counts->placement, layout, kind == BY_LAW, &cache));
    if (cache == NULL) cache = r->cache[kind][split];
    if (!spw_segment_counts_know(cache, layout)) {
        if (kind == BY_LAW) SPW_TRY(spw_composer_law(r->composer, layer, &counts->placement, &law));
        if (law.law == NULL) SPW_TRY(read_layer(r, layer, batch, record));
    }
    SPW_TRY(spw_segment_counts_fill(cache, counts, law.law != NULL ? &law : record, layout));

cleanup:
    return status;
}

/* All schemes of them. */
static spw_status note_places(replay *r, size_t leader, size_t layer, spw_trace_record *record,
                              const spw_layout *layout, spw_note *out) {
    spw_choice_tally choices = {.slots = 0};
    void *at = NULL;
    spw_status status = SPW_OK;
    for (counts_kind k = BY_LAW; k < COUNTS_KINDS; k++)
        if (r->wants[k]) SPW_TRY(fill_counts(r, leader, k, layer, record, layout));
    if (leader == 0 && is_heard(r)) SPW_TRY(note_chosen(r, out));
    if (tallies(r, leader)) {
        spw_choice_tally_add(&choices, some_counts(r, leader), r->request->job->model.top_k);
        SPW_TRY(spw_note_add(out, sizeof choices, &at));
        memcpy(at, &choices, sizeof choices);
    }
    for (size_t i = 0; i < r->request->schemes; i++) SPW_TRY(note_scheme(r, leader, i, record, layout, out));

cleanup:
    return status;
}

/* As they were noted. */
static spw_status take_places(replay *r, size_t leader, spw_replay_place at, spw_note_reader *record) {
    const size_t schemes = r->request->schemes;
    const void *choices = NULL;
    spw_status status = SPW_OK;
    if (leader == 0 && is_heard(r)) SPW_TRY(take_chosen(r, at.layer, record));
    if (tallies(r, leader)) {
        spw_choice_tally *sum = &r->choices[leader % r->batches];
        SPW_TRY(spw_note_next(record, sizeof *sum, &choices));
        sum->slots += ((const spw_choice_tally *)choices)->slots;
        sum->chosen += ((const spw_choice_tally *)choices)->chosen;
    }
    for (size_t i = 0; i < schemes; i++) {
        for (size_t p = leader; p < r->places; p = next_led(r, leader, p + r->batches)) {
            spw_replay_row *row = &r->row[p * schemes + i];
            if (!row->refused) SPW_TRY(spw_replay_row_add(row, at, record));
        }
    }

cleanup:
    return status;
}

static void forget(replay *r) {
    for (size_t i = 0; i < COUNTS_KINDS * r->splits; i++)
        if (r->wants[i / r->splits]) spw_segment_counts_forget(r->cache[i / r->splits][i % r->splits]);
}

/* A unit is a layer of a step. */
static spw_status note_layer(void *context, size_t unit, spw_note *out) {
    replay *r = context;
    const size_t micro_batches = r->frame.micro_batches > 0 ? r->frame.micro_batches : 1,
                 step = unit / r->frame.layers, layer = unit % r->frame.layers;
    const void *ids = NULL;
    spw_trace_record balanced = {.tokens = 0}, record = {.tokens = 0};
    spw_status status = SPW_OK;
    if (step != r->begun) SPW_TRY(spw_composer_begin(r->composer, step));
    if (step != r->begun && r->balancer != NULL) SPW_TRY(spw_balancer_begin(r->balancer));
    r->begun = step;
    if (layer == 0) SPW_TRY(spw_composer_note(r->composer, out));
    for (size_t i = 0; i < r->batches * micro_batches; i++) {
        const size_t b = i / micro_batches;
        const spw_layout *layout = spw_composer_layout(r->composer, b);
        const bool reads = r->reads || spw_composer_draws(r->composer);
        if (reads) SPW_TRY(spw_composer_layer(r->composer, layer, b, &record, &layout));
        const bool other = i == 0 || (reads && record.expert_id != ids);
        if (other) forget(r);
        ids = record.expert_id;
        if (r->balancer != NULL) {
            if (other) SPW_TRY(spw_balancer_map(r->balancer, layer, &record, i == 0, &balanced));
            record = balanced;
        }
        if (micro_batches > 1) {
            SPW_TRY(spw_micro_batch_layout(layout, i % micro_batches, micro_batches, r->part[b]));
            layout = r->part[b];
        }
        for (size_t place = b; place < r->places; place += r->batches)
            if (r->leader[place] == place) SPW_TRY(note_places(r, place, layer, &record, layout, out));
    }

cleanup:
    return status;
}

static spw_status end_step(replay *r, size_t step) {
    const spw_replay_sink *sink = &r->request->sink;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(spw_replay_row_end(&r->row[i], step));
    for (size_t i = 0; i < r->row_count && sink->state != NULL; i++) {
        if (r->row[i].refused) continue;
        spw_replay_step done = spw_replay_row_step(&r->row[i], i, step);
        done.chosen = r->chosen;
        done.experts = r->request->job->model.experts;
        SPW_TRY(sink->take(sink->state, &done));
    }

cleanup:
    return status;
}

static spw_status take_layer(void *context, size_t unit, spw_note_reader *record) {
    replay *r = context;
    const size_t micro_batches = r->frame.micro_batches, layers = r->frame.layers, step = unit / layers,
                 layer = unit % layers;
    spw_status status = SPW_OK;
    if (layer == 0) SPW_TRY(spw_composer_take(r->composer, step, record));
    if (layer == 0 && r->chosen != NULL)
        memset(r->chosen, 0, layers * r->request->job->model.experts * sizeof *r->chosen);
    for (size_t i = 0; i < r->row_count && layer == 0; i++) spw_replay_row_begin(&r->row[i]);
    for (size_t i = 0; i < r->batches * micro_batches; i++) {
        const spw_replay_place at = {step, layer, i % micro_batches};
        for (size_t place = i / micro_batches; place < r->places; place += r->batches)
            if (r->leader[place] == place) SPW_TRY(take_places(r, place, at, record));
    }
    if (layer + 1 == layers) SPW_TRY(end_step(r, step));

cleanup:
    return status;
}

/* Behind a step. */
static spw_status keep_steps(void *context, const spw_state *state) {
    replay *r = context;
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_state(r->composer, state));
    SPW_TRY(spw_state_part(state, r->choices, sizeof r->choices));
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(spw_replay_row_state(&r->row[i], state));

cleanup:
    return status;
}

/* What a sink was told of, and the blocks of an allocator, are made again from the records. */
static bool keeps_steps(const replay *r) {
    bool keeps = r->request->sink.state == NULL && !r->request->sink.elsewhere;
    for (size_t i = 0; i < r->row_count; i++) keeps = keeps && r->row[i].reserved == NULL;
    return keeps;
}

/* What a judge does not want is left out. */
static spw_status ask_judge(replay *r, size_t i, bool *wanted) {
    const spw_replay_judge *judge = &r->request->judge;
    spw_replay_row *row = &r->row[i];
    spw_replay_prospect prospect = spw_replay_row_prospect(row, i);
    spw_status status = SPW_OK;
    SPW_TRY(judge->wants(judge->state, &prospect, wanted));
    if (*wanted && row->timed) {
        SPW_TRY(spw_replay_time_most(&row->time, &prospect.tokens_per_s_most));
        SPW_TRY(judge->wants(judge->state, &prospect, wanted));
        if (*wanted) SPW_TRY(spw_replay_row_end_time(row));
    }
    if (*wanted && row->timed && row->reserved != NULL) {
        prospect.tokens_per_s_most = spw_replay_time_speed(&row->time);
        SPW_TRY(judge->wants(judge->state, &prospect, wanted));
    }
    if (*wanted) SPW_TRY(spw_replay_row_end_reserved(row, r->frame.steps - 1));

cleanup:
    return status;
}

static spw_status finish_row(replay *r, size_t i, spw_result *result) {
    const spw_replay_judge *judge = &r->request->judge;
    spw_result_row *row = NULL;
    spw_refusal *refusal = NULL;
    bool wanted = true;
    spw_status status = SPW_OK;
    if (r->row[i].refused) {
        SPW_TRY(spw_result_append_refusal(result, &refusal));
        spw_replay_row_refusal(&r->row[i], refusal);
        return SPW_OK;
    }
    if (judge->state != NULL) SPW_TRY(ask_judge(r, i, &wanted));
    if (!wanted) return SPW_OK;
    SPW_TRY(spw_result_append(result, &row));
    SPW_TRY(spw_replay_row_finish(&r->row[i], &r->choices[i / r->request->schemes % r->batches], row));
    if (judge->state != NULL) SPW_TRY(judge->take(judge->state, i, row));

cleanup:
    return status;
}

spw_status spw_replay_run(const spw_replay_request *request, spw_result *result) {
    spw_status status = SPW_OK;
    replay r = {.request = request};
    SPW_TRY(spw_replay_fit_memory(request));
    SPW_TRY(create(&r));
    const spw_walk walk = {"replay",   "layers",   r.frame.steps * r.frame.layers,      &r,
                           note_layer, take_layer, keeps_steps(&r) ? keep_steps : NULL, r.frame.layers};
    if (any_can_be(&r)) SPW_TRY(spw_walk_run(&walk, request->checkpoint));
    if (r.balancer != NULL && request->moves != NULL) *request->moves = spw_balancer_moved(r.balancer);
    for (size_t i = 0; i < r.row_count; i++)
        if (!skips(&r, i)) SPW_TRY(finish_row(&r, i, result));

cleanup:
    destroy(&r);
    return status;
}
