#include "sim/replay/replay_row.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/replay/result_answers.h"
#include "sim/schemes/traffic.h"
#include "sim/time/routing_load.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_LINKS = 1 << 16,        /* pairs of ranks that a sink is told of */
    MOST_LATER_BYTES = 256 << 20 /* of a row */
};

/* --- Life --- */

/* In this process or in the first. */
static bool listened(const spw_replay_request *q) { return q->sink.state != NULL || q->sink.elsewhere; }

/* Many processes share the allocators of a row when its steps are over, where nobody asks for them sooner. */
static bool leaves_for_later(const spw_replay_row *row, const spw_reserved_request *allocator) {
    const spw_replay_request *q = row->frame->request;
    const bool asked = listened(q) || q->judge.state != NULL || q->memory != NULL;
    return !spw_walk_is_plain(NULL) && !asked && row->frame->steps > 1 && row->point.job->snapshot == NULL &&
           spw_reserved_memory_later_bytes(allocator) <= MOST_LATER_BYTES;
}

static spw_status create_allocator(spw_replay_row *row) {
    const spw_replay_frame *f = row->frame;
    spw_megatron_shape bare;
    row->exact =
        (spw_megatron_job_layers(&row->point, &bare) && f->stages == 1) || row->point.job->snapshot != NULL;
    spw_reserved_request request = {.point = &row->point,
                                    .footprint = row->memory.footprint,
                                    .ranks = row->memory.routed ? f->ranks : 1,
                                    .layers = f->layers,
                                    .steps = f->steps,
                                    .every = f->request->every_rank,
                                    .as_set_alone = f->request->as_set_alone,
                                    .kinds = f->kinds};
    request.later = leaves_for_later(row, &request);
    return spw_reserved_memory_create(&request, &row->reserved);
}

/* The order of what offloading copies is not known, and programs of XLA have another allocator. */
bool spw_replay_row_replays(bool allocator, const spw_point *point) {
    return allocator && point->job->offload.modules == 0 && spw_footprint_frees(point->scheme);
}

spw_status spw_replay_point_check(const spw_replay_request *request, const spw_point *point) {
    const bool weights = spw_trace_get_info(request->trace)->has_weights;
    spw_scheme own;
    spw_status status = spw_footprint_check(point->job, point->scheme);
    if (status == SPW_OK) status = spw_scheme_check(point->scheme, &point->shape);
    if (status == SPW_OK)
        status = spw_selection_check(spw_selection_scheme(point->scheme, weights, &own), weights);
    return status;
}

/* Rows and drops of the stated imbalance, as this expert-parallel size has it. */
static spw_status create_stated(spw_replay_row *row) {
    const spw_imbalance_law *law = row->frame->request->imbalance;
    const bool uneven = law->sigma > 0.0;
    double *inclusion = NULL;
    spw_status status = SPW_OK;
    row->imbalance = spw_imbalance_law_at(law, row->point.job->expert);
    SPW_TRY(SPW_ALLOC(law->experts, &inclusion));
    if (uneven) spw_imbalance_law_place(law, row->point.job->expert, inclusion);
    SPW_TRY(spw_stated_rows_of(&row->point, row->imbalance, uneven ? inclusion : NULL, &row->stated));

cleanup:
    spw_free(inclusion);
    return status;
}

/* Balanced routing stands beside that of the trace: it has the trace's limit to groups of experts. */
static void limit_groups(const spw_replay_request *q, spw_layer_shape *shape) {
    const spw_trace_info *info = spw_trace_get_info(q->trace);
    if (info->groups <= 1 || info->groups_kept < 1 || info->groups_kept >= info->groups ||
        shape->experts % info->groups != 0)
        return;
    shape->groups = info->groups;
    shape->groups_kept = info->groups_kept;
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
    if (q->imbalance != NULL) SPW_TRY(create_stated(row));
    SPW_TRY(SPW_ALLOC(cells, &row->rows_received));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_sent));
    SPW_TRY(SPW_ALLOC(cells, &row->bytes_received));
    SPW_TRY(SPW_ALLOC(cells, &row->dropped));
    if (listened(q) && f->ranks * row->point.shape.ranks <= MOST_LINKS)
        SPW_TRY(SPW_ALLOC(f->ranks * row->point.shape.ranks, &row->link_bytes));
    spw_replay_time_request time = {.stack = q->time_stack,
                                    .megatron = q->megatron,
                                    .listed = q->listed,
                                    .point = row->point,
                                    .layers = f->layers,
                                    .groups = f->ranks / row->point.shape.ranks,
                                    .micro_batches = f->micro_batches,
                                    .kinds = f->kinds,
                                    .imbalance = row->imbalance};
    limit_groups(q, &time.point.shape);
    row->timed = spw_replay_time_covers(&time);
    if (row->timed) SPW_TRY(spw_replay_time_create(&time, &row->time));
    SPW_TRY(spw_stage_memory_create(&row->point, f->ranks, f->layers, f->steps, f->kinds, !f->drops_alone,
                                    &row->memory));
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
    const spw_scheme_memory *memory = &scheme->type->memory;
    const char *outside = memory->outside != NULL ? memory->outside(scheme) : NULL;
    if (outside == NULL) outside = spw_offload_outside(job);
    if (outside != NULL) (void)snprintf(row->outside, sizeof row->outside, "%s", outside);
    if (!row->compiled && spw_replay_row_replays(q->allocator, &row->point)) SPW_TRY(create_allocator(row));

