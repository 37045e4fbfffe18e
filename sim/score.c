#include "sim/score.h"

#include "base/memory.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double NEAR = 0.12; /* |error| that counts as near */

static spw_status add_table(const char *path, spw_score *score, size_t *capacity) {
    spw_status status = SPW_OK;
    spw_csv *csv = NULL;
    spw_score_row *larger = NULL;
    SPW_TRY(spw_csv_read(path, &csv));
    const size_t rows = spw_csv_rows(csv);
    if (score->rows + rows > *capacity) {
        *capacity = 2 * (score->rows + rows);
        SPW_TRY(SPW_ALLOC(*capacity, &larger));
        if (score->rows > 0) memcpy(larger, score->row, score->rows * sizeof *larger);
        spw_free(score->row);
        score->row = larger;
    }
    for (size_t i = 0; i < rows; i++) {
        spw_score_row *row = &score->row[score->rows];
        SPW_TRY(spw_score_cell_read(csv, i, &score->stacks, &row->cell));
        const spw_score_cell *c = &row->cell;
        if (c->skipped[0] == '\0')
            SPW_TRY(spw_compiled_memory_predict(c->stack, &c->job, &c->scheme, c->job.sequences_per_gpu[0],
                                                c->pool_bytes, &row->memory));
        score->rows++;
    }

cleanup:
    spw_csv_close(csv);
    return status;
}

spw_status spw_score_open(const char *const *tables, size_t count, const char *stack, spw_score *out) {
    spw_status status = SPW_OK;
    size_t capacity = 0;
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_score_stacks_open(stack, &out->stacks));
    for (size_t i = 0; i < count; i++) SPW_TRY(add_table(tables[i], out, &capacity));

cleanup:
    if (status != SPW_OK) spw_score_close(out);
    return status;
}

void spw_score_close(spw_score *score) {
    spw_free(score->row);
    spw_score_stacks_close(&score->stacks);
    memset(score, 0, sizeof *score);
}

/* --- One row --- */

double spw_score_temporary_error(const spw_score_row *row) {
    return row->memory.temporary_bytes / (row->cell.temporary_gib * GIB) - 1.0;
}

double spw_score_total_error(const spw_score_row *row) {
    return (row->memory.argument_bytes + row->memory.temporary_bytes) / (row->cell.total_gib * GIB) - 1.0;
}

spw_outcome spw_score_verdict(const spw_score_row *row) {
    const double peak = row->memory.argument_bytes + row->memory.temporary_bytes;
    return peak > row->cell.budget_bytes ? SPW_OUTCOME_OOM : SPW_OUTCOME_FITS;
}

bool spw_score_inside(const spw_score_row *row) {
    const spw_compiled_memory *m = &row->memory;
    const bool temporary = !isnan(row->cell.temporary_gib);
    const double figure =
        temporary ? row->cell.temporary_gib * GIB : row->cell.total_gib * GIB - m->argument_bytes;
    return figure >= m->low_bytes && figure <= m->high_bytes;
}

/* --- Summary --- */

static double median(double *values, size_t count) {
    if (count == 0) return NAN;
    gsl_sort(values, 1, count);
    return gsl_stats_median_from_sorted_data(values, 1, count);
}

static void take(const spw_score_row *row, double *temporary, double *total, double *width,
                 spw_score_summary *s) {
    const spw_score_cell *c = &row->cell;
    const double temporary_error = fabs(spw_score_temporary_error(row)),
                 total_error = fabs(spw_score_total_error(row));
    width[s->cells++] = (row->memory.high_bytes - row->memory.low_bytes) / row->memory.temporary_bytes;
    s->outside_fit += row->memory.outside[0] != '\0';
    if (c->status != SPW_OUTCOME_UNKNOWN) {
        s->verdicts++;
        s->agreed += spw_score_verdict(row) == c->status;
    }
    if (!isnan(c->temporary_gib)) {
        temporary[s->temporaries++] = temporary_error;
        s->temporary_max = fmax(s->temporary_max, temporary_error);
        s->within_12 += temporary_error <= NEAR;
    }
    if (!isnan(c->total_gib)) {
        total[s->totals++] = total_error;
        s->total_max = fmax(s->total_max, total_error);
    }
    if (!isnan(c->temporary_gib) || !isnan(c->total_gib)) {
        s->figures++;
        s->inside += spw_score_inside(row);
    }
}

spw_status spw_score_summarise(const spw_score *score, const char *scheme, const char *table,
                               spw_score_summary *out) {
    spw_status status = SPW_OK;
    double *temporary = NULL, *total = NULL, *width = NULL;
    *out = (spw_score_summary){.temporary_max = NAN, .total_max = NAN};
    SPW_TRY(SPW_ALLOC(score->rows, &temporary));
    SPW_TRY(SPW_ALLOC(score->rows, &total));
    SPW_TRY(SPW_ALLOC(score->rows, &width));
    for (size_t i = 0; i < score->rows; i++) {
        const spw_score_cell *c = &score->row[i].cell;
        if (scheme != NULL && strcmp(scheme, c->scheme_text) != 0) continue;
        if (table != NULL && strcmp(table, c->table) != 0) continue;
        if (c->skipped[0] != '\0') {
            out->skipped++;
        } else {
            take(&score->row[i], temporary, total, width, out);
        }
    }
    out->temporary_median = median(temporary, out->temporaries);
    out->total_median = median(total, out->totals);
    out->interval_width_median = median(width, out->cells);

cleanup:
    spw_free(width);
    spw_free(total);
    spw_free(temporary);
    return status;
}
