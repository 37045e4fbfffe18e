#include "sim/time/dispatch_time.h"

#include "base/memory.h"
#include "base/text.h"
#include "sim/read/csv.h"
#include "sim/statistics/quantiles.h"

#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COEFFICIENTS = 3, LEAST_RUNS = 4 };

double spw_dispatch_seconds(const spw_dispatch_speed *s, double rows, double bytes) {
    return s->start_s + rows * s->row_s + bytes / (s->share * s->rate);
}

/* Solves for start, row and 1 / (share x rate); `used` rows of the arrays. */
static spw_status solve(gsl_matrix *x, const gsl_vector *weight, const gsl_vector *y, double rate,
                        spw_dispatch_speed *out) {
    gsl_vector *c = gsl_vector_alloc(COEFFICIENTS);
    gsl_matrix *covariance = gsl_matrix_alloc(COEFFICIENTS, COEFFICIENTS);
    gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(y->size, COEFFICIENTS);
    double chi2 = 0.0;
    spw_status status = SPW_OK;
    if (c == NULL || covariance == NULL || work == NULL) {
        status = spw_fail(SPW_ENOMEM, "cannot allocate a fit of %zu runs", y->size);
    } else if (gsl_multifit_wlinear(x, weight, y, c, covariance, &chi2, work) != 0) {
        status = spw_fail(SPW_EARG, "the runs do not determine a start, a time a row and a rate");
    } else {
        *out = (spw_dispatch_speed){.start_s = gsl_vector_get(c, 0),
                                    .row_s = gsl_vector_get(c, 1),
                                    .share = 1.0 / (gsl_vector_get(c, 2) * rate),
                                    .rate = rate};
    }
    if (work != NULL) gsl_multifit_linear_free(work);
    if (covariance != NULL) gsl_matrix_free(covariance);
    if (c != NULL) gsl_vector_free(c);
    return status;
}

spw_status spw_dispatch_fit(const spw_cluster *cluster, const spw_dispatch_run *run, size_t count,
                            bool combine, size_t without, spw_dispatch_speed *out) {
    const spw_link_points *link = &cluster->link;
    size_t used = 0, row = 0;
    spw_status status = SPW_OK;
    gsl_matrix *x = NULL;
    gsl_vector *y = NULL, *weight = NULL;
    if (link->points == 0)
        return spw_fail(SPW_EARG, "cluster %s has no measured points of its links", cluster->name);
    for (size_t i = 0; i < count; i++) used += run[i].combine == combine && i != without;
    if (used < LEAST_RUNS)
        return spw_fail(SPW_EARG, "%zu runs of %s; at least %d would be right", used,
                        combine ? "combine" : "dispatch", LEAST_RUNS);
    x = gsl_matrix_alloc(used, COEFFICIENTS), y = gsl_vector_alloc(used), weight = gsl_vector_alloc(used);
    if (x == NULL || y == NULL || weight == NULL)
        SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a fit of %zu runs", used));
    for (size_t i = 0; i < count; i++) {
        if (run[i].combine != combine || i == without) continue;
        gsl_matrix_set(x, row, 0, 1.0);
        gsl_matrix_set(x, row, 1, run[i].rows);
        gsl_matrix_set(x, row, 2, run[i].bytes);
        gsl_vector_set(y, row, run[i].seconds);
        gsl_vector_set(weight, row, 1.0 / (run[i].seconds * run[i].seconds));
        row++;
    }
    SPW_TRY(solve(x, weight, y, 1e6 * (double)link->exchange_mb_per_s[link->points - 1], out));

cleanup:
    if (x != NULL) gsl_matrix_free(x);
    if (y != NULL) gsl_vector_free(y);
    if (weight != NULL) gsl_vector_free(weight);
    return status;
}

/* --- The table --- */

static spw_status number(const spw_csv *csv, size_t row, const char *column, double *out) {
    const char *text = spw_csv_field(csv, row, column);
    char *end = NULL;
    *out = text != NULL && text[0] != '\0' ? spw_text_number(text, &end) : 0.0;
    if (end == NULL || *end != '\0' || !(*out > 0.0 && *out < 1e18))
        return spw_fail(SPW_EFORMAT, "%s:%zu: column '%s' is not a number above 0", spw_csv_where(csv),
                        spw_csv_line(csv, row), column);
    return SPW_OK;
}

static spw_status read_run(const spw_csv *csv, size_t row, spw_dispatch_run *out) {
    const char *operation = spw_csv_field(csv, row, "operation");
    double tokens = 0.0, hidden = 0.0, milliseconds = 0.0;
    spw_status status = SPW_OK;
    if (operation == NULL || (strcmp(operation, "dispatch") != 0 && strcmp(operation, "combine") != 0))
        return spw_fail(SPW_EFORMAT, "%s:%zu: operation is neither dispatch nor combine", spw_csv_where(csv),
                        spw_csv_line(csv, row));
    SPW_TRY(number(csv, row, "tokens", &tokens));
    SPW_TRY(number(csv, row, "hidden", &hidden));
    SPW_TRY(number(csv, row, "rows_off_rank", &out->rows));
    SPW_TRY(number(csv, row, "bytes_off_rank", &out->bytes));
    SPW_TRY(number(csv, row, "milliseconds", &milliseconds));
    out->line = spw_csv_line(csv, row);
    out->combine = operation[0] == 'c';
    out->tokens = (size_t)tokens, out->hidden = (size_t)hidden;
    out->seconds = 1e-3 * milliseconds;

cleanup:
    return status;
}

/* Every run by the others. */
static spw_status predict(spw_dispatch_score *s, const spw_cluster *cluster) {
    double *error = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->runs, &error));
    for (int combine = 0; combine < 2; combine++)
        SPW_TRY(spw_dispatch_fit(cluster, s->run, s->runs, combine != 0, s->runs, &s->speed[combine]));
    for (size_t i = 0; i < s->runs; i++) {
        spw_dispatch_speed speed = {.rate = 0.0};
        SPW_TRY(spw_dispatch_fit(cluster, s->run, s->runs, s->run[i].combine, i, &speed));
        s->predicted[i] = spw_dispatch_seconds(&speed, s->run[i].rows, s->run[i].bytes);
        error[i] = fabs(s->predicted[i] / s->run[i].seconds - 1.0);
    }
    s->median_abs_error = spw_quantile(error, s->runs, 0.5);
    s->max_abs_error = error[s->runs - 1];

cleanup:
    spw_free(error);
    return status;
}

spw_status spw_dispatch_score_open(const char *path, const spw_cluster *cluster, spw_dispatch_score *out) {
    spw_csv *csv = NULL;
    spw_status status = SPW_OK;
    *out = (spw_dispatch_score){.runs = 0};
    SPW_TRY(spw_csv_read(path, &csv));
    SPW_TRY(SPW_ALLOC(spw_csv_rows(csv), &out->run));
    SPW_TRY(SPW_ALLOC(spw_csv_rows(csv), &out->predicted));
    out->runs = spw_csv_rows(csv);
    for (size_t i = 0; i < out->runs; i++) SPW_TRY(read_run(csv, i, &out->run[i]));
    SPW_TRY(spw_fail_within(predict(out, cluster), "%s", path));

cleanup:
    spw_csv_close(csv);
    if (status != SPW_OK) spw_dispatch_score_close(out);
    return status;
}

void spw_dispatch_score_close(spw_dispatch_score *s) {
    spw_free(s->run);
    spw_free(s->predicted);
    *s = (spw_dispatch_score){.runs = 0};
}
