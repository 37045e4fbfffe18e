#include "sim/replay/replay_row.h"

#include "base/memory.h"
#include "sim/input/remat.h"
#include "sim/memory/compiled_footprint.h"
#include "sim/memory/footprint_check.h"
#include "sim/memory/megatron_job.h"
#include "sim/memory/reserved_memory.h"
#include "sim/schemes/traffic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LINKS = 1 << 16 /* pairs of ranks that a sink is told of */ };

/* --- Life --- */

static spw_status create_allocator(spw_replay_row *row) {
    const spw_replay_frame *f = row->frame;
    spw_megatron_shape bare;
    row->exact = spw_megatron_job_layers(&row->point, &bare) || row->point.job->snapshot != NULL;
    return spw_reserved_memory_create(&row->point, row->memory.footprint, f->layers, f->steps,
                                      &row->reserved);
}

spw_status spw_replay_point_check(const spw_replay_request *request, const spw_point *point) {
    const bool weights = spw_trace_get_info(request->trace)->has_weights;
    spw_status status = spw_footprint_check(point->job, point->scheme);
    if (status == SPW_OK) status = spw_scheme_check(point->scheme, &point->shape);
    if (status == SPW_OK) status = spw_selection_check(point->scheme, weights);
    if (status == SPW_OK && request->imbalance > (double)point->job->expert)
        return spw_fail(SPW_ECONFIG, "imbalance %g: the busiest rank's rows over the mean are in [1, %zu]",
                        request->imbalance, point->job->expert);
    return status;
}

spw_status spw_replay_row_create(const spw_replay_frame *f, const spw_job *job, const spw_scheme *scheme,
                                 size_t batch, spw_replay_row *row) {
    const spw_replay_request *q = f->request;
    const size_t sequences = job->sequences_per_gpu[batch], cells = f->layers * f->ranks;
    *row = (spw_replay_row){.frame = f, .point = spw_point_of(job, scheme, sequences), .batch = batch};
    spw_status status = spw_replay_point_check(q, &row->point);
    row->refused = status == SPW_ECONFIG && (q->splits > 1 || q->refuses);
    if (row->refused) {
        (void)snprintf(row->refusal, sizeof row->refusal, "%s", spw_last_error());
        return SPW_OK;
    }
    SPW_TRY(status);
    SPW_TRY(SPW_ALLOC(cells, &row->rows_received));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_sent));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_received));
    SPW_TRY(SPW_ALLOC(cells, &row->dropped));
    SPW_TRY(SPW_ALLOC(row->point.shape.ranks, &row->sent));
    SPW_TRY(SPW_ALLOC(row->point.shape.ranks, &row->received));
    if (q->sink.state != NULL && f->ranks * row->point.shape.ranks <= MOST_LINKS)
        SPW_TRY(SPW_ALLOC(f->ranks * row->point.shape.ranks, &row->link_bytes));
    const spw_replay_time_request time = {.stack = q->time_stack,
                                          .megatron = q->megatron,
                                          .point = row->point,
                                          .layers = f->layers,
                                          .groups = f->ranks / row->point.shape.ranks,
                                          .micro_batches = f->micro_batches,
                                          .imbalance = q->imbalance};
    if (q->imbalance > 0.0) SPW_TRY(spw_stated_rows_of(&row->point, q->imbalance, &row->stated));
    row->timed = spw_replay_time_covers(&time);
    if (row->timed) SPW_TRY(spw_replay_time_create(&time, &row->time));
    SPW_TRY(spw_stage_memory_create(&row->point, f->ranks, f->layers, f->steps, &row->memory));
    if (q->overload) {
        const spw_overload_shape overload = {f->ranks, row->point.shape.ranks, f->layers, &job->model,
                                             spw_pipeline_of(job)};
        SPW_TRY(spw_overload_create(&overload, &row->overload));
    }
    SPW_TRY(spw_page_use_create(&row->point, f->ranks, f->layers, &row->pages));
    row->compiled = q->stack != NULL && spw_compiled_footprint_covers(job, scheme);
    if (row->compiled) {
        row->memory.routed = false;
        row->memory.worst_stage = 0; /* all keep the same */
        SPW_TRY(spw_compiled_footprint_compute(q->stack, job, scheme, sequences, row->memory.footprint,
                                               row->outside));
    }
    if (row->memory.routed && q->allocator && !f->parts) SPW_TRY(create_allocator(row));

