#include "sim/replay.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/traffic.h"

#include <string.h>

/* One row under way: sums over groups, layers and steps, and the current step by layer and rank. */
typedef struct row_state {
    const spw_scheme *scheme;
    size_t batch;
    spw_layer_shape shape;
    double dispatch, combine, step_bytes, intra, inter, rows; /* sums of bytes and rows */
    uint64_t rows_max, max_link;
    spw_result_drops drops;
    spw_result_memory memory;
    uint64_t *rows_received, *bytes_sent, *bytes_received, *dropped; /* [layers][ranks] */
} row_state;

typedef struct replay {
    const spw_replay_request *request;
    spw_composer *composer;
    size_t ranks, layers, row_count;
    spw_counts *counts[SPW_JOB_MAX_BATCHES];
    row_state *row;
    spw_footprint *footprint; /* [row_count] */
    spw_flow flow;            /* of one group */
    uint32_t *limit;          /* [ranks][units][experts] of all groups */
    uint64_t *lost;           /* [ranks] */
} replay;

static void destroy(replay *r) {
    spw_composer_destroy(r->composer);
    for (size_t b = 0; b < SPW_JOB_MAX_BATCHES; b++) spw_counts_destroy(r->counts[b]);
    for (size_t i = 0; i < r->row_count; i++) {
        spw_free(r->row[i].rows_received);
        spw_free(r->row[i].bytes_sent);
        spw_free(r->row[i].bytes_received);
        spw_free(r->row[i].dropped);
    }
    spw_free(r->row);
    spw_free(r->footprint);
    spw_free(r->flow.wire);
    spw_free(r->flow.rows);
    spw_free(r->flow.dropped);
    spw_free(r->limit);
    spw_free(r->lost);
}

static spw_status create_row(replay *r, size_t index) {
    const spw_replay_request *q = r->request;
    row_state *row = &r->row[index];
    const size_t cells = r->layers * r->ranks;
    spw_status status = SPW_OK;
    row->batch = index / q->schemes;
    row->scheme = &q->scheme[index % q->schemes];
    row->shape = spw_layer_shape_of(q->job, q->job->sequences_per_gpu[row->batch]);
    if (row->scheme->type->check != NULL) SPW_TRY(row->scheme->type->check(row->scheme, &row->shape));
    SPW_TRY(SPW_ALLOC(cells, &row->rows_received));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_sent));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_received));
    SPW_TRY(SPW_ALLOC(cells, &row->dropped));
    spw_footprint_compute(q->job, row->scheme, row->shape.sequences, &r->footprint[index]);

cleanup:
    return status;
}

static spw_status create(replay *r) {
    const spw_replay_request *q = r->request;
    const spw_job *job = q->job;
    spw_status status = SPW_OK;
    const size_t rows = job->batches * q->schemes;
    size_t most = 1;
    r->ranks = spw_job_gpus(job);
    if (job->expert > SPW_TRAFFIC_MAX_RANKS) {
        return spw_fail(SPW_ECONFIG, "expert-parallel size %zu is above the %d that are supported",
                        job->expert, SPW_TRAFFIC_MAX_RANKS);
    }
    const spw_composer_request compose = {q->trace,       job,           job->sequences_per_gpu,
                                          job->batches,   q->step_begin, q->step_end,
                                          q->layer_begin, q->layer_end,  q->seed};
    SPW_TRY(spw_composer_create(&compose, &r->composer));
    r->layers = spw_composer_layers(r->composer);
    for (size_t b = 0; b < job->batches; b++) {
        const size_t sequences = job->sequences_per_gpu[b];
        const spw_placement placement = {r->ranks, job->expert, job->cluster.gpus_per_node,
                                         job->model.experts};
        SPW_TRY(spw_counts_create(placement, sequences, &r->counts[b]));
        most = sequences > most ? sequences : most;
    }
    if (rows == 0) SPW_TRY(spw_fail(SPW_EARG, "no scheme or no batch to replay"));
    SPW_TRY(SPW_ALLOC(rows, &r->row));
    SPW_TRY(SPW_ALLOC(rows, &r->footprint));
    r->row_count = rows;
    for (size_t i = 0; i < r->row_count; i++) SPW_TRY(create_row(r, i));
    SPW_TRY(SPW_ALLOC(job->expert * job->expert, &r->flow.wire));
    SPW_TRY(SPW_ALLOC(job->expert, &r->flow.rows));
    SPW_TRY(SPW_ALLOC(job->expert, &r->flow.dropped));
    SPW_TRY(SPW_ALLOC(r->ranks * most * job->model.experts, &r->limit));
    SPW_TRY(SPW_ALLOC(r->ranks, &r->lost));

cleanup:
    return status;
}

