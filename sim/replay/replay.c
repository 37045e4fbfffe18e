#include "sim/replay/replay.h"
#include "sim/replay/replay_life.h"

#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/replay/replay_finish.h"
#include "sim/routing/micro_batch.h"
#include "traces/trace.h"

#include <string.h>

/* Are the choices of its batch counted at this place? All splits have the same, so one place does. */
static bool tallies(const spw_replay_work *r, size_t place) {
    size_t first = place % r->batches;
    while (spw_replay_skips_place(r, first) && first < place) first += r->batches;
    return first == place;
}

static size_t first_with_groups(const spw_replay_work *r, size_t split) {
    size_t first = 0;
    while (!spw_replay_same_groups(r, first, split)) first++;
    return first;
}

/* The next place that is led by `leader`, from `place` on; r->places: none. */
static size_t next_led(const spw_replay_work *r, size_t leader, size_t place) {
    while (place < r->places && r->leader[place] != leader) place += r->batches;
    return place < r->places ? place : r->places;
}

/* --- The walk --- */

/* Counts of a place that leads, of either kind. */
static const spw_counts *some_counts(const spw_replay_work *r, size_t leader) {
    return r->counts[r->wants[SPW_REPLAY_BY_LAW] ? SPW_REPLAY_BY_LAW : SPW_REPLAY_OF_TOKENS][leader];
}

/* Those of a place's scheme. */
static const spw_counts *counts_of(const spw_replay_work *r, size_t leader, size_t scheme) {
    return r->counts[spw_replay_kind_of(r, leader, scheme)][leader];
}

/* Does anybody ask for the choices of every expert? Of records that are kept, or made elsewhere, it may be somebody later. */
static bool is_heard(const spw_replay_work *r) { return r->request->sink.state != NULL || !r->plain; }

/* Choices of every expert, by all ranks: [experts]. */
static spw_status note_chosen(const spw_replay_work *r, spw_note *out) {
    const spw_counts *counts = some_counts(r, 0);
    const size_t experts = counts->placement.experts;
    void *at = NULL;
    const spw_status status = spw_note_add(out, experts * sizeof *r->chosen, &at);
    for (size_t i = 0; i < counts->placement.ranks * experts && status == SPW_OK; i++)
        ((uint64_t *)at)[i % experts] += spw_counts_routed_of(counts, i / experts)[i % experts];
    return status;
}

static spw_status take_chosen(spw_replay_work *r, size_t layer, spw_note_reader *record) {
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

static spw_status note_row(spw_replay_work *r, size_t at_row, size_t leader, row_note *known, spw_note *out) {
    const spw_replay_row *row = &r->row[at_row];
    const spw_counts *counts = counts_of(r, leader, at_row % r->request->schemes);
    spw_status status = SPW_OK;
    if (known->row != NULL && spw_replay_row_notes_as(row, known->row))
        return spw_note_again(out, known->begin, known->bytes);
    *known = (row_note){.row = row, .begin = out->bytes};
    SPW_TRY(spw_replay_row_note(row, counts, r->selection[leader], out));
    known->bytes = out->bytes - known->begin;

cleanup:
    return status;
}

/* One micro-batch of one layer, one scheme of the places that are led by one. */
static spw_status note_scheme(spw_replay_work *r, size_t leader, size_t scheme,
                              const spw_trace_record *record, const spw_layout *layout, spw_note *out) {
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
                                      counts_of(r, leader, scheme), record, layout));
        ran = true;
        SPW_TRY(note_row(r, p * r->request->schemes + scheme, leader,
                         &known[spw_remat_keeps_experts(row->point.job->remat)], out));
    }

cleanup:
    return status;
}

/* The choices of a layer, once they are asked for. */
static spw_status read_layer(spw_replay_work *r, size_t layer, size_t batch, spw_trace_record *record) {
    const spw_layout *layout = NULL;
    if (record->expert_id != NULL) return SPW_OK;
    return spw_composer_layer(r->composer, layer, batch, record, &layout);
}

