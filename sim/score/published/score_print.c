#include "sim/score/score_prints.h"

#include "base/memory.h"
#include "sim/print/json_values.h"
#include "sim/score/score_tables.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* --- For people --- */

static bool timed(const spw_score_row *row) { return row->time.components > 0; }

static void put_row(spw_table *t, const spw_score_row *row) {
    const spw_score_cell *c = &row->cell;
    const spw_compiled_memory *m = &row->memory;
    const bool figure = !isnan(c->temporary_gib) || !isnan(c->total_gib);
    spw_table_text(spw_table_in(t, "table", NULL), c->table);
    spw_table_count(spw_table_in(t, "line", NULL), c->line);
    spw_table_text(spw_table_in(t, "id", NULL), c->id);
    spw_table_text(spw_table_in(t, "model", "model"), c->job.model.name);
    spw_table_text(spw_table_in(t, "stack", NULL), c->stack != NULL ? c->stack->name : "");
    spw_table_text(spw_table_in(t, "scheme", "scheme"), c->scheme_text);
    spw_table_count(spw_table_in(t, "expert_parallel", "EP"), c->job.expert);
    spw_table_count(spw_table_in(t, "sequences_per_gpu", "seqs"), c->job.sequences_per_gpu[0]);
    spw_table_text(spw_table_in(t, "remat", "remat"), spw_remat_name(c->job.remat));
    spw_table_text(spw_table_in(t, "precision", "precision"), c->precision);
    spw_table_real(spw_table_in(t, "budget_gib", "budget"), c->budget_bytes / GIB, "%.1f");
    spw_table_text(spw_table_in(t, "verdict", "verdict"), spw_outcome_name(spw_score_verdict(row)));
    spw_table_text(spw_table_in(t, "true_verdict", "true"), spw_outcome_name(c->status));
    spw_table_real(spw_table_in(t, "temporary_gib", "temporary"), m->temporary_bytes / GIB, "%.1f");
    spw_table_real(spw_table_in(t, "low_gib", "from"), m->low_bytes / GIB, "%.1f");
    spw_table_real(spw_table_in(t, "high_gib", "to"), m->high_bytes / GIB, "%.1f");
    spw_table_real(spw_table_in(t, "true_temporary_gib", "true"), c->temporary_gib, "%.1f");
    spw_table_scaled(spw_table_in(t, "temporary_error", "error %"), spw_score_temporary_error(row), 0.01,
                     "%+.1f");
    spw_table_real(spw_table_in(t, "total_gib", "total"), (m->argument_bytes + m->temporary_bytes) / GIB,
                   "%.1f");
    spw_table_real(spw_table_in(t, "true_total_gib", "true"), c->total_gib, "%.1f");
    spw_table_scaled(spw_table_in(t, "total_error", "error %"), spw_score_total_error(row), 0.01, "%+.1f");
    spw_table_text(spw_table_in(t, "inside", "inside"), !figure ? "" : spw_score_inside(row) ? "yes" : "no");
    spw_table_text(spw_table_in(t, "outside_fit", "beyond the fit"), m->outside);
    spw_table_real(spw_table_in(t, "step_s", "step s"), timed(row) ? row->time.step_s : NAN, "%.2f");
    spw_table_real(spw_table_in(t, "tokens_per_s_per_gpu", "tokens/s"),
                   timed(row) ? row->time.tokens_per_s_per_gpu : NAN, "%.0f");
    spw_table_real(spw_table_in(t, "true_tokens_per_s_per_gpu", "true"), c->tokens_per_s_per_gpu, "%.0f");
    spw_table_scaled(spw_table_in(t, "throughput_error", "error %"), spw_score_throughput_error(row), 0.01,
                     "%+.1f");
    spw_table_text(spw_table_in(t, "kernel_family", NULL), spw_kernel_name(c->family));
    spw_table_real(spw_table_in(t, "kernel_s", NULL), spw_score_kernel_seconds(c, &row->time), "%.2f");
    spw_table_real(spw_table_in(t, "true_kernel_s", NULL), c->family == SPW_KERNEL_NONE ? NAN : c->kernel_s,
                   "%.2f");
    spw_table_text(spw_table_in(t, "time_outside_fit", NULL), row->time.outside);
}

