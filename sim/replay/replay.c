#include "sim/replay/replay.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/memory/compiled_footprint.h"
#include "sim/memory/megatron_job.h"
#include "sim/memory/remat.h"
#include "sim/memory/reserved_memory.h"
#include "sim/replay/replay_pipeline.h"
#include "sim/replay/replay_time.h"
#include "sim/replay/row_sums.h"
#include "sim/routing/choice_tally.h"
#include "sim/routing/segment_counts.h"
#include "sim/routing/selection.h"
#include "sim/routing/traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank in the step under way. */
typedef struct rank_memory {
    spw_live_set live; /* of the layer where it holds most */
    spw_rank_rows rows;
    uint64_t saved_bytes; /* of all the job's MoE layers */
    size_t layer;
} rank_memory;

/* One row under way: sums over groups, layers and steps, and the current step by layer and rank. */
typedef struct row_state {
    const spw_scheme *scheme;
    const spw_job *job;
    size_t place; /* of its counts: split x batches + batch */
    size_t batch;
    spw_layer_shape shape;
    bool refused; /* the scheme cannot run on this split */
    spw_row_sums sums;
    spw_result_drops drops;
    spw_result_memory memory;
    uint64_t *rows_received, *bytes_sent, *bytes_received, *dropped; /* [layers][ranks] */
    /* Only of a scheme whose tensors follow the routing: of the step under way [ranks], of all steps, at the worst. */
    bool dynamic;
    rank_memory *rank;
    uint64_t *step_peak; /* [steps] of the rank that holds most */
    uint64_t peak_bytes;
    spw_routed_memory worst;
    spw_reserved_memory *reserved;  /* NULL: no allocator is replayed */
    bool exact;                     /* tensor by tensor */
    bool compiled;                  /* its memory is that of a stack's compiled program */
    char outside[SPW_OUTSIDE_TEXT]; /* why the stack's fit does not cover it */
    bool timed;
    spw_replay_time time;
} row_state;

typedef struct replay {
    const spw_replay_request *request;
    spw_composer *composer;
    size_t ranks, layers, row_count, places;
    spw_counts **counts;        /* [places] */
    spw_selection **selection;  /* [places] */
    spw_segment_counts **cache; /* [splits] */
    size_t splits;
    spw_choice_tally choices[SPW_JOB_MAX_BATCHES];
    row_state *row;
    spw_footprint *footprint; /* [row_count] */
} replay;

static void destroy(replay *r) {
    spw_composer_destroy(r->composer);
    for (size_t i = 0; i < r->places; i++) {
        if (r->counts != NULL) spw_counts_destroy(r->counts[i]);
        if (r->selection != NULL) spw_selection_destroy(r->selection[i]);
    }
    spw_free(r->counts);
    spw_free(r->selection);
    for (size_t i = 0; i < r->splits && r->cache != NULL; i++) spw_segment_counts_destroy(r->cache[i]);
    spw_free(r->cache);
    for (size_t i = 0; i < r->row_count; i++) {
        spw_free(r->row[i].rows_received);
        spw_free(r->row[i].bytes_sent);
        spw_free(r->row[i].bytes_received);
        spw_free(r->row[i].dropped);
        spw_free(r->row[i].rank);
        spw_replay_time_destroy(&r->row[i].time);
        spw_free(r->row[i].step_peak);
        spw_reserved_memory_destroy(r->row[i].reserved);
    }
    spw_free(r->row);
    spw_free(r->footprint);
}

