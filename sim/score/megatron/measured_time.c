#include "sim/score/megatron/measured_time.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/score/table_kind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 64 };
static const double MS = 1e-3;

/* --- Tables --- */

static spw_status path_beside(const char *path, char **out) {
    static const char from[] = "phases", to[] = "runs";
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path,
               *found = strstr(name, from);
    if (found == NULL)
        return spw_fail(SPW_EARG, "%s: phases of runs; give the table of the runs as well", path);
    const size_t before = (size_t)(found - path), after = strlen(found) - (sizeof from - 1);
    spw_status status = SPW_ALLOC(before + sizeof to + after, out);
    if (status != SPW_OK) return status;
    memcpy(*out, path, before);
    memcpy(*out + before, to, sizeof to - 1);
    memcpy(*out + before + sizeof to - 1, found + sizeof from - 1, after + 1);
    return SPW_OK;
}

spw_status spw_measured_tables_sort(const char *const *tables, size_t count, spw_measured_tables *out) {
    spw_status status = SPW_OK;
    *out = (spw_measured_tables){.runs = 0};
    SPW_TRY(SPW_ALLOC(count + 1, &out->run));
    SPW_TRY(SPW_ALLOC(count, &out->phase));
    for (size_t i = 0; i < count; i++) {
        const spw_table_kind kind = spw_table_kind_of(tables[i]);
        if (kind == SPW_TABLE_PHASES) out->phase[out->phases++] = tables[i];
        if (kind == SPW_TABLE_RUNS) out->run[out->runs++] = tables[i];
        if (kind != SPW_TABLE_PHASES && kind != SPW_TABLE_RUNS && kind != SPW_TABLE_CEILINGS)
            SPW_TRY(spw_fail(SPW_EARG, "%s is no table of measured runs", tables[i]));
    }
    if (out->phases + out->runs == 0)
        SPW_TRY(spw_fail(SPW_EARG, "tables of ceilings have nothing to score; give a table of runs"));
    if (out->phases > 0 && out->runs == 0) {
        SPW_TRY(path_beside(out->phase[0], &out->beside));
        out->run[out->runs++] = out->beside;
    }

cleanup:
    if (status != SPW_OK) spw_measured_tables_free(out);
    return status;
}

void spw_measured_tables_free(spw_measured_tables *tables) {
    spw_free(tables->run);
    spw_free(tables->phase);
    spw_free(tables->beside);
    *tables = (spw_measured_tables){.runs = 0};
}

/* --- Fields --- */

static spw_status read_seconds(const spw_csv *csv, size_t row, const char *column, double *out) {
    const char *text = NULL;
    char *end = NULL;
    spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    errno = 0;
    *out = spw_text_number(text, &end) * MS;
    if (errno == 0 && end != text && *end == '\0' && *out >= 0.0 && *out < 1e6) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s \"%s\" is not a time in milliseconds", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, text);
}

static spw_status read_index(const spw_csv *csv, size_t row, const char *column, size_t count, size_t *out) {
    uint64_t value = 0;
    spw_status status = spw_measured_read_list(csv, row, column, 1, &value);
    if (status == SPW_OK && value >= count)
        return spw_fail(SPW_EFORMAT, "%s:%zu: %s %llu of %zu", spw_csv_where(csv), spw_csv_line(csv, row),
                        column, (unsigned long long)value, count);
    *out = (size_t)value;
    return status;
}

/* --- Runs --- */

