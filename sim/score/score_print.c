#include "sim/score/score_print.h"

#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* --- For people --- */

static const spw_column row_columns[] = {
    /* a NULL title: CSV and JSON only */
    {"table", NULL},
    {"line", NULL},
    {"id", NULL},
    {"model", "model"},
    {"stack", NULL},
    {"scheme", "scheme"},
    {"expert_parallel", "EP"},
    {"sequences_per_gpu", "seqs"},
    {"remat", "remat"},
    {"budget_gib", "budget"},
    {"verdict", "verdict"},
    {"true_verdict", "true"},
    {"temporary_gib", "temporary"},
    {"low_gib", "from"},
    {"high_gib", "to"},
    {"true_temporary_gib", "true"},
    {"temporary_error", "error %"},
    {"total_gib", "total"},
    {"true_total_gib", "true"},
    {"total_error", "error %"},
    {"inside", "inside"},
    {"outside_fit", "beyond the fit"},
    {"step_s", "step s"},
    {"tokens_per_s_per_gpu", "tokens/s"},
    {"true_tokens_per_s_per_gpu", "true"},
    {"throughput_error", "error %"},
    {"kernel_family", NULL},
    {"kernel_s", NULL},
    {"true_kernel_s", NULL},
    {"time_outside_fit", NULL},
    {NULL, NULL},
};

static void put_real(spw_table *t, double value, const char *format) {
    if (isnan(value)) {
        spw_table_none(t);
    } else {
        spw_table_real(t, value, format);
    }
}

static void put_share(spw_table *t, double value) {
    if (isnan(value)) {
        spw_table_none(t);
    } else {
        spw_table_scaled(t, value, 0.01, "%+.1f");
    }
}

static bool timed(const spw_score_row *row) { return row->time.components > 0; }

static void put_row(spw_table *t, const spw_score_row *row) {
    const spw_score_cell *c = &row->cell;
    const spw_compiled_memory *m = &row->memory;
    const bool figure = !isnan(c->temporary_gib) || !isnan(c->total_gib);
    spw_table_text(t, c->table);
    spw_table_count(t, c->line);
    spw_table_text(t, c->id);
    spw_table_text(t, c->job.model.name);
    spw_table_text(t, c->stack->name);
    spw_table_text(t, c->scheme_text);
    spw_table_count(t, c->job.expert);
    spw_table_count(t, c->job.sequences_per_gpu[0]);
    spw_table_text(t, spw_remat_name(c->job.remat));
    spw_table_real(t, c->budget_bytes / GIB, "%.1f");
    spw_table_text(t, spw_outcome_name(spw_score_verdict(row)));
    spw_table_text(t, spw_outcome_name(c->status));
    spw_table_real(t, m->temporary_bytes / GIB, "%.1f");
    spw_table_real(t, m->low_bytes / GIB, "%.1f");
    spw_table_real(t, m->high_bytes / GIB, "%.1f");
    put_real(t, c->temporary_gib, "%.1f");
    put_share(t, spw_score_temporary_error(row));
    spw_table_real(t, (m->argument_bytes + m->temporary_bytes) / GIB, "%.1f");
    put_real(t, c->total_gib, "%.1f");
    put_share(t, spw_score_total_error(row));
    spw_table_text(t, !figure ? "" : spw_score_inside(row) ? "yes" : "no");
    spw_table_text(t, m->outside);
    put_real(t, timed(row) ? row->time.step_s : NAN, "%.2f");
    put_real(t, timed(row) ? row->time.tokens_per_s_per_gpu : NAN, "%.0f");
    put_real(t, c->tokens_per_s_per_gpu, "%.0f");
    put_share(t, spw_score_throughput_error(row));
    spw_table_text(t, spw_kernel_name(c->family));
    put_real(t, spw_score_kernel_seconds(c, &row->time), "%.2f");
    put_real(t, c->family == SPW_KERNEL_NONE ? NAN : c->kernel_s, "%.2f");
    spw_table_text(t, row->time.outside);
}

static const spw_column summary_columns[] = {
    {"scheme", "scheme"},
    {"cells", "cells"},
    {"skipped", "left out"},
    {"verdicts", "verdicts"},
    {"agreed", "right"},
    {"temporaries", "temporary"},
    {"temporary_median", "median %"},
    {"temporary_max", "max %"},
    {"totals", "total"},
    {"total_median", "median %"},
    {"total_max", "max %"},
    {"figures", "figures"},
    {"inside", "inside"},
    {"interval_width_median", "width %"},
    {"speeds", "tokens/s"},
    {"throughput_mape", "mean %"},
    {"throughput_max_abs_error", "max %"},
    {NULL, NULL},
};

