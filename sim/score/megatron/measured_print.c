#include "sim/score/megatron/measured_print.h"

#include "base/memory.h"
#include "sim/print/json_values.h"

#include <jansson.h>
#include <math.h>

static const double GB = 1e9, MB = 1e6, MS = 1e-3;

static spw_measured_pair requested(const spw_measured_cell *c) { return c->requested_peak; }
static spw_measured_pair after_forward(const spw_measured_cell *c) { return c->allocated_after_forward; }
static spw_measured_pair allocated(const spw_measured_cell *c) { return c->allocated_peak; }
static spw_measured_pair reserved(const spw_measured_cell *c) { return c->reserved; }

static const struct {
    const char *key, *what;
    spw_measured_figure figure;
} figures[] = {{"requested", "requested peak", requested},
               {"allocated_after_forward", "allocated after forward", after_forward},
               {"allocated", "allocated peak", allocated},
               {"reserved", "reserved", reserved}};
enum { FIGURES = sizeof figures / sizeof *figures };

static const char *agreement_of(const spw_measured_cell *cell) {
    if (cell->unknown[0] != '\0') return "not replayed";
    if (!cell->composed) return "rows as measured";
    return cell->differs == NULL ? "equal" : cell->differs;
}

/* What one row of table `s` belongs to; NULL when its table has no steps. */
static const spw_measured_time_run *run_of(const spw_measured_time *time, size_t s, size_t row) {
    const long run = time->table[s].run_of_row[row];
    return run < 0 ? NULL : &time->run[run];
}

/* --- For a person, and as CSV --- */

/* 0 = not known. */
static void put_bytes(spw_table *table, uint64_t bytes) {
    if (bytes > 0)
        spw_table_scaled(table, (double)bytes, GB, "%.3f");
    else
        spw_table_none(table);
}

static void put_time(spw_table *table, const spw_measured_time *time, const spw_measured_time_run *run) {
    spw_table_scaled(spw_table_in(table, "step_s", "step ms"), run == NULL ? (double)NAN : run->time.step_s,
                     MS, "%.2f");
    spw_table_scaled(spw_table_in(table, "true_step_s", "measured"),
                     run == NULL ? (double)NAN : run->true_step_s, MS, "%.2f");
    spw_table_scaled(spw_table_in(table, "real_over_balanced", "real/balanced"),
                     run == NULL ? (double)NAN : spw_measured_ratio(time, run), 1.0, "%.3f");
    spw_table_scaled(spw_table_in(table, "true_real_over_balanced", "measured"),
                     run == NULL ? (double)NAN : spw_measured_true_ratio(time, run), 1.0, "%.3f");
}

static spw_status print_rows(const spw_measured_score *score, size_t count, const spw_measured_time *time,
                             spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; i < score[s].cells; i++) {
            const spw_measured_cell *c = &score[s].cell[i];
            spw_table_text(spw_table_in(table, "run", "run"), c->run);
            spw_table_count(spw_table_in(table, "step", "step"), c->step);
            spw_table_count(spw_table_in(table, "rank", "rank"), c->rank);
            spw_table_text(spw_table_in(table, "routing", "routing"), c->routing);
            spw_table_text(spw_table_in(table, "rows", "rows"), agreement_of(c));
            put_bytes(spw_table_in(table, "allocated_peak_bytes", "allocated GB"),
                      c->allocated_peak.predicted);
            put_bytes(spw_table_in(table, "true_allocated_peak_bytes", "measured"),
                      c->allocated_peak.measured);
            put_bytes(spw_table_in(table, "reserved_bytes", "reserved GB"), c->reserved.predicted);
            put_bytes(spw_table_in(table, "true_reserved_bytes", "measured"), c->reserved.measured);
            if (time->runs > 0) /* a table without steps ends before the time */
                put_time(table, time, run_of(time, s, i));
        }
    }
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