/* The run of a row, made when the row is its first. */
static spw_status run_of(spw_measured_time *time, size_t table, size_t row, spw_measured_time_run **out) {
    const spw_csv *csv = time->table[table].csv;
    const char *name = NULL;
    spw_measured_run read;
    spw_measured_time_run *run = NULL;
    spw_status status = spw_csv_text(csv, row, "run", &name);
    if (status != SPW_OK) return status;
    for (size_t i = time->runs; i-- > 0;) {
        *out = &time->run[i];
        if ((*out)->table == table && strcmp((*out)->run, name) == 0) return SPW_OK;
    }
    SPW_TRY(spw_measured_read_run(csv, row, &read));
    if (read.batch.layers > MOST_LAYERS) /* read_run checks it too */
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s:%zu: more than %d layers", spw_csv_where(csv),
                         spw_csv_line(csv, row), (int)MOST_LAYERS));
    run = &time->run[time->runs++];
    *run = (spw_measured_time_run){.run = name,
                                   .table = table,
                                   .line = spw_csv_line(csv, row),
                                   .ranks = read.batch.ranks,
                                   .sequential = read.sequential,
                                   .partner = SPW_MEASURED_NO_RUN};
    run->shape = (spw_megatron_shape){.layers = read.batch.layers,
                                      .tokens = read.batch.tokens,
                                      .top_k = read.batch.top_k,
                                      .experts = read.batch.experts,
                                      .experts_per_rank = read.batch.experts / read.batch.ranks,
                                      .hidden = read.batch.hidden,
                                      .ffn = read.batch.ffn,
                                      .capacity = read.batch.capacity,
                                      .padded = read.batch.padded,
                                      .recompute = read.recompute};
    for (size_t p = 0; p < SPW_MEGATRON_PHASES; p++) run->true_phase_s[p] = NAN;
    SPW_TRY(spw_csv_text(csv, row, "model", &run->model));
    SPW_TRY(spw_csv_text(csv, row, "routing", &run->routing));
    if (spw_csv_field(csv, row, "repeat") != NULL)
        SPW_TRY(spw_measured_read_list(csv, row, "repeat", 1, &run->repeat));
    SPW_TRY(SPW_ALLOC(run->shape.layers * run->ranks, &run->load));
    SPW_TRY(SPW_ALLOC(run->shape.layers * run->shape.experts, &run->expert_rows));
    *out = run;

cleanup:
    return status;
}

static double geometric_sum(double ratio, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum = 1.0 + ratio * sum;
    return sum;
}

/* The table has the rows of the busiest expert, of all together and how many experts have any. Those in between are taken
 * to fall by one ratio from the busiest on. */
static void guess_expert_rows(double received, double most, size_t live, double *rows) {
    double low = 0.0, high = 1.0;
    for (int i = 0; i < 60 && most > 0.0; i++) {
        const double ratio = 0.5 * (low + high);
        if (most * geometric_sum(ratio, live) > received)
            high = ratio;
        else
            low = ratio;
    }
    const bool even = received == most * (double)live;
    for (size_t i = 0; i < live; i++) rows[i] = even ? most : most * pow(low, (double)i);
}

static spw_status read_loads(const spw_csv *csv, size_t row, size_t rank, spw_measured_time_run *run) {
    enum { RECEIVED, SENT, KEPT, MOST, EMPTY, ASSIGNED, COLUMNS };
    static const char *const columns[COLUMNS] = {
        "rows_received_per_layer",   "rows_sent_per_layer",     "rows_kept_local_per_layer",
        "max_expert_rows_per_layer", "empty_experts_per_layer", "assignments_received_per_layer"};
    uint64_t value[COLUMNS][MOST_LAYERS];
    const size_t experts = run->shape.experts_per_rank;
    for (size_t c = 0; c < COLUMNS; c++) {
        spw_status status = spw_measured_read_list(csv, row, columns[c], run->shape.layers, value[c]);
        if (status != SPW_OK) return status;
    }
    for (size_t l = 0; l < run->shape.layers; l++) {
        if (value[EMPTY][l] > experts || value[KEPT][l] > value[RECEIVED][l] ||
            value[KEPT][l] > value[SENT][l])
            return spw_fail(SPW_EFORMAT,
                            "%s:%zu: layer %zu has more rows kept than rows, or more empty experts than "
                            "experts",
                            spw_csv_where(csv), spw_csv_line(csv, row), l);
        const size_t live = experts - (size_t)value[EMPTY][l];
        const double received = (double)value[RECEIVED][l], assigned = (double)value[ASSIGNED][l];
        const size_t at = l * run->ranks + rank;
        run->load[at] =
            (spw_megatron_load){.received = received,
                                .sent = (double)value[SENT][l],
                                .link_in = received - (double)value[KEPT][l],
                                .link_out = (double)(value[SENT][l] - value[KEPT][l]),
                                .zero_rows = run->shape.padded ? fmax(0.0, received - assigned) : 0.0};
        guess_expert_rows(received, (double)value[MOST][l], live, run->expert_rows + at * experts);
    }
    return SPW_OK;
}