static void put_summary(spw_table *t, const char *name, const spw_score_summary *s) {
    spw_table_text(spw_table_in(t, "scheme", "scheme"), name);
    spw_table_count(spw_table_in(t, "cells", "cells"), s->cells);
    spw_table_count(spw_table_in(t, "skipped", "left out"), s->skipped);
    spw_table_count(spw_table_in(t, "verdicts", "verdicts"), s->verdicts);
    spw_table_count(spw_table_in(t, "agreed", "right"), s->agreed);
    spw_table_count(spw_table_in(t, "temporaries", "temporary"), s->temporaries);
    spw_table_scaled(spw_table_in(t, "temporary_median", "median %"), s->temporary_median, 0.01, "%.1f");
    spw_table_scaled(spw_table_in(t, "temporary_max", "max %"), s->temporary_max, 0.01, "%.1f");
    spw_table_count(spw_table_in(t, "totals", "total"), s->totals);
    spw_table_scaled(spw_table_in(t, "total_median", "median %"), s->total_median, 0.01, "%.1f");
    spw_table_scaled(spw_table_in(t, "total_max", "max %"), s->total_max, 0.01, "%.1f");
    spw_table_count(spw_table_in(t, "figures", "figures"), s->figures);
    spw_table_count(spw_table_in(t, "inside", "inside"), s->inside);
    spw_table_scaled(spw_table_in(t, "interval_width_median", "width %"), s->interval_width_median, 0.01,
                     "%.1f");
    spw_table_count(spw_table_in(t, "speeds", "tokens/s"), s->speeds);
    spw_table_scaled(spw_table_in(t, "throughput_mape", "mean %"), s->throughput_mape, 0.01, "%.1f");
    spw_table_scaled(spw_table_in(t, "throughput_max_abs_error", "max %"), s->throughput_max, 0.01, "%.1f");
}

static bool first_of_table(const spw_score *score, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(score->row[i].cell.table, score->row[index].cell.table) == 0) return false;
    }
    return true;
}

/* Is this the first row with its scheme? Groups are printed in the order of the tables. */
static bool first_of_scheme(const spw_score *score, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(score->row[i].cell.scheme_text, score->row[index].cell.scheme_text) == 0) return false;
    }
    return true;
}

static spw_status print_rows(const spw_score *score, spw_format format, FILE *out) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    bool any = false;
    for (size_t i = 0; status == SPW_OK && i < score->rows; i++) {
        if (score->row[i].cell.skipped[0] != '\0') continue;
        put_row(t, &score->row[i]);
        any = true;
    }
    if (status == SPW_OK && !any) { /* the headings alone */
        put_row(t, &score->row[0]);
        spw_table_empty(t);
    }
    if (status == SPW_OK) status = spw_table_print(t, format, out);
    spw_table_destroy(t);
    return status;
}

