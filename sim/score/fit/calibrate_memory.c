#include "sim/score/fit/calibrate_memory.h"

#include "base/memory.h"
#include "sim/statistics/nonlinear_fit.h"
#include "sim/statistics/quantiles.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double ROBUST = 0.05;         /* where a residual begins to count linearly */
static const double HOLD = 0.05;           /* strength of the values before the fit */
static const double VERDICT_WEIGHT = 2.0;  /* of a row without a figure */
static const double VERDICT_MARGIN = 0.01; /* how far on the right side a verdict should be */
/* Chosen so that 90 % of the published figures are inside: docs/validation_memory.md. */
static const double COVERED = 0.975; /* share of the fitted figures that the interval is made to hold */

/* 90 % of 139 compiled programs of three stacks lie within 8 % of their fit. No stack is trusted more than
 * that, however well its few rows are met. */
static const double LEAST_HALF_WIDTH = 0.08;

enum { FIGURE = 1, VERDICT = 2 };

/* What the residuals are a function of. `model`: rows of this model are left out; NULL: none. */
typedef struct problem {
    spw_calibration *c;
    const char *model;
    spw_stack stack; /* coefficients under trial */
} problem;

/* --- Rows --- */

static double true_temporary(const spw_score_row *row) {
    const spw_score_cell *cell = &row->cell;
    return !isnan(cell->temporary_gib) ? cell->temporary_gib * GIB
                                       : cell->total_gib * GIB - row->memory.argument_bytes;
}

/* Predicts a used row with `stack`; such a row was predicted before, so it cannot fail. */
static spw_compiled_memory predict(const spw_stack *stack, const spw_score_row *row) {
    spw_compiled_memory m;
    const spw_score_cell *cell = &row->cell;
    if (spw_compiled_memory_predict(stack, &cell->job, &cell->scheme, cell->job.sequences_per_gpu[0],
                                    cell->pool_bytes, &m) != SPW_OK)
        memset(&m, 0, sizeof m);
    return m;
}

static bool named(const spw_calibrate_request *request, const char *id) {
    for (size_t i = 0; i < request->left_out_count; i++) {
        if (strcmp(request->left_out[i], id) == 0) return true;
    }
    return false;
}

static void choose_rows(const spw_calibrate_request *request, spw_calibration *c) {
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        if (!spw_stack_covers(&c->before, cell->stack_name)) {
            c->other_stack++;
        } else if (cell->skipped[0] != '\0') {
            c->skipped++;
        } else if (named(request, cell->id)) {
            c->left_out++;
        } else if (!isnan(cell->temporary_gib) || !isnan(cell->total_gib)) {
            c->used[i] = FIGURE;
            c->figures++;
        } else if (cell->status != SPW_OUTCOME_UNKNOWN) {
            c->used[i] = VERDICT;
            c->verdicts++;
        }
    }
}

/* --- The fit --- */

static void apply(const double *x, spw_stack *stack) {
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
        const spw_stack_row *row = &spw_stack_rows[i];
        spw_stack_coefficient(stack, i)->value = fmin(fmax(x[i], row->minimum), row->maximum);
    }
}

static double soften(double residual) {
    const double part = residual / ROBUST;
    return copysign(ROBUST * sqrt(2.0 * (sqrt(1.0 + part * part) - 1.0)), residual);
}

static double residual_of(const spw_stack *stack, const spw_score_row *row, unsigned char used) {
    const spw_compiled_memory m = predict(stack, row);
    if (used == FIGURE) return soften(log(m.temporary_bytes / true_temporary(row)));
    const double over = log(m.temporary_bytes / (row->cell.budget_bytes - m.argument_bytes));
    const double wrong = row->cell.status == SPW_OUTCOME_FITS ? over : -over;
    return soften(VERDICT_WEIGHT * fmax(0.0, wrong + VERDICT_MARGIN));
}

static int residuals(const gsl_vector *x, void *data, gsl_vector *out) {
    problem *p = data;
    spw_calibration *c = p->c;
    size_t n = 0;
    apply(gsl_vector_const_ptr(x, 0), &p->stack);
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] == 0 || (p->model != NULL && strcmp(p->model, row->cell.job.model.name) == 0))
            continue;
        const double residual = residual_of(&p->stack, row, c->used[i]);
        gsl_vector_set(out, n++, isfinite(residual) ? residual : 1e3);
    }
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
        const double moved = gsl_vector_get(x, i) - spw_stack_coefficient(&c->before, i)->value;
        gsl_vector_set(out, n++, HOLD * moved / spw_stack_rows[i].spread);
    }
    return GSL_SUCCESS;
}

static size_t rows_of(const problem *p) {
    size_t rows = 0;
    for (size_t i = 0; i < p->c->score.rows; i++) {
        const char *name = p->c->score.row[i].cell.job.model.name;
        rows += p->c->used[i] != 0 && (p->model == NULL || strcmp(p->model, name) != 0);
    }
    return rows;
}