static double later(double a, double b) { return a > b ? a : b; }

static spw_status read_runs(spw_measured_time *time, size_t table) {
    const spw_csv *csv = time->table[table].csv;
    const size_t rows = spw_csv_rows(csv), first = time->runs;
    size_t *ranks = NULL; /* [rows]: rows seen of a run */
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(rows, &ranks));
    SPW_TRY(SPW_ALLOC(rows, &time->table[table].run_of_row));
    const bool steps =
        rows > 0 && spw_csv_field(csv, 0, "step_ms") != NULL && spw_csv_field(csv, 0, "run") != NULL;
    for (size_t row = 0; row < rows; row++) {
        spw_measured_time_run *run = NULL;
        size_t rank = 0;
        double forward_s = 0.0, backward_s = 0.0, step_s = 0.0;
        time->table[table].run_of_row[row] = SPW_MEASURED_NO_RUN;
        if (!steps) continue;
        SPW_TRY(run_of(time, table, row, &run));
        SPW_TRY(read_index(csv, row, "rank", run->ranks, &rank));
        SPW_TRY(read_loads(csv, row, rank, run));
        SPW_TRY(read_seconds(csv, row, "forward_ms", &forward_s));
        SPW_TRY(read_seconds(csv, row, "backward_ms", &backward_s));
        SPW_TRY(read_seconds(csv, row, "step_ms", &step_s));
        run->true_forward_s = later(run->true_forward_s, forward_s);
        run->true_backward_s = later(run->true_backward_s, backward_s);
        run->true_step_s = later(run->true_step_s, step_s);
        time->table[table].run_of_row[row] = run - time->run;
        ranks[run - time->run - (ptrdiff_t)first]++;
    }
    for (size_t i = first; i < time->runs; i++) {
        if (ranks[i - first] != time->run[i].ranks || time->run[i].true_step_s <= 0.0)
            time->run[i].true_step_s = NAN;
    }

cleanup:
    spw_free(ranks);
    return status;
}

/* --- Partners --- */

static bool is_balanced(const spw_measured_time_run *run) {
    return strcmp(run->routing, "balanced") == 0 && run->shape.capacity == 0 && !isnan(run->true_step_s);
}

static bool same_shape(const spw_measured_time_run *x, const spw_measured_time_run *y) {
    const spw_megatron_shape *a = &x->shape, *b = &y->shape;
    return x->table == y->table && x->ranks == y->ranks && a->layers == b->layers && a->tokens == b->tokens &&
           a->top_k == b->top_k && a->experts == b->experts && a->hidden == b->hidden && a->ffn == b->ffn;
}

static int likeness(const spw_measured_time_run *x, const spw_measured_time_run *y) {
    const bool kind = x->shape.recompute == y->shape.recompute && x->sequential == y->sequential;
    const bool plain = y->shape.recompute == SPW_RECOMPUTE_NONE && !y->sequential;
    return 4 * (kind ? 1 : 0) + 2 * (plain ? 1 : 0) + (x->repeat == y->repeat ? 1 : 0);
}

static void find_partner(spw_measured_time *time, spw_measured_time_run *run) {
    int best = -1;
    if (is_balanced(run)) return;
    for (size_t i = 0; i < time->runs; i++) {
        const spw_measured_time_run *other = &time->run[i];
        if (!is_balanced(other) || !same_shape(run, other) || likeness(run, other) <= best) continue;
        best = likeness(run, other);
        run->partner = (long)i;
    }
}