static spw_status create_row(replay *r, size_t index) {
    const spw_replay_request *q = r->request;
    row_state *row = &r->row[index];
    const size_t cells = r->layers * r->ranks;
    spw_status status = SPW_OK;
    row->place = index / q->schemes;
    row->batch = row->place % q->job->batches;
    row->job = &q->job[row->place / q->job->batches];
    row->scheme = &q->scheme[index % q->schemes];
    row->shape = spw_layer_shape_of(row->job, q->job->sequences_per_gpu[row->batch]);
    status = spw_scheme_check(row->scheme, &row->shape);
    row->refused = status == SPW_ECONFIG && q->splits > 1;
    if (row->refused) return SPW_OK;
    SPW_TRY(status);
    SPW_TRY(SPW_ALLOC(cells, &row->rows_received));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_sent));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_received));
    SPW_TRY(SPW_ALLOC(cells, &row->dropped));
    row->timed = q->time_stack != NULL && spw_compiled_time_covers(row->job, row->scheme);
    if (row->timed)
        SPW_TRY(spw_replay_time_create(q->time_stack, row->job, row->scheme, row->shape.sequences, r->layers,
                                       q->imbalance, &row->time));
    row->compiled = q->stack != NULL && spw_compiled_footprint_covers(row->job, row->scheme);
    if (row->compiled) {
        return spw_compiled_footprint_compute(q->stack, row->job, row->scheme, row->shape.sequences,
                                              &r->footprint[index], row->outside);
    }
    row->dynamic = spw_scheme_is_dynamic(row->scheme, &row->shape);
    if (row->dynamic) {
        SPW_TRY(SPW_ALLOC(r->ranks, &row->rank));
        SPW_TRY(SPW_ALLOC(spw_composer_steps(r->composer), &row->step_peak));
    }
    spw_footprint_compute(row->job, row->scheme, row->shape.sequences, NULL, &r->footprint[index]);
    if (row->dynamic && q->allocator) {
        spw_megatron_shape stack;
        row->exact = spw_megatron_job_stack(row->job, row->scheme, &row->shape, &stack);
        SPW_TRY(spw_reserved_memory_create(row->job, row->scheme, &row->shape, &r->footprint[index],
                                           r->layers, spw_composer_steps(r->composer), &row->reserved));
    }

cleanup:
    return status;
}

static spw_status create(replay *r) {
    const spw_replay_request *q = r->request;
    const spw_job *job = q->job;
    spw_status status = SPW_OK;
    const size_t splits = q->splits > 0 ? q->splits : 1, places = splits * job->batches,
                 rows = places * q->schemes;
    r->ranks = spw_job_gpus(job);
    for (size_t i = 0; i < splits; i++) {
        if (job[i].expert > SPW_TRAFFIC_MAX_RANKS) {
            return spw_fail(SPW_ECONFIG, "expert-parallel size %zu is above the %d that are supported",
                            job[i].expert, SPW_TRAFFIC_MAX_RANKS);
        }
    }
    if (q->stack != NULL || q->time_stack != NULL) SPW_TRY(spw_job_is_whole(job, "--stack"));
    const spw_composer_request compose = {.trace = q->trace,
                                          .job = job,
                                          .sequences = job->sequences_per_gpu,
                                          .batches = job->batches,
                                          .step_begin = q->step_begin,
                                          .step_end = q->step_end,
                                          .layer_begin = q->layer_begin,
                                          .layer_end = q->layer_end,
                                          .seed = q->seed,
                                          .drawn_sequences = q->drawn_sequences,
                                          .weights = spw_schemes_need_weights(q->scheme, q->schemes)};
    SPW_TRY(spw_composer_create(&compose, &r->composer));
    r->layers = spw_composer_layers(r->composer);
    SPW_TRY(SPW_ALLOC(places, &r->counts));
    SPW_TRY(SPW_ALLOC(places, &r->selection));
    r->places = places;
    SPW_TRY(SPW_ALLOC(splits, &r->cache));
    r->splits = splits;
    for (size_t i = 0; i < splits; i++) {
        const spw_placement placement = {r->ranks, job[i].expert, job[i].cluster.gpus_per_node,
                                         job[i].model.experts};
        SPW_TRY(spw_segment_counts_create(placement, &r->cache[i]));
    }
    for (size_t i = 0; i < places; i++) {
        const spw_job *split = &job[i / job->batches];
        const size_t sequences = job->sequences_per_gpu[i % job->batches];
        const spw_placement placement = {r->ranks, split->expert, split->cluster.gpus_per_node,
                                         split->model.experts};
        const spw_layer_shape shape = spw_layer_shape_of(split, sequences);
        SPW_TRY(spw_counts_create(placement, sequences, &r->counts[i]));
        SPW_TRY(spw_selection_create(placement, &shape, &r->selection[i]));
    }
    if (rows == 0) SPW_TRY(spw_fail(SPW_EARG, "no scheme or no batch to replay"));
    SPW_TRY(SPW_ALLOC(rows, &r->row));
    SPW_TRY(SPW_ALLOC(rows, &r->footprint));
    r->row_count = rows;
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(create_row(r, i));

cleanup:
    return status;
}