cleanup:
    return status;
}

void spw_replay_row_destroy(spw_replay_row *row) {
    spw_free(row->rows_received);
    spw_free(row->bytes_sent);
    spw_free(row->bytes_received);
    spw_free(row->dropped);
    spw_free(row->sent);
    spw_free(row->received);
    spw_free(row->link_bytes);
    spw_overload_destroy(&row->overload);
    spw_page_use_destroy(&row->pages);
    spw_stage_memory_destroy(&row->memory);
    spw_reserved_memory_destroy(row->reserved);
    spw_replay_time_destroy(&row->time);
}

/* --- A step --- */

void spw_replay_row_begin(spw_replay_row *row) {
    const size_t bytes = row->frame->layers * row->frame->ranks * sizeof(uint64_t);
    if (row->refused) return;
    memset(row->rows_received, 0, bytes);
    memset(row->bytes_sent, 0, bytes);
    memset(row->bytes_received, 0, bytes);
    memset(row->dropped, 0, bytes);
    row->dropped_before = row->drops.dropped;
    row->assignments_before = row->drops.assignments;
    spw_stage_memory_begin(&row->memory);
    if (row->frame->request->overload) spw_overload_begin(&row->overload);
    spw_page_use_begin(&row->pages);
    if (row->timed) spw_replay_time_begin(&row->time);
}

/* A rank that holds and receives so many times the mean, as far as the scheme lets it. */
static spw_rank_rows stated_rows(const spw_replay_row *row, double times) {
    spw_rank_rows rows = spw_balanced_rows(row->point.scheme, &row->point.shape);
    const uint64_t most = row->point.shape.ranks * row->point.shape.assignments;
    const double held = times * (double)rows.held, received = times * (double)rows.received;
    rows.held = held < (double)most ? (uint64_t)held : most;
    rows.received = received < (double)most ? (uint64_t)received : most;
    if (!(row->stated.dropped > 0.0)) return rows;
    const spw_rank_rows *busy = &row->stated.busy;
    rows.held = busy->held < rows.held ? busy->held : rows.held;
    rows.received = busy->received < rows.received ? busy->received : rows.received;
    if (spw_scheme_once_a_rank(row->point.scheme) && rows.received > rows.held) rows.received = rows.held;
    return rows;
}

static void note_memory(spw_replay_row *row, const spw_flow *flow, spw_replay_place place, size_t first) {
    const double times = row->frame->request->imbalance;
    for (size_t d = 0; d < row->point.shape.ranks && row->memory.routed; d++) {
        const spw_rank_rows rows =
            times > 0.0 ? stated_rows(row, times) : spw_flow_rows(&row->point.shape, flow, d);
        spw_stage_memory_note(&row->memory, place.layer, place.micro_batch, first + d, rows);
        if (row->reserved != NULL) spw_reserved_memory_note(row->reserved, place.layer, first + d, rows);
    }
}

/* What each rank of a group sends to each other in one dispatch: its rows on the wire, all of the same size. */
static void note_links(spw_replay_row *row, const spw_flow *flow, size_t first) {
    const size_t ranks = row->point.shape.ranks;
    for (size_t source = 0; source < ranks && row->link_bytes != NULL; source++) {
        const uint64_t *wire = flow->wire + source * ranks;
        uint64_t rows = 0;
        for (size_t d = 0; d < ranks; d++) rows += d == source ? 0 : wire[d];
        for (size_t d = 0; d < ranks && rows > 0; d++) {
            if (d != source)
                row->link_bytes[(first + source) * ranks + d] +=
                    (double)wire[d] * ((double)row->sent[source] / (double)rows);
        }
    }
}