static void note_worst(replay *r, row_state *row, size_t step, size_t layer, size_t rank, uint64_t rows) {
    if (rows < row->rows_max || (rows == row->rows_max && row->rows > 0.0)) return;
    row->rows_max = rows;
    row->memory.worst_step = spw_composer_step_id(r->composer, step);
    row->memory.worst_layer = spw_composer_layer_id(r->composer, layer);
    row->memory.worst_rank = rank;
}

/* How many of the job's MoE layers the replayed layer stands for, when they are taken in turn. */
static size_t stands_for(const replay *r, size_t layer) {
    const size_t moe_layers = r->request->job->model.moe_layers;
    return moe_layers / r->layers + (layer < moe_layers % r->layers ? 1 : 0);
}

static void run_group(replay *r, row_state *row, size_t step, size_t layer, size_t group) {
    const spw_counts *counts = r->counts[row->batch];
    const spw_scheme_type *type = row->scheme->type;
    const size_t ranks = row->shape.ranks, first = group * ranks, cell = layer * r->ranks + first;
    const size_t units = type->limit_per_sequence ? row->shape.sequences : 1;
    spw_traffic traffic;
    r->flow.limit = r->limit + first * units * row->shape.experts;
    type->flow(row->scheme, &row->shape, counts, group, &r->flow);
    spw_traffic_compute(row->scheme, &row->shape, counts, group, &r->flow,
                        r->request->job->remat != SPW_REMAT_NONE, &traffic, row->bytes_sent + cell,
                        row->bytes_received + cell);
    row->dispatch += (double)traffic.dispatch_bytes;
    row->combine += (double)traffic.combine_bytes;
    row->intra += (double)traffic.intra_node_bytes;
    row->inter += (double)traffic.inter_node_bytes;
    row->step_bytes += (double)traffic.layer_bytes * (double)stands_for(r, layer);
    if (traffic.max_link_bytes > row->max_link) row->max_link = traffic.max_link_bytes;
    for (size_t d = 0; d < ranks; d++) {
        note_worst(r, row, step, layer, first + d, r->flow.rows[d]);
        row->rows += (double)r->flow.rows[d];
        row->rows_received[cell + d] = r->flow.rows[d];
        row->dropped[cell + d] = r->flow.dropped[d];
        row->drops.dropped += r->flow.dropped[d];
        row->drops.assignments += counts->assignments[first + d];
    }
}

static spw_status run_layer(replay *r, size_t step, size_t layer) {
    spw_status status = SPW_OK;
    const spw_job *job = r->request->job;
    for (size_t b = 0; b < job->batches; b++) {
        spw_trace_record record;
        const spw_layout *layout = NULL;
        SPW_TRY(spw_composer_layer(r->composer, layer, b, &record, &layout));
        SPW_TRY(spw_counts_fill(r->counts[b], &record, layout));
        for (size_t i = b * r->request->schemes; i < (b + 1) * r->request->schemes; i++) {
            row_state *row = &r->row[i];
            const uint64_t dropped_before = row->drops.dropped;
            for (size_t g = 0; g < r->ranks / row->shape.ranks; g++) run_group(r, row, step, layer, g);
            if (row->drops.dropped == dropped_before) continue;
            SPW_TRY(spw_counts_lost_tokens(r->counts[b], &record, layout, r->limit,
                                           row->scheme->type->limit_per_sequence, r->lost));
            for (size_t rank = 0; rank < r->ranks; rank++) row->drops.tokens_fully_dropped += r->lost[rank];
        }
    }

cleanup:
    return status;
}

