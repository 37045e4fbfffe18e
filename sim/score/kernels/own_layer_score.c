#include "sim/score/kernels/own_layer_score.h"

#include "base/memory.h"
#include "base/text.h"
#include "kernels/record/choices.h"
#include "sim/schemes/scheme.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double ROWS_APART = 0.6; /* the table rounds to whole rows */
static const double BYTES_APART = 1.0;

/* --- Fields --- */

static spw_status number(const spw_csv *csv, size_t row, const char *column, double least, double *out) {
    const char *text = NULL;
    char *end = NULL;
    const spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    *out = text[0] != '\0' ? spw_text_number(text, &end) : -1.0;
    if (end == NULL || *end != '\0' || !(*out >= least && *out < 1e15))
        return spw_fail(SPW_EFORMAT, "%s:%zu: %s \"%s\" is not a number of at least %g", spw_csv_where(csv),
                        spw_csv_line(csv, row), column, text, least);
    return SPW_OK;
}

static spw_status whole(const spw_csv *csv, size_t row, const char *column, size_t *out) {
    double value = 0.0;
    const spw_status status = number(csv, row, column, 1.0, &value);
    if (status != SPW_OK) return status;
    *out = (size_t)value;
    if (value < 1e9 && (double)*out >= value) return SPW_OK;
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s %g is not a whole number below 10^9", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, value);
}

static spw_status named(const spw_csv *csv, size_t row, const char *column, const char *const *names,
                        size_t count, size_t *out) {
    const char *text = NULL;
    const spw_status status = spw_csv_text(csv, row, column, &text);
    if (status != SPW_OK) return status;
    for (*out = 0; *out < count; ++*out) {
        if (strcmp(names[*out], text) == 0) return SPW_OK;
    }
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s \"%s\" is unknown; \"%s\" would be right", spw_csv_where(csv),
                    spw_csv_line(csv, row), column, text, names[0]);
}

static spw_status read_scheme(const spw_csv *csv, size_t row, spw_own_point *p) {
    const spw_layer_shape shape = {.experts = p->layer.experts,
                                   .top_k = p->layer.top_k,
                                   .sequences = 1,
                                   .sequence_length = p->layer.tokens};
    spw_scheme scheme;
    spw_status status = SPW_OK;
    SPW_TRY(spw_csv_text(csv, row, "scheme", &p->scheme));
    SPW_TRY(spw_scheme_parse(p->scheme, &scheme));
    for (size_t i = 0; i < SPW_OWN_SCHEMES; i++) {
        if (strcmp(spw_own_scheme_names[i], scheme.type->name) != 0) continue;
        p->layer.scheme = (spw_own_scheme)i;
        p->layer.capacity = spw_scheme_capacity(&scheme, &shape);
        return SPW_OK;
    }
    SPW_TRY(spw_fail(SPW_EFORMAT, "scheme '%s': its layer is none of our kernels", p->scheme));

cleanup:
    return status == SPW_OK
               ? SPW_OK
               : spw_fail_within(SPW_EFORMAT, "%s:%zu", spw_csv_where(csv), spw_csv_line(csv, row));
}

static spw_status read_point(const spw_csv *csv, size_t row, spw_own_point *p) {
    spw_own_layer *l = &p->layer;
    const struct {
        const char *column;
        size_t *to;
    } sizes[] = {{"ranks", &l->ranks}, {"tokens_per_rank", &l->tokens}, {"hidden", &l->hidden},
                 {"ffn", &l->ffn},     {"experts", &l->experts},        {"top_k", &l->top_k}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        SPW_TRY(whole(csv, row, sizes[i].column, sizes[i].to));
    SPW_TRY(spw_csv_text(csv, row, "routing", &p->routing));
    if (l->experts > SPW_CHOICES_EXPERTS || l->top_k > l->experts || l->tokens * l->top_k > 1u << 28)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s:%zu: top-%zu of %zu experts, %zu tokens", spw_csv_where(csv),
                         spw_csv_line(csv, row), l->top_k, l->experts, l->tokens));
    return read_scheme(csv, row, p);