static spw_measured_agreement agreement(const spw_measured_score *score, size_t count) {
    spw_measured_agreement sum = {0, 0, 0};
    for (size_t s = 0; s < count; s++) {
        const spw_measured_agreement one = spw_measured_score_agreement(&score[s]);
        sum.composed += one.composed;
        sum.agreed += one.agreed;
        sum.unknown += one.unknown;
    }
    return sum;
}

static const char *first_unknown(const spw_measured_score *score, size_t count) {
    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; i < score[s].cells; i++) {
            if (score[s].cell[i].unknown[0] != '\0') return score[s].cell[i].unknown;
        }
    }
    return "";
}

static spw_status print_summary(const spw_measured_score *score, size_t count, FILE *out) {
    const spw_measured_agreement rows = agreement(score, count);
    spw_measured_errors e;
    size_t cells = 0;
    for (size_t s = 0; s < count; s++) cells += score[s].cells;
    fprintf(out,
            "\nrows, drops and bytes: equal in %zu of %zu cells whose routing can be composed; %zu of %zu "
            "rows taken from the table\n",
            rows.agreed, rows.composed, cells - rows.composed - rows.unknown, cells);
    if (rows.unknown > 0)
        fprintf(out, "not replayed: %zu of %zu rows, whose model or allocator is not known (%s)\n",
                rows.unknown, cells, first_unknown(score, count));
    for (size_t f = 0; f < FIGURES; f++) {
        spw_status status = spw_measured_score_errors(score, count, figures[f].figure, MB, &e);
        if (status != SPW_OK) return status;
        if (e.count == 0) continue;
        fprintf(out, "%s: median %.3f MB off, most %.3f MB (%.2f %%); %zu of %zu within 1 MB\n",
                figures[f].what, e.median_bytes / MB, e.max_bytes / MB, 100.0 * e.max_relative, e.within,
                e.count);
    }
    return SPW_OK;
}

spw_status spw_measured_time_print(const spw_measured_time *time, FILE *out) {
    spw_measured_time_errors e;
    spw_table *table = NULL;
    size_t phases = 0;
    spw_status status = spw_measured_time_score(time, SPW_MEASURED_MODEL, NULL, &e);
    if (status != SPW_OK || e.steps == 0) return status;
    SPW_TRY(spw_table_create(NULL, &table));
    for (spw_megatron_phase p = 0; p < SPW_MEGATRON_PHASES; p++) {
        const spw_measured_phase_errors of = spw_measured_phase_score(time, p);
        if (of.runs == 0) continue;
        phases++;
        spw_table_text(spw_table_in(table, "phase", "phase, mean of a run"), spw_megatron_phase_name(p));
        spw_table_scaled(spw_table_in(table, "seconds", "ms"), of.seconds, MS, "%.3f");
        spw_table_scaled(spw_table_in(table, "true_seconds", "measured"), of.true_seconds, MS, "%.3f");
        spw_table_scaled(spw_table_in(table, "error", "error of the sum %"), of.pooled, 0.01, "%+.1f");
        spw_table_scaled(spw_table_in(table, "mean_abs_error", "mean |error| %"), of.mean, 0.01, "%.1f");
        spw_table_scaled(spw_table_in(table, "max_abs_error", "most %"), of.most, 0.01, "%.1f");
    }
    if (phases > 0) {
        fprintf(out, "\n");
        SPW_TRY(spw_table_print(table, SPW_FORMAT_TABLE, out));
    }
    fprintf(out, "\nstep: mean |error| %.2f %%, most %.2f %%, of %zu runs; %zu inside their interval\n",
            100.0 * e.step_mean, 100.0 * e.step_max, e.steps, e.inside);
    if (e.ratios > 0)
        fprintf(out, "real / balanced: median |error| %.2f %%, most %.2f %%, of %zu runs\n",
                100.0 * e.ratio_median, 100.0 * e.ratio_max, e.ratios);

cleanup:
    spw_table_destroy(table);
    return status;
}