static void note_worst(replay *r, row_state *row, size_t step, size_t layer, size_t rank, uint64_t rows) {
    if (!spw_row_sums_note(&row->sums, rows)) return;
    if (row->dynamic) return; /* there the worst is where most is held */
    row->memory.worst_step = spw_composer_step_id(r->composer, step);
    row->memory.worst_layer = spw_composer_layer_id(r->composer, layer);
    row->memory.worst_rank = rank;
}

static size_t stands_for(const replay *r, size_t layer) {
    return spw_layers_stood_for(r->request->job->model.moe_layers, r->layers, layer);
}

/* A rank that holds and receives so many times the mean. */
static spw_rank_rows stated_rows(const row_state *row, double times) {
    spw_rank_rows rows = spw_balanced_rows(row->scheme, &row->shape);
    const uint64_t most = row->shape.ranks * row->shape.assignments;
    const double held = times * (double)rows.held, received = times * (double)rows.received;
    rows.held = held < (double)most ? (uint64_t)held : most;
    rows.received = received < (double)most ? (uint64_t)received : most;
    return rows;
}

/* The layers of a step replace each other where memory is concerned, except for what they save. */
static void note_memory(replay *r, row_state *row, const spw_flow *flow, size_t layer, size_t first) {
    for (size_t d = 0; d < row->shape.ranks && row->dynamic; d++) {
        rank_memory *rank = &row->rank[first + d];
        const double times = r->request->imbalance;
        const spw_rank_rows rows =
            times > 0.0 ? stated_rows(row, times) : spw_flow_rows(&row->shape, flow, d);
        const spw_live_set live = spw_scheme_live_set(row->scheme, &row->shape, &rows);
        rank->saved_bytes += live.saved_bytes * stands_for(r, layer);
        if (row->reserved != NULL) spw_reserved_memory_note(row->reserved, layer, first + d, rows);
        if (rank->layer != SIZE_MAX && live.backward_bytes <= rank->live.backward_bytes) continue;
        rank->live = live, rank->rows = rows, rank->layer = layer;
    }
}

static void run_group(replay *r, row_state *row, size_t step, size_t layer, size_t group) {
    const spw_counts *counts = r->counts[row->place];
    const spw_selection *selection = r->selection[row->place];
    const spw_flow *flow = spw_selection_flow(selection, group);
    const size_t ranks = row->shape.ranks, first = group * ranks, cell = layer * r->ranks + first;
    spw_traffic traffic;
    spw_traffic_compute(row->scheme, &row->shape, spw_selection_counts(selection), group, flow,
                        !spw_remat_keeps_experts(row->job->remat), &traffic, row->bytes_sent + cell,
                        row->bytes_received + cell);
    spw_row_sums_add(&row->sums, &traffic, stands_for(r, layer));
    for (size_t d = 0; d < ranks; d++) {
        note_worst(r, row, step, layer, first + d, flow->rows[d]);
        row->rows_received[cell + d] = flow->rows[d];
        row->dropped[cell + d] = flow->dropped[d];
        row->drops.dropped += flow->dropped[d];
        row->drops.assignments += counts->assignments[first + d];
    }
    note_memory(r, row, flow, layer, first);
    if (row->timed)
        spw_replay_time_layer(&row->time, layer, &row->shape, spw_selection_counts(selection), group, flow,
                              &traffic);
}

