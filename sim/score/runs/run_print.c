#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/print/plural.h"
#include "sim/result/result_json.h"
#include "sim/score/runs/run_score.h"
#include "sim/score/score_tables.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const char *reason_of(const spw_run_row *row) {
    return row->no_job[0] != '\0' ? row->no_job : row->no_time;
}

/* --- For people, and as CSV --- */

static double timed(const spw_run_row *row, double value) { return spw_run_is_timed(row) ? value : NAN; }
static double has_job(const spw_run_row *row, double value) { return row->no_job[0] == '\0' ? value : NAN; }

static void put_row(spw_table *t, const spw_run_row *row) {
    const spw_run_question *q = &row->question;
    spw_table_text(spw_table_in(t, "table", NULL), row->table);
    spw_table_count(spw_table_in(t, "line", NULL), row->line);
    spw_table_text(spw_table_in(t, "row_id", "row"), q->id);
    spw_table_text(spw_table_in(t, "source", NULL), q->source);
    spw_table_text(spw_table_in(t, "model", "model"), q->model);
    spw_table_text(spw_table_in(t, "hardware", "GPU"), q->hardware);
    spw_table_count(spw_table_in(t, "gpus", "GPUs"), q->size.gpus);
    spw_table_text(spw_table_in(t, "precision", "precision"), q->precision);
    spw_table_text(spw_table_in(t, "dispatcher", "dispatcher"), q->dispatcher);
    spw_table_text(spw_table_in(t, "graph", NULL), q->graph);
    spw_table_text(spw_table_in(t, "ep_overlap", NULL), q->ep_overlap);
    spw_table_text(spw_table_in(t, "scheme", NULL), q->scheme);
    spw_table_scaled(spw_table_in(t, "step_s", "step s"), timed(row, row->time.step_s), 1.0, "%.3g");
    spw_table_scaled(spw_table_in(t, "low_s", NULL), timed(row, row->time.low_s), 1.0, "%.3g");
    spw_table_scaled(spw_table_in(t, "high_s", NULL), timed(row, row->time.high_s), 1.0, "%.3g");
    spw_table_scaled(spw_table_in(t, "tokens_per_s_per_gpu", "tokens/s"),
                     timed(row, row->time.tokens_per_s_per_gpu), 1.0, "%.0f");
    spw_table_scaled(spw_table_in(t, "true_tokens_per_s_per_gpu", "published"),
                     row->true_tokens_per_s_per_gpu, 1.0, "%.0f");
    spw_table_scaled(spw_table_in(t, "throughput_error", "error %"), spw_run_throughput_error(row), 0.01,
                     "%+.1f");
    spw_table_text(spw_table_in(t, "inside", "inside"), isnan(spw_run_throughput_error(row)) ? ""
                                                        : spw_run_is_inside(row)             ? "yes"
                                                                                             : "no");
    spw_table_text(spw_table_in(t, "verdict", "memory"), spw_run_status_name(spw_run_predicted_status(row)));
    spw_table_text(spw_table_in(t, "true_verdict", "published"), spw_run_status_name(row->true_status));
    spw_table_scaled(spw_table_in(t, "peak_gib", NULL), has_job(row, (double)row->peak_bytes / GIB), 1.0,
                     "%.1f");
    spw_table_scaled(spw_table_in(t, "true_memory_gib", NULL), row->true_memory_gib, 1.0, "%.1f");
    spw_table_scaled(spw_table_in(t, "memory_error", NULL), spw_run_memory_error(row), 0.01, "%+.1f");
    spw_table_text(spw_table_in(t, "outside_fit", NULL), row->time.outside);
    spw_table_text(spw_table_in(t, "why_no_time", NULL), reason_of(row));
}

static spw_status print_rows(const spw_run_score *score, spw_format format, FILE *out) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->rows; i++)
        if (format == SPW_FORMAT_CSV || spw_run_is_timed(&score->row[i])) put_row(t, &score->row[i]);
    status = spw_table_print(t, format, out);
    spw_table_destroy(t);
    return status;
}

