#include "sim/score/megatron/measured_score.h"

#include "base/memory.h"
#include "sim/memory/allocator/event_list.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/score/megatron/measured_batch.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 1 };

/* --- A process: layers, allocator and what is live --- */

typedef struct process {
    spw_bare_layers *layers;
    spw_allocator *allocator;
    spw_allocation *live;
    spw_event_list list;
} process;

static void process_end(process *p) {
    spw_bare_layers_destroy(p->layers);
    spw_allocator_destroy(p->allocator);
    spw_free(p->live);
    spw_event_list_destroy(&p->list);
    *p = (process){.layers = NULL};
}

static spw_status process_begin(const spw_measured_run *run, process *p) {
    const spw_measured_shape *b = &run->batch;
    const spw_megatron_shape shape = {.layers = b->layers,
                                      .tokens = b->tokens,
                                      .top_k = b->top_k,
                                      .experts = b->experts,
                                      .experts_per_rank = b->experts / b->ranks,
                                      .hidden = b->hidden,
                                      .ffn = b->ffn,
                                      .capacity = b->capacity,
                                      .padded = b->padded,
                                      .sequential = run->sequential,
                                      .recompute = run->recompute};
    spw_list_replay replay;
    spw_status status = SPW_OK;
    *p = (process){.layers = NULL};
    SPW_TRY(spw_bare_layers_create(&shape, &p->layers));
    SPW_TRY(spw_allocator_create(&run->settings, &p->allocator));
    SPW_TRY(SPW_ALLOC(spw_bare_layers_slots(p->layers), &p->live));
    for (size_t i = 0; i < spw_bare_layers_slots(p->layers); i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    SPW_TRY(spw_bare_layers_begin(p->layers, &p->list));
    SPW_TRY(spw_event_list_replay(&p->list, p->allocator, p->live, &replay));

cleanup:
    if (status != SPW_OK) process_end(p);
    return status;
}

static spw_status process_step(process *p, const spw_megatron_rows *rows, spw_list_replay *out) {
    spw_status status = spw_bare_layers_step(p->layers, rows, &p->list);
    return status == SPW_OK ? spw_event_list_replay(&p->list, p->allocator, p->live, out) : status;
}

static spw_status read_measured(const spw_csv *csv, size_t row, const char *column, uint64_t *out) {
    if (spw_csv_field(csv, row, column) == NULL) return SPW_OK; /* the table does not say */
    return spw_measured_read_list(csv, row, column, 1, out);
}

static spw_status set_figures(const spw_csv *csv, size_t row, const spw_list_replay *replay, bool sequence,
                              spw_measured_cell *cell) {
    spw_status status = SPW_OK;
    cell->requested_peak.predicted = replay->after.requested_peak_bytes;
    cell->requested_after_forward.predicted = replay->after_forward.requested_bytes;
    cell->allocated_before.predicted = replay->before.allocated_bytes;
    cell->allocated_after_forward.predicted = replay->after_forward.allocated_bytes;
    cell->allocated_peak.predicted = replay->after.allocated_peak_bytes;
    cell->reserved.predicted = replay->after.reserved_peak_bytes;
    SPW_TRY(read_measured(csv, row, "requested_peak_bytes", &cell->requested_peak.measured));
    SPW_TRY(
        read_measured(csv, row, "requested_after_forward_bytes", &cell->requested_after_forward.measured));
    SPW_TRY(read_measured(csv, row, "allocated_before_bytes", &cell->allocated_before.measured));
    SPW_TRY(
        read_measured(csv, row, "allocated_after_forward_bytes", &cell->allocated_after_forward.measured));
    SPW_TRY(read_measured(csv, row, "allocated_peak_bytes", &cell->allocated_peak.measured));
    SPW_TRY(read_measured(csv, row, sequence ? "reserved_bytes" : "reserved_peak_bytes",
                          &cell->reserved.measured));

cleanup:
    return status;
}

/* --- A table of runs --- */

/* What a column says, layer by layer or as a sum, beside what was composed. */
typedef struct column_check {
    const char *column;
    bool by_layer;
    size_t offset; /* into spw_measured_rows */
    uint64_t unit; /* bytes of a row, 0 = the column counts rows; 1 stands for 2 x hidden */
} column_check;

#define ROWS_AT(member) offsetof(spw_measured_rows, member)
enum { HIDDEN_ROW = 1, PROB_ROW = 4 };
static const column_check checks[] = {
    /* of the first, a table of sequences has a column */
    {"rows_received_per_layer", true, ROWS_AT(received), 0},
    {"rows_received", false, ROWS_AT(received), 0},
    {"assignments_received_per_layer", true, ROWS_AT(assignments_received), 0},
    {"rows_sent_per_layer", true, ROWS_AT(sent), 0},
    {"rows_kept_local_per_layer", true, ROWS_AT(kept_local), 0},
    {"max_expert_rows_per_layer", true, ROWS_AT(most_of_expert), 0},
    {"dropped", false, ROWS_AT(dropped), 0},
    {"dropped_per_layer", true, ROWS_AT(dropped), 0},
    {"dispatch_hidden_bytes_off_rank", false, ROWS_AT(sent_off_rank), HIDDEN_ROW},
    {"dispatch_probs_bytes_off_rank", false, ROWS_AT(sent_off_rank), PROB_ROW},
    {"combine_hidden_bytes_off_rank", false, ROWS_AT(received_off_rank), HIDDEN_ROW},
};
enum { SEQUENCE_CHECKS = 1, RUN_CHECKS = sizeof checks / sizeof *checks };

/* The first `count` checks. */
static spw_status compare_rows(const spw_csv *csv, size_t row, const spw_measured_shape *shape,
                               const spw_measured_rows *layer, size_t count, const char **differs) {
    *differs = NULL;
    for (size_t c = 0; c < count && *differs == NULL; c++) {
        const column_check *check = &checks[c];
        uint64_t table[SPW_MEASURED_LAYERS] = {0}, sum = 0;
        spw_status status =
            spw_measured_read_list(csv, row, check->column, check->by_layer ? shape->layers : 1, table);
        if (status != SPW_OK) return status;
        const uint64_t unit = check->unit == 0            ? 1
                              : check->unit == HIDDEN_ROW ? 2 * shape->hidden
                                                          : check->unit;
        for (size_t l = 0; l < shape->layers; l++) {
            uint64_t value = 0;
            memcpy(&value, (const char *)&layer[l] + check->offset, sizeof value);
            sum += value * unit;
            if (check->by_layer && value != table[l]) *differs = check->column;
        }
        if (!check->by_layer && sum != table[0]) *differs = check->column;
    }
    return SPW_OK;
}

static spw_status score_run(const spw_measured_score *score, size_t row, const spw_measured_run *run,
                            const uint64_t *routed, bool known, spw_measured_cell *cell) {
    const spw_csv *csv = score->table;
    const spw_measured_shape *b = &run->batch;
    uint64_t received[SPW_MEASURED_LAYERS], sent[SPW_MEASURED_LAYERS], *of_expert = NULL;
    spw_measured_rows layer[SPW_MEASURED_LAYERS];
    spw_measured_run replayed = *run;
    process p = {.layers = NULL};
    spw_list_replay replay;
    spw_status status = SPW_OK;
    cell->composed = known;
    cell->approximated = run->sequential && !known; /* the table has no rows of experts */
    replayed.sequential = run->sequential && known;
    if (replayed.sequential) {
        SPW_TRY(SPW_ALLOC(b->layers * b->experts / b->ranks, &of_expert));
        for (size_t l = 0; l < b->layers; l++)
            spw_measured_expert_rows(b, routed, l, cell->rank, of_expert + l * (b->experts / b->ranks));
    }
    if (known) {
        for (size_t l = 0; l < b->layers; l++) {
            layer[l] = spw_measured_rows_of(b, routed, l, cell->rank);
            received[l] = layer[l].received;
            sent[l] = layer[l].sent;
        }
        SPW_TRY(compare_rows(csv, row, b, layer, RUN_CHECKS, &cell->differs));
    } else {
        SPW_TRY(spw_measured_read_list(csv, row, "rows_received_per_layer", b->layers, received));
        SPW_TRY(spw_measured_read_list(csv, row, "rows_sent_per_layer", b->layers, sent));
    }
    const spw_megatron_rows rows = {received, sent, of_expert};
    SPW_TRY(process_begin(&replayed, &p));
    for (size_t step = 0; step <= WARM_STEPS; step++) SPW_TRY(process_step(&p, &rows, &replay));
    SPW_TRY(set_figures(csv, row, &replay, false, cell));

cleanup:
    process_end(&p);
    spw_free(of_expert);
    return status;
}

/* A batch under way: the rows of equal batches that stand together are composed once. */
typedef struct batch {
    spw_measured_run run;
    const char *routing; /* NULL: nothing was composed */
    uint64_t *routed;
    bool known;
} batch;

static spw_status compose(const spw_measured_run *run, const char *routing, spw_measured_traces *traces,
                          batch *out) {
    size_t cells = 0;
    spw_status status = SPW_OK;
    if (out->routing != NULL && strcmp(routing, out->routing) == 0 && spw_measured_runs_equal(run, &out->run))
        return SPW_OK;
    spw_free(out->routed);
    *out = (batch){.run = *run};
    if (!spw_mul_size(run->batch.layers * run->batch.ranks, run->batch.experts, &cells))
        SPW_TRY(spw_fail(SPW_EFORMAT, "too many experts"));
    SPW_TRY(SPW_ALLOC(cells, &out->routed));
    SPW_TRY(spw_measured_batch(&run->batch, routing, traces, out->routed, &out->known));
    out->routing = routing;

cleanup:
    return status;
}

static spw_status score_runs(spw_measured_score *score, spw_measured_traces *traces) {
    batch now = {.routing = NULL};
    spw_measured_run run;
    spw_status status = SPW_OK;
    for (size_t row = 0; row < score->cells; row++) {
        spw_measured_cell *cell = &score->cell[row];
        SPW_TRY(spw_csv_text(score->table, row, "run", &cell->run));
        SPW_TRY(spw_measured_read_run(score->table, row, &run));
        if (score->settings != NULL) run.settings = *score->settings;
        SPW_TRY(spw_measured_read_count(score->table, row, "rank", run.batch.ranks - 1, &cell->rank));
        SPW_TRY(compose(&run, cell->routing, traces, &now));
        SPW_TRY(score_run(score, row, &run, now.routed, now.known, cell));
    }

cleanup:
    spw_free(now.routed);
    return status;
}

/* --- A table of sequences --- */

/* One sequence: a process a rank, all with the shape and settings of its first row. */
typedef struct sequence {
    const char *name, *allocator;
    spw_measured_run first;
    process p[SPW_MEASURED_RANKS];
} sequence;

static void sequence_end(sequence *s) {
    for (size_t r = 0; r < SPW_MEASURED_RANKS; r++) process_end(&s->p[r]);
    s->name = NULL;
}

static spw_status continue_sequence(const spw_measured_score *score, size_t row, const spw_measured_run *run,
                                    sequence *s) {
    const char *name = score->cell[row].run, *allocator = spw_csv_field(score->table, row, "allocator");
    if (s->name == NULL || strcmp(name, s->name) != 0) {
        sequence_end(s);
        s->name = name;
        s->first = *run;
        s->allocator = allocator;
    }
    if (!spw_measured_runs_equal(run, &s->first))
        return spw_measured_wrong(score->table, row, "model", "another shape");
    if (allocator != NULL && strcmp(allocator, s->allocator) != 0)
        return spw_measured_wrong(score->table, row, "allocator", "another setting");
    return SPW_OK;
}

static spw_status read_rows(const spw_measured_score *score, size_t row, const spw_measured_run *run,
                            const batch *now, uint64_t *received) {
    const spw_measured_shape *b = &run->batch;
    spw_measured_cell *cell = &score->cell[row];
    cell->composed = now->known;
    if (!now->known)
        return spw_measured_read_list(score->table, row, "rows_received_per_layer", b->layers, received);
    spw_measured_rows layer[SPW_MEASURED_LAYERS];
    for (size_t l = 0; l < b->layers; l++) {
        layer[l] = spw_measured_rows_of(b, now->routed, l, cell->rank);
        received[l] = layer[l].received;
    }
    return compare_rows(score->table, row, b, layer, SEQUENCE_CHECKS, &cell->differs);
}

static spw_status score_step(spw_measured_score *score, size_t row, const spw_measured_run *run,
                             const batch *now, sequence *s) {
    spw_measured_cell *cell = &score->cell[row];
    uint64_t received[SPW_MEASURED_LAYERS], sent[SPW_MEASURED_LAYERS];
    spw_list_replay replay;
    spw_status status = SPW_OK;
    SPW_TRY(spw_measured_read_count(score->table, row, "rank", run->batch.ranks - 1, &cell->rank));
    SPW_TRY(continue_sequence(score, row, run, s));
    SPW_TRY(read_rows(score, row, run, now, received));
    for (size_t l = 0; l < run->batch.layers; l++) sent[l] = run->batch.tokens * run->batch.top_k;
    process *p = &s->p[cell->rank];
    if (p->layers == NULL) SPW_TRY(process_begin(run, p));
    SPW_TRY(process_step(p, &(spw_megatron_rows){received, sent, NULL}, &replay));
    SPW_TRY(set_figures(score->table, row, &replay, true, cell));
    if (replay.refused || replay.before.refused > 0) process_end(p); /* the next step begins anew */

cleanup:
    return status;
}

static spw_status score_sequences(spw_measured_score *score, spw_measured_traces *traces) {
    batch now = {.routing = NULL};
    sequence under_way = {.name = NULL};
    spw_measured_run run;
    spw_status status = SPW_OK;
    for (size_t row = 0; row < score->cells; row++) {
        spw_measured_cell *cell = &score->cell[row];
        SPW_TRY(spw_csv_text(score->table, row, "sequence", &cell->run));
        SPW_TRY(spw_measured_read_count(score->table, row, "step", SIZE_MAX / 2, &cell->step));
        SPW_TRY(spw_measured_read_sequence(score->table, row, &run, cell->unknown, sizeof cell->unknown));
        if (cell->unknown[0] != '\0') continue;
        if (score->settings != NULL) run.settings = *score->settings;
        SPW_TRY(compose(&run, cell->routing, traces, &now));
        SPW_TRY(score_step(score, row, &run, &now, &under_way));
    }

cleanup:
    sequence_end(&under_way);
    spw_free(now.routed);
    return status;
}

/* --- Both --- */

spw_status spw_measured_score_open(const char *path, const char *traces,
                                   const spw_allocator_settings *settings, spw_measured_score *out) {
    spw_measured_traces *found = NULL;
    spw_status status = SPW_OK;
    *out = (spw_measured_score){.settings = settings};
    SPW_TRY(spw_measured_traces_open(traces, &found));
    SPW_TRY(spw_csv_read(path, &out->table));
    out->cells = spw_csv_rows(out->table);
    SPW_TRY(SPW_ALLOC(out->cells, &out->cell));
    for (size_t row = 0; row < out->cells; row++) {
        out->cell[row].line = spw_csv_line(out->table, row);
        SPW_TRY(spw_csv_text(out->table, row, "routing", &out->cell[row].routing));
    }
    out->sequence = out->cells > 0 && spw_csv_field(out->table, 0, "sequence") != NULL;
    SPW_TRY(out->sequence ? score_sequences(out, found) : score_runs(out, found));

cleanup:
    spw_measured_traces_close(found);
    if (status != SPW_OK) spw_measured_score_close(out);
    return status;
}

void spw_measured_score_close(spw_measured_score *score) {
    spw_csv_close(score->table);
    spw_free(score->cell);
    *score = (spw_measured_score){.cells = 0};
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Sorts. */
static double median_of(double *value, size_t count) {
    qsort(value, count, sizeof *value, compare_doubles);
    return 0.5 * (value[(count - 1) / 2] + value[count / 2]);
}

spw_status spw_measured_score_errors(const spw_measured_score *scores, size_t count,
                                     spw_measured_figure figure, double bound, spw_measured_errors *out) {
    double *bytes = NULL, *relative = NULL;
    size_t cells = 0;
    spw_status status = SPW_OK;
    *out = (spw_measured_errors){NAN, NAN, NAN, NAN, 0, 0};
    for (size_t s = 0; s < count; s++) cells += scores[s].cells;
    SPW_TRY(SPW_ALLOC(cells, &bytes));
    SPW_TRY(SPW_ALLOC(cells, &relative));
    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; i < scores[s].cells; i++) {
            const spw_measured_pair pair = figure(&scores[s].cell[i]);
            if (pair.measured == 0) continue;
            bytes[out->count] = fabs((double)pair.predicted - (double)pair.measured);
            relative[out->count] = bytes[out->count] / (double)pair.measured;
            out->within += bytes[out->count++] <= bound ? 1 : 0;
        }
    }
    if (out->count > 0) {
        out->median_bytes = median_of(bytes, out->count);
        out->median_relative = median_of(relative, out->count);
        out->max_bytes = bytes[out->count - 1];
        out->max_relative = relative[out->count - 1];
    }

cleanup:
    spw_free(bytes);
    spw_free(relative);
    return status;
}

spw_measured_agreement spw_measured_score_agreement(const spw_measured_score *score) {
    spw_measured_agreement out = {0, 0, 0};
    for (size_t i = 0; i < score->cells; i++) {
        out.composed += score->cell[i].composed ? 1 : 0;
        out.unknown += score->cell[i].unknown[0] != '\0' ? 1 : 0;
        out.agreed += score->cell[i].composed && score->cell[i].differs == NULL ? 1 : 0;
    }
    return out;
}
