#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/print/plural.h"
#include "sim/score/whole/whole_score.h"

#include <jansson.h>
#include <math.h>

static const double GB = 1e9, MS = 1e-3;

/* Each figure of a row, and what the errors of it are called. */
static const struct {
    const char *key, *what;
    double (*error)(const spw_whole_row *row);
} figures[] = {{"requested", "requested bytes", spw_whole_requested_error},
               {"reserved", "reserved bytes", spw_whole_reserved_error},
               {"step", "steps", spw_whole_step_error},
               {"optimizer", "optimizer steps", spw_whole_optimizer_error}};
enum { FIGURES = sizeof figures / sizeof *figures, STEP = 2 };

static const char *no_time_of(const spw_whole_row *row) {
    return row->skipped[0] != '\0' ? row->skipped : row->no_time;
}

/* --- For people, and as CSV --- */

static double timed(const spw_whole_row *row, double value) { return row->time.components > 0 ? value : NAN; }

static void put_row(spw_table *t, const spw_whole_row *row) {
    spw_table_text(spw_table_in(t, "table", NULL), row->table);
    spw_table_count(spw_table_in(t, "line", NULL), row->line);
    spw_table_text(spw_table_in(t, "name", "run"), row->name);
    spw_table_count(spw_table_in(t, "rank", "rank"), row->rank);
    spw_table_text(spw_table_in(t, "routing", "routing"), row->routing);
    spw_table_text(spw_table_in(t, "remat", "remat"), row->remat);
    spw_table_text(spw_table_in(t, "rows", NULL), spw_whole_rows_name(row->rows));
    spw_table_scaled(spw_table_in(t, "requested_bytes", "requested GB"), row->requested_bytes, GB, "%.3f");
    spw_table_scaled(spw_table_in(t, "true_requested_bytes", "measured"), row->true_requested_bytes, GB,
                     "%.3f");
    spw_table_scaled(spw_table_in(t, "requested_error", "error %"), spw_whole_requested_error(row), 0.01,
                     "%+.2f");
    spw_table_scaled(spw_table_in(t, "reserved_bytes", "reserved GB"), row->reserved_bytes, GB, "%.3f");
    spw_table_scaled(spw_table_in(t, "true_reserved_bytes", "measured"), row->true_reserved_bytes, GB,
                     "%.3f");
    spw_table_scaled(spw_table_in(t, "reserved_error", "error %"), spw_whole_reserved_error(row), 0.01,
                     "%+.2f");
    spw_table_scaled(spw_table_in(t, "step_s", "step ms"), timed(row, row->time.step_s), MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "low_s", NULL), timed(row, row->time.low_s), MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "high_s", NULL), timed(row, row->time.high_s), MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "true_step_s", "measured"), row->true_step_s, MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "step_error", "error %"), spw_whole_step_error(row), 0.01, "%+.1f");
    spw_table_scaled(spw_table_in(t, "optimizer_s", NULL), row->optimizer_s, MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "true_optimizer_s", NULL), row->true_optimizer_s, MS, "%.1f");
    spw_table_scaled(spw_table_in(t, "optimizer_error", NULL), spw_whole_optimizer_error(row), 0.01, "%+.1f");
    spw_table_text(spw_table_in(t, "why_no_time", NULL), no_time_of(row));
}

static spw_status print_rows(const spw_whole_score *score, spw_format format, FILE *out) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++)
        if (format == SPW_FORMAT_CSV || score->row[i].skipped[0] == '\0') put_row(t, &score->row[i]);
    status = spw_table_print(t, format, out);
    spw_table_destroy(t);
    return status;
}

static spw_status print_text(const spw_whole_score *score, FILE *out) {
    spw_whole_summary s;
    spw_status status = spw_whole_summarise(score, &s);
    const bool any = s.skipped < score->rows;
    if (status == SPW_OK && any) status = print_rows(score, SPW_FORMAT_TABLE, out);
    if (status != SPW_OK) return status;
    fprintf(out, "%s", any ? "\n" : "");
    for (size_t i = 0; i < score->rows; i++)
        if (no_time_of(&score->row[i])[0] != '\0')
            fprintf(out, "%s: %s:%zu: %s\n", score->row[i].skipped[0] != '\0' ? "left out" : "no time",
                    score->row[i].name, score->row[i].rank, no_time_of(&score->row[i]));
    fprintf(out,
            "\n%zu row%s, %zu left out, %zu without a time; rows of %zu composed from their routing, %zu as "
            "measured\n",
            score->rows, spw_plural(score->rows), s.skipped, s.untimed, s.composed, s.agreed);
    for (size_t f = 0; f < FIGURES; f++) {
        spw_whole_errors e;
        status = spw_whole_errors_of(score, figures[f].error, &e);
        if (status != SPW_OK) return status;
        if (e.count == 0) continue;
        fprintf(out, "%zu %s: mean |error| %.2f %%, median %.2f %%, bias %+.2f %%, largest %.2f %%\n",
                e.count, figures[f].what, 100.0 * e.mean, 100.0 * e.median, 100.0 * e.bias, 100.0 * e.max);
        if (f == STEP)
            fprintf(out,
                    "  %zu inside the interval, whose high end is %.2f times its low end in the median\n",
                    s.inside, s.width_median);
    }
    return SPW_OK;
}

/* --- JSON --- */