static spw_status print_text(const spw_run_score *score, FILE *out) {
    spw_run_summary s;
    spw_status status = spw_run_summarise(score, NULL, NULL, &s);
    const bool any = s.skipped < s.rows;
    if (status == SPW_OK && any) status = print_rows(score, SPW_FORMAT_TABLE, out);
    if (status != SPW_OK) return status;
    fprintf(out, "%s", any ? "\n" : "");
    for (size_t i = 0; i < score->rows; i++) {
        const spw_run_row *row = &score->row[i];
        if (!spw_run_is_timed(row)) fprintf(out, "no time: %s: %s\n", row->question.id, reason_of(row));
    }
    fprintf(out, "\n%zu row%s; %zu without a time as asked\n", s.rows, spw_plural(s.rows), s.skipped);
    if (s.throughput_cells > 0)
        fprintf(out,
                "%zu throughputs: mean |error| %.1f %%, median %.1f %%, bias %+.1f %%, largest %.1f %%; %zu "
                "inside the interval, "
                "whose high end is %.2f times its low end in the median\n",
                s.throughput_cells, 100.0 * s.throughput_mape, 100.0 * s.throughput_median,
                100.0 * s.throughput_bias, 100.0 * s.throughput_max, s.inside, s.width_median);
    if (s.pairs.pairs > 0)
        fprintf(out,
                "%zu pairs of rows with one model and equal GPUs: %zu have one prediction; of the others the "
                "faster is the faster in %zu; said in "
                "90 of 100 or more: "
                "%zu, right %zu\n",
                s.pairs.pairs, s.pairs.tied, s.pairs.order_right, s.pairs.called, s.pairs.called_right);
    if (s.verdicts > 0) fprintf(out, "%zu verdicts on memory: %zu wrong\n", s.verdicts, s.verdicts_wrong);
    if (s.memory_cells > 0)
        fprintf(out, "%zu figures of memory: mean |error| %.1f %%\n", s.memory_cells, 100.0 * s.memory_mean);
    return SPW_OK;
}

/* --- JSON --- */

static json_t *time_json(spw_json *json, const spw_timeline *time) {
    json_t *object = json_object(), *components = json_object(), *exposed = json_object();
    spw_json_put(json, object, "step_s", spw_json_real(time->step_s));
    spw_json_put(json, object, "low_s", spw_json_real(time->low_s));
    spw_json_put(json, object, "high_s", spw_json_real(time->high_s));
    spw_json_put(json, object, "tokens_per_s_per_gpu", spw_json_real(time->tokens_per_s_per_gpu));
    spw_json_put(json, object, "outside_fit", spw_json_text(time->outside));
    for (size_t i = 0; i < time->components; i++) {
        spw_json_put(json, components, time->component[i].name, spw_json_real(time->component[i].seconds));
        spw_json_put(json, exposed, time->component[i].name, spw_json_real(time->component[i].exposed_s));
    }
    spw_json_put(json, object, "components", components);
    spw_json_put(json, object, "exposed", exposed);
    spw_json_put(json, object, "doubts", spw_doubts_json(json, time));
    spw_json_put(json, object, "pair_half_width", spw_json_real(time->pair_width));
    return object;
}

static json_t *memory_json(spw_json *json, const spw_run_row *row) {
    json_t *object = json_object();
    spw_json_put(json, object, "verdict", spw_json_text(spw_verdict_text(row->verdict, row->live)));
    spw_json_put(json, object, "peak_gib", spw_json_real((double)row->peak_bytes / GIB));
    spw_json_put(json, object, "budget_gib", spw_json_real((double)row->budget_bytes / GIB));
    return object;
}

/* The job's keys, and who says each. */
static json_t *question_json(spw_json *json, const spw_run_question *q) {
    json_t *object = json_object(), *said[SPW_RUN_ORIGINS];
    for (size_t o = 0; o < SPW_RUN_ORIGINS; o++) said[o] = json_object();
    for (size_t i = 0; i < q->settings; i++)
        spw_json_put(json, said[q->setting[i].origin], q->setting[i].key, spw_json_text(q->setting[i].value));
    for (size_t o = 0; o < SPW_RUN_ORIGINS; o++)
        spw_json_put(json, object, spw_run_origin_name((spw_run_origin)o), said[o]);
    return object;
}

/* cells: of the row that is put into it. */
static json_t *row_json(spw_json *json, spw_table *cells, const spw_run_row *row) {
    const spw_run_question *q = &row->question;
    const bool job = row->no_job[0] == '\0';
    json_t *object = json_object();
    put_row(cells, row);
    spw_table_put(cells, "table,line,row_id,source,model,hardware,precision,dispatcher", json, object);
    spw_json_put(json, object, "remat", spw_json_text(q->remat));
    spw_table_put(cells, "graph,ep_overlap,gpus", json, object);
    spw_json_put(json, object, "scheme", q->scheme[0] != '\0' ? spw_json_text(q->scheme) : json_null());
    spw_json_put(json, object, "job", q->settings > 0 ? question_json(json, q) : json_null());
    spw_json_put(json, object, "routing", spw_json_text(q->routing != NULL ? q->routing : "balanced"));
    spw_json_put(json, object, "stack", row->stack[0] != '\0' ? spw_json_text(row->stack) : json_null());
    spw_json_put(json, object, "time", spw_run_is_timed(row) ? time_json(json, &row->time) : json_null());
    spw_json_put(json, object, "why_no_time",
                 spw_run_is_timed(row) ? json_null() : spw_json_text(reason_of(row)));
    spw_table_put(cells, "true_tokens_per_s_per_gpu,throughput_error", json, object);
    spw_json_put(json, object, "inside",
                 isnan(spw_run_throughput_error(row)) ? json_null() : json_boolean(spw_run_is_inside(row)));
    spw_json_put(json, object, "memory", job ? memory_json(json, row) : json_null());
    spw_json_put(json, object, "true_verdict",
                 row->true_status == SPW_RUN_UNKNOWN ? json_null()
                                                     : spw_json_text(spw_run_status_name(row->true_status)));
    spw_table_put(cells, "true_memory_gib,memory_error", json, object);
    return object;
}