static spw_status print_summaries(const spw_score *score, FILE *out) {
    spw_status status = SPW_OK;
    spw_table *t = NULL;
    spw_score_summary s;
    SPW_TRY(spw_table_create(NULL, &t));
    for (size_t i = 0; i < score->rows; i++) {
        if (!first_of_scheme(score, i)) continue;
        SPW_TRY(spw_score_summarise(score, score->row[i].cell.scheme_text, NULL, &s));
        put_summary(t, score->row[i].cell.scheme_text, &s);
    }
    for (size_t i = 0; i < score->rows; i++) {
        if (!first_of_table(score, i)) continue;
        SPW_TRY(spw_score_summarise(score, NULL, score->row[i].cell.table, &s));
        put_summary(t, score->row[i].cell.table, &s);
    }
    SPW_TRY(spw_score_summarise(score, NULL, NULL, &s));
    put_summary(t, "all", &s);
    SPW_TRY(spw_table_print(t, SPW_FORMAT_TABLE, out));
    fprintf(out,
            "\n%zu cells, %zu rows left out; verdicts: %zu right, %zu wrong; within 12 %%: %zu of %zu "
            "temporaries; "
            "%zu of %zu figures inside the interval; %zu cells beyond what was fitted\n",
            s.cells, s.skipped, s.agreed, s.verdicts - s.agreed, s.within_12, s.temporaries, s.inside,
            s.figures, s.outside_fit);
    if (s.speeds > 0)
        fprintf(out, "%zu speeds: mean |error| %.1f %%, max %.1f %%; %zu inside the interval\n", s.speeds,
                100.0 * s.throughput_mape, 100.0 * s.throughput_max, s.speeds_inside);
    if (s.kernels > 0)
        fprintf(out, "%zu families of kernels: %zu within 20 %%, max |error| %.1f %%\n", s.kernels,
                s.kernels_within_20, 100.0 * s.kernel_max);

    if (s.peaks > 0)
        fprintf(out,
                "peak lists of %zu programs below their limit, values of 2 %% of the arena or more: %zu in "
                "our list, "
                "%zu not; %zu of ours not in theirs\n",
                s.peaks, s.peak_matched, s.peak_missing, s.peak_extra);

cleanup:
    spw_table_destroy(t);
    return status;
}

static void print_names(const spw_score *score, FILE *out) {
    for (size_t i = 0; i < score->rows; i++) {
        const spw_score_row *row = &score->row[i];
        const spw_score_cell *c = &row->cell;
        if (c->skipped[0] != '\0') {
            fprintf(out, "left out: %s:%zu %s %s: %s\n", c->table, c->line, c->id, c->scheme_text,
                    c->skipped);
        } else if (c->status != SPW_OUTCOME_UNKNOWN && spw_score_verdict(row) != c->status) {
            fprintf(out, "wrong verdict: %s:%zu %s %s, %zu sequences: %s, it is %s\n", c->table, c->line,
                    c->id, c->scheme_text, c->job.sequences_per_gpu[0],
                    spw_outcome_name(spw_score_verdict(row)), spw_outcome_name(c->status));
        }
    }
    fprintf(out, "\n");
}

/* --- JSON --- */

static json_t *time_json(spw_json *json, const spw_score_row *row) {
    const spw_timeline *time = &row->time;
    json_t *object = json_object(), *components = json_object(), *exposed = json_object();
    spw_json_put(json, object, "step_s", spw_json_real(time->step_s));
    spw_json_put(json, object, "low_s", spw_json_real(time->low_s));
    spw_json_put(json, object, "high_s", spw_json_real(time->high_s));
    spw_json_put(json, object, "tokens_per_s_per_gpu", spw_json_real(time->tokens_per_s_per_gpu));
    spw_json_put(json, object, "throughput_error", spw_json_real(spw_score_throughput_error(row)));
    spw_json_put(json, object, "outside_fit", spw_json_text(time->outside));
    for (size_t i = 0; i < time->components; i++) {
        spw_json_put(json, components, time->component[i].name, spw_json_real(time->component[i].seconds));
        spw_json_put(json, exposed, time->component[i].name, spw_json_real(time->component[i].exposed_s));
    }
    spw_json_put(json, object, "components", components);
    spw_json_put(json, object, "exposed", exposed);
    if (row->cell.family != SPW_KERNEL_NONE) {
        spw_json_put(json, object, "kernel_family", spw_json_text(spw_kernel_name(row->cell.family)));
        spw_json_put(json, object, "kernel_s", spw_json_real(spw_score_kernel_seconds(&row->cell, time)));
        spw_json_put(json, object, "true_kernel_s", spw_json_real(row->cell.kernel_s));
        spw_json_put(json, object, "kernel_error", spw_json_real(spw_score_kernel_error(row)));
    }
    return object;
}

