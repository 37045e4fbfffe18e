#include "sim/score/published/score.h"

#include "base/memory.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/statistics/quantiles.h"
#include "sim/time/routing_load.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double NEAR = 0.12;        /* |error| that counts as near */
static const double KERNEL_NEAR = 0.20; /* the same of a family of kernels */

spw_status spw_score_has_rows(const spw_score *score, const char *const *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t row = 0;
        while (row < score->rows && strcmp(score->row[row].cell.id, ids[i]) != 0) row++;
        if (row == score->rows)
            return spw_fail(SPW_EARG,
                            "--leave-out %s: no row has this id; the column id of the tables names them",
                            ids[i]);
    }
    return SPW_OK;
}

spw_status spw_score_time_request(const spw_score_cell *c, const spw_time_stack *stack,
                                  spw_routing_layer *load, spw_time_request *out) {
    const double imbalance = c->real_text ? stack->text_imbalance.value : 1.0;
    *out = (spw_time_request){.stack = stack,
                              .job = &c->job,
                              .scheme = &c->scheme,
                              .sequences = c->job.sequences_per_gpu[0],
                              .layer = load,
                              .layers = 1,
                              .input_s = c->real_text ? stack->text_input_s.value : 0.0};
    const spw_point point = spw_point_of(&c->job, &c->scheme, out->sequences);
    return spw_routing_load_stated(&point, imbalance, spw_stated_positions(&c->job), load);
}

static spw_status predict_by(const spw_score_cell *c, const spw_time_stack *stack, spw_timeline *out) {
    spw_routing_layer load;
    spw_time_request request;
    const spw_status status = spw_score_time_request(c, stack, &load, &request);
    return status == SPW_OK ? spw_compiled_time_predict(&request, out) : status;
}

/* Moves one coefficient of real text by `logarithm`, and adds to the interval what that does to the step. */
static spw_status doubt_text(const spw_score_cell *c, const spw_time_stack *stack, size_t row,
                             double logarithm, spw_timeline *out) {
    spw_time_stack moved = *stack;
    spw_coefficient *k = spw_time_coefficient(&moved, row);
    spw_timeline time;
    k->value = fmax(spw_time_rows[row].minimum, fmin(k->value * exp(logarithm), spw_time_rows[row].maximum));
    if (row == SPW_TIME_FITTED) k->value = fmin(k->value, (double)c->job.expert); /* the imbalance */
    const spw_status status = predict_by(c, &moved, &time);
    if (status != SPW_OK) return status;
    const double ratio = log(time.step_s / out->step_s);
    if (!(fabs(ratio) > 0.0)) return SPW_OK; /* dense layers have as many rows whatever the text */
    double *end = ratio > 0.0 ? &out->high_s : &out->low_s;
    const double width = log(*end / out->step_s);
    *end = out->step_s * exp(copysign(hypot(width, ratio), ratio));
    return SPW_OK;
}

spw_status spw_score_time_of(const spw_score_cell *c, const spw_time_stack *stack, spw_timeline *out) {
    spw_status status = predict_by(c, stack, out);
    for (size_t row = SPW_TIME_FITTED; c->real_text && row < SPW_TIME_ROWS; row++) {
        spw_time_stack copy = *stack;
        const spw_coefficient *k = spw_time_coefficient(&copy, row);
        const double deviation = k->value > 0.0 ? 2.0 * k->uncertainty / k->value : 0.0;
        if (k->evidence == SPW_EVIDENCE_FITTED || deviation <= 0.0) continue;
        if (status == SPW_OK) status = doubt_text(c, stack, row, deviation, out);
        if (status == SPW_OK) status = doubt_text(c, stack, row, -deviation, out);
    }
    return status;
}

static spw_status predict_time(spw_score_row *row) {
    if (row->cell.skipped[0] != '\0' || row->cell.time == NULL) return SPW_OK;
    return spw_score_time_of(&row->cell, row->cell.time, &row->time);
}

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
        if (c->skipped[0] == '\0') {
            SPW_TRY(spw_compiled_memory_predict(c->stack, &c->job, &c->scheme, c->job.sequences_per_gpu[0],
                                                c->pool_bytes, &row->memory));
            SPW_TRY(spw_peak_match_row(c, &row->memory, &row->peak));
        }
        SPW_TRY(predict_time(row));
        score->rows++;
    }

cleanup:
    spw_csv_close(csv);
    return status;
}

