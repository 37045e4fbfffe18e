#include "sim/score/fit/calibrate_megatron_time.h"

#include "base/memory.h"
#include "sim/statistics/nonlinear_fit.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double STEP = 0.02, PHASE = 0.15; /* errors that count as one */
static const double PHASE_FLOOR_S = 20e-6;     /* a layer: below it a phase says nothing */
static const double HOLD = 0.3;                /* strength of the values before the fit */
static const double FAR = 1e3;                 /* a residual that is no number */

typedef struct problem {
    const spw_measured_time *time;
    const char *without; /* model whose runs are left out, or NULL */
    spw_megatron_coefficients c;
} problem;

static bool is_used(const problem *p, const spw_measured_time_run *run) {
    return !isnan(run->true_step_s) && (p->without == NULL || strcmp(p->without, run->model) != 0);
}

static bool has_phase(const spw_measured_time_run *run, size_t phase) {
    return run->true_phase_s[phase] > 0.0;
}

static void count(const problem *p, size_t *steps, size_t *phases) {
    *steps = *phases = 0;
    for (size_t i = 0; i < p->time->runs; i++) {
        const spw_measured_time_run *run = &p->time->run[i];
        if (!is_used(p, run)) continue;
        ++*steps;
        for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++) *phases += has_phase(run, f) ? 1 : 0;
    }
}

static void apply(const double *x, spw_megatron_coefficients *c) {
    for (size_t i = 0; i < SPW_MEGATRON_FITTED; i++) {
        const spw_megatron_coefficient_row *row = &spw_megatron_coefficient_rows[i];
        spw_megatron_coefficient(c, i)->value = fmin(fmax(exp(x[i]), row->minimum), row->maximum);
    }
}

static double soften(double residual) {
    if (!isfinite(residual)) return FAR;
    return copysign(sqrt(2.0 * (sqrt(1.0 + residual * residual) - 1.0)), residual);
}

static int residuals(const gsl_vector *x, void *data, gsl_vector *out) {
    problem *p = data;
    size_t n = 0;
    apply(gsl_vector_const_ptr(x, 0), &p->c);
    for (size_t i = 0; i < p->time->runs; i++) {
        const spw_measured_time_run *run = &p->time->run[i];
        const double floor_s = PHASE_FLOOR_S * (double)run->shape.layers;
        spw_megatron_time says;
        if (!is_used(p, run)) continue;
        if (spw_megatron_time_predict(&p->c, &run->shape, SPW_MEGATRON_ALL_TO_ALL, run->ranks, run->load,
                                      NULL, &says) != SPW_OK)
            return GSL_ENOMEM;
        gsl_vector_set(out, n++, soften(log(says.step_s / run->true_step_s) / STEP));
        for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++) {
            if (has_phase(run, f))
                gsl_vector_set(
                    out, n++,
                    soften(log((says.phase_s[f] + floor_s) / (run->true_phase_s[f] + floor_s)) / PHASE));
        }
    }
    for (size_t i = 0; i < SPW_MEGATRON_FITTED; i++) {
        const spw_megatron_coefficient_row *row = &spw_megatron_coefficient_rows[i];
        gsl_vector_set(out, n++, HOLD * (gsl_vector_get(x, i) - log(row->start)) / row->spread);
    }
    return GSL_SUCCESS;
}

/* Fits into p->c; standard errors of the logarithms into `errors` unless it is NULL. */
static spw_status fit(problem *p, double errors[SPW_MEGATRON_FITTED]) {
    double value[SPW_MEGATRON_FITTED];
    size_t steps = 0, phases = 0;
    count(p, &steps, &phases);
    if (steps < SPW_MEGATRON_FITTED)
        return spw_fail(SPW_ECONFIG, "%zu measured runs for %d coefficients; give at least as many", steps,
                        SPW_MEGATRON_FITTED);
    const spw_nonlinear_fit how = {.residuals = residuals,
                                   .problem = p,
                                   .rows = steps + phases + SPW_MEGATRON_FITTED,
                                   .parameters = SPW_MEGATRON_FITTED,
                                   .iterations = 200,
                                   .tolerance = 1e-8};
    for (size_t i = 0; i < SPW_MEGATRON_FITTED; i++) value[i] = log(spw_megatron_coefficient_rows[i].start);
    const spw_status status = spw_nonlinear_fit_run(&how, value, errors, NULL);
    if (status == SPW_OK) apply(value, &p->c);
    return status;
}