static void begin_step(replay *r) {
    for (size_t i = 0; i < r->row_count; i++) {
        for (size_t rank = 0; rank < r->ranks && r->row[i].dynamic; rank++)
            r->row[i].rank[rank] = (rank_memory){.layer = SIZE_MAX};
        if (r->row[i].timed) spw_replay_time_begin(&r->row[i].time);
    }
}

static spw_status end_step(replay *r, size_t step) {
    const bool saves = spw_remat_keeps_experts(r->request->job->remat);
    spw_status status = SPW_OK;
    for (size_t i = 0; i < r->row_count; i++) {
        row_state *row = &r->row[i];
        if (row->timed) SPW_TRY(spw_replay_time_end(&row->time));
        if (row->reserved != NULL) SPW_TRY(spw_reserved_memory_end_step(row->reserved, step));
        for (size_t n = 0; n < r->ranks && row->dynamic; n++) {
            const rank_memory *rank = &row->rank[n];
            const uint64_t peak = spw_footprint_peak(&r->footprint[i], saves, &rank->live, rank->saved_bytes);
            if (peak > row->step_peak[step]) row->step_peak[step] = peak;
            if (peak <= row->peak_bytes) continue;
            row->peak_bytes = peak;
            row->worst = (spw_routed_memory){rank->rows, rank->saved_bytes};
            row->memory.worst_step = spw_composer_step_id(r->composer, step);
            row->memory.worst_layer = spw_composer_layer_id(r->composer, rank->layer);
            row->memory.worst_rank = n;
        }
    }

cleanup:
    return status;
}

/* All schemes of one split and batch. */
static spw_status run_place(replay *r, size_t place, size_t step, size_t layer,
                            const spw_trace_record *record, const spw_layout *layout) {
    const size_t schemes = r->request->schemes;
    spw_status status = SPW_OK;
    SPW_TRY(spw_segment_counts_fill(r->cache[place / r->request->job->batches], r->counts[place], record,
                                    layout));
    if (place < r->request->job->batches) /* every split has the same choices */
        spw_choice_tally_add(&r->choices[place], r->counts[place], r->request->job->model.top_k);
    for (size_t i = place * schemes; i < (place + 1) * schemes; i++) {
        row_state *row = &r->row[i];
        const uint64_t dropped_before = row->drops.dropped, *lost = NULL;
        if (row->refused) continue;
        SPW_TRY(spw_selection_run(r->selection[place], row->scheme, r->counts[place], record, layout));
        for (size_t g = 0; g < r->ranks / row->shape.ranks; g++) run_group(r, row, step, layer, g);
        if (row->drops.dropped == dropped_before || r->request->skips_lost_tokens) continue;
        SPW_TRY(spw_selection_lost_tokens(r->selection[place], &lost));
        for (size_t rank = 0; rank < r->ranks; rank++) row->drops.tokens_fully_dropped += lost[rank];
    }

cleanup:
    return status;
}

static void forget(replay *r) {
    for (size_t i = 0; i < r->splits; i++) spw_segment_counts_forget(r->cache[i]);
}

static spw_status run_layer(replay *r, size_t step, size_t layer) {
    const size_t batches = r->request->job->batches;
    spw_status status = SPW_OK;
    const void *ids = NULL;
    for (size_t b = 0; b < batches; b++) { /* every split has the same tokens */
        spw_trace_record record;
        const spw_layout *layout = NULL;
        SPW_TRY(spw_composer_layer(r->composer, layer, b, &record, &layout));
        if (b == 0 || record.expert_id != ids) forget(r);
        ids = record.expert_id;
        for (size_t place = b; place < r->places; place += batches)
            SPW_TRY(run_place(r, place, step, layer, &record, layout));
    }

cleanup:
    return status;
}

