#include "sim/score/whole/whole_score.h"

#include "base/memory.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/replay/replay_time.h"
#include "sim/routing/counts.h"
#include "sim/schemes/traffic.h"
#include "sim/score/score_tables.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 8 /* of a measured run: the allocator keeps what it reserved */ };
static const double MS = 1e-3;

/* --- The flow of every layer --- */

typedef struct flows {
    spw_point point;
    spw_counts *counts;
    spw_flow flow;
    size_t groups;
} flows;

static void close_flows(flows *f) {
    spw_free(f->flow.limit);
    spw_free(f->flow.dropped);
    spw_free(f->flow.rows);
    spw_free(f->flow.line);
    spw_free(f->flow.wire);
    spw_counts_destroy(f->counts);
    *f = (flows){.counts = NULL};
}

static spw_status open_flows(const spw_whole_cell *c, flows *out) {
    const spw_point point = spw_whole_cell_point(c);
    const size_t ranks = point.shape.ranks;
    const spw_placement placement = {c->gpus, ranks, c->job.cluster.gpus_per_node, c->job.model.experts, 1};
    spw_status status = SPW_OK;
    *out = (flows){.point = point, .groups = c->gpus / ranks};
    SPW_TRY(spw_counts_create(placement, point.shape.sequences, &out->counts));
    SPW_TRY(SPW_ALLOC(ranks, &out->flow.wire));
    SPW_TRY(SPW_ALLOC(ranks * ranks, &out->flow.line));
    SPW_TRY(SPW_ALLOC(ranks, &out->flow.rows));
    SPW_TRY(SPW_ALLOC(ranks, &out->flow.dropped));
    const size_t limits = spw_scheme_limits(&c->scheme, &point.shape);
    if (limits > 0) SPW_TRY(SPW_ALLOC(limits, &out->flow.limit));

cleanup:
    return status;
}

/* A scheme that sends every choice to its expert asks for the choices by rank and expert alone. */
static void fill_layer(const spw_whole_cell *c, size_t layer, flows *f) {
    const size_t experts = c->job.model.experts;
    for (size_t d = 0; d < c->gpus; d++) {
        const uint64_t *routed = c->routed + (layer * c->gpus + d) * experts;
        f->counts->tokens[d] = f->point.shape.tokens;
        f->counts->assignments[d] = 0;
        for (size_t x = 0; x < experts; x++) {
            f->counts->routed[d * experts + x] = (uint32_t)routed[x];
            f->counts->assignments[d] += routed[x];
        }
    }
}

static void flow_of(flows *f, size_t group) {
    const spw_scheme *scheme = f->point.scheme;
    scheme->type->routing.flow(&(spw_routed_group){scheme, &f->point.shape, f->counts, group}, &f->flow);
}

/* --- Memory --- */

static spw_status rank_memory(const spw_whole_cell *c, const spw_footprint *footprint,
                              const spw_rank_rows *rows, spw_whole_row *out) {
    const spw_point point = spw_whole_cell_point(c);
    const size_t layers = c->job.model.moe_layers;
    spw_reserved_memory *memory = NULL;
    spw_reserved_summary summary;
    spw_status status = SPW_OK;
    const spw_reserved_request request = {
        .point = &point, .footprint = footprint, .ranks = 1, .layers = layers, .steps = STEPS};
    SPW_TRY(spw_reserved_memory_create(&request, &memory));
    for (size_t l = 0; l < layers; l++) spw_reserved_memory_note(memory, l, 0, 0, rows[l]);
    for (size_t step = 0; step < STEPS; step++) SPW_TRY(spw_reserved_memory_end_step(memory, step, NULL));
    SPW_TRY(spw_reserved_memory_finish(memory, &summary));
    out->requested_bytes = (double)summary.as_set.requested.max_bytes;
    out->reserved_bytes = (double)summary.as_set.reserved.max_bytes;

cleanup:
    spw_reserved_memory_destroy(memory);
    return status;
}

static spw_status predict_memory(const spw_whole_cell *c, flows *f, spw_whole_row *row) {
    const size_t layers = c->job.model.moe_layers, ranks = f->point.shape.ranks;
    spw_footprint *footprint = NULL;
    spw_rank_rows *rows = NULL; /* [gpus][layers] */
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &footprint));
    SPW_TRY(SPW_ALLOC(c->gpus * layers, &rows));
    SPW_TRY(spw_footprint_compute(&f->point, NULL, footprint));
    for (size_t l = 0; l < layers; l++) {
        fill_layer(c, l, f);
        for (size_t g = 0; g < f->groups; g++) {
            flow_of(f, g);
            for (size_t d = 0; d < ranks; d++)
                rows[(g * ranks + d) * layers + l] = spw_flow_rows(&f->point.shape, &f->flow, d);
        }
    }
    for (size_t d = 0; d < c->gpus; d++) SPW_TRY(rank_memory(c, footprint, rows + d * layers, &row[d]));

cleanup:
    spw_free(rows);
    spw_free(footprint);
    return status;
}

/* --- Time --- */