/* Fits into p->stack; standard errors into `errors` unless it is NULL. */
static spw_status fit(problem *p, double errors[SPW_STACK_FITTED]) {
    double value[SPW_STACK_FITTED];
    const spw_nonlinear_fit how = {.residuals = residuals,
                                   .problem = p,
                                   .rows = rows_of(p) + SPW_STACK_FITTED,
                                   .parameters = SPW_STACK_FITTED,
                                   .iterations = 500,
                                   .tolerance = 1e-9};
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) value[i] = spw_stack_coefficient(&p->c->before, i)->value;
    const spw_status status = spw_nonlinear_fit_run(&how, value, errors, NULL);
    if (status == SPW_OK) apply(value, &p->stack);
    return status;
}

/* --- What the fit says --- */

/* Does a row say anything about a coefficient? */
static bool touches(const spw_score_row *row, size_t coefficient) {
    const spw_compiled_layer *list = row->cell.scheme.type->compiled(&row->cell.scheme);
    const bool dense = list->packing == SPW_PACKING_DENSE || list->packing == SPW_PACKING_DENSE_GATHERED;
    const char *key = spw_stack_rows[coefficient].key;
    if (coefficient < SPW_PACKING_COUNT) return (size_t)list->packing == coefficient;
    if (strcmp(key, "masked_operands") == 0) return list->masked_operands;
    return row->memory.part_bytes[SPW_COMPILED_RECOVERED] > 0.0 &&
           dense == (strcmp(key, "recovered_dense") == 0);
}

/* A coefficient of another stack, of which these tables say nothing. */
static void take_over(const spw_stack *from, spw_coefficient *c) {
    if (c->evidence != SPW_EVIDENCE_FITTED) return;
    c->evidence = SPW_EVIDENCE_ASSUMED;
    (void)snprintf(c->source, sizeof c->source, "as fitted for %s; its own tables do not say", from->name);
}

/* Name and rows of one stack, coefficients of another. */
static spw_status read_before(const spw_calibrate_request *request, spw_stack *out) {
    spw_stack from;
    spw_status status = spw_stack_read(request->stack, NULL, out);
    if (status == SPW_OK) status = spw_stack_read(request->from, NULL, &from);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
        spw_coefficient *c = spw_stack_coefficient(out, i);
        *c = *spw_stack_coefficient(&from, i);
        take_over(&from, c);
    }
    out->limit_share = from.limit_share;
    out->half_width = from.half_width;
    out->half_width_recovered = from.half_width_recovered;
    take_over(&from, &out->half_width);
    take_over(&from, &out->half_width_recovered);
    return SPW_OK;
}

static void describe_coefficients(spw_calibration *c, const double errors[SPW_STACK_FITTED]) {
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
        spw_coefficient *fitted = spw_stack_coefficient(&c->fitted, i);
        const spw_coefficient *before = spw_stack_coefficient(&c->before, i);
        size_t rows = 0;
        for (size_t r = 0; r < c->score.rows; r++) rows += c->used[r] != 0 && touches(&c->score.row[r], i);
        const double value = fitted->value;
        *fitted = *before;
        if (rows == 0) continue;
        fitted->value = value;
        fitted->uncertainty = errors[i];
        fitted->evidence = SPW_EVIDENCE_FITTED;
        (void)snprintf(fitted->source, sizeof fitted->source,
                       "spillway calibrate memory, %zu rows of the tables", rows);
    }
}

static void set_width(spw_coefficient *c, double value, size_t rows) {
    c->value = value;
    c->uncertainty = 0.0;
    c->evidence = SPW_EVIDENCE_FITTED;
    (void)snprintf(c->source, sizeof c->source, "holds %.0f %% of %zu rows of the tables", 100.0 * COVERED,
                   rows);
}

/* The interval from the fitted figures: first where nothing was recovered, then what recovery adds. */
static spw_status fit_interval(spw_calibration *c) {
    double *below = NULL, *past = NULL;
    size_t below_count = 0, past_count = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(c->score.rows, &below));
    SPW_TRY(SPW_ALLOC(c->score.rows, &past));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < c->score.rows; i++) {
            const spw_compiled_memory *m = &c->score.row[i].memory;
            if (c->used[i] != FIGURE) continue;
            const double share = m->part_bytes[SPW_COMPILED_RECOVERED] / m->temporary_bytes;
            const double error = fabs(log(m->temporary_bytes / true_temporary(&c->score.row[i])));
            if (pass == 0 && share < 0.01) below[below_count++] = error;
            if (pass == 1 && share >= 0.01)
                past[past_count++] = fmax(0.0, error - c->fitted.half_width.value) / share;
        }
        if (pass == 0 && below_count >= 10)
            set_width(&c->fitted.half_width,
                      fmax(LEAST_HALF_WIDTH, spw_quantile(below, below_count, COVERED)), below_count);
    }
    if (past_count >= 5)
        set_width(&c->fitted.half_width_recovered, spw_quantile(past, past_count, COVERED), past_count);

cleanup:
    spw_free(past);
    spw_free(below);
    return status;
}

static spw_status predict_all(spw_calibration *c) {
    for (size_t i = 0; i < c->score.rows; i++) {
        spw_score_row *row = &c->score.row[i];
        if (row->cell.skipped[0] == '\0') row->memory = predict(&c->fitted, row);
    }
    return SPW_OK;
}