static spw_status hand_over(replay *r, size_t step) {
    const spw_replay_sink *sink = &r->request->sink;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < r->row_count && sink->state != NULL && status == SPW_OK; i++) {
        const row_state *row = &r->row[i];
        spw_replay_step done = {.row = r->request->first_row + i,
                                .step = step,
                                .layers = r->layers,
                                .ranks = r->ranks,
                                .step_id = spw_composer_step_id(r->composer, step),
                                .rows_received = row->rows_received,
                                .bytes_sent = row->bytes_sent,
                                .bytes_received = row->bytes_received,
                                .dropped = row->dropped,
                                .peak_bytes =
                                    row->dynamic ? row->step_peak[step] : r->footprint[i].peak_bytes};
        if (row->reserved != NULL) {
            done.allocated_bytes = spw_reserved_memory_allocated(row->reserved, step);
            done.reserved_bytes = spw_reserved_memory_reserved(row->reserved, step);
        }
        status = sink->take(sink->state, &done);
    }
    return status;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Over the steps, of the rank that holds most: sorts them. The footprint becomes that of the worst. */
static spw_status finish_memory(replay *r, size_t index, spw_result_row *out) {
    row_state *row = &r->row[index];
    spw_footprint *f = &r->footprint[index];
    const size_t steps = spw_composer_steps(r->composer);
    size_t refused = 0;
    out->memory = row->memory;
    if (!row->dynamic) {
        out->memory.p50_bytes = out->memory.p99_bytes = out->memory.max_bytes = f->peak_bytes;
        out->memory.oom_probability = f->peak_bytes > f->budget_bytes ? 1.0 : 0.0;
        out->memory.oom_low = out->memory.oom_high = out->memory.oom_probability;
        return SPW_OK;
    }
    spw_footprint_compute(row->job, row->scheme, row->shape.sequences, &row->worst, f);
    qsort(row->step_peak, steps, sizeof *row->step_peak, by_size);
    for (size_t i = 0; i < steps; i++) refused += row->step_peak[i] > f->budget_bytes;
    out->memory.p50_bytes = row->step_peak[(steps - 1) / 2];
    out->memory.p99_bytes = row->step_peak[(steps * 99 + 99) / 100 - 1];
    out->memory.max_bytes = row->step_peak[steps - 1];
    spw_probability oom = spw_oom_probability(refused, steps);
    if (row->reserved != NULL) {
        const spw_status status = spw_reserved_memory_finish(row->reserved, &out->reserved);
        if (status != SPW_OK) return status;
        oom = out->reserved.oom;
        if (row->job->part == SPW_PART_EXPERT_LAYERS) { /* tensor by tensor there */
            const spw_reserved_quantiles *live = &out->reserved.as_set.requested;
            out->memory.p50_bytes = live->p50_bytes;
            out->memory.p99_bytes = live->p99_bytes;
            out->memory.max_bytes = live->max_bytes;
            out->memory.worst_step = spw_composer_step_id(r->composer, out->reserved.as_set.live_step);
            out->memory.worst_layer =
                spw_composer_layer_id(r->composer, out->reserved.as_set.live_layer % r->layers);
            out->memory.worst_rank = out->reserved.as_set.live_rank;
        }
    }
    out->memory.oom_probability = oom.value;
    out->memory.oom_low = oom.low;
    out->memory.oom_high = oom.high;
    return SPW_OK;
}

/* What a drop rule takes for granted of the trace's slots and weights. */
static void assume_choices(const replay *r, const row_state *row, spw_assumptions *list) {
    const spw_trace_info *info = spw_trace_get_info(r->request->trace);
    const bool ranked = strcmp(info->order, "descending_weight") == 0;
    if (row->scheme->type->by_choice_rank && !ranked)
        spw_assume(list,
                   "%s: a token's first slot is its first choice, which the trace does not say (order: %s)",
                   row->scheme->text, info->order[0] != '\0' ? info->order : "not said");
    if (spw_scheme_drop_rule(row->scheme) == SPW_DROP_BY_WEIGHT &&
        strcmp(info->weight_kind, "gate_used") != 0)
        spw_assume(list, "%s: the gate uses the weights as the trace has them (weight_kind: %s)",
                   row->scheme->text, info->weight_kind[0] != '\0' ? info->weight_kind : "not said");
}