static void add_group(spw_replay_row *row, spw_replay_place place, const spw_counts *counts,
                      const spw_selection *selection, size_t group) {
    const spw_replay_frame *f = row->frame;
    const spw_flow *flow = spw_selection_flow(selection, group);
    const size_t ranks = row->point.shape.ranks, first = group * ranks, cell = place.layer * f->ranks + first;
    spw_traffic traffic;
    spw_traffic_compute(row->point.scheme, &row->point.shape, spw_selection_counts(selection), group, flow,
                        !spw_remat_keeps_experts(row->point.job->remat), &traffic, row->sent, row->received);
    spw_row_sums_add(&row->sums, &traffic,
                     spw_layers_stood_for(row->point.job->model.moe_layers, f->layers, place.layer));
    note_links(row, flow, first);
    for (size_t d = 0; d < ranks; d++) {
        if (spw_row_sums_note(&row->sums, flow->rows[d]))
            row->most_step = place.step, row->most_layer = place.layer, row->most_rank = first + d;
        row->rows_received[cell + d] += flow->rows[d];
        row->bytes_sent[cell + d] += row->sent[d];
        row->bytes_received[cell + d] += row->received[d];
        row->dropped[cell + d] += flow->dropped[d];
        row->drops.dropped += flow->dropped[d];
        spw_page_use_note(&row->pages, place.layer, place.micro_batch, first + d, flow->rows[d]);
        row->drops.assignments += counts->assignments[first + d];
    }
    note_memory(row, flow, place, first);
    if (f->request->overload)
        spw_overload_add(&row->overload, place.layer, place.micro_batch, first, flow->rows);
    if (row->timed)
        spw_replay_time_layer(&row->time, place.layer, place.micro_batch, &row->point.shape,
                              spw_selection_counts(selection), group, flow, &traffic);
}

spw_status spw_replay_row_add(spw_replay_row *row, spw_replay_place place, const spw_counts *counts,
                              spw_selection *selection) {
    const spw_replay_frame *f = row->frame;
    const uint64_t dropped_before = row->drops.dropped, *lost = NULL;
    for (size_t g = 0; g < f->ranks / row->point.shape.ranks; g++)
        add_group(row, place, counts, selection, g);
    if (row->drops.dropped == dropped_before || f->request->skips_lost_tokens) return SPW_OK;
    const spw_status status = spw_selection_lost_tokens(selection, &lost);
    for (size_t rank = 0; rank < f->ranks && status == SPW_OK; rank++)
        row->drops.tokens_fully_dropped += lost[rank];
    return status;
}

static void note_drops(spw_replay_row *row, size_t step) {
    spw_result_drops *d = &row->drops;
    const double assignments = (double)(d->assignments - row->assignments_before),
                 fraction = (double)(d->dropped - row->dropped_before) / fmax(assignments, 1.0);
    if (d->dropped > row->dropped_before) {
        d->dropping_steps++;
        d->dropping_assignments += d->assignments - row->assignments_before;
    }
    if (step > 0 && !(fraction > d->worst_fraction)) return;
    d->worst_fraction = fraction;
    d->worst_step = spw_composer_step_id(row->frame->composer, step);
}

spw_status spw_replay_row_end(spw_replay_row *row, size_t step) {
    spw_status status = SPW_OK;
    if (row->refused) return SPW_OK;
    note_drops(row, step);
    spw_page_use_end(&row->pages, row->drops.dropped > row->dropped_before,
                     spw_composer_step_id(row->frame->composer, step));
    spw_stage_memory_end(&row->memory, step);
    if (row->frame->request->overload) {
        spw_overload_end(&row->overload, row->factor);
        spw_overload_run_add(&row->overload_run, row->factor,
                             spw_composer_step_id(row->frame->composer, step));
    }
    if (row->timed) SPW_TRY(spw_replay_time_end(&row->time));
    if (row->reserved != NULL) SPW_TRY(spw_reserved_memory_end_step(row->reserved, step));

cleanup:
    return status;
}

spw_replay_step spw_replay_row_step(const spw_replay_row *row, size_t index, size_t step) {
    const spw_replay_frame *f = row->frame;
    spw_replay_step done = {.row = f->request->first_row + index,
                            .step = step,
                            .layers = f->layers,
                            .ranks = f->ranks,
                            .step_id = spw_composer_step_id(f->composer, step),
                            .rows_received = row->rows_received,
                            .bytes_sent = row->bytes_sent,
                            .bytes_received = row->bytes_received,
                            .dropped = row->dropped,
                            .link_bytes = row->link_bytes,
                            .group_ranks = row->point.shape.ranks,
                            .last = step + 1 == f->steps,
                            .peak_bytes = row->memory.step_peak[step],
                            .step_s = row->time.last_s};
    if (f->request->overload) {
        done.overload = &row->overload;
        memcpy(done.factor, row->factor, sizeof done.factor);
    }
    if (row->reserved != NULL) {
        done.allocated_bytes = spw_reserved_memory_allocated(row->reserved, step);
        done.reserved_bytes = spw_reserved_memory_reserved(row->reserved, step);
    }
    return done;
}
