#include "sim/replay/replay_pipeline.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/memory/remat.h"
#include "sim/replay/row_sums.h"
#include "sim/routing/choice_tally.h"
#include "sim/routing/selection.h"
#include "sim/routing/traffic.h"

#include <stdlib.h>
#include <string.h>

/* What one rank holds in one stage in the step under way. */
typedef struct held {
    spw_live_set live; /* of the layer and micro-batch where it holds most */
    spw_rank_rows rows;
    size_t layer; /* SIZE_MAX: none yet */
} held;

/* One row of the result under way: one scheme and batch. */
typedef struct row_state {
    const spw_scheme *scheme;
    size_t batch;
    spw_layer_shape shape; /* of a micro-batch */
    bool dynamic, refused; /* refused: the scheme cannot run on this split */
    spw_row_sums sums;
    uint64_t peak_bytes;
    spw_result_drops drops;
    spw_result_memory memory;
    uint64_t *rows_received, *bytes_sent, *bytes_received,
        *dropped;             /* [layers][ranks], micro-batches together */
    spw_footprint *footprint; /* [stages] balanced */
    held *held;               /* [stages][ranks] */
    uint64_t *kept;           /* [stages][ranks][micro-batches][chunks] bytes */
    uint64_t *step_peak;      /* [steps] */
    size_t worst_stage;
    spw_routed_memory worst;
} row_state;

typedef struct replay {
    const spw_replay_request *request;
    const spw_job *job; /* one split of the request's */
    bool tolerant;      /* there are others */
    spw_job *data;      /* the job of one stage: its ranks hold the tokens */
    spw_pipeline pipeline;
    size_t ranks, layers, row_count;
    size_t *stage, *chunk; /* [MoE layers of the job] */
    spw_composer *composer;
    spw_counts *counts[SPW_JOB_MAX_BATCHES];
    spw_selection *selection[SPW_JOB_MAX_BATCHES];
    spw_layout *layout[SPW_JOB_MAX_BATCHES];
    spw_choice_tally choices[SPW_JOB_MAX_BATCHES];
    uint64_t *sent, *received; /* [ranks of a group] */
    row_state *row;
} replay;

bool spw_replay_needs_pipeline(const spw_job *job) { return job->pipeline > 1 || job->micro_batches > 1; }

spw_status spw_micro_batch_layout(const spw_layout *layout, size_t index, size_t count, spw_layout *out) {
    const size_t each = layout->sequences / count, first = index * each;
    spw_layout_clear(out);
    for (size_t rank = 0; rank < layout->ranks; rank++) {
        for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
            spw_segment segment = layout->segment[i];
            if (segment.sequence < first || segment.sequence >= first + each) continue;
            segment.sequence -= (uint32_t)first;
            const spw_status status = spw_layout_append(out, rank, segment);
            if (status != SPW_OK) return status;
        }
    }
    return SPW_OK;
}

/* --- Life --- */

static void destroy(replay *r) {
    spw_composer_destroy(r->composer);
    for (size_t b = 0; b < SPW_JOB_MAX_BATCHES; b++) {
        spw_counts_destroy(r->counts[b]);
        spw_selection_destroy(r->selection[b]);
        spw_layout_destroy(r->layout[b]);
    }
    for (size_t i = 0; i < r->row_count && r->row != NULL; i++) {
        row_state *row = &r->row[i];
        spw_free(row->rows_received);
        spw_free(row->bytes_sent);
        spw_free(row->bytes_received);
        spw_free(row->dropped);
        spw_free(row->footprint);
        spw_free(row->held);
        spw_free(row->kept);
        spw_free(row->step_peak);
    }
    spw_free(r->row);
    spw_free(r->sent);
    spw_free(r->received);
    spw_free(r->stage);
    spw_free(r->chunk);
    spw_free(r->data);
}