/* Errors of the fitted figures of one model, or of all; `count` of them into `errors`. */
static size_t errors_of(const spw_calibration *c, const spw_stack *stack, const char *model, double *errors) {
    size_t count = 0;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] != FIGURE || (model != NULL && strcmp(model, row->cell.job.model.name) != 0)) continue;
        const spw_compiled_memory m = predict(stack, row);
        errors[count++] = fabs(m.temporary_bytes / true_temporary(row) - 1.0);
    }
    return count;
}

static void list_models(spw_calibration *c) {
    c->fitted.sequences_min = SIZE_MAX;
    c->fitted.sequences_max = 0;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        const size_t sequences = cell->job.sequences_per_gpu[0];
        size_t m = 0;
        if (c->used[i] == 0) continue;
        if (sequences < c->fitted.sequences_min) c->fitted.sequences_min = sequences;
        if (sequences > c->fitted.sequences_max) c->fitted.sequences_max = sequences;
        while (m < c->models && strcmp(c->model[m].name, cell->job.model.name) != 0) m++;
        if (m == c->models && m < SPW_CALIBRATE_MODELS) {
            c->model[c->models++] = (spw_calibrate_model){.median_error = NAN};
            (void)snprintf(c->model[m].name, sizeof c->model[m].name, "%s", cell->job.model.name);
        }
        if (m < c->models) c->model[m].rows++;
    }
    c->fitted.models[0] = '\0';
    for (size_t m = 0; m < c->models; m++) {
        size_t used = strlen(c->fitted.models);
        (void)snprintf(c->fitted.models + used, sizeof c->fitted.models - used, "%s%s", m == 0 ? "" : " ",
                       c->model[m].name);
    }
}

/* The error on each model by a fit that has not seen it. */
static spw_status leave_out_models(spw_calibration *c, double *errors) {
    for (size_t m = 0; m < c->models && c->models > 1; m++) {
        problem p = {.c = c, .model = c->model[m].name, .stack = c->before};
        spw_status status = fit(&p, NULL);
        if (status != SPW_OK) return status;
        const size_t count = errors_of(c, &p.stack, c->model[m].name, errors);
        if (count > 0) c->model[m].median_error = spw_quantile(errors, count, 0.5);
    }
    return SPW_OK;
}

static void summarise(spw_calibration *c, double *errors) {
    const size_t count = errors_of(c, &c->fitted, NULL, errors);
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        squares += errors[i] * errors[i];
        c->max_error = fmax(c->max_error, errors[i]);
    }
    c->rms_error = count > 0 ? sqrt(squares / (double)count) : NAN;
    c->median_error = count > 0 ? spw_quantile(errors, count, 0.5) : NAN;
}

static void name_tables(const spw_calibrate_request *request, spw_stack *stack) {
    stack->tables[0] = '\0';
    for (size_t i = 0; i < request->table_count; i++) {
        const char *slash = strrchr(request->tables[i], '/'),
                   *name = slash != NULL ? slash + 1 : request->tables[i];
        size_t used = strlen(stack->tables);
        (void)snprintf(stack->tables + used, sizeof stack->tables - used, "%s%s", i == 0 ? "" : " ", name);
    }
}

spw_status spw_calibrate_memory(const spw_calibrate_request *request, spw_calibration *out) {
    spw_status status = SPW_OK;
    double errors[SPW_STACK_FITTED] = {0.0}, *row_errors = NULL;
    memset(out, 0, sizeof *out);
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    SPW_TRY(read_before(request, &out->before));
    SPW_TRY(spw_score_open(request->tables, request->table_count, request->stack, NULL, &out->score));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->used));
    SPW_TRY(SPW_ALLOC(out->score.rows, &row_errors));
    SPW_TRY(spw_score_has_rows(&out->score, request->left_out, request->left_out_count));
    choose_rows(request, out);
    if (out->figures + out->verdicts < SPW_STACK_FITTED || out->figures == 0) {
        status = spw_fail(SPW_ECONFIG,
                          "%zu figures and %zu verdicts of stack '%s' are too few to fit %d coefficients",
                          out->figures, out->verdicts, out->before.name, SPW_STACK_FITTED);
        goto cleanup;
    }
    problem p = {.c = out, .stack = out->before};
    SPW_TRY(fit(&p, errors));
    out->fitted = p.stack;
    list_models(out);
    name_tables(request, &out->fitted);
    SPW_TRY(predict_all(out));
    describe_coefficients(out, errors);
    SPW_TRY(fit_interval(out));
    SPW_TRY(predict_all(out));
    summarise(out, row_errors);
    SPW_TRY(leave_out_models(out, row_errors));

cleanup:
    gsl_set_error_handler(handler);
    spw_free(row_errors);
    if (status != SPW_OK) spw_calibration_close(out);
    return status;
}

void spw_calibration_close(spw_calibration *calibration) {
    spw_score_close(&calibration->score);
    spw_free(calibration->used);
    calibration->used = NULL;
}
