#include "sim/score/score_prints.h"

#include "sim/print/json_values.h"
#include "sim/score/kernels/table_cluster.h"

#include "sim/score/kernels/own_layer_score.h"

#include <jansson.h>
#include <stdbool.h>

static const char *const passes[] = {"forward", "backward"};

static spw_status print_rows(const spw_own_score *s, spw_format format, FILE *out) {
    spw_table *table = NULL;
    spw_status status = spw_table_create(NULL, &table);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < s->rows; i++) {
        const spw_own_row *r = &s->row[i];
        const spw_own_point *p = &s->point[r->point];
        if (format == SPW_FORMAT_TABLE && r->phase != SPW_OWN_TOTAL) continue;
        spw_table_text(spw_table_in(table, "scheme", "scheme"), p->scheme);
        spw_table_count(spw_table_in(table, "hidden", "hidden"), p->layer.hidden);
        spw_table_count(spw_table_in(table, "experts", "experts"), p->layer.experts);
        spw_table_text(spw_table_in(table, "routing", "routing"), p->routing);
        spw_table_real(spw_table_in(table, "rows_max", "rows max"), p->times.rows_max, "%.0f");
        spw_table_text(spw_table_in(table, "pass", "pass"), passes[r->pass]);
        spw_table_text(spw_table_in(table, "phase", NULL), spw_own_phase_names[r->phase]);
        spw_table_real(spw_table_in(table, "measured_ms", "measured ms"), 1e3 * r->true_s, "%.3f");
        spw_table_real(spw_table_in(table, "predicted_ms", "predicted"), 1e3 * r->predicted_s, "%.3f");
        spw_table_scaled(spw_table_in(table, "error", "off by"), r->predicted_s / r->true_s - 1.0, 0.01,
                         "%+.1f %%");
        spw_table_real(spw_table_in(table, "bytes_off_rank", NULL), r->true_bytes, NULL);
        spw_table_real(spw_table_in(table, "predicted_bytes", NULL), r->predicted_bytes, NULL);
    }
    status = spw_table_print(table, format, out);
    spw_table_destroy(table);
    return status;
}

static spw_status print_phases(const spw_own_score *s, FILE *out) {
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_table_create(NULL, &table));
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < SPW_OWN_PHASES; p++) {
            spw_own_errors e;
            SPW_TRY(spw_own_errors_of(s, NULL, pass, (spw_own_phase)p, &e));
            if (e.rows == 0) continue;
            spw_table_text(spw_table_in(table, "pass", "pass"), passes[pass]);
            spw_table_text(spw_table_in(table, "phase", "phase"), spw_own_phase_names[p]);
            spw_table_count(spw_table_in(table, "rows", "rows"), e.rows);
            spw_table_scaled(spw_table_in(table, "median", "median off"), e.median, 0.01, "%.1f %%");
            spw_table_scaled(spw_table_in(table, "most", "most"), e.most, 0.01, "%.1f %%");
            spw_table_scaled(spw_table_in(table, "sum", "sum"), e.sum, 0.01, "%+.1f %%");
        }
    }
    fprintf(out, "\n");
    SPW_TRY(spw_table_print(table, SPW_FORMAT_TABLE, out));
    fprintf(out, "bytes of %zu of %zu exchanges and totals are those of the table, to the byte\n",
            s->bytes_agree, s->bytes_known);

cleanup:
    spw_table_destroy(table);
    return status;
}

static json_t *row_json(const spw_own_score *s, const spw_own_row *r) {
    const spw_own_point *p = &s->point[r->point];
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "scheme", p->scheme, "routing",
                     p->routing, "hidden", (json_int_t)p->layer.hidden, "pass", passes[r->pass], "phase",
                     spw_own_phase_names[r->phase], "rows_max", p->times.rows_max, "measured_ms",
                     1e3 * r->true_s, "predicted_ms", 1e3 * r->predicted_s, "bytes_off_rank", r->true_bytes,
                     "predicted_bytes", r->predicted_bytes);
}

static spw_status print_json(const spw_own_score *s, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    spw_own_errors total[2];
    for (int pass = 0; pass < 2; pass++) {
        const spw_status status = spw_own_errors_of(s, NULL, pass, SPW_OWN_TOTAL, &total[pass]);
        if (status != SPW_OK) return status;
    }
    if (total[0].rows == 0 || total[1].rows == 0)
        return spw_fail(SPW_EFORMAT, "the table lacks the totals of a pass, forward or backward");
    json_t *rows = json_array();
    for (size_t i = 0; i < s->rows; i++) spw_json_add(json, rows, row_json(s, &s->row[i]));
    json_t *object = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "cells", (json_int_t)s->rows, "forward_median_abs_error",
        total[0].median, "forward_max_abs_error", total[0].most, "backward_median_abs_error", total[1].median,
        "backward_max_abs_error", total[1].most, "bytes_agree", (json_int_t)s->bytes_agree, "bytes_known",
        (json_int_t)s->bytes_known, "rows", rows);
    return spw_json_print(json, object, JSON_INDENT(1), "the score", out);
}

spw_status spw_own_layer_print(const spw_score_request *r) {
    spw_own_score score = {.rows = 0};
    spw_cluster cluster;
    spw_status status = SPW_OK;
    SPW_TRY(spw_table_cluster(r, &cluster));
    SPW_TRY(spw_own_score_open(r->table[0], &cluster, &score));
    if (r->format == SPW_FORMAT_JSON) {
        SPW_TRY(print_json(&score, r->out));
    } else {
        SPW_TRY(print_rows(&score, r->format, r->out));
        if (r->format == SPW_FORMAT_TABLE) SPW_TRY(print_phases(&score, r->out));
    }

cleanup:
    spw_own_score_close(&score);
    return status;
}