/* Counts of a place that leads; what a store has counted needs no record. */
static spw_status fill_counts(spw_replay_work *r, size_t leader, spw_replay_counts kind, size_t layer,
                              spw_trace_record *record, const spw_layout *layout) {
    const size_t split = first_with_groups(r, leader / r->batches), batch = leader % r->batches;
    spw_counts *counts = r->counts[kind][leader];
    spw_segment_counts *cache = NULL;
    spw_trace_record law = {.law = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_store(r->composer, layer, &counts->placement, layout, kind == SPW_REPLAY_BY_LAW,
                               &cache));
    if (cache == NULL) cache = r->cache[kind][split];
    if (!spw_segment_counts_know(cache, layout)) {
        if (kind == SPW_REPLAY_BY_LAW)
            SPW_TRY(spw_composer_law(r->composer, layer, &counts->placement, &law));
        if (law.law == NULL) SPW_TRY(read_layer(r, layer, batch, record));
    }
    SPW_TRY(spw_segment_counts_fill(cache, counts, law.law != NULL ? &law : record, layout));

cleanup:
    return status;
}

/* All schemes of them. */
static spw_status note_places(spw_replay_work *r, size_t leader, size_t layer, spw_trace_record *record,
                              const spw_layout *layout, spw_note *out) {
    spw_choice_tally choices = {.slots = 0};
    void *at = NULL;
    spw_status status = SPW_OK;
    for (spw_replay_counts k = SPW_REPLAY_BY_LAW; k < SPW_REPLAY_COUNTS_KINDS; k++)
        if (r->wants[k]) SPW_TRY(fill_counts(r, leader, k, layer, record, layout));
    if (leader == 0 && is_heard(r)) SPW_TRY(note_chosen(r, out));
    if (leader == 0 && r->request->tally != NULL)
        SPW_TRY(spw_load_tally_note(r->request->tally, counts_of(r, leader, 0), out));
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
static spw_status take_places(spw_replay_work *r, size_t leader, spw_replay_place at,
                              spw_note_reader *record) {
    const size_t schemes = r->request->schemes;
    const void *choices = NULL;
    spw_status status = SPW_OK;
    if (leader == 0 && is_heard(r)) SPW_TRY(take_chosen(r, at.layer, record));
    if (leader == 0 && r->request->tally != NULL)
        SPW_TRY(spw_load_tally_take(r->request->tally, at.step, record));
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

static void forget(spw_replay_work *r) {
    for (size_t i = 0; i < SPW_REPLAY_COUNTS_KINDS * r->splits; i++)
        if (r->wants[i / r->splits]) spw_segment_counts_forget(r->cache[i / r->splits][i % r->splits]);
}

/* One micro-batch of a layer, at all places of its batch. */
static spw_status note_micro_batch(spw_replay_work *r, size_t layer, size_t b, spw_trace_record *record,
                                   const spw_layout *layout, spw_note *out) {
    spw_status status = SPW_OK;
    for (size_t place = b; place < r->places; place += r->batches)
        if (r->leader[place] == place) SPW_TRY(note_places(r, place, layer, record, layout, out));

cleanup:
    return status;
}

/* A unit is a layer of a step: of each batch the first micro-batches, as far as they differ. */
static spw_status note_layer(void *context, size_t unit, spw_note *out) {
    spw_replay_work *r = context;
    const size_t micro_batches = r->frame.micro_batches, kinds = r->frame.kinds,
                 step = unit / r->frame.layers, layer = unit % r->frame.layers;
    const void *ids = NULL;
    spw_trace_record balanced = {.tokens = 0}, record = {.tokens = 0};
    spw_status status = SPW_OK;
    if (step != r->begun) SPW_TRY(spw_composer_begin(r->composer, step));
    if (step != r->begun && r->balancer != NULL) SPW_TRY(spw_balancer_begin(r->balancer));
    r->begun = step;
    if (layer == 0) SPW_TRY(spw_composer_note(r->composer, out));
    for (size_t i = 0; i < r->batches * kinds; i++) {
        const size_t b = i / kinds, micro_batch = i % kinds;
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
            SPW_TRY(spw_micro_batch_layout(layout, micro_batch, micro_batches, r->part[b]));
            layout = r->part[b];
        }
        SPW_TRY(note_micro_batch(r, layer, b, &record, layout, out));
    }

cleanup:
    return status;
}

static spw_status end_step(spw_replay_work *r, size_t step) {
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

/* All micro-batches of a batch; those behind the first `kinds` are as these in turn, and have no notes of their own. */
static spw_status take_batch(spw_replay_work *r, size_t b, spw_replay_place at, spw_note_reader *record) {
    const size_t kinds = r->frame.kinds;
    const spw_note_reader first = *record;
    spw_note_reader again = first;
    spw_status status = SPW_OK;
    for (at.micro_batch = 0; at.micro_batch < r->frame.micro_batches; at.micro_batch++) {
        if (at.micro_batch % kinds == 0) again = first;
        for (size_t place = b; place < r->places; place += r->batches)
            if (r->leader[place] == place) SPW_TRY(take_places(r, place, at, &again));
        if (at.micro_batch + 1 == kinds) *record = again;
    }

cleanup:
    return status;
}

static spw_status take_layer(void *context, size_t unit, spw_note_reader *record) {
    spw_replay_work *r = context;
    const size_t layers = r->frame.layers, step = unit / layers, layer = unit % layers;
    spw_status status = SPW_OK;
    if (layer == 0) SPW_TRY(spw_composer_take(r->composer, step, record));
    if (layer == 0 && r->chosen != NULL)
        memset(r->chosen, 0, layers * r->request->job->model.experts * sizeof *r->chosen);
    for (size_t i = 0; i < r->row_count && layer == 0; i++) spw_replay_row_begin(&r->row[i]);
    for (size_t b = 0; b < r->batches; b++)
        SPW_TRY(take_batch(r, b, (spw_replay_place){.step = step, .layer = layer}, record));
    if (layer + 1 == layers) SPW_TRY(end_step(r, step));

cleanup:
    return status;
}

/* What is not of a row. */
static spw_status common_state(spw_replay_work *r, const spw_state *state) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_state(r->composer, state));
    SPW_TRY(spw_state_part(state, r->choices, sizeof r->choices));
    if (r->request->tally != NULL) SPW_TRY(spw_load_tally_state(r->request->tally, state));

cleanup:
    return status;
}