/* --- Phases --- */

static spw_measured_time_run *named(spw_measured_time *time, const char *name) {
    for (size_t i = 0; i < time->runs; i++) {
        if (strcmp(time->run[i].run, name) == 0) return &time->run[i];
    }
    return NULL;
}

static spw_status read_phase_row(spw_measured_time *time, const spw_csv *csv, size_t row) {
    const char *name = NULL;
    size_t rank = 0, layer = 0;
    uint64_t rows = 0;
    spw_measured_time_run *run = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_csv_text(csv, row, "run", &name));
    run = named(time, name);
    if (run == NULL)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s:%zu: run \"%s\" is in no table of runs; give its table as well",
                         spw_csv_where(csv), spw_csv_line(csv, row), name));
    SPW_TRY(read_index(csv, row, "rank", run->ranks, &rank));
    SPW_TRY(read_index(csv, row, "layer", run->shape.layers, &layer));
    SPW_TRY(spw_measured_read_list(csv, row, "rows", 1, &rows));
    if (!isnan(run->true_step_s) && run->load[layer * run->ranks + rank].received != (double)rows)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s:%zu: %llu rows; the table of runs has %.0f", spw_csv_where(csv),
                         spw_csv_line(csv, row), (unsigned long long)rows,
                         run->load[layer * run->ranks + rank].received));
    for (spw_megatron_phase p = 0; p < SPW_MEGATRON_PHASES; p++) {
        double seconds = 0.0;
        if (spw_csv_field(csv, row, spw_megatron_phase_name(p)) == NULL) continue;
        SPW_TRY(read_seconds(csv, row, spw_megatron_phase_name(p), &seconds));
        if (isnan(run->true_phase_s[p])) run->true_phase_s[p] = 0.0;
        run->true_phase_s[p] += seconds / (double)run->ranks;
    }

cleanup:
    return status;
}

static spw_status read_phases(spw_measured_time *time, const spw_csv *csv) {
    for (size_t row = 0; row < spw_csv_rows(csv); row++) {
        spw_status status = read_phase_row(time, csv, row);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* --- Opening and closing --- */

spw_status spw_measured_time_open(const char *const *runs, size_t run_count, const char *const *phases,
                                  size_t phase_count, spw_measured_time *out) {
    size_t rows = 0;
    spw_status status = SPW_OK;
    *out = (spw_measured_time){.tables = run_count, .phase_tables = phase_count};
    SPW_TRY(SPW_ALLOC(run_count + phase_count, &out->table));
    for (size_t i = 0; i < run_count + phase_count; i++) {
        SPW_TRY(spw_csv_read(i < run_count ? runs[i] : phases[i - run_count], &out->table[i].csv));
        if (i < run_count) rows += spw_csv_rows(out->table[i].csv);
    }
    SPW_TRY(SPW_ALLOC(rows, &out->run));
    for (size_t i = 0; i < run_count; i++) SPW_TRY(read_runs(out, i));
    for (size_t i = 0; i < out->runs; i++) find_partner(out, &out->run[i]);
    for (size_t i = 0; i < phase_count; i++) SPW_TRY(read_phases(out, out->table[run_count + i].csv));

cleanup:
    if (status != SPW_OK) spw_measured_time_close(out);
    return status;
}

void spw_measured_time_close(spw_measured_time *time) {
    for (size_t i = 0; i < time->runs; i++) {
        spw_free(time->run[i].load);
        spw_free(time->run[i].expert_rows);
    }
    for (size_t i = 0; i < time->tables + time->phase_tables && time->table != NULL; i++) {
        spw_csv_close(time->table[i].csv);
        spw_free(time->table[i].run_of_row);
    }
    spw_free(time->run);
    spw_free(time->table);
    *time = (spw_measured_time){.runs = 0};
}