static spw_status hand_over(replay *r, size_t step) {
    const spw_replay_sink *sink = &r->request->sink;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < r->row_count && sink->state != NULL && status == SPW_OK; i++) {
        const row_state *row = &r->row[i];
        const spw_replay_step done = {.row = r->request->first_row + i,
                                      .step = step,
                                      .layers = r->layers,
                                      .ranks = r->ranks,
                                      .step_id = spw_composer_step_id(r->composer, step),
                                      .rows_received = row->rows_received,
                                      .bytes_sent = row->bytes_sent,
                                      .bytes_received = row->bytes_received,
                                      .dropped = row->dropped,
                                      .peak_bytes = r->footprint[i].peak_bytes};
        status = sink->take(sink->state, &done);
    }
    return status;
}

static void finish_row(const replay *r, size_t index, spw_result_row *out) {
    const row_state *row = &r->row[index];
    const spw_footprint *f = &r->footprint[index];
    const size_t steps = spw_composer_steps(r->composer);
    const double records = (double)steps * (double)r->layers, cells = records * (double)r->ranks;
    out->scheme = *row->scheme;
    out->sequences = row->shape.sequences;
    out->first_step = spw_composer_step_id(r->composer, 0);
    out->last_step = spw_composer_step_id(r->composer, steps - 1);
    out->steps = steps;
    out->layers = r->layers;
    out->footprint = *f;
    out->memory = row->memory;
    out->memory.p50_bytes = out->memory.p99_bytes = out->memory.max_bytes = f->peak_bytes;
    out->memory.oom_probability = f->peak_bytes > f->budget_bytes ? 1.0 : 0.0;
    out->traffic =
        (spw_result_traffic){.dispatch_bytes_per_gpu = row->dispatch / cells,
                             .combine_bytes_per_gpu = row->combine / cells,
                             .step_bytes_per_gpu = row->step_bytes / ((double)steps * (double)r->ranks),
                             .intra_node_bytes = row->intra / cells,
                             .inter_node_bytes = row->inter / cells,
                             .max_link_bytes = row->max_link,
                             .rows_max = row->rows_max,
                             .rows_mean = row->rows / cells};
    out->drops = row->drops;
    out->match = spw_composer_match(r->composer, row->batch);
    out->assumptions = *spw_composer_assumptions(r->composer, row->batch);
    spw_assume(&out->assumptions,
               "memory is what must be live; the copies and packing that a compiler adds are not in it");
}

spw_status spw_replay_run(const spw_replay_request *request, spw_result *result) {
    spw_status status = SPW_OK;
    replay r = {.request = request};
    SPW_TRY(create(&r));
    const size_t steps = spw_composer_steps(r.composer);
    spw_progress progress = spw_progress_begin("replay", steps * r.layers);
    for (size_t step = 0; step < steps && status == SPW_OK; step++) {
        status = spw_composer_begin(r.composer, step);
        for (size_t layer = 0; layer < r.layers && status == SPW_OK; layer++) {
            status = run_layer(&r, step, layer);
            spw_progress_update(&progress, step * r.layers + layer + 1);
        }
        if (status == SPW_OK) status = hand_over(&r, step);
    }
    spw_progress_end(&progress);
    for (size_t i = 0; i < r.row_count && r.row != NULL && status == SPW_OK; i++) {
        spw_result_row *row = NULL;
        status = spw_result_append(result, &row);
        if (status == SPW_OK) finish_row(&r, i, row);
    }

cleanup:
    destroy(&r);
    return status;
}