static spw_status replay(const spw_whole_cell *c, flows *f, spw_replay_time *time, spw_timeline *out) {
    const size_t bytes = spw_replay_time_note_bytes(time);
    spw_network *network = NULL;
    spw_replay_times times;
    spw_traffic traffic;
    spw_group_rows rows;
    char *note = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(bytes, &note));
    spw_replay_time_begin(time);
    for (size_t l = 0; l < c->job.model.moe_layers; l++) {
        memset(note, 0, bytes);
        fill_layer(c, l, f);
        for (size_t g = 0; g < f->groups; g++) {
            flow_of(f, g);
            const spw_routed_group routed = {&c->scheme, &f->point.shape, f->counts, g};
            spw_group_rows_of(&routed, &f->flow, &rows);
            spw_traffic_compute(&routed, &f->flow, &rows, true, &traffic, NULL, NULL);
            spw_replay_time_note(time, &routed, &f->flow, &rows, &traffic, note);
        }
        spw_replay_time_layer(time, l, 0, note);
    }
    SPW_TRY(spw_replay_time_end(time));
    SPW_TRY(spw_replay_time_finish(time, &times));
    *out = times.mean;

cleanup:
    spw_free(note);
    spw_network_destroy(network);
    return status;
}

static spw_status predict_time(const spw_whole_cell *c, flows *f, const spw_software *software,
                               spw_whole_row *row) {
    const spw_fits fits = {.megatron = software->megatron ? &software->megatron_coefficients : NULL};
    const spw_replay_time_request request = {.megatron = fits.megatron,
                                             .point = f->point,
                                             .layers = c->job.model.moe_layers,
                                             .groups = f->groups,
                                             .micro_batches = 1};
    spw_replay_time time = {.steps = 0};
    spw_status status = SPW_OK;
    if (!spw_replay_time_covers(&request)) {
        for (size_t d = 0; d < c->gpus; d++)
            (void)snprintf(row[d].no_time, sizeof row[d].no_time, "%s",
                           spw_why_no_time(&c->job, &c->scheme, &fits));
        return SPW_OK;
    }
    SPW_TRY(spw_replay_time_create(&request, &time));
    SPW_TRY(replay(c, f, &time, &row[0].time));
    for (size_t d = 1; d < c->gpus; d++) row[d].time = row[0].time;

cleanup:
    spw_replay_time_destroy(&time);
    return status;
}

/* What Megatron-Core does in its optimizer's step: components whose names begin so. Without overlap_param_gather the new weights are
 * gathered there, too. */