/* Where each MoE layer of the job is. */
static spw_status place_layers(replay *r) {
    const spw_model *model = &r->job->model;
    const spw_pipeline *p = &r->pipeline;
    spw_status status = SPW_OK;
    size_t moe = 0;
    SPW_TRY(SPW_ALLOC(model->moe_layers, &r->stage));
    SPW_TRY(SPW_ALLOC(model->moe_layers, &r->chunk));
    for (size_t c = 0; c < p->chunks; c++) {
        for (size_t s = 0; s < p->stages; s++) {
            const spw_block block = spw_pipeline_block(p, model, s, c);
            for (size_t i = 0; i < block.moe_layers; i++, moe++) r->stage[moe] = s, r->chunk[moe] = c;
        }
    }

cleanup:
    return status;
}

static spw_status create_row(replay *r, size_t index) {
    const spw_replay_request *q = r->request;
    row_state *row = &r->row[index];
    const size_t cells = r->layers * r->ranks, places = r->pipeline.stages * r->ranks;
    spw_status status = SPW_OK;
    row->batch = index / q->schemes;
    row->scheme = &q->scheme[index % q->schemes];
    const size_t sequences = r->job->sequences_per_gpu[row->batch];
    row->shape = spw_layer_shape_of(r->job, sequences / r->pipeline.micro_batches);
    status = spw_scheme_check(row->scheme, &row->shape);
    row->refused = status == SPW_ECONFIG && r->tolerant;
    if (row->refused) return SPW_OK;
    SPW_TRY(status);
    row->dynamic = spw_scheme_is_dynamic(row->scheme, &row->shape);
    SPW_TRY(SPW_ALLOC(cells, &row->rows_received));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_sent));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_received));
    SPW_TRY(SPW_ALLOC(cells, &row->dropped));
    SPW_TRY(SPW_ALLOC(r->pipeline.stages, &row->footprint));
    SPW_TRY(SPW_ALLOC(spw_composer_steps(r->composer), &row->step_peak));
    if (row->dynamic) {
        SPW_TRY(SPW_ALLOC(places, &row->held));
        SPW_TRY(SPW_ALLOC(places * r->pipeline.micro_batches * r->pipeline.chunks, &row->kept));
    }
    for (size_t s = 0; s < r->pipeline.stages; s++) {
        spw_footprint_of_stage(r->job, row->scheme, sequences, s, NULL, &row->footprint[s]);
        if (row->footprint[s].peak_bytes > row->footprint[row->worst_stage].peak_bytes) row->worst_stage = s;
    }

cleanup:
    return status;
}

