#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/print/plural.h"
#include "sim/score/bare/bare_score.h"

#include <jansson.h>
#include <math.h>

static const double MS = 1e-3;

static const spw_column columns[] = {/* a NULL title: CSV alone */
                                     {"table", NULL},
                                     {"line", NULL},
                                     {"id", "layer"},
                                     {"dispatcher", "dispatcher"},
                                     {"recipe", "recipe"},
                                     {"scheme", NULL},
                                     {"ffn", "ffn"},
                                     {"asked_ffn", "asked"},
                                     {"step_s", "step ms"},
                                     {"low_s", NULL},
                                     {"high_s", NULL},
                                     {"true_step_s", "published"},
                                     {"step_error", "error %"},
                                     {"inside", "inside"},
                                     {"peak_gib", "peak GiB"},
                                     {"true_peak_gib", "published"},
                                     {"peak_error", "error %"},
                                     {"why_no_time", NULL},
                                     {NULL, NULL}};

static double timed(const spw_bare_row *row, double value) { return row->time.components > 0 ? value : NAN; }

static void put_row(spw_table *t, const spw_bare_row *row) {
    spw_table_text(t, row->table);
    spw_table_count(t, row->line);
    spw_table_text(t, row->id);
    spw_table_text(t, row->dispatcher);
    spw_table_text(t, row->recipe);
    spw_table_text(t, row->scheme);
    spw_table_count(t, row->ffn);
    spw_table_count(t, row->asked_ffn);
    spw_table_scaled(t, timed(row, row->time.step_s), MS, "%.2f");
    spw_table_scaled(t, timed(row, row->time.low_s), MS, "%.2f");
    spw_table_scaled(t, timed(row, row->time.high_s), MS, "%.2f");
    spw_table_scaled(t, row->true_step_s, MS, "%.2f");
    spw_table_scaled(t, spw_bare_step_error(row), 0.01, "%+.1f");
    spw_table_text(t, row->time.components == 0 ? "" : spw_bare_is_inside(row) ? "yes" : "no");
    spw_table_scaled(t, row->peak_gib, 1.0, "%.2f");
    spw_table_scaled(t, row->true_peak_gib, 1.0, "%.2f");
    spw_table_scaled(t, spw_bare_peak_error(row), 0.01, "%+.1f");
    spw_table_text(t, row->skipped);
}

static spw_status print_rows(const spw_bare_score *score, spw_format format, FILE *out) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(columns, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++)
        if (format == SPW_FORMAT_CSV || score->row[i].time.components > 0) put_row(t, &score->row[i]);
    status = spw_table_print(t, format, out);
    spw_table_destroy(t);
    return status;
}

static spw_status print_text(const spw_bare_score *score, FILE *out) {
    spw_bare_summary s;
    spw_status status = spw_bare_summarise(score, &s);
    const bool any = s.skipped < score->rows;
    if (status == SPW_OK && any) status = print_rows(score, SPW_FORMAT_TABLE, out);
    if (status != SPW_OK) return status;
    fprintf(out, "%s", any ? "\n" : "");
    for (size_t i = 0; i < score->rows; i++)
        if (score->row[i].skipped[0] != '\0')
            fprintf(out, "no time: %s: %s\n", score->row[i].id, score->row[i].skipped);
    fprintf(out, "\n%zu row%s, %zu without a time\n", score->rows, spw_plural(score->rows), s.skipped);
    if (s.steps > 0)
        fprintf(out,
                "%zu steps: mean |error| %.1f %%, bias %+.1f %%, largest %.1f %%; %zu inside the interval, "
                "whose high "
                "end is %.2f times its low end in the median\n",
                s.steps, 100.0 * s.step_mape, 100.0 * s.step_bias, 100.0 * s.step_max, s.inside,
                s.width_median);
    return SPW_OK;
}

/* --- JSON --- */

static json_t *time_json(spw_json *json, const spw_timeline *time) {
    json_t *object = json_object(), *components = json_object();
    for (size_t i = 0; i < time->components; i++)
        spw_json_put(json, components, time->component[i].name, spw_json_real(time->component[i].seconds));
    spw_json_put(json, object, "step_s", spw_json_real(time->step_s));
    spw_json_put(json, object, "low_s", spw_json_real(time->low_s));
    spw_json_put(json, object, "high_s", spw_json_real(time->high_s));
    spw_json_put(json, object, "outside_fit", spw_json_text(time->outside));
    spw_json_put(json, object, "components", components);
    return object;
}