/* Of a row with a peak list: the largest of what did not match. */
static json_t *peak_json(spw_json *json, const spw_peak_match *peak) {
    json_t *object = json_object(), *missing = json_array(), *extra = json_array();
    for (size_t i = 0; i < peak->missing && i < SPW_PEAK_LISTED; i++)
        spw_json_add(json, missing, spw_json_real(peak->missing_gib[i]));
    for (size_t i = 0; i < peak->extra && i < SPW_PEAK_LISTED; i++) {
        json_t *one = json_object();
        spw_json_put(json, one, "name", spw_json_text(peak->extra_name[i]));
        spw_json_put(json, one, "gib", spw_json_real(peak->extra_gib[i]));
        spw_json_add(json, extra, one);
    }
    spw_json_put(json, object, "matched", spw_json_count(peak->matched));
    spw_json_put(json, object, "missing_gib", missing);
    spw_json_put(json, object, "extra", extra);
    return object;
}

/* cells: of the row that is put into it. */
static json_t *row_json(spw_json *json, spw_table *cells, const spw_score_row *row) {
    const spw_score_cell *c = &row->cell;
    const spw_compiled_memory *m = &row->memory;
    json_t *object = json_object();
    put_row(cells, row);
    spw_table_put(
        cells,
        "table,line,id,model,stack,scheme,expert_parallel,sequences_per_gpu,remat,precision,budget_gib,"
        "verdict",
        json, object);
    spw_json_put(json, object, "true_verdict",
                 c->status == SPW_OUTCOME_UNKNOWN ? json_null() : spw_json_text(spw_outcome_name(c->status)));
    spw_json_put(json, object, "argument_gib", spw_json_real(m->argument_bytes / GIB));
    spw_json_put(json, object, "true_argument_gib", spw_json_real(c->argument_gib));
    spw_table_put(
        cells,
        "temporary_gib,low_gib,high_gib,true_temporary_gib,temporary_error,total_gib,true_total_gib,"
        "total_error",
        json, object);
    spw_json_put(json, object, "outside_fit", spw_json_text(m->outside));
    spw_json_put(json, object, "moment", spw_json_text(spw_step_moment_name(m->fullest.moment)));
    spw_json_put(json, object, "step", spw_json_text(m->fullest.step));
    spw_json_put(json, object, "layer_gib", spw_json_real(m->fullest.layer_bytes / GIB));
    spw_json_put(json, object, "wanted_gib", spw_json_real(m->wanted_bytes / GIB));
    spw_json_put(json, object, "recovered_gib", spw_json_real(m->recovered_bytes / GIB));
    spw_json_put(json, object, "peak", c->peaks > 0 ? peak_json(json, &row->peak) : json_null());
    spw_table_put(cells, "true_tokens_per_s_per_gpu", json, object);
    spw_json_put(json, object, "time", timed(row) ? time_json(json, row) : json_null());
    return object;
}

static void put_summary_json(spw_json *json, json_t *object, const spw_score_summary *s) {
    spw_json_put(json, object, "cells", spw_json_count(s->cells));
    spw_json_put(json, object, "skipped", spw_json_count(s->skipped));
    spw_json_put(json, object, "verdicts", spw_json_count(s->verdicts));
    spw_json_put(json, object, "verdicts_wrong", spw_json_count(s->verdicts - s->agreed));
    spw_json_put(json, object, "verdict_agreement", spw_json_real(spw_score_share(s->agreed, s->verdicts)));
    spw_json_put(json, object, "temporary_gib_median_abs_error", spw_json_real(s->temporary_median));
    spw_json_put(json, object, "temporary_gib_max_abs_error", spw_json_real(s->temporary_max));
    spw_json_put(json, object, "temporary_gib_within_12_percent",
                 spw_json_real(spw_score_share(s->within_12, s->temporaries)));
    spw_json_put(json, object, "total_gib_median_abs_error", spw_json_real(s->total_median));
    spw_json_put(json, object, "total_gib_max_abs_error", spw_json_real(s->total_max));
    spw_json_put(json, object, "peak_lists", spw_json_count(s->peaks));
    spw_json_put(json, object, "peak_values_matched", spw_json_count(s->peak_matched));
    spw_json_put(json, object, "peak_values_missing", spw_json_count(s->peak_missing));
    spw_json_put(json, object, "peak_values_extra", spw_json_count(s->peak_extra));
    spw_json_put(json, object, "interval_coverage", spw_json_real(spw_score_share(s->inside, s->figures)));
    spw_json_put(json, object, "interval_width_median", spw_json_real(s->interval_width_median));
    spw_json_put(json, object, "throughput_cells", spw_json_count(s->speeds));
    spw_json_put(json, object, "throughput_mape", spw_json_real(s->throughput_mape));
    spw_json_put(json, object, "throughput_max_abs_error", spw_json_real(s->throughput_max));
    spw_json_put(json, object, "throughput_interval_coverage",
                 spw_json_real(spw_score_share(s->speeds_inside, s->speeds)));
    spw_json_put(json, object, "kernel_cells", spw_json_count(s->kernels));
    spw_json_put(json, object, "kernel_within_20_percent",
                 spw_json_real(spw_score_share(s->kernels_within_20, s->kernels)));
    spw_json_put(json, object, "kernel_max_abs_error", spw_json_real(s->kernel_max));
    spw_json_put(json, object, "outside_fit", spw_json_count(s->outside_fit));
}