spw_status spw_score_open(const char *const *tables, size_t count, const char *stack, const char *time_stack,
                          spw_score *out) {
    spw_status status = SPW_OK;
    size_t capacity = 0;
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_score_stacks_open(stack, time_stack, &out->stacks));
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

double spw_score_throughput_error(const spw_score_row *row) {
    if (row->time.components == 0) return NAN;
    return row->time.tokens_per_s_per_gpu / row->cell.tokens_per_s_per_gpu - 1.0;
}

/* Which components are kernels of which families. */
static const struct {
    const char *component;
    spw_kernel_family family;
} members[] = {
    {"attention_projections", SPW_KERNEL_PRODUCTS},
    {"dense_ffn", SPW_KERNEL_PRODUCTS},
    {"shared_expert", SPW_KERNEL_PRODUCTS},
    {"router", SPW_KERNEL_PRODUCTS},
    {"head", SPW_KERNEL_PRODUCTS},
    {"expert_products", SPW_KERNEL_PRODUCTS},
    {"mask_products", SPW_KERNEL_PRODUCTS},
    {"attention", SPW_KERNEL_ATTENTION},
    {"elementwise", SPW_KERNEL_MOVEMENTS},
    {"row_moves", SPW_KERNEL_MOVEMENTS},
    {"masks", SPW_KERNEL_MOVEMENTS},
    {"optimizer", SPW_KERNEL_MOVEMENTS},
    {"scatter_adds", SPW_KERNEL_SCATTERS},
    {"weight_gathers", SPW_KERNEL_COLLECTIVES},
    {"gradient_scatters", SPW_KERNEL_COLLECTIVES},
    {"exchanges", SPW_KERNEL_EXCHANGES},
};

static bool counts_as(spw_kernel_family wanted, spw_kernel_family family) {
    if (wanted == SPW_KERNEL_PRODUCTS_EXCHANGES)
        return family == SPW_KERNEL_PRODUCTS || family == SPW_KERNEL_EXCHANGES;
    if (wanted == SPW_KERNEL_COLLECTIVES_EXCHANGES)
        return family == SPW_KERNEL_COLLECTIVES || family == SPW_KERNEL_EXCHANGES;
    return wanted == family;
}

double spw_score_kernel_seconds(const spw_score_cell *cell, const spw_timeline *time) {
    double seconds = 0.0;
    if (cell->family == SPW_KERNEL_NONE || time->components == 0) return NAN;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const spw_time_component *c = spw_timeline_find(time, members[i].component);
        if (c != NULL && counts_as(cell->family, members[i].family)) seconds += c->seconds;
    }
    return seconds;
}

double spw_score_kernel_error(const spw_score_row *row) {
    return spw_score_kernel_seconds(&row->cell, &row->time) / row->cell.kernel_s - 1.0;
}

/* --- Summary --- */

static void take_time(const spw_score_row *row, spw_score_summary *s) {
    const double error = fabs(spw_score_throughput_error(row)), kernel = fabs(spw_score_kernel_error(row));
    if (!isnan(error)) {
        const double step = row->time.step_s * (1.0 + spw_score_throughput_error(row));
        s->throughput_mape = (s->speeds > 0 ? s->throughput_mape * (double)s->speeds : 0.0) + error;
        s->throughput_mape /= (double)++s->speeds;
        s->throughput_max = fmax(s->throughput_max, error);
        s->speeds_inside += step >= row->time.low_s && step <= row->time.high_s;
    }
    if (!isnan(kernel)) {
        s->kernels++;
        s->kernels_within_20 += kernel <= KERNEL_NEAR;
        s->kernel_max = fmax(s->kernel_max, kernel);
    }
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
    if (c->peaks > 0 && row->memory.wanted_bytes <= row->memory.limit_bytes) {
        s->peaks++;
        s->peak_matched += row->peak.matched;
        s->peak_missing += row->peak.missing;
        s->peak_extra += row->peak.extra;
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
    *out = (spw_score_summary){.temporary_max = NAN,
                               .total_max = NAN,
                               .throughput_mape = NAN,
                               .throughput_max = NAN,
                               .kernel_max = NAN};
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
            take_time(&score->row[i], out);
        }
    }
    out->temporary_median = spw_quantile(temporary, out->temporaries, 0.5);
    out->total_median = spw_quantile(total, out->totals, 0.5);
    out->interval_width_median = spw_quantile(width, out->cells, 0.5);

cleanup:
    spw_free(width);
    spw_free(total);
    spw_free(temporary);
    return status;
}