static json_t *row_json(spw_json *json, const spw_bare_row *row) {
    const bool timed = row->time.components > 0;
    json_t *object = json_object();
    spw_json_put(json, object, "table", spw_json_text(row->table));
    spw_json_put(json, object, "line", spw_json_count(row->line));
    spw_json_put(json, object, "id", spw_json_text(row->id));
    spw_json_put(json, object, "dispatcher", spw_json_text(row->dispatcher));
    spw_json_put(json, object, "recipe", spw_json_text(row->recipe));
    spw_json_put(json, object, "scheme", row->scheme[0] != '\0' ? spw_json_text(row->scheme) : json_null());
    spw_json_put(json, object, "ffn", spw_json_count(row->ffn));
    spw_json_put(json, object, "asked_ffn", spw_json_count(row->asked_ffn));
    spw_json_put(json, object, "stack", row->stack[0] != '\0' ? spw_json_text(row->stack) : json_null());
    spw_json_put(json, object, "time", timed ? time_json(json, &row->time) : json_null());
    spw_json_put(json, object, "why_no_time", timed ? json_null() : spw_json_text(row->skipped));
    spw_json_put(json, object, "true_step_s", spw_json_real(row->true_step_s));
    spw_json_put(json, object, "step_error", spw_json_real(spw_bare_step_error(row)));
    spw_json_put(json, object, "inside", timed ? json_boolean(spw_bare_is_inside(row)) : json_null());
    spw_json_put(json, object, "peak_gib", spw_json_real(row->peak_gib));
    spw_json_put(json, object, "true_peak_gib", spw_json_real(row->true_peak_gib));
    spw_json_put(json, object, "peak_error", spw_json_real(spw_bare_peak_error(row)));
    return object;
}

static json_t *skipped_json(spw_json *json, const spw_bare_row *row) {
    json_t *object = json_object();
    spw_json_put(json, object, "table", spw_json_text(row->table));
    spw_json_put(json, object, "line", spw_json_count(row->line));
    spw_json_put(json, object, "id", spw_json_text(row->id));
    spw_json_put(json, object, "reason", spw_json_text(row->skipped));
    return object;
}

static spw_status print_json(const spw_bare_score *score, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    spw_bare_summary s;
    const spw_status status = spw_bare_summarise(score, &s);
    if (status != SPW_OK) return status;
    json_t *object = json_object(), *rows = json_array(), *skipped = json_array();
    spw_json_put(json, object, "format", spw_json_text("spillway-score"));
    spw_json_put(json, object, "version", spw_json_count(1));
    spw_json_put(json, object, "cells", spw_json_count(score->rows));
    spw_json_put(json, object, "skipped", spw_json_count(s.skipped));
    spw_json_put(json, object, "step_cells", spw_json_count(s.steps));
    spw_json_put(json, object, "step_mape", spw_json_real(s.step_mape));
    spw_json_put(json, object, "step_bias", spw_json_real(s.step_bias));
    spw_json_put(json, object, "step_max_abs_error", spw_json_real(s.step_max));
    spw_json_put(json, object, "step_interval_coverage",
                 spw_json_real(s.steps > 0 ? (double)s.inside / (double)s.steps : NAN));
    spw_json_put(json, object, "step_interval_width_median", spw_json_real(s.width_median));
    for (size_t i = 0; i < score->rows; i++) {
        spw_json_add(json, rows, row_json(json, &score->row[i]));
        if (score->row[i].skipped[0] != '\0') spw_json_add(json, skipped, skipped_json(json, &score->row[i]));
    }
    spw_json_put(json, object, "rows", rows);
    spw_json_put(json, object, "skipped_rows", skipped);
    return spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);
}

spw_status spw_bare_print(const spw_score_request *r) {
    spw_bare_score score = {.rows = 0};
    spw_status status = spw_bare_score_open(r->table, r->tables, r->stack, &score);
    if (status == SPW_OK)
        status = r->format == SPW_FORMAT_JSON  ? print_json(&score, r->out)
                 : r->format == SPW_FORMAT_CSV ? print_rows(&score, r->format, r->out)
                                               : print_text(&score, r->out);
    spw_bare_score_close(&score);
    return status;
}