static void put_unsigned_share(spw_table *t, double value) {
    if (isnan(value)) {
        spw_table_none(t);
    } else {
        spw_table_scaled(t, value, 0.01, "%.1f");
    }
}

static void put_summary(spw_table *t, const char *name, const spw_score_summary *s) {
    spw_table_text(t, name);
    spw_table_count(t, s->cells);
    spw_table_count(t, s->skipped);
    spw_table_count(t, s->verdicts);
    spw_table_count(t, s->agreed);
    spw_table_count(t, s->temporaries);
    put_unsigned_share(t, s->temporary_median);
    put_unsigned_share(t, s->temporary_max);
    spw_table_count(t, s->totals);
    put_unsigned_share(t, s->total_median);
    put_unsigned_share(t, s->total_max);
    spw_table_count(t, s->figures);
    spw_table_count(t, s->inside);
    put_unsigned_share(t, s->interval_width_median);
    spw_table_count(t, s->speeds);
    put_unsigned_share(t, s->throughput_mape);
    put_unsigned_share(t, s->throughput_max);
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
    spw_status status = spw_table_create(row_columns, &t);
    for (size_t i = 0; status == SPW_OK && i < score->rows; i++) {
        if (score->row[i].cell.skipped[0] == '\0') put_row(t, &score->row[i]);
    }
    if (status == SPW_OK) status = spw_table_print(t, format, out);
    spw_table_destroy(t);
    return status;
}