/* --- JSON --- */

static json_t *cell_json(spw_json *json, const spw_measured_cell *c, const spw_measured_time *time,
                         const spw_measured_time_run *run) {
    json_t *object = json_object();
    spw_json_put(json, object, "line", spw_json_count(c->line));
    spw_json_put(json, object, "run", spw_json_text(c->run));
    spw_json_put(json, object, "step", spw_json_count(c->step));
    spw_json_put(json, object, "rank", spw_json_count(c->rank));
    spw_json_put(json, object, "routing", spw_json_text(c->routing));
    spw_json_put(json, object, "rows", spw_json_text(agreement_of(c)));
    spw_json_put(json, object, "approximated", json_boolean(c->approximated));
    spw_json_put(json, object, "not_replayed",
                 c->unknown[0] != '\0' ? spw_json_text(c->unknown) : json_null());
    for (size_t f = 0; f < FIGURES; f++) {
        const spw_measured_pair pair = figures[f].figure(c);
        char key[64];
        (void)snprintf(key, sizeof key, "%s_bytes", figures[f].key);
        spw_json_put(json, object, key, pair.predicted > 0 ? spw_json_count(pair.predicted) : json_null());
        (void)snprintf(key, sizeof key, "true_%s_bytes", figures[f].key);
        spw_json_put(json, object, key, pair.measured > 0 ? spw_json_count(pair.measured) : json_null());
    }
    if (run == NULL) return object;
    spw_json_put(json, object, "step_ms", spw_json_real(run->time.step_s / MS));
    spw_json_put(json, object, "step_low_ms", spw_json_real(run->time.step_s * exp(-run->half_width) / MS));
    spw_json_put(json, object, "step_high_ms", spw_json_real(run->time.step_s * exp(run->half_width) / MS));
    spw_json_put(json, object, "true_step_ms", spw_json_real(run->true_step_s / MS));
    spw_json_put(json, object, "real_over_balanced", spw_json_real(spw_measured_ratio(time, run)));
    spw_json_put(json, object, "true_real_over_balanced", spw_json_real(spw_measured_true_ratio(time, run)));
    return object;
}

static spw_status put_times(spw_json *json, const spw_measured_time *time, json_t *object) {
    spw_measured_time_errors e;
    spw_status status = spw_measured_time_score(time, SPW_MEASURED_MODEL, NULL, &e);
    if (status != SPW_OK || e.steps == 0) return status;
    spw_json_put(json, object, "steps", spw_json_count(e.steps));
    spw_json_put(json, object, "step_mape", spw_json_real(e.step_mean));
    spw_json_put(json, object, "steps_inside", spw_json_count(e.inside));
    spw_json_put(json, object, "step_max_abs_error", spw_json_real(e.step_max));
    spw_json_put(json, object, "real_over_balanced_median_abs_error", spw_json_real(e.ratio_median));
    spw_json_put(json, object, "real_over_balanced_max_abs_error", spw_json_real(e.ratio_max));
    if (time->phase_tables == 0) return SPW_OK;
    json_t *list = json_array();
    for (spw_megatron_phase p = 0; p < SPW_MEGATRON_PHASES; p++) {
        const spw_measured_phase_errors of = spw_measured_phase_score(time, p);
        if (of.runs == 0) continue;
        json_t *phase = json_object();
        spw_json_put(json, phase, "phase", spw_json_text(spw_megatron_phase_name(p)));
        spw_json_put(json, phase, "runs", spw_json_count(of.runs));
        spw_json_put(json, phase, "mean_ms", spw_json_real(of.seconds / MS));
        spw_json_put(json, phase, "true_mean_ms", spw_json_real(of.true_seconds / MS));
        spw_json_put(json, phase, "error", spw_json_real(of.pooled));
        spw_json_put(json, phase, "mean_abs_error", spw_json_real(of.mean));
        spw_json_put(json, phase, "max_abs_error", spw_json_real(of.most));
        spw_json_add(json, list, phase);
    }
    spw_json_put(json, object, "phases", list);
    return SPW_OK;
}