static json_t *time_json(spw_json *json, const spw_whole_row *row) {
    json_t *object = json_object(), *components = json_object(), *exposed = json_object();
    for (size_t i = 0; i < row->time.components; i++) {
        const spw_time_component *c = &row->time.component[i];
        spw_json_put(json, components, c->name, spw_json_real(c->seconds));
        spw_json_put(json, exposed, c->name, spw_json_real(c->exposed_s));
    }
    spw_json_put(json, object, "step_s", spw_json_real(row->time.step_s));
    spw_json_put(json, object, "low_s", spw_json_real(row->time.low_s));
    spw_json_put(json, object, "high_s", spw_json_real(row->time.high_s));
    spw_json_put(json, object, "optimizer_s", spw_json_real(row->optimizer_s));
    spw_json_put(json, object, "outside_fit", spw_json_text(row->time.outside));
    spw_json_put(json, object, "components", components);
    spw_json_put(json, object, "exposed", exposed);
    return object;
}

/* cells: of the row that is put into it. */
static json_t *row_json(spw_json *json, spw_table *cells, const spw_whole_row *row) {
    const bool skipped = row->skipped[0] != '\0';
    json_t *object = json_object();
    put_row(cells, row);
    spw_table_put(cells, "table,line,name,rank", json, object);
    spw_json_put(json, object, "gpus", spw_json_count(row->gpus));
    spw_table_put(cells, "routing,remat", json, object);
    spw_json_put(json, object, "rows", skipped ? json_null() : spw_json_text(spw_whole_rows_name(row->rows)));
    spw_table_put(cells, "requested_bytes,true_requested_bytes,reserved_bytes,true_reserved_bytes", json,
                  object);
    spw_json_put(json, object, "stack", row->stack[0] != '\0' ? spw_json_text(row->stack) : json_null());
    spw_json_put(json, object, "time", row->time.components > 0 ? time_json(json, row) : json_null());
    spw_json_put(json, object, "why_no_time",
                 row->time.components > 0 ? json_null() : spw_json_text(no_time_of(row)));
    spw_table_put(cells,
                  "true_step_s,true_optimizer_s,requested_error,reserved_error,step_error,optimizer_error",
                  json, object);
    return object;
}

static json_t *skipped_json(spw_json *json, const spw_whole_row *row) {
    json_t *object = json_object();
    spw_json_put(json, object, "table", spw_json_text(row->table));
    spw_json_put(json, object, "line", spw_json_count(row->line));
    spw_json_put(json, object, "name", spw_json_text(row->name));
    spw_json_put(json, object, "rank", spw_json_count(row->rank));
    spw_json_put(json, object, "reason", spw_json_text(row->skipped));
    return object;
}

static spw_status put_errors(spw_json *json, json_t *object, const spw_whole_score *score) {
    for (size_t f = 0; f < FIGURES; f++) {
        const char *mean = f < STEP ? "mean_abs_error" : "mape";
        char key[48];
        spw_whole_errors e;
        const spw_status status = spw_whole_errors_of(score, figures[f].error, &e);
        if (status != SPW_OK) return status;
        const struct {
            const char *name;
            double value;
        } values[] = {
            {mean, e.mean}, {"median_abs_error", e.median}, {"bias", e.bias}, {"max_abs_error", e.max}};
        (void)snprintf(key, sizeof key, "%s_cells", figures[f].key);
        spw_json_put(json, object, key, spw_json_count(e.count));
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            (void)snprintf(key, sizeof key, "%s_%s", figures[f].key, values[i].name);
            spw_json_put(json, object, key, spw_json_real(values[i].value));
        }
    }
    return SPW_OK;
}

static spw_status print_json(const spw_whole_score *score, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *object = json_object(), *rows = json_array(), *skipped = json_array();
    spw_whole_summary s;
    spw_whole_errors steps;
    spw_table *cells = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_table_create(NULL, &cells));
    SPW_TRY(spw_whole_summarise(score, &s));
    SPW_TRY(spw_whole_errors_of(score, spw_whole_step_error, &steps));
    spw_json_put(json, object, "format", spw_json_text("spillway-score"));
    spw_json_put(json, object, "version", spw_json_count(1));
    spw_json_put(json, object, "cells", spw_json_count(score->rows));
    spw_json_put(json, object, "skipped", spw_json_count(s.skipped));
    spw_json_put(json, object, "without_time", spw_json_count(s.untimed));
    spw_json_put(json, object, "rows_composed", spw_json_count(s.composed));
    spw_json_put(json, object, "rows_agreed", spw_json_count(s.agreed));
    SPW_TRY(put_errors(json, object, score));
    spw_json_put(json, object, "step_interval_coverage",
                 spw_json_real(steps.count > 0 ? (double)s.inside / (double)steps.count : NAN));
    spw_json_put(json, object, "step_interval_width_median", spw_json_real(s.width_median));
    for (size_t i = 0; i < score->rows; i++) {
        spw_json_add(json, rows, row_json(json, cells, &score->row[i]));
        if (score->row[i].skipped[0] != '\0') spw_json_add(json, skipped, skipped_json(json, &score->row[i]));
    }
    spw_json_put(json, object, "rows", json_incref(rows));
    spw_json_put(json, object, "skipped_rows", json_incref(skipped));
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);
    object = NULL;

cleanup:
    spw_table_destroy(cells);
    json_decref(rows);
    json_decref(skipped);
    json_decref(object);
    return status;
}

spw_status spw_whole_print(const spw_score_request *r) {
    const spw_whole_request request = {r->table, r->tables, r->traces, r->stack, r->cluster};
    spw_whole_score score = {.rows = 0};
    spw_status status = spw_whole_score_open(&request, &score);
    if (status == SPW_OK)
        status = r->format == SPW_FORMAT_JSON  ? print_json(&score, r->out)
                 : r->format == SPW_FORMAT_CSV ? print_rows(&score, r->format, r->out)
                                               : print_text(&score, r->out);
    spw_whole_score_close(&score);
    return status;
}