cleanup:
    return status;
}

/* --- Points --- */

static bool is_same(const spw_own_point *a, const spw_own_point *b) {
    const spw_own_layer *x = &a->layer, *y = &b->layer;
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->routing, b->routing) == 0 && x->ranks == y->ranks &&
           x->tokens == y->tokens && x->hidden == y->hidden && x->ffn == y->ffn && x->experts == y->experts &&
           x->top_k == y->top_k;
}

static void add_mean(spw_own_times *sum, const spw_own_times *one) {
    const double part = 1.0 / SPW_OWN_ROUTINGS;
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < SPW_OWN_PHASES; p++) {
            sum->seconds[pass][p] += part * one->seconds[pass][p];
            sum->bytes[pass][p] += part * one->bytes[pass][p];
        }
    }
    sum->rows_max += part * one->rows_max;
    sum->rows_mean += part * one->rows_mean;
}

/* Draws the benchmark's routings and times each. */
static spw_status time_point(const spw_cluster *cluster, const spw_gemm_curves *curves, spw_choice_kind kind,
                             spw_own_point *p) {
    const spw_own_layer *l = &p->layer;
    const size_t choices = l->tokens * l->top_k;
    const int32_t *of_rank[SPW_OWN_RANKS];
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    if (l->ranks > SPW_OWN_RANKS)
        return spw_fail(SPW_EFORMAT, "%zu ranks; at most %d", l->ranks, (int)SPW_OWN_RANKS);
    SPW_TRY(SPW_ALLOC(l->ranks * choices, &expert));
    for (uint64_t set = 0; set < SPW_OWN_ROUTINGS; set++) {
        spw_own_times one;
        for (size_t r = 0; r < l->ranks; r++) {
            spw_choices_fill(kind, l->tokens, l->top_k, l->experts, l->ranks, set * 64 + r,
                             expert + r * choices);
            of_rank[r] = expert + r * choices;
        }
        SPW_TRY(spw_own_layer_times(cluster, curves, l, of_rank, &one));
        add_mean(&p->times, &one);
    }

cleanup:
    spw_free(expert);
    return status;
}

/* The point of a row, timed when the row is its first. */
static spw_status point_of(spw_own_score *s, size_t row, const spw_cluster *cluster,
                           const spw_gemm_curves *curves, size_t *out) {
    spw_own_point read = {.scheme = NULL};
    size_t kind = 0;
    spw_status status = SPW_OK;
    SPW_TRY(read_point(s->csv, row, &read));
    for (*out = 0; *out < s->points; ++*out) {
        if (is_same(&s->point[*out], &read)) return SPW_OK;
    }
    SPW_TRY(named(s->csv, row, "routing", spw_choice_names, SPW_CHOICES_KINDS, &kind));
    status = time_point(cluster, curves, (spw_choice_kind)kind, &read);
    if (status != SPW_OK)
        return spw_fail_within(status == SPW_EARG ? SPW_EFORMAT : status, "%s:%zu", spw_csv_where(s->csv),
                               spw_csv_line(s->csv, row));
    s->point[s->points++] = read;

cleanup:
    return status;
}

static spw_status check_rows(const spw_csv *csv, size_t row, const spw_own_times *t) {
    double most = 0.0, mean = 0.0;
    spw_status status = SPW_OK;
    SPW_TRY(number(csv, row, "rows_max", 0.0, &most));
    SPW_TRY(number(csv, row, "rows_mean", 0.0, &mean));
    if (fabs(most - t->rows_max) > ROWS_APART || fabs(mean - t->rows_mean) > ROWS_APART)
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "%s:%zu: %.0f rows at most and %.0f in the mean; the routing drawn again has %.0f "
                         "and %.0f",
                         spw_csv_where(csv), spw_csv_line(csv, row), most, mean, t->rows_max, t->rows_mean));

