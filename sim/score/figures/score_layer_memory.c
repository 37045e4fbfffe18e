#include "sim/score/figures/score_layer_memory.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/schemes/layer.h"

#include <errno.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const char METRIC[] = "peak activation memory per layer";
enum { BF16 = 2 };

/* What stands for a method of the figure. The benchmarks compile the module, so ScatterMoE's activation is one kernel. */
static const struct {
    const char *method, *scheme;
    bool router; /* the layer function has its router inside, which saves the input again */
} methods[] = {
    {"SonicMoE", "sonicmoe", true},
    {"ScatterMoE", "scattermoe:activation=compiled", false},
    {"MegaBlocks", "megablocks:impl=memory_optimized", false},
};

static spw_status bad(const spw_csv *csv, size_t row, const char *column, const char *right) {
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s \"%s\"; %s would be right", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, spw_csv_field(csv, row, column), right);
}

static spw_status read_size(const spw_csv *csv, size_t row, const char *column, size_t *out) {
    const char *text = NULL;
    char *end = NULL;
    spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value == 0 || value > 1u << 24)
        return bad(csv, row, column, "a whole number from 1 to 16777216");
    *out = (size_t)value;
    return SPW_OK;
}

static spw_status read_bar(const spw_csv *csv, size_t row, double *bytes) {
    const char *text = NULL, *unit = NULL;
    char *end = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_csv_text(csv, row, "value_digitised", &text));
    SPW_TRY(spw_csv_text(csv, row, "unit", &unit));
    if (strcmp(unit, "GiB") != 0) return bad(csv, row, "unit", "GiB");
    *bytes = NAN;
    if (text[0] == '\0') return SPW_OK;
    const double value = spw_text_number(text, &end);
    if (*end != '\0' || !(value > 0.0 && value < 1e6))
        return bad(csv, row, "value_digitised", "GiB above 0, or nothing");
    *bytes = value * GIB;

cleanup:
    return status;
}

static spw_status predict(spw_layer_bar *b, bool router) {
    const spw_layer_shape shape = {.ranks = 1,
                                   .node_ranks = 1,
                                   .experts = b->experts,
                                   .experts_per_rank = b->experts,
                                   .top_k = b->top_k,
                                   .hidden = b->hidden,
                                   .ffn = b->ffn,
                                   .sequences = 1,
                                   .sequence_length = b->tokens,
                                   .tokens = b->tokens,
                                   .assignments = b->tokens * b->top_k,
                                   .worst_rows = b->tokens * b->top_k,
                                   .element_bytes = BF16};
    spw_scheme scheme;
    spw_layer layer;
    spw_status status = spw_scheme_parse(b->scheme, &scheme);
    if (status == SPW_OK) status = spw_layer_build(&scheme, &shape, SPW_FLAVOUR_LIVE, &layer);
    if (status != SPW_OK) return status;
    const spw_rank_rows rows = spw_balanced_rows(&scheme, &shape);
    b->saved_bytes = spw_layer_live_set(&layer, &rows).saved_bytes;
    spw_layer_destroy(&layer);
    b->weight_bytes = (uint64_t)b->experts * 3 * b->hidden * b->ffn * BF16;
    b->router_bytes = router ? (uint64_t)b->tokens * b->hidden * BF16 : 0;
    return SPW_OK;
}

static spw_status read_row(const spw_csv *csv, size_t row, spw_layer_bar *b) {
    spw_status status = SPW_OK;
    *b = (spw_layer_bar){.line = spw_csv_line(csv, row)};
    SPW_TRY(spw_csv_text(csv, row, "model_scale", &b->model));
    SPW_TRY(spw_csv_text(csv, row, "implementation", &b->method));
    SPW_TRY(read_size(csv, row, "tokens", &b->tokens));
    SPW_TRY(read_size(csv, row, "hidden", &b->hidden));
    SPW_TRY(read_size(csv, row, "n_intermediate", &b->ffn));
    SPW_TRY(read_size(csv, row, "E", &b->experts));
    SPW_TRY(read_size(csv, row, "K", &b->top_k));
    if (b->top_k > b->experts) return bad(csv, row, "K", "at most E");
    SPW_TRY(read_bar(csv, row, &b->bar_bytes));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].method, b->method) != 0) continue;
        b->scheme = methods[i].scheme;
        SPW_TRY(predict(b, methods[i].router));
    }

cleanup:
    return status;
}

spw_status spw_layer_score_open(const char *path, spw_layer_score *out) {
    spw_status status = SPW_OK;
    *out = (spw_layer_score){.table = NULL};
    SPW_TRY(spw_csv_read(path, &out->table));
    SPW_TRY(SPW_ALLOC(spw_csv_rows(out->table), &out->bar));
    for (size_t i = 0; i < spw_csv_rows(out->table); i++) {
        const char *metric = NULL;
        SPW_TRY(spw_csv_text(out->table, i, "metric", &metric));
        if (strcmp(metric, METRIC) != 0) {
            out->others++;
        } else {
            SPW_TRY(read_row(out->table, i, &out->bar[out->bars]));
            out->bars++;
        }
    }

cleanup:
    if (status != SPW_OK) spw_layer_score_close(out);
    return status;
}

void spw_layer_score_close(spw_layer_score *score) {
    spw_csv_close(score->table);
    spw_free(score->bar);
    *score = (spw_layer_score){.table = NULL};
}

bool spw_layer_bar_is_scored(const spw_layer_bar *bar) {
    return bar->scheme != NULL && !isnan(bar->bar_bytes);
}

double spw_layer_bar_predicted(const spw_layer_bar *bar) {
    return (double)bar->saved_bytes + (double)bar->weight_bytes + (double)bar->router_bytes;
}

double spw_layer_bar_error(const spw_layer_bar *bar) {
    return spw_layer_bar_predicted(bar) / bar->bar_bytes - 1.0;
}

spw_status spw_layer_score_errors(const spw_layer_score *score, const char *method, spw_layer_errors *out) {
    double *error = NULL;
    spw_status status = SPW_ALLOC(score->bars, &error);
    *out = (spw_layer_errors){.median = NAN, .max = NAN};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < score->bars; i++) {
        const spw_layer_bar *bar = &score->bar[i];
        if (method != NULL && strcmp(bar->method, method) != 0) continue;
        out->bars++;
        if (spw_layer_bar_is_scored(bar)) error[out->scored++] = fabs(spw_layer_bar_error(bar));
    }
    if (out->scored > 0) {
        gsl_sort(error, 1, out->scored);
        out->median = gsl_stats_median_from_sorted_data(error, 1, out->scored);
        out->max = error[out->scored - 1];
    }
    spw_free(error);
    return SPW_OK;
}