cleanup:
    return status;
}

void spw_replay_row_destroy(spw_replay_row *row) {
    spw_free(row->rows_received);
    spw_free(row->bytes_sent);
    spw_free(row->bytes_received);
    spw_free(row->dropped);
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

/* --- What one micro-batch of one layer did --- */

/* Of one group, in the record: this, then rows, sent, received and dropped [ranks] each, and where memory follows the routing
 * the rows of every rank, and where
 * somebody listens the bytes of every link. In front of the groups stands the note of the time, behind them the tokens that lost every choice. */
typedef struct group_note {
    spw_traffic traffic;
    uint64_t assignments;
} group_note;
enum { ARRAYS = 4 };

static bool notes_rows(const spw_replay_row *row) {
    return row->memory.routed && row->frame->request->imbalance == NULL;
}

static size_t group_bytes(const spw_replay_row *row) {
    const size_t links = row->point.shape.ranks * sizeof(double);
    return sizeof(group_note) + row->point.shape.ranks * (ARRAYS * sizeof(uint64_t) +
                                                          (notes_rows(row) ? sizeof(spw_rank_rows) : 0) +
                                                          (row->link_bytes != NULL ? links : 0));
}

static size_t time_bytes(const spw_replay_row *row) {
    return row->timed ? spw_replay_time_note_bytes(&row->time) : 0;
}

/* What each rank of a group sends to each other in one dispatch: its rows on the wire, all of the same size. out [ranks][ranks] */
static void note_links(const spw_flow *flow, size_t ranks, const uint64_t *sent, double *out) {
    for (size_t source = 0; source < ranks; source++) {
        const uint32_t *wire = flow->wire[source];
        uint64_t rows = 0;
        for (size_t d = 0; d < ranks; d++) rows += d == source ? 0 : wire[d];
        const double row_bytes = rows > 0 ? (double)sent[source] / (double)rows : 0.0;
        for (size_t d = 0; d < ranks; d++)
            if (d != source) out[source * ranks + d] = (double)wire[d] * row_bytes;
    }
}

/* Returns what is dropped. */
static uint64_t note_group(const spw_replay_row *row, const spw_counts *counts,
                           const spw_selection *selection, size_t group, void *time, void *out) {
    const spw_flow *flow = spw_selection_flow(selection, group);
    const spw_counts *selected = spw_selection_counts(selection);
    const size_t ranks = row->point.shape.ranks;
    group_note *note = out;
    uint64_t *rows = (uint64_t *)(note + 1), *sent = rows + ranks, *received = sent + ranks,
             *dropped = received + ranks, sum = 0;
    spw_rank_rows *of_rank = (spw_rank_rows *)(dropped + ranks);
    const spw_routed_group routed = {row->point.scheme, &row->point.shape, selected, group};
    spw_group_rows moved;
    if (!row->frame->drops_alone || row->timed || notes_rows(row)) spw_group_rows_of(&routed, flow, &moved);
    if (!row->frame->drops_alone)
        spw_traffic_compute(&routed, flow, &moved, !spw_remat_keeps_experts(row->point.job->remat),
                            &note->traffic, sent, received);
    for (size_t d = 0; d < ranks; d++) {
        rows[d] = flow->rows[d];
        dropped[d] = flow->dropped[d];
        sum += flow->dropped[d];
        note->assignments += counts->assignments[group * ranks + d];
    }
    if (notes_rows(row)) memcpy(of_rank, moved.rank, ranks * sizeof *of_rank);
    if (row->link_bytes != NULL)
        note_links(flow, ranks, sent, (double *)(of_rank + (notes_rows(row) ? ranks : 0)));
    if (row->timed) spw_replay_time_note(&row->time, &routed, flow, &moved, &note->traffic, time);
    return sum;
}

/* What follows the groups in a note. */
typedef struct row_tail {
    uint64_t lost;
    spw_level_bytes levels;
} row_tail;

/* All groups of the stage put a dispatch on the network, whose busiest port slows the exchange. */
static spw_status note_network(const spw_replay_row *row, const spw_selection *selection, void *time,
                               const char *notes, size_t note_bytes, spw_level_bytes *levels) {
    const size_t ranks = row->point.shape.ranks, groups = row->frame->ranks / ranks;
    uint64_t link = 0;
    spw_network *network = NULL;
    const spw_status status = spw_network_create(&row->point.job->cluster, &network);
    for (size_t g = 0; g < groups && network != NULL; g++) {
        const group_note *note = (const group_note *)(const void *)(notes + g * note_bytes);
        spw_traffic_carry(
            &(spw_routed_group){row->point.scheme, &row->point.shape, spw_selection_counts(selection), g},
            spw_selection_flow(selection, g), g * ranks, network);
        if (note->traffic.max_intra_bytes > link) link = note->traffic.max_intra_bytes;
    }
    if (network != NULL) {
        spw_level_bytes_raise(levels, link, network,
                              spw_traffic_row_bytes(row->point.scheme, &row->point.shape));
        if (row->timed) spw_replay_time_note_slow(&row->time, network, time);
    }
    spw_network_destroy(network);
    return status;
}

spw_status spw_replay_row_note(const spw_replay_row *row, const spw_counts *counts, spw_selection *selection,
                               spw_note *out) {
    const spw_replay_frame *f = row->frame;
    const size_t groups = f->ranks / row->point.shape.ranks, time = time_bytes(row), group = group_bytes(row);
    const uint64_t *lost = NULL;
    row_tail tail = {.lost = 0};
    uint64_t dropped = 0;
    void *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_add(out, time + groups * group + sizeof tail, &at));
    for (size_t g = 0; g < groups; g++)
        dropped += note_group(row, counts, selection, g, at, (char *)at + time + g * group);
    if (!f->drops_alone)
        SPW_TRY(note_network(row, selection, at, (const char *)at + time, group, &tail.levels));
    if (dropped > 0 && !f->request->skips_lost_tokens) {
        SPW_TRY(spw_selection_lost_tokens(selection, &lost));
        for (size_t rank = 0; rank < f->ranks; rank++) tail.lost += lost[rank];
    }
    memcpy((char *)at + time + groups * group, &tail, sizeof tail);

cleanup:
    return status;
}