cleanup:
    return status;
}

static spw_status read_row(spw_own_score *s, size_t row, const spw_cluster *cluster,
                           const spw_gemm_curves *curves) {
    static const char *const passes[] = {"forward", "backward"};
    spw_own_row *r = &s->row[row];
    size_t pass = 0, phase = 0;
    double ms = 0.0;
    spw_status status = SPW_OK;
    SPW_TRY(point_of(s, row, cluster, curves, &r->point));
    const spw_own_times *t = &s->point[r->point].times;
    SPW_TRY(check_rows(s->csv, row, t));
    SPW_TRY(named(s->csv, row, "pass", passes, 2, &pass));
    SPW_TRY(named(s->csv, row, "phase", spw_own_phase_names, SPW_OWN_PHASES, &phase));
    SPW_TRY(number(s->csv, row, "bytes_off_rank", 0.0, &r->true_bytes));
    SPW_TRY(number(s->csv, row, "ms", 1e-9, &ms));
    r->line = spw_csv_line(s->csv, row);
    r->pass = (int)pass, r->phase = (spw_own_phase)phase;
    r->true_s = 1e-3 * ms;
    r->predicted_s = t->seconds[pass][phase];
    r->predicted_bytes = t->bytes[pass][phase];
    if (!(r->predicted_s > 0.0))
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s:%zu: the layer of %s has no phase '%s' %s", spw_csv_where(s->csv),
                         r->line, s->point[r->point].scheme, spw_own_phase_names[phase], passes[pass != 0]));
    if (r->true_bytes > 0.0 || r->predicted_bytes > 0.0) {
        s->bytes_known++;
        s->bytes_agree += fabs(r->true_bytes - r->predicted_bytes) <= BYTES_APART;
    }

cleanup:
    return status;
}

spw_status spw_own_score_open(const char *path, const spw_cluster *cluster, spw_own_score *out) {
    spw_gemm_curves *curves = NULL;
    spw_status status = SPW_OK;
    *out = (spw_own_score){.rows = 0};
    SPW_TRY(spw_gemm_curves_create(cluster, &curves));
    SPW_TRY(spw_csv_read(path, &out->csv));
    out->rows = spw_csv_rows(out->csv);
    SPW_TRY(SPW_ALLOC(out->rows, &out->row));
    SPW_TRY(SPW_ALLOC(out->rows, &out->point));
    for (size_t i = 0; i < out->rows; i++) SPW_TRY(read_row(out, i, cluster, curves));

cleanup:
    spw_gemm_curves_destroy(curves);
    if (status != SPW_OK) spw_own_score_close(out);
    return status;
}

void spw_own_score_close(spw_own_score *s) {
    spw_free(s->row);
    spw_free(s->point);
    spw_csv_close(s->csv);
    *s = (spw_own_score){.rows = 0};
}

/* --- Errors --- */

spw_status spw_own_errors_of(const spw_own_score *s, const char *scheme, int pass, spw_own_phase phase,
                             spw_own_errors *out) {
    double *error = NULL, truth = 0.0, said = 0.0;
    const spw_status status = SPW_ALLOC(s->rows, &error);
    *out = (spw_own_errors){0, NAN, NAN, NAN};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < s->rows; i++) {
        const spw_own_row *r = &s->row[i];
        if (r->pass != pass || r->phase != phase) continue;
        if (scheme != NULL && strcmp(scheme, s->point[r->point].scheme) != 0) continue;
        error[out->rows++] = fabs(r->predicted_s / r->true_s - 1.0);
        truth += r->true_s, said += r->predicted_s;
    }
    if (out->rows > 0) {
        out->median = spw_quantile(error, out->rows, 0.5);
        out->most = error[out->rows - 1];
        out->sum = said / truth - 1.0;
    }
    spw_free(error);
    return SPW_OK;
}
