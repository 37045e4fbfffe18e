#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/print/plural.h"
#include "sim/score/bare/bare_score.h"

#include <jansson.h>
#include <math.h>

static const double MS = 1e-3;

static double timed(const spw_bare_row *row, double value) { return row->time.components > 0 ? value : NAN; }

static void put_row(spw_table *t, const spw_bare_row *row) {
    spw_table_text(spw_table_in(t, "table", NULL), row->table);
    spw_table_count(spw_table_in(t, "line", NULL), row->line);
    spw_table_text(spw_table_in(t, "id", "layer"), row->id);
    spw_table_text(spw_table_in(t, "dispatcher", "dispatcher"), row->dispatcher);
    spw_table_text(spw_table_in(t, "recipe", "recipe"), row->recipe);
    spw_table_text(spw_table_in(t, "scheme", NULL), row->scheme);
    spw_table_count(spw_table_in(t, "ffn", "ffn"), row->ffn);
    spw_table_count(spw_table_in(t, "asked_ffn", "asked"), row->asked_ffn);
    spw_table_scaled(spw_table_in(t, "step_s", "step ms"), timed(row, row->time.step_s), MS, "%.2f");
    spw_table_scaled(spw_table_in(t, "low_s", NULL), timed(row, row->time.low_s), MS, "%.2f");
    spw_table_scaled(spw_table_in(t, "high_s", NULL), timed(row, row->time.high_s), MS, "%.2f");
    spw_table_scaled(spw_table_in(t, "true_step_s", "published"), row->true_step_s, MS, "%.2f");
    spw_table_scaled(spw_table_in(t, "step_error", "error %"), spw_bare_step_error(row), 0.01, "%+.1f");
    spw_table_in(t, "inside", "inside");
    if (row->time.components == 0)
        spw_table_none(t);
    else
        spw_table_flag(t, spw_bare_is_inside(row));
    spw_table_scaled(spw_table_in(t, "peak_gib", "peak GiB"), row->peak_gib, 1.0, "%.2f");
    spw_table_scaled(spw_table_in(t, "true_peak_gib", "published"), row->true_peak_gib, 1.0, "%.2f");
    spw_table_scaled(spw_table_in(t, "peak_error", "error %"), spw_bare_peak_error(row), 0.01, "%+.1f");
    spw_table_text(spw_table_in(t, "why_no_time", NULL), row->skipped);
}

static spw_status print_rows(const spw_bare_score *score, spw_format format, FILE *out) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
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

/* cells: of the row that is put into it. */
static json_t *row_json(spw_json *json, spw_table *cells, const spw_bare_row *row) {
    const bool timed = row->time.components > 0;
    json_t *object = json_object();
    put_row(cells, row);
    spw_table_put(cells, "table,line,id,dispatcher,recipe", json, object);
    spw_json_put(json, object, "scheme", row->scheme[0] != '\0' ? spw_json_text(row->scheme) : json_null());
    spw_table_put(cells, "ffn,asked_ffn", json, object);
    spw_json_put(json, object, "stack", row->stack[0] != '\0' ? spw_json_text(row->stack) : json_null());
    spw_json_put(json, object, "time", timed ? time_json(json, &row->time) : json_null());
    spw_json_put(json, object, "why_no_time", timed ? json_null() : spw_json_text(row->skipped));
    spw_table_put(cells, "true_step_s,step_error,inside,peak_gib,true_peak_gib,peak_error", json, object);
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
    spw_table *cells = NULL;
    spw_bare_summary s;
    spw_status status = spw_table_create(NULL, &cells);
    if (status == SPW_OK) status = spw_bare_summarise(score, &s);
    if (status != SPW_OK) goto cleanup;
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
        spw_json_add(json, rows, row_json(json, cells, &score->row[i]));
        if (score->row[i].skipped[0] != '\0') spw_json_add(json, skipped, skipped_json(json, &score->row[i]));
    }
    spw_json_put(json, object, "rows", rows);
    spw_json_put(json, object, "skipped_rows", skipped);
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);

cleanup:
    spw_table_destroy(cells);
    return status;
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