bool spw_replay_row_notes_as(const spw_replay_row *row, const spw_replay_row *other) {
    return row->frame->request->imbalance == NULL && row->timed == other->timed &&
           time_bytes(row) == time_bytes(other) && group_bytes(row) == group_bytes(other) &&
           spw_remat_keeps_experts(row->point.job->remat) == spw_remat_keeps_experts(other->point.job->remat);
}

/* Of layers that are freed one by one, micro-batches behind the first `kinds` say nothing new. */
static void note_memory(spw_replay_row *row, const spw_rank_rows *of_rank, spw_replay_place place,
                        size_t first) {
    const double times = row->imbalance;
    if (!row->memory.routed || (row->memory.frees && place.micro_batch >= row->frame->kinds)) return;
    for (size_t d = 0; d < row->point.shape.ranks; d++) {
        const spw_rank_rows rows = times > 0.0 ? stated_rows(row, times) : of_rank[d];
        spw_stage_memory_note(&row->memory, place.layer, place.micro_batch, first + d, rows);
        if (row->reserved != NULL)
            spw_reserved_memory_note(row->reserved, place.layer, place.micro_batch, first + d, rows);
    }
}

/* What its ranks send, receive and drop, in as many micro-batches as are like this one. */
static void add_ranks(spw_replay_row *row, spw_replay_place place, size_t first, const uint64_t *rows) {
    const spw_replay_frame *f = row->frame;
    const size_t ranks = row->point.shape.ranks, cell = place.layer * f->ranks + first;
    const uint64_t *sent = rows + ranks, *received = sent + ranks, *dropped = received + ranks,
                   times = (f->micro_batches - place.micro_batch + f->kinds - 1) / f->kinds;
    for (size_t d = 0; d < ranks; d++) {
        if (spw_row_sums_note(&row->sums, rows[d], times))
            row->most_step = place.step, row->most_layer = place.layer, row->most_rank = first + d;
        row->rows_received[cell + d] += times * rows[d];
        row->bytes_sent[cell + d] += times * sent[d];
        row->bytes_received[cell + d] += times * received[d];
        row->dropped[cell + d] += times * dropped[d];
        row->drops.dropped += times * dropped[d];
    }
}

