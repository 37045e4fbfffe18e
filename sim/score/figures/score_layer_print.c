#include "sim/score/score_prints.h"

#include "base/memory.h"
#include "sim/print/json_values.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const char *reason(const spw_layer_bar *bar) {
    if (bar->scheme == NULL) return "no scheme stands for it";
    return isnan(bar->bar_bytes) ? "no bar in the figure" : "";
}

/* Is this the first bar of its method? */
static bool is_first(const spw_layer_score *score, size_t i) {
    for (size_t j = 0; j < i; j++) {
        if (strcmp(score->bar[j].method, score->bar[i].method) == 0) return false;
    }
    return true;
}

static spw_status print_rows(const spw_layer_score *score, spw_format format, FILE *out) {
    static const spw_column columns[] = {{"model", "model"},
                                         {"ffn", "ffn"},
                                         {"top_k", "top-k"},
                                         {"method", "method"},
                                         {"scheme", "scheme"},
                                         {"saved_bytes", "saved GiB"},
                                         {"weight_bytes", "weights"},
                                         {"router_bytes", "router"},
                                         {"predicted_bytes", "predicted"},
                                         {"true_bytes", "bar"},
                                         {"error", "off by"},
                                         {"skipped", NULL},
                                         {NULL, NULL}};
    spw_table *table = NULL;
    spw_status status = spw_table_create(columns, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->bars; i++) {
        const spw_layer_bar *b = &score->bar[i];
        const bool scored = spw_layer_bar_is_scored(b);
        char percent[32] = "";
        if (!scored && format == SPW_FORMAT_TABLE) continue; /* the summary names them */
        spw_table_text(table, b->model);
        spw_table_count(table, b->ffn);
        spw_table_count(table, b->top_k);
        spw_table_text(table, b->method);
        spw_table_text(table, b->scheme != NULL ? b->scheme : "");
        const double bytes[] = {(double)b->saved_bytes, (double)b->weight_bytes, (double)b->router_bytes,
                                spw_layer_bar_predicted(b), b->bar_bytes};
        for (size_t j = 0; j < sizeof bytes / sizeof *bytes; j++) {
            if (isnan(bytes[j]) || (b->scheme == NULL && j < 4)) {
                spw_table_none(table);
            } else {
                spw_table_scaled(table, bytes[j], GIB, "%.3f");
            }
        }
        (void)snprintf(percent, sizeof percent, "%+.1f %%", 100.0 * spw_layer_bar_error(b));
        if (!scored) {
            spw_table_none(table);
        } else if (format == SPW_FORMAT_TABLE) {
            spw_table_text(table, percent);
        } else {
            spw_table_real(table, spw_layer_bar_error(b), NULL);
        }
        spw_table_text(table, reason(b));
    }
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

static spw_status print_summary(const spw_layer_score *score, FILE *out) {
    spw_layer_errors e;
    fprintf(out, "\npredicted = what the scheme saves + expert weights + the router's copy of the input\n");
    for (size_t i = 0; i < score->bars; i++) {
        if (!is_first(score, i)) continue;
        const spw_status status = spw_layer_score_errors(score, score->bar[i].method, &e);
        if (status != SPW_OK) return status;
        if (e.scored > 0) {
            fprintf(out, "%s: %zu of %zu bars, median %.1f %% off, most %.1f %%\n", score->bar[i].method,
                    e.scored, e.bars, 100.0 * e.median, 100.0 * e.max);
        } else {
            fprintf(out, "%s: %zu bars not scored, %s\n", score->bar[i].method, e.bars,
                    reason(&score->bar[i]));
        }
    }
    const spw_status status = spw_layer_score_errors(score, NULL, &e);
    if (status == SPW_OK)
        fprintf(out,
                "all: %zu bars, median %.1f %% off, most %.1f %%; %zu rows of other metrics passed over\n",
                e.scored, 100.0 * e.median, 100.0 * e.max, score->others);
    return status;
}

/* --- JSON --- */

static void put_errors(spw_json *json, json_t *object, const spw_layer_errors *e) {
    spw_json_put(json, object, "cells", spw_json_count(e->scored));
    spw_json_put(json, object, "median_abs_error", spw_json_real(e->median));
    spw_json_put(json, object, "max_abs_error", spw_json_real(e->max));
}

static json_t *bar_json(spw_json *json, const spw_layer_bar *b) {
    json_t *object = json_object();
    const bool scored = spw_layer_bar_is_scored(b);
    spw_json_put(json, object, "line", spw_json_count(b->line));
    spw_json_put(json, object, "model", spw_json_text(b->model));
    spw_json_put(json, object, "ffn", spw_json_count(b->ffn));
    spw_json_put(json, object, "experts", spw_json_count(b->experts));
    spw_json_put(json, object, "top_k", spw_json_count(b->top_k));
    spw_json_put(json, object, "method", spw_json_text(b->method));
    spw_json_put(json, object, "scheme", spw_json_text(b->scheme));
    spw_json_put(json, object, "saved_bytes", spw_json_count(b->saved_bytes));
    spw_json_put(json, object, "weight_bytes", spw_json_count(b->weight_bytes));
    spw_json_put(json, object, "router_bytes", spw_json_count(b->router_bytes));
    spw_json_put(json, object, "predicted_bytes",
                 b->scheme != NULL ? spw_json_real(spw_layer_bar_predicted(b)) : json_null());
    spw_json_put(json, object, "true_bytes", spw_json_real(b->bar_bytes));
    spw_json_put(json, object, "error", scored ? spw_json_real(spw_layer_bar_error(b)) : json_null());
    spw_json_put(json, object, "skipped", scored ? json_null() : spw_json_text(reason(b)));
    return object;
}

static spw_status print_json(const spw_layer_score *score, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *object = json_object(), *rows = json_array(), *methods = json_array();
    spw_layer_errors e;
    spw_status status = SPW_OK;
    spw_json_put(json, object, "format", spw_json_text("spillway-score-layer-memory"));
    spw_json_put(json, object, "version", spw_json_count(1));
    SPW_TRY(spw_layer_score_errors(score, NULL, &e));
    put_errors(json, object, &e);
    for (size_t i = 0; i < score->bars; i++) {
        spw_json_add(json, rows, bar_json(json, &score->bar[i]));
        if (!is_first(score, i)) continue;
        json_t *method = json_object();
        spw_json_put(json, method, "method", spw_json_text(score->bar[i].method));
        spw_json_put(json, method, "scheme", spw_json_text(score->bar[i].scheme));
        status = spw_layer_score_errors(score, score->bar[i].method, &e);
        put_errors(json, method, &e);
        spw_json_add(json, methods, method);
        if (status != SPW_OK) goto cleanup;
    }
    spw_json_put(json, object, "methods", json_incref(methods));
    spw_json_put(json, object, "rows", json_incref(rows));
    status = spw_json_print(json, object, JSON_INDENT(2) | JSON_REAL_PRECISION(12), "the score", out);
    object = NULL;

cleanup:
    json_decref(methods);
    json_decref(rows);
    json_decref(object);
    return status;
}

spw_status spw_layer_score_print(const spw_score_request *r) {
    spw_layer_score score = {.table = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_layer_score_open(r->table[0], &score));
    if (r->format == SPW_FORMAT_JSON) {
        SPW_TRY(print_json(&score, r->out));
    } else {
        SPW_TRY(print_rows(&score, r->format, r->out));
        if (r->format == SPW_FORMAT_TABLE) SPW_TRY(print_summary(&score, r->out));
    }

cleanup:
    spw_layer_score_close(&score);
    return status;
}