static spw_status print_json(const spw_score *score, FILE *out) {
    spw_status status = SPW_OK;
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *object = json_object(), *rows = json_array(), *skipped = json_array(), *schemes = json_array();
    json_t *tables = json_array();
    spw_score_summary s;
    spw_table *cells = NULL;
    SPW_TRY(spw_table_create(NULL, &cells));
    spw_json_put(json, object, "format", spw_json_text("spillway-score"));
    spw_json_put(json, object, "version", spw_json_count(1));
    SPW_TRY(spw_score_summarise(score, NULL, NULL, &s));
    put_summary_json(json, object, &s);
    for (size_t i = 0; i < score->rows; i++) {
        const spw_score_cell *c = &score->row[i].cell;
        if (first_of_scheme(score, i)) {
            json_t *scheme = json_object();
            spw_json_put(json, scheme, "scheme", spw_json_text(c->scheme_text));
            spw_json_add(json, schemes, scheme);
            SPW_TRY(spw_score_summarise(score, c->scheme_text, NULL, &s));
            put_summary_json(json, scheme, &s);
        }
        if (first_of_table(score, i)) {
            json_t *table = json_object();
            spw_json_put(json, table, "table", spw_json_text(c->table));
            spw_json_add(json, tables, table);
            SPW_TRY(spw_score_summarise(score, NULL, c->table, &s));
            put_summary_json(json, table, &s);
        }
        if (c->skipped[0] == '\0') {
            spw_json_add(json, rows, row_json(json, cells, &score->row[i]));
            continue;
        }
        json_t *left_out = json_object();
        spw_json_put(json, left_out, "table", spw_json_text(c->table));
        spw_json_put(json, left_out, "line", spw_json_count(c->line));
        spw_json_put(json, left_out, "id", spw_json_text(c->id));
        spw_json_put(json, left_out, "scheme", spw_json_text(c->scheme_text));
        spw_json_put(json, left_out, "reason", spw_json_text(c->skipped));
        spw_json_add(json, skipped, left_out);
    }
    spw_json_put(json, object, "schemes", json_incref(schemes));
    spw_json_put(json, object, "tables", json_incref(tables));
    spw_json_put(json, object, "rows", json_incref(rows));
    spw_json_put(json, object, "skipped_rows", json_incref(skipped));
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);
    object = NULL;

cleanup:
    spw_table_destroy(cells);
    json_decref(tables);
    json_decref(schemes);
    json_decref(skipped);
    json_decref(rows);
    json_decref(object);
    return status;
}

spw_status spw_score_print(const spw_score_request *r) {
    spw_score score = {.row = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_score_open(r->table, r->tables, r->stack, r->time_stack, &score));
    if (r->format == SPW_FORMAT_JSON) {
        SPW_TRY(print_json(&score, r->out));
    } else {
        SPW_TRY(print_rows(&score, r->format, r->out));
        if (r->format == SPW_FORMAT_TABLE) {
            fprintf(r->out, "\n");
            print_names(&score, r->out);
            SPW_TRY(print_summaries(&score, r->out));
        }
    }

cleanup:
    spw_score_close(&score);
    return status;
}
