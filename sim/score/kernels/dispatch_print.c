#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/score/kernels/table_cluster.h"

#include <jansson.h>

static const char *const operations[] = {"dispatch", "combine"};

static spw_status print_table(const spw_dispatch_score *s, spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < s->runs; i++) {
        const spw_dispatch_run *r = &s->run[i];
        spw_table_text(spw_table_in(table, "operation", "operation"), operations[r->combine]);
        spw_table_count(spw_table_in(table, "tokens", "tokens"), r->tokens);
        spw_table_count(spw_table_in(table, "hidden", "hidden"), r->hidden);
        spw_table_scaled(spw_table_in(table, "bytes_off_rank", "MB"), r->bytes, 1e6, "%.2f");
        spw_table_real(spw_table_in(table, "measured_ms", "measured ms"), 1e3 * r->seconds, "%.3f");
        spw_table_real(spw_table_in(table, "predicted_ms", "predicted"), 1e3 * s->predicted[i], "%.3f");
        spw_table_scaled(spw_table_in(table, "error", "off by"), s->predicted[i] / r->seconds - 1.0, 0.01,
                         "%+.1f %%");
    }
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    if (status != SPW_OK || format != SPW_FORMAT_TABLE) return status;
    fprintf(out, "\n");
    for (int i = 0; i < 2; i++) {
        const spw_dispatch_speed *v = &s->speed[i];
        fprintf(out, "%s: %.1f us + %.2f ns a row + bytes at %.1f %% of the peer copies' %.1f GB/s\n",
                operations[i], 1e6 * v->start_s, 1e9 * v->row_s, 100.0 * v->share, 1e-9 * v->rate);
    }
    fprintf(out, "every run predicted by the others: median %.1f %% off, most %.1f %%\n",
            100.0 * s->median_abs_error, 100.0 * s->max_abs_error);
    return SPW_OK;
}

static spw_status print_json(const spw_dispatch_score *s, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *rows = json_array();
    for (size_t i = 0; i < s->runs; i++) {
        const spw_dispatch_run *r = &s->run[i];
        spw_json_add(json, rows,
                     json_pack("{s:s, s:I, s:I, s:f, s:f, s:f}", "operation", operations[r->combine],
                               "tokens", (json_int_t)r->tokens, "hidden", (json_int_t)r->hidden,
                               "bytes_off_rank", r->bytes, "measured_ms", 1e3 * r->seconds, "predicted_ms",
                               1e3 * s->predicted[i]));
    }
    json_t *object =
        json_pack("{s:I, s:f, s:f, s:o}", "cells", (json_int_t)s->runs, "dispatch_median_abs_error",
                  s->median_abs_error, "dispatch_max_abs_error", s->max_abs_error, "rows", rows);
    return spw_json_print(json, object, JSON_INDENT(1), "the score", out);
}

spw_status spw_dispatch_print(const spw_score_request *r) {
    spw_dispatch_score score = {.runs = 0};
    spw_cluster cluster;
    spw_status status = SPW_OK;
    SPW_TRY(spw_table_cluster(r, &cluster));
    SPW_TRY(spw_dispatch_score_open(r->table[0], &cluster, &score));
    status =
        r->format == SPW_FORMAT_JSON ? print_json(&score, r->out) : print_table(&score, r->format, r->out);

cleanup:
    spw_dispatch_score_close(&score);
    return status;
}