static double optimizer_s(const spw_timeline *time) {
    static const char *const names[] = {"optimizer",      "muon",         "host_gradients",
                                        "host_optimizer", "host_weights", "weight_gathers"};
    double seconds = 0.0;
    if (time->components == 0) return NAN;
    for (size_t i = 0; i < time->components; i++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (strncmp(time->component[i].name, names[n], strlen(names[n])) == 0) {
                seconds += time->component[i].exposed_s;
                break;
            }
    return seconds;
}

/* --- Rows --- */

static spw_status read_row(const spw_csv *csv, const spw_whole_cell *c, size_t rank, spw_whole_row *out) {
    const size_t at = c->first + rank;
    spw_status status = SPW_OK;
    *out = (spw_whole_row){.table = spw_csv_where(csv),
                           .name = c->name,
                           .routing = c->routing,
                           .line = spw_csv_line(csv, at),
                           .rank = rank,
                           .gpus = c->gpus,
                           .expert_parallel = c->job.expert,
                           .rows = c->rows,
                           .requested_bytes = NAN,
                           .reserved_bytes = NAN,
                           .optimizer_s = NAN};
    (void)snprintf(out->skipped, sizeof out->skipped, "%s", c->skipped);
    SPW_TRY(spw_csv_text(csv, at, "remat", &out->remat));
    SPW_TRY(spw_score_figure(csv, at, "requested_peak", 1.0, "measured", &out->true_requested_bytes));
    SPW_TRY(spw_score_figure(csv, at, "reserved_peak", 1.0, "measured", &out->true_reserved_bytes));
    SPW_TRY(spw_score_figure(csv, at, "step_ms", MS, "measured", &out->true_step_s));
    SPW_TRY(spw_score_figure(csv, at, "optimizer_ms", MS, "measured", &out->true_optimizer_s));

cleanup:
    return status;
}

static spw_status predict(const spw_whole_cell *c, const char *stack, spw_software *software,
                          spw_whole_row *row) {
    flows f = {.counts = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(open_flows(c, &f));
    SPW_TRY(predict_memory(c, &f, row));
    SPW_TRY(stack != NULL ? spw_software_read(stack, software) : spw_software_plain(&c->job, software));
    SPW_TRY(predict_time(c, &f, software, row));
    for (size_t d = 0; d < c->gpus; d++) {
        row[d].optimizer_s = optimizer_s(&row[d].time);
        (void)snprintf(row[d].stack, sizeof row[d].stack, "%s", software->names);
    }

cleanup:
    close_flows(&f);
    return status;
}

static spw_status add_cell(const spw_csv *csv, size_t row, const spw_whole_request *q,
                           spw_measured_traces *traces, spw_software *software, spw_whole_score *out) {
    spw_whole_cell *c = NULL;
    spw_whole_row *first = &out->row[out->rows];
    const char *cluster = spw_csv_field(csv, row, "cluster");
    spw_status status = SPW_OK;
    if (q->cluster != NULL) cluster = q->cluster;
    SPW_TRY(SPW_ALLOC(1, &c));
    SPW_TRY(spw_whole_cell_read(csv, row, cluster != NULL ? cluster : "h100", traces, c));
    for (size_t d = 0; d < c->gpus; d++) SPW_TRY(read_row(csv, c, d, &first[d]));
    out->rows += c->gpus;
    if (c->skipped[0] != '\0') goto cleanup;
    status = predict(c, q->stack, software, first);
    for (size_t d = 0; d < c->gpus && (status == SPW_ECONFIG || status == SPW_EARG); d++)
        (void)snprintf(first[d].skipped, sizeof first[d].skipped, "%s", spw_last_error());
    if (status == SPW_ECONFIG || status == SPW_EARG) status = SPW_OK;

cleanup:
    if (c != NULL) spw_whole_cell_close(c);
    spw_free(c);
    return status;
}

spw_status spw_whole_score_open(const spw_whole_request *q, spw_whole_score *out) {
    spw_measured_traces *traces = NULL;
    spw_software *software = NULL;
    size_t rows = 0;
    spw_status status = SPW_OK;
    *out = (spw_whole_score){.rows = 0};
    SPW_TRY(spw_measured_traces_open(q->traces, &traces));
    SPW_TRY(SPW_ALLOC(1, &software));
    SPW_TRY(SPW_ALLOC(q->tables, &out->csv));
    SPW_TRY(spw_score_read_tables(q->table, q->tables, out->csv, &out->tables, &rows));
    SPW_TRY(SPW_ALLOC(rows, &out->row));
    for (size_t t = 0; t < q->tables; t++) {
        const size_t begin = out->rows, mine = spw_csv_rows(out->csv[t]);
        while (out->rows - begin < mine)
            SPW_TRY(add_cell(out->csv[t], out->rows - begin, q, traces, software, out));
    }

cleanup:
    spw_free(software);
    spw_measured_traces_close(traces);
    if (status != SPW_OK) spw_whole_score_close(out);
    return status;
}

void spw_whole_score_close(spw_whole_score *score) {
    for (size_t t = 0; t < score->tables; t++) spw_csv_close(score->csv[t]);
    spw_free(score->csv);
    spw_free(score->row);
    *score = (spw_whole_score){.rows = 0};
}

/* --- Errors --- */

double spw_whole_requested_error(const spw_whole_row *row) {
    return row->requested_bytes / row->true_requested_bytes - 1.0;
}
double spw_whole_reserved_error(const spw_whole_row *row) {
    return row->reserved_bytes / row->true_reserved_bytes - 1.0;
}
double spw_whole_step_error(const spw_whole_row *row) {
    return row->time.components > 0 ? row->time.step_s / row->true_step_s - 1.0 : NAN;
}
double spw_whole_optimizer_error(const spw_whole_row *row) {
    return row->optimizer_s / row->true_optimizer_s - 1.0;
}

spw_status spw_whole_errors_of(const spw_whole_score *score, double (*error)(const spw_whole_row *row),
                               spw_whole_errors *out) {
    double *off = NULL, sum = 0.0, bias = 0.0;
    const spw_status status = SPW_ALLOC(score->rows, &off);
    *out = (spw_whole_errors){.count = 0};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++) {
        const double e = error(&score->row[i]);
        if (isnan(e)) continue;
        off[out->count++] = fabs(e);
        sum += fabs(e);
        bias += e;
        out->max = fmax(out->max, fabs(e));
    }
    const double count = out->count > 0 ? (double)out->count : NAN;
    out->mean = sum / count;
    out->bias = bias / count;
    out->max = out->count > 0 ? out->max : NAN;
    out->median = spw_quantile(off, out->count, 0.5);
    spw_free(off);
    return SPW_OK;
}

spw_status spw_whole_summarise(const spw_whole_score *score, spw_whole_summary *out) {
    double *width = NULL;
    size_t steps = 0;
    const spw_status status = SPW_ALLOC(score->rows, &width);
    *out = (spw_whole_summary){.skipped = 0};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++) {
        const spw_whole_row *row = &score->row[i];
        const bool skipped = row->skipped[0] != '\0';
        out->skipped += skipped;
        out->untimed += row->time.components == 0;
        out->composed += !skipped && row->rows != SPW_WHOLE_ROWS_AS_MEASURED;
        out->agreed += !skipped && row->rows == SPW_WHOLE_ROWS_COMPOSED;
        if (isnan(spw_whole_step_error(row))) continue;
        width[steps++] = row->time.high_s / row->time.low_s;
        out->inside += row->true_step_s >= row->time.low_s && row->true_step_s <= row->time.high_s;
    }
    out->width_median = spw_quantile(width, steps, 0.5);
    spw_free(width);
    return SPW_OK;
}