static spw_status create(replay *r) {
    const spw_replay_request *q = r->request;
    const spw_job *job = r->job;
    spw_status status = SPW_OK;
    if (q->imbalance > 0.0)
        return spw_fail(SPW_ECONFIG,
                        "a stated imbalance is not modelled with pipeline stages or micro-batches; "
                        "give a trace");
    if (job->expert > SPW_TRAFFIC_MAX_RANKS)
        return spw_fail(SPW_ECONFIG, "expert-parallel size %zu is above the %d that are supported",
                        job->expert, SPW_TRAFFIC_MAX_RANKS);
    if (job->batches * q->schemes == 0) return spw_fail(SPW_EARG, "no scheme or no batch to replay");
    SPW_TRY(SPW_ALLOC(1, &r->data));
    *r->data = *job;
    r->data->pipeline = r->data->tensor = 1;
    r->pipeline = spw_pipeline_of(job);
    r->ranks = spw_job_gpus(r->data);
    const spw_composer_request compose = {.trace = q->trace,
                                          .job = r->data,
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
    SPW_TRY(place_layers(r));
    SPW_TRY(SPW_ALLOC(job->expert, &r->sent));
    SPW_TRY(SPW_ALLOC(job->expert, &r->received));
    for (size_t b = 0; b < job->batches; b++) {
        const size_t sequences = job->sequences_per_gpu[b] / r->pipeline.micro_batches;
        const spw_placement placement = {r->ranks, job->expert, job->cluster.gpus_per_node,
                                         job->model.experts};
        const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
        SPW_TRY(spw_counts_create(placement, sequences, &r->counts[b]));
        SPW_TRY(spw_selection_create(placement, &shape, &r->selection[b]));
        SPW_TRY(spw_layout_create(r->ranks, sequences, &r->layout[b]));
    }
    SPW_TRY(SPW_ALLOC(job->batches * q->schemes, &r->row));
    r->row_count = job->batches * q->schemes;
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(create_row(r, i));

cleanup:
    return status;
}

/* --- One micro-batch of one layer --- */

/* The layers of the job that the replayed layer stands for: every layers-th, from its own number on. */
static void note_memory(replay *r, row_state *row, const spw_flow *flow, size_t layer, size_t micro,
                        size_t first) {
    const size_t cells = r->pipeline.micro_batches * r->pipeline.chunks;
    for (size_t d = 0; d < row->shape.ranks && row->dynamic; d++) {
        const spw_rank_rows rows = spw_flow_rows(&row->shape, flow, d);
        const spw_live_set live = spw_scheme_live_set(row->scheme, &row->shape, &rows);
        for (size_t l = layer; l < r->job->model.moe_layers; l += r->layers) {
            const size_t place = r->stage[l] * r->ranks + first + d;
            held *h = &row->held[place];
            row->kept[place * cells + micro * r->pipeline.chunks + r->chunk[l]] += live.saved_bytes;
            if (h->layer == SIZE_MAX || live.backward_bytes > h->live.backward_bytes)
                *h = (held){live, rows, layer};
        }
    }
}

static void note_worst(replay *r, row_state *row, size_t step, size_t layer, size_t rank, uint64_t rows) {
    if (!spw_row_sums_note(&row->sums, rows)) return;
    if (row->dynamic) return; /* there the worst is where most is held */
    row->memory.worst_step = spw_composer_step_id(r->composer, step);
    row->memory.worst_layer = spw_composer_layer_id(r->composer, layer);
    row->memory.worst_rank = rank;
}

static void run_group(replay *r, row_state *row, size_t step, size_t layer, size_t micro, size_t group) {
    const spw_job *job = r->job;
    const spw_selection *selection = r->selection[row->batch];
    const spw_flow *flow = spw_selection_flow(selection, group);
    const size_t ranks = row->shape.ranks, first = group * ranks, cell = layer * r->ranks + first;
    spw_traffic traffic;
    spw_traffic_compute(row->scheme, &row->shape, spw_selection_counts(selection), group, flow,
                        !spw_remat_keeps_experts(job->remat), &traffic, r->sent, r->received);
    spw_row_sums_add(&row->sums, &traffic, spw_layers_stood_for(job->model.moe_layers, r->layers, layer));
    for (size_t d = 0; d < ranks; d++) {
        note_worst(r, row, step, layer, first + d, flow->rows[d]);
        row->rows_received[cell + d] += flow->rows[d];
        row->bytes_sent[cell + d] += r->sent[d];
        row->bytes_received[cell + d] += r->received[d];
        row->dropped[cell + d] += flow->dropped[d];
        row->drops.dropped += flow->dropped[d];
        row->drops.assignments += r->counts[row->batch]->assignments[first + d];
    }
    note_memory(r, row, flow, layer, micro, first);
}

static spw_status run_layer(replay *r, size_t step, size_t layer) {
    const spw_replay_request *q = r->request;
    spw_status status = SPW_OK;
    for (size_t cell = 0; cell < r->job->batches * r->pipeline.micro_batches; cell++) {
        const size_t b = cell / r->pipeline.micro_batches, micro = cell % r->pipeline.micro_batches;
        spw_trace_record record;
        const spw_layout *whole = NULL;
        SPW_TRY(spw_composer_layer(r->composer, layer, b, &record, &whole));
        SPW_TRY(spw_micro_batch_layout(whole, micro, r->pipeline.micro_batches, r->layout[b]));
        SPW_TRY(spw_counts_fill(r->counts[b], &record, r->layout[b]));
        spw_choice_tally_add(&r->choices[b], r->counts[b], r->job->model.top_k);
        for (size_t i = b * q->schemes; i < (b + 1) * q->schemes; i++) {
            row_state *row = &r->row[i];
            const uint64_t dropped_before = row->drops.dropped, *lost = NULL;
            if (row->refused) continue;
            SPW_TRY(spw_selection_run(r->selection[b], row->scheme, r->counts[b], &record, r->layout[b]));
            for (size_t g = 0; g < r->ranks / row->shape.ranks; g++) run_group(r, row, step, layer, micro, g);
            if (row->drops.dropped == dropped_before || q->skips_lost_tokens) continue;
            SPW_TRY(spw_selection_lost_tokens(r->selection[b], &lost));
            for (size_t rank = 0; rank < r->ranks; rank++) row->drops.tokens_fully_dropped += lost[rank];
        }
    }

cleanup:
    return status;
}

/* --- Steps --- */

static void begin_step(replay *r) {
    const size_t cells = r->layers * r->ranks, places = r->pipeline.stages * r->ranks;
    const size_t kept = places * r->pipeline.micro_batches * r->pipeline.chunks;
    for (size_t i = 0; i < r->row_count; i++) {
        row_state *row = &r->row[i];
        if (row->refused) continue;
        memset(row->rows_received, 0, cells * sizeof *row->rows_received);
        memset(row->bytes_sent, 0, cells * sizeof *row->bytes_sent);
        memset(row->bytes_received, 0, cells * sizeof *row->bytes_received);
        memset(row->dropped, 0, cells * sizeof *row->dropped);
        if (!row->dynamic) continue;
        memset(row->kept, 0, kept * sizeof *row->kept);
        for (size_t place = 0; place < places; place++) row->held[place] = (held){.layer = SIZE_MAX};
    }
}

static void end_step(replay *r, size_t step) {
    const bool saves = spw_remat_keeps_experts(r->job->remat);
    const size_t cells = r->pipeline.micro_batches * r->pipeline.chunks;
    for (size_t i = 0; i < r->row_count; i++) {
        row_state *row = &r->row[i];
        if (row->refused) continue;
        if (!row->dynamic) row->step_peak[step] = row->footprint[row->worst_stage].peak_bytes;
        for (size_t place = 0; place < r->pipeline.stages * r->ranks && row->dynamic; place++) {
            const size_t stage = place / r->ranks;
            const held *h = &row->held[place];
            const uint64_t kept = spw_pipeline_peak(&r->pipeline, stage, row->kept + place * cells);
            const uint64_t peak = spw_footprint_peak(&row->footprint[stage], saves, &h->live, kept);
            if (peak > row->step_peak[step]) row->step_peak[step] = peak;
            if (peak <= row->peak_bytes) continue;
            row->peak_bytes = peak;
            row->worst_stage = stage;
            row->worst = (spw_routed_memory){h->rows, kept};
            row->memory.worst_step = spw_composer_step_id(r->composer, step);
            row->memory.worst_rank = place % r->ranks;
            row->memory.worst_layer =
                h->layer == SIZE_MAX ? -1 : spw_composer_layer_id(r->composer, h->layer);
        }
    }
}

static spw_status hand_over(replay *r, size_t step) {
    const spw_replay_sink *sink = &r->request->sink;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < r->row_count && sink->state != NULL && status == SPW_OK; i++) {
        const row_state *row = &r->row[i];
        if (row->refused) continue;
        const spw_replay_step done = {.row = r->request->first_row + i,
                                      .step = step,
                                      .layers = r->layers,
                                      .ranks = r->ranks,
                                      .step_id = spw_composer_step_id(r->composer, step),
                                      .rows_received = row->rows_received,
                                      .bytes_sent = row->bytes_sent,
                                      .bytes_received = row->bytes_received,
                                      .dropped = row->dropped,
                                      .peak_bytes = row->step_peak[step]};
        status = sink->take(sink->state, &done);
    }
    return status;
}