static spw_status finish_row(replay *r, size_t index, spw_result_row *out) {
    row_state *row = &r->row[index];
    const size_t steps = spw_composer_steps(r->composer);
    const double records = (double)steps * (double)r->layers, cells = records * (double)r->ranks;
    out->scheme = *row->scheme;
    out->sequences = row->shape.sequences;
    out->expert = row->job->expert;
    out->fsdp = row->job->fsdp;
    out->first_step = spw_composer_step_id(r->composer, 0);
    out->last_step = spw_composer_step_id(r->composer, steps - 1);
    out->steps = steps;
    out->layers = r->layers;
    const spw_status memory = finish_memory(r, index, out);
    if (memory != SPW_OK) return memory;
    out->timed = row->timed;
    if (row->timed) {
        const spw_status status = spw_replay_time_finish(&row->time, &out->time, &out->balanced_step_s);
        if (status != SPW_OK) return status;
    }
    out->footprint = r->footprint[index];
    out->traffic = spw_row_sums_traffic(&row->sums, cells, (double)steps * (double)r->ranks);
    out->drops = row->drops;
    out->drops.lost_unknown = r->request->skips_lost_tokens && row->drops.dropped > 0;
    out->match = spw_composer_match(r->composer, row->batch);
    out->assumptions = *spw_composer_assumptions(r->composer, row->batch);
    const spw_status choices = spw_choice_tally_assume(&r->choices[row->batch], &out->assumptions);
    if (choices != SPW_OK) return choices;
    assume_choices(r, row, &out->assumptions);
    if (row->timed && out->time.outside[0] != '\0')
        spw_assume(&out->assumptions, "%s: times beyond what was fitted: %s", row->scheme->text,
                   out->time.outside);
    out->memory_kind = row->compiled ? SPW_MEMORY_ARENA : SPW_MEMORY_LIVE;
    (void)snprintf(out->memory_outside, sizeof out->memory_outside, "%s", row->outside);
    if (!row->compiled) {
        spw_assume(&out->assumptions,
                   "memory is what must be live; the copies and packing that a compiler adds are not in it");
        if (row->dynamic && row->reserved == NULL)
            spw_assume(&out->assumptions,
                       "what PyTorch's allocator reserves beyond that is not replayed here");
        if (row->reserved != NULL && !row->exact)
            spw_assume(
                &out->assumptions, "%s",
                "allocator: what does not follow the routing is one tensor a component, of the same size in "
                "every step");
        return SPW_OK;
    }
    spw_assume(&out->assumptions, "memory is what XLA's arena holds, by the coefficients of stack %s",
               r->request->stack->name);
    if (row->outside[0] != '\0')
        spw_assume(&out->assumptions, "%s: beyond what was fitted: %s", row->scheme->text, row->outside);
    return SPW_OK;
}

spw_status spw_replay_run(const spw_replay_request *request, spw_result *result) {
    spw_status status = SPW_OK;
    replay r = {.request = request};
    if (spw_replay_needs_pipeline(request->job)) return spw_replay_pipeline_run(request, result);
    SPW_TRY(create(&r));
    const size_t steps = spw_composer_steps(r.composer);
    spw_progress progress = spw_progress_begin("replay", steps * r.layers);
    for (size_t step = 0; step < steps && status == SPW_OK; step++) {
        status = spw_composer_begin(r.composer, step);
        begin_step(&r);
        for (size_t layer = 0; layer < r.layers && status == SPW_OK; layer++) {
            status = run_layer(&r, step, layer);
            spw_progress_update(&progress, step * r.layers + layer + 1);
        }
        if (status == SPW_OK) status = end_step(&r, step);
        if (status == SPW_OK) status = hand_over(&r, step);
    }
    spw_progress_end(&progress);
    for (size_t i = 0; i < r.row_count && r.row != NULL && status == SPW_OK; i++) {
        spw_result_row *row = NULL;
        if (r.row[i].refused) continue;
        status = spw_result_append(result, &row);
        if (status == SPW_OK) status = finish_row(&r, i, row);
    }

cleanup:
    destroy(&r);
    return status;
}