static json_t *skipped_json(spw_json *json, const spw_run_row *row) {
    json_t *object = json_object();
    spw_json_put(json, object, "table", spw_json_text(row->table));
    spw_json_put(json, object, "line", spw_json_count(row->line));
    spw_json_put(json, object, "row_id", spw_json_text(row->question.id));
    spw_json_put(json, object, "reason", spw_json_text(reason_of(row)));
    return object;
}

static void put_summary(spw_json *json, json_t *object, const spw_run_summary *s) {
    spw_json_put(json, object, "cells", spw_json_count(s->rows));
    spw_json_put(json, object, "skipped", spw_json_count(s->skipped));
    spw_json_put(json, object, "skipped_with_a_job", spw_json_count(s->untimed));
    spw_json_put(json, object, "throughput_cells", spw_json_count(s->throughput_cells));
    spw_json_put(json, object, "throughput_mape", spw_json_real(s->throughput_mape));
    spw_json_put(json, object, "throughput_median_abs_error", spw_json_real(s->throughput_median));
    spw_json_put(json, object, "throughput_bias", spw_json_real(s->throughput_bias));
    spw_json_put(json, object, "throughput_max_abs_error", spw_json_real(s->throughput_max));
    spw_json_put(json, object, "throughput_interval_coverage",
                 spw_json_real(spw_score_share(s->inside, s->throughput_cells)));
    spw_json_put(json, object, "throughput_interval_width_median", spw_json_real(s->width_median));
    spw_json_put(json, object, "pairs", spw_json_count(s->pairs.pairs));
    spw_json_put(json, object, "pairs_tied", spw_json_count(s->pairs.tied));
    spw_json_put(json, object, "pairs_order_right", spw_json_count(s->pairs.order_right));
    spw_json_put(json, object, "pairs_called", spw_json_count(s->pairs.called));
    spw_json_put(json, object, "pairs_called_right", spw_json_count(s->pairs.called_right));
    spw_json_put(json, object, "verdicts", spw_json_count(s->verdicts));
    spw_json_put(json, object, "verdicts_wrong", spw_json_count(s->verdicts_wrong));
    spw_json_put(json, object, "memory_cells", spw_json_count(s->memory_cells));
    spw_json_put(json, object, "memory_mean_abs_error", spw_json_real(s->memory_mean));
}

static spw_status print_json(const spw_run_score *score, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    spw_table *cells = NULL;
    spw_run_summary s;
    spw_status status = spw_table_create(NULL, &cells);
    if (status == SPW_OK) status = spw_run_summarise(score, NULL, NULL, &s);
    if (status != SPW_OK) goto cleanup;
    json_t *object = json_object(), *rows = json_array(), *skipped = json_array();
    spw_json_put(json, object, "format", spw_json_text("spillway-score"));
    spw_json_put(json, object, "version", spw_json_count(1));
    put_summary(json, object, &s);
    for (size_t i = 0; i < score->rows; i++) {
        spw_json_add(json, rows, row_json(json, cells, &score->row[i]));
        if (!spw_run_is_timed(&score->row[i]))
            spw_json_add(json, skipped, skipped_json(json, &score->row[i]));
    }
    spw_json_put(json, object, "rows", rows);
    spw_json_put(json, object, "skipped_rows", skipped);
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);

cleanup:
    spw_table_destroy(cells);
    return status;
}

spw_status spw_run_print(const spw_score_request *r) {
    spw_run_score score = {.rows = 0};
    spw_status status = spw_run_score_open(r->table, r->tables, r->stack, &score);
    if (status == SPW_OK)
        status = r->format == SPW_FORMAT_JSON  ? print_json(&score, r->out)
                 : r->format == SPW_FORMAT_CSV ? print_rows(&score, r->format, r->out)
                                               : print_text(&score, r->out);
    spw_run_score_close(&score);
    return status;
}