/* Behind a step. */
static spw_status keep_steps(void *context, const spw_state *state) {
    spw_replay_work *r = context;
    spw_status status = SPW_OK;
    SPW_TRY(common_state(r, state));
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(spw_replay_row_state(&r->row[i], state));

cleanup:
    return status;
}

/* For processes that have taken nothing. */
static spw_status found(void *context, const spw_state *state) {
    spw_replay_work *r = context;
    spw_status status = SPW_OK;
    SPW_TRY(common_state(r, state));
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(spw_replay_row_found(&r->row[i], state));

cleanup:
    return status;
}

/* What a sink was told of, and the blocks of an allocator, are made again from the records. */
static bool keeps_steps(const spw_replay_work *r) {
    bool keeps = r->request->sink.state == NULL && !r->request->sink.elsewhere;
    for (size_t i = 0; i < r->row_count; i++) keeps = keeps && r->row[i].reserved == NULL;
    return keeps;
}

static spw_status end_reserved(void *context) {
    spw_replay_row *row = context;
    return spw_replay_row_end_reserved(row, row->frame->steps - 1);
}

static spw_status found_reserved(void *context, const spw_state *state) {
    return spw_replay_row_found(context, state);
}

/* What a judge does not want is left out. */
static spw_status ask_judge(spw_replay_work *r, size_t i, bool *wanted) {
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
    /* the first process has the blocks that earlier steps have left */
    if (*wanted && row->reserved != NULL) SPW_TRY(spw_walk_alone(end_reserved, found_reserved, row));

cleanup:
    return status;
}

static spw_status finish_row(spw_replay_work *r, size_t i, spw_result *result) {
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
    spw_replay_work r = {.request = request};
    SPW_TRY(spw_replay_fit_memory(request));
    SPW_TRY(spw_replay_work_create(&r));
    const spw_walk walk = {.what = "replay",
                           .unit = "layers",
                           .units = r.frame.steps * r.frame.layers,
                           .context = &r,
                           .compute = note_layer,
                           .take = take_layer,
                           .state = keeps_steps(&r) ? keep_steps : NULL,
                           .group = r.frame.layers,
                           .found = found};
    if (spw_replay_any_can_be(&r)) SPW_TRY(spw_walk_run(&walk, request->checkpoint));
    SPW_TRY(spw_replay_later_run(r.row, r.row_count));
    if (r.balancer != NULL && request->moves != NULL) *request->moves = spw_balancer_moved(r.balancer);
    for (size_t i = 0; i < r.row_count; i++)
        if (!spw_replay_skips(&r, i)) SPW_TRY(finish_row(&r, i, result));

cleanup:
    spw_replay_work_destroy(&r);
    return status;
}