static spw_status print_summaries(const spw_score *score, FILE *out) {
    spw_status status = SPW_OK;
    spw_table *t = NULL;
    spw_score_summary s;
    SPW_TRY(spw_table_create(summary_columns, &t));
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

static void put(json_t *object, const char *key, json_t *value) {
    (void)json_object_set_new(object, key, value);
}

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Text that is not UTF-8 is left out, never an error. */
static json_t *text(const char *value) {
    json_t *json = json_string(value);
    return json != NULL ? json : json_string("");
}

static json_t *count(size_t value) { return json_integer((json_int_t)value); }

static json_t *time_json(const spw_score_row *row) {
    const spw_timeline *time = &row->time;
    json_t *object = json_object(), *components = json_object(), *exposed = json_object();
    put(object, "step_s", real(time->step_s));
    put(object, "low_s", real(time->low_s));
    put(object, "high_s", real(time->high_s));
    put(object, "tokens_per_s_per_gpu", real(time->tokens_per_s_per_gpu));
    put(object, "throughput_error", real(spw_score_throughput_error(row)));
    put(object, "outside_fit", text(time->outside));
    for (size_t i = 0; i < time->components; i++) {
        put(components, time->component[i].name, real(time->component[i].seconds));
        put(exposed, time->component[i].name, real(time->component[i].exposed_s));
    }
    put(object, "components", components);
    put(object, "exposed", exposed);
    if (row->cell.family != SPW_KERNEL_NONE) {
        put(object, "kernel_family", text(spw_kernel_name(row->cell.family)));
        put(object, "kernel_s", real(spw_score_kernel_seconds(&row->cell, time)));
        put(object, "true_kernel_s", real(row->cell.kernel_s));
        put(object, "kernel_error", real(spw_score_kernel_error(row)));
    }
    return object;
}

static json_t *row_json(const spw_score_row *row) {
    const spw_score_cell *c = &row->cell;
    const spw_compiled_memory *m = &row->memory;
    json_t *object = json_object(), *parts = json_object();
    put(object, "table", text(c->table));
    put(object, "line", count(c->line));
    put(object, "id", text(c->id));
    put(object, "model", text(c->job.model.name));
    put(object, "stack", text(c->stack->name));
    put(object, "scheme", text(c->scheme_text));
    put(object, "expert_parallel", count(c->job.expert));
    put(object, "sequences_per_gpu", count(c->job.sequences_per_gpu[0]));
    put(object, "remat", text(spw_remat_name(c->job.remat)));
    put(object, "budget_gib", real(c->budget_bytes / GIB));
    put(object, "verdict", text(spw_outcome_name(spw_score_verdict(row))));
    put(object, "true_verdict",
        c->status == SPW_OUTCOME_UNKNOWN ? json_null() : text(spw_outcome_name(c->status)));
    put(object, "argument_gib", real(m->argument_bytes / GIB));
    put(object, "temporary_gib", real(m->temporary_bytes / GIB));
    put(object, "low_gib", real(m->low_bytes / GIB));
    put(object, "high_gib", real(m->high_bytes / GIB));
    put(object, "true_temporary_gib", real(c->temporary_gib));
    put(object, "temporary_error", real(spw_score_temporary_error(row)));
    put(object, "total_gib", real((m->argument_bytes + m->temporary_bytes) / GIB));
    put(object, "true_total_gib", real(c->total_gib));
    put(object, "total_error", real(spw_score_total_error(row)));
    put(object, "outside_fit", text(m->outside));
    for (int i = 0; i < SPW_COMPILED_PARTS; i++)
        put(parts, spw_compiled_part_name((spw_compiled_part)i), real(m->part_bytes[i] / GIB));
    put(object, "parts_gib", parts);
    put(object, "true_tokens_per_s_per_gpu", real(c->tokens_per_s_per_gpu));
    put(object, "time", timed(row) ? time_json(row) : json_null());
    return object;
}

static double share(size_t part, size_t whole) { return whole > 0 ? (double)part / (double)whole : NAN; }

static void put_summary_json(json_t *object, const spw_score_summary *s) {
    put(object, "cells", count(s->cells));
    put(object, "skipped", count(s->skipped));
    put(object, "verdicts", count(s->verdicts));
    put(object, "verdicts_wrong", count(s->verdicts - s->agreed));
    put(object, "verdict_agreement", real(share(s->agreed, s->verdicts)));
    put(object, "temporary_gib_median_abs_error", real(s->temporary_median));
    put(object, "temporary_gib_max_abs_error", real(s->temporary_max));
    put(object, "temporary_gib_within_12_percent", real(share(s->within_12, s->temporaries)));
    put(object, "total_gib_median_abs_error", real(s->total_median));
    put(object, "total_gib_max_abs_error", real(s->total_max));
    put(object, "interval_coverage", real(share(s->inside, s->figures)));
    put(object, "interval_width_median", real(s->interval_width_median));
    put(object, "throughput_cells", count(s->speeds));
    put(object, "throughput_mape", real(s->throughput_mape));
    put(object, "throughput_max_abs_error", real(s->throughput_max));
    put(object, "throughput_interval_coverage", real(share(s->speeds_inside, s->speeds)));
    put(object, "kernel_cells", count(s->kernels));
    put(object, "kernel_within_20_percent", real(share(s->kernels_within_20, s->kernels)));
    put(object, "kernel_max_abs_error", real(s->kernel_max));
    put(object, "outside_fit", count(s->outside_fit));
}

static spw_status print_json(const spw_score *score, FILE *out) {
    spw_status status = SPW_OK;
    json_t *object = json_object(), *rows = json_array(), *skipped = json_array(), *schemes = json_array();
    json_t *tables = json_array();
    spw_score_summary s;
    put(object, "format", text("spillway-score"));
    put(object, "version", count(1));
    SPW_TRY(spw_score_summarise(score, NULL, NULL, &s));
    put_summary_json(object, &s);
    for (size_t i = 0; i < score->rows; i++) {
        const spw_score_cell *c = &score->row[i].cell;
        if (first_of_scheme(score, i)) {
            json_t *scheme = json_object();
            put(scheme, "scheme", text(c->scheme_text));
            (void)json_array_append_new(schemes, scheme);
            SPW_TRY(spw_score_summarise(score, c->scheme_text, NULL, &s));
            put_summary_json(scheme, &s);
        }
        if (first_of_table(score, i)) {
            json_t *table = json_object();
            put(table, "table", text(c->table));
            (void)json_array_append_new(tables, table);
            SPW_TRY(spw_score_summarise(score, NULL, c->table, &s));
            put_summary_json(table, &s);
        }
        if (c->skipped[0] == '\0') {
            (void)json_array_append_new(rows, row_json(&score->row[i]));
            continue;
        }
        json_t *left_out = json_object();
        put(left_out, "table", text(c->table));
        put(left_out, "line", count(c->line));
        put(left_out, "id", text(c->id));
        put(left_out, "scheme", text(c->scheme_text));
        put(left_out, "reason", text(c->skipped));
        (void)json_array_append_new(skipped, left_out);
    }
    put(object, "schemes", json_incref(schemes));
    put(object, "tables", json_incref(tables));
    put(object, "rows", json_incref(rows));
    put(object, "skipped_rows", json_incref(skipped));
    if (json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0)
        status = spw_fail(SPW_EIO, "the score cannot be written as JSON");
    fprintf(out, "\n");

cleanup:
    json_decref(tables);
    json_decref(schemes);
    json_decref(skipped);
    json_decref(rows);
    json_decref(object);
    return status;
}

spw_status spw_score_print(const spw_score *score, spw_format format, FILE *out) {
    if (format == SPW_FORMAT_JSON) return print_json(score, out);
    spw_status status = print_rows(score, format, out);
    if (status != SPW_OK || format == SPW_FORMAT_CSV) return status;
    fprintf(out, "\n");
    print_names(score, out);
    return print_summaries(score, out);
}