static spw_status print_json(const spw_measured_score *score, size_t count, const spw_measured_time *time,
                             FILE *out) {
    const spw_measured_agreement rows = agreement(score, count);
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *object = json_object(), *list = json_array();
    spw_status status = SPW_OK;
    size_t cells = 0;
    for (size_t s = 0; s < count; s++) {
        cells += score[s].cells;
        for (size_t i = 0; i < score[s].cells; i++)
            spw_json_add(json, list, cell_json(json, &score[s].cell[i], time, run_of(time, s, i)));
    }
    spw_json_put(json, object, "format", spw_json_text("spillway-score-measured"));
    spw_json_put(json, object, "version", spw_json_count(1));
    spw_json_put(json, object, "cells", spw_json_count(cells));
    spw_json_put(json, object, "composed", spw_json_count(rows.composed));
    spw_json_put(json, object, "not_replayed", spw_json_count(rows.unknown));
    spw_json_put(
        json, object, "rows_agreement",
        spw_json_real(rows.composed > 0 ? (double)rows.agreed / (double)rows.composed : (double)NAN));
    for (size_t f = 0; f < FIGURES; f++) {
        char key[64];
        spw_measured_errors e;
        SPW_TRY(spw_measured_score_errors(score, count, figures[f].figure, MB, &e));
        (void)snprintf(key, sizeof key, "%s_median_abs_error", figures[f].key);
        spw_json_put(json, object, key, spw_json_real(e.median_relative));
        (void)snprintf(key, sizeof key, "%s_max_abs_error", figures[f].key);
        spw_json_put(json, object, key, spw_json_real(e.max_relative));
        (void)snprintf(key, sizeof key, "%s_within_1_mb", figures[f].key);
        spw_json_put(json, object, key, spw_json_count(e.within));
    }
    SPW_TRY(put_times(json, time, object));
    spw_json_put(json, object, "rows", json_incref(list));
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);
    object = NULL;

cleanup:
    json_decref(list);
    json_decref(object);
    return status;
}

spw_status spw_measured_print(const spw_score_request *r) {
    const char *stack = r->time_stack != NULL ? r->time_stack : SPW_MEASURED_STACK;
    spw_measured_tables kinds = {.runs = 0};
    spw_measured_time time = {.runs = 0};
    spw_megatron_coefficients coefficients;
    spw_measured_score *score = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_measured_tables_sort(r->table, r->tables, &kinds));
    SPW_TRY(SPW_ALLOC(kinds.runs, &score));
    SPW_TRY(spw_megatron_coefficients_read(stack, NULL, &coefficients));
    for (size_t i = 0; i < kinds.runs; i++)
        SPW_TRY(spw_measured_score_open(kinds.run[i], r->traces, NULL, &score[i]));
    SPW_TRY(spw_measured_time_open(kinds.run, kinds.runs, kinds.phase, kinds.phases, &time));
    SPW_TRY(spw_measured_time_predict(&coefficients, &time));
    if (r->format == SPW_FORMAT_JSON) {
        SPW_TRY(print_json(score, kinds.runs, &time, r->out));
    } else {
        SPW_TRY(print_rows(score, kinds.runs, &time, r->format, r->out));
        if (r->format == SPW_FORMAT_TABLE) {
            SPW_TRY(print_summary(score, kinds.runs, r->out));
            SPW_TRY(spw_measured_time_print(&time, r->out));
        }
    }

cleanup:
    for (size_t i = 0; i < kinds.runs && score != NULL; i++) spw_measured_score_close(&score[i]);
    spw_free(score);
    spw_measured_time_close(&time);
    spw_measured_tables_free(&kinds);
    return status;
}