static void list_shapes(spw_megatron_calibration *c) {
    for (size_t i = 0; i < c->time.runs; i++) {
        size_t s = 0;
        while (s < c->shapes && strcmp(c->shape[s].model, c->time.run[i].model) != 0) s++;
        if (s == c->shapes && s < SPW_CALIBRATE_SHAPES && !isnan(c->time.run[i].true_step_s))
            c->shape[c->shapes++].model = c->time.run[i].model;
    }
    if (c->shapes == 1) c->shapes = 0;
}

static spw_status leave_out_shapes(spw_megatron_calibration *c) {
    for (size_t s = 0; s < c->shapes; s++) {
        problem p = {.time = &c->time, .without = c->shape[s].model, .c = c->before};
        spw_status status = fit(&p, NULL);
        if (status == SPW_OK) status = spw_measured_time_predict(&p.c, &c->time);
        if (status == SPW_OK) status = spw_measured_time_score(&c->time, p.without, &c->shape[s].errors);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

static void describe(spw_megatron_calibration *c, const double errors[SPW_MEGATRON_FITTED]) {
    for (size_t i = 0; i < SPW_MEGATRON_FITTED; i++) {
        spw_coefficient *fitted = spw_megatron_coefficient(&c->fitted, i);
        fitted->uncertainty = fitted->value * errors[i];
        fitted->evidence = SPW_EVIDENCE_FITTED;
        (void)snprintf(fitted->source, sizeof fitted->source,
                       "spillway calibrate time, %zu steps and %zu phases of the tables", c->steps,
                       c->phases);
    }
}

static void name_tables(const char *const *tables, size_t tables_count, char *out, size_t size) {
    size_t used = strlen(out);
    for (size_t i = 0; i < tables_count && used < size; i++) {
        const char *slash = strrchr(tables[i], '/');
        (void)snprintf(out + used, size - used, "%s%s", used > 0 ? " " : "",
                       slash != NULL ? slash + 1 : tables[i]);
        used = strlen(out);
    }
}

/* What of the measured runs a job must be like, for its time to be inside the fit. */
static void name_range(spw_megatron_calibration *c) {
    spw_megatron_coefficients *fitted = &c->fitted;
    fitted->expert_parallel[0] = '\0';
    fitted->tokens_min = SIZE_MAX, fitted->tokens_max = 0;
    for (size_t i = 0; i < c->time.runs; i++) {
        const spw_measured_time_run *run = &c->time.run[i];
        const size_t used = strlen(fitted->expert_parallel), tokens = run->shape.tokens;
        char ranks[24];
        if (isnan(run->true_step_s)) continue;
        if (tokens < fitted->tokens_min) fitted->tokens_min = tokens;
        if (tokens > fitted->tokens_max) fitted->tokens_max = tokens;
        (void)snprintf(ranks, sizeof ranks, "%zu", run->ranks);
        if (!spw_has_word(fitted->expert_parallel, ranks))
            (void)snprintf(fitted->expert_parallel + used, sizeof fitted->expert_parallel - used, "%s%s",
                           used > 0 ? " " : "", ranks);
    }
}

spw_status spw_calibrate_megatron_time(const char *const *runs, size_t run_count, const char *const *phases,
                                       size_t phase_count, const char *from, spw_megatron_calibration *out) {
    double errors[SPW_MEGATRON_FITTED] = {0.0};
    spw_status status = SPW_OK;
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_megatron_coefficients_read(from, NULL, &out->before));
    SPW_TRY(spw_measured_time_open(runs, run_count, phases, phase_count, &out->time));
    problem p = {.time = &out->time, .c = out->before};
    count(&p, &out->steps, &out->phases);
    SPW_TRY(fit(&p, errors));
    out->fitted = p.c;
    describe(out, errors);
    out->fitted.tables[0] = '\0';
    name_tables(runs, run_count, out->fitted.tables, sizeof out->fitted.tables);
    name_tables(phases, phase_count, out->fitted.tables, sizeof out->fitted.tables);
    name_range(out);
    list_shapes(out);
    SPW_TRY(leave_out_shapes(out));
    SPW_TRY(spw_measured_time_predict(&out->fitted, &out->time));

cleanup:
    (void)gsl_set_error_handler(handler);
    if (status != SPW_OK) spw_megatron_calibration_close(out);
    return status;
}

void spw_megatron_calibration_close(spw_megatron_calibration *c) { spw_measured_time_close(&c->time); }