/* --- The result --- */

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void finish_memory(replay *r, row_state *row, spw_result_row *out) {
    const size_t steps = spw_composer_steps(r->composer), sequences = out->sequences;
    size_t refused = 0;
    out->footprint = row->footprint[row->worst_stage];
    if (row->dynamic)
        spw_footprint_of_stage(r->job, row->scheme, sequences, row->worst_stage, &row->worst,
                               &out->footprint);
    out->memory = row->memory;
    qsort(row->step_peak, steps, sizeof *row->step_peak, by_size);
    for (size_t i = 0; i < steps; i++) refused += row->step_peak[i] > out->footprint.budget_bytes;
    out->memory.p50_bytes = row->step_peak[(steps - 1) / 2];
    out->memory.p99_bytes = row->step_peak[(steps * 99 + 99) / 100 - 1];
    out->memory.max_bytes = row->step_peak[steps - 1];
    const spw_probability oom = spw_oom_probability(refused, steps);
    out->memory.oom_probability = oom.value;
    out->memory.oom_low = row->dynamic ? oom.low : oom.value;
    out->memory.oom_high = row->dynamic ? oom.high : oom.value;
}

static spw_status finish_row(replay *r, row_state *row, spw_result_row *out) {
    const spw_job *job = r->job;
    const size_t steps = spw_composer_steps(r->composer), stages = r->pipeline.stages;
    const double records = (double)(steps * r->layers * r->pipeline.micro_batches);
    const double cells = records * (double)r->ranks, gpus = (double)(steps * r->ranks * stages);
    out->scheme = *row->scheme;
    out->sequences = job->sequences_per_gpu[row->batch];
    out->expert = job->expert;
    out->fsdp = job->fsdp;
    out->first_step = spw_composer_step_id(r->composer, 0);
    out->last_step = spw_composer_step_id(r->composer, steps - 1);
    out->steps = steps;
    out->layers = r->layers;
    finish_memory(r, row, out);
    out->traffic = spw_row_sums_traffic(&row->sums, cells, gpus);
    out->drops = row->drops;
    out->drops.lost_unknown = r->request->skips_lost_tokens && row->drops.dropped > 0;
    out->match = spw_composer_match(r->composer, row->batch);
    out->assumptions = *spw_composer_assumptions(r->composer, row->batch);
    spw_assume(&out->assumptions,
               "memory is what must be live; the copies and packing that a compiler adds are not in it");
    if (row->dynamic)
        spw_assume(
            &out->assumptions, "%s",
            "what the allocator reserves beyond that is not replayed with pipeline stages or micro-batches");
    if (r->pipeline.micro_batches > 1)
        spw_assume(&out->assumptions,
                   "%zu micro-batches of %zu sequences; rows, dispatch and combine are of one of them",
                   r->pipeline.micro_batches, row->shape.sequences);
    if (stages > 1)
        spw_assume(&out->assumptions, "%zu stages; memory is that of stage %zu, which needs most", stages,
                   out->footprint.stage.index);
    return spw_choice_tally_assume(&r->choices[row->batch], &out->assumptions);
}

static spw_status run_split(const spw_replay_request *request, const spw_job *job, spw_result *result) {
    spw_status status = SPW_OK;
    replay r = {.request = request, .job = job, .tolerant = request->splits > 1};
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
        if (status != SPW_OK) break;
        end_step(&r, step);
        status = hand_over(&r, step);
    }
    spw_progress_end(&progress);
    for (size_t i = 0; i < r.row_count && status == SPW_OK; i++) {
        spw_result_row *row = NULL;
        if (r.row[i].refused) continue;
        status = spw_result_append(result, &row);
        if (status == SPW_OK) status = finish_row(&r, &r.row[i], row);
    }

cleanup:
    destroy(&r);
    return status;
}

spw_status spw_replay_pipeline_run(const spw_replay_request *request, spw_result *result) {
    const size_t splits = request->splits > 0 ? request->splits : 1;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < splits && status == SPW_OK; i++)
        status = run_split(request, &request->job[i], result);
    return status;
}