static void add_group(spw_replay_row *row, spw_replay_place place, size_t group, const void *data) {
    const spw_replay_frame *f = row->frame;
    const group_note *note = data;
    const size_t ranks = row->point.shape.ranks, first = group * ranks;
    const uint64_t *rows = (const uint64_t *)(note + 1), *dropped = rows + (ARRAYS - 1) * ranks;
    spw_row_sums_add(&row->sums, &note->traffic,
                     spw_layers_stood_for(row->point.job->model.moe_layers, f->layers, place.layer));
    row->drops.assignments += note->assignments;
    if (place.micro_batch < f->kinds) add_ranks(row, place, first, rows);
    for (size_t d = 0; d < ranks && row->pages.run.there; d++)
        spw_page_use_note(&row->pages, place.layer, place.micro_batch, first + d, rows[d]);
    const spw_rank_rows *of_rank = (const spw_rank_rows *)(dropped + ranks);
    const double *links = (const double *)(of_rank + (notes_rows(row) ? ranks : 0));
    for (size_t i = 0; i < ranks * ranks && row->link_bytes != NULL; i++)
        row->link_bytes[first * ranks + i] += links[i];
    note_memory(row, of_rank, place, first);
    if (f->request->overload) spw_overload_add(&row->overload, place.layer, place.micro_batch, first, rows);
}

spw_status spw_replay_row_add(spw_replay_row *row, spw_replay_place place, spw_note_reader *record) {
    const size_t groups = row->frame->ranks / row->point.shape.ranks, time = time_bytes(row),
                 group = group_bytes(row);
    row_tail tail;
    const void *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_next(record, time + groups * group + sizeof tail, &at));
    for (size_t g = 0; g < groups; g++) add_group(row, place, g, (const char *)at + time + g * group);
    if (row->timed) spw_replay_time_layer(&row->time, place.layer, place.micro_batch, at);
    memcpy(&tail, (const char *)at + time + groups * group, sizeof tail);
    row->drops.tokens_fully_dropped += tail.lost;
    spw_level_bytes_join(&row->levels, &tail.levels);

cleanup:
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

spw_status spw_replay_row_end_time(spw_replay_row *row) {
    return row->timed ? spw_replay_time_end(&row->time) : SPW_OK;
}

/* A scheme whose tensors do not follow the routing: all ranks are alike. */
static void note_balanced(spw_replay_row *row) {
    const spw_replay_frame *f = row->frame;
    const spw_rank_rows rows = spw_balanced_rows(row->point.scheme, &row->point.shape);
    for (size_t l = 0; l < f->layers; l++)
        for (size_t b = 0; b < f->micro_batches; b++) spw_reserved_memory_note(row->reserved, l, b, 0, rows);
}

spw_status spw_replay_row_end_reserved(spw_replay_row *row, size_t step) {
    if (row->reserved == NULL) return SPW_OK;
    if (!row->memory.routed) note_balanced(row);
    return spw_reserved_memory_end_step(row->reserved, step, row->memory.place_peak);
}

spw_status spw_replay_row_end(spw_replay_row *row, size_t step) {
    const bool judged = row->frame->request->judge.state != NULL && step + 1 == row->frame->steps;
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
    if (!judged) SPW_TRY(spw_replay_row_end_time(row));
    if (!judged) SPW_TRY(spw_replay_row_end_reserved(row, step));

cleanup:
    return status;
}

spw_replay_prospect spw_replay_row_prospect(const spw_replay_row *row, size_t index) {
    const spw_stage_memory *m = &row->memory;
    spw_replay_prospect out = {.row = index,
                               .budget_bytes = m->footprint[m->worst_stage].budget_bytes,
                               .drops = row->drops,
                               .tokens_per_s_most = INFINITY};
    out.drops.fraction = spw_result_drop_fraction(&row->drops);
    for (size_t step = 0; step < row->frame->steps; step++)
        if (m->step_peak[step] > out.peak_bytes) out.peak_bytes = m->step_peak[step];
    return out;
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
