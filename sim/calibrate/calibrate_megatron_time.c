#include "sim/calibrate/calibrate_megatron_time.h"

#include "base/memory.h"
#include "sim/machine/stack.h"
#include "sim/statistics/nonlinear_fit.h"
#include "sim/statistics/quantiles.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double STEP = 0.02, PHASE = 0.15; /* errors that count as one */
static const double PHASE_FLOOR_S = 20e-6;     /* a layer: below it a phase says nothing */
static const double HOLD = 0.3;                /* strength of the values before the fit */
static const double FAR = 1e3;                 /* a residual that is no number */
static const double COVERED = 0.9;             /* of the steps whose routing was left out */
static const double MACHINE_SPREAD = 0.03;     /* between equal GPUs, measured: 2 to 4 % */

typedef struct problem {
    const spw_measured_time *time;
    spw_measured_label label;
    const char *without; /* the runs with this label are left out, or NULL */
    spw_megatron_coefficients c;
} problem;

static bool is_used(const problem *p, const spw_measured_time_run *run) {
    return !isnan(run->true_step_s) &&
           (p->without == NULL || strcmp(p->without, spw_measured_label_of(run, p->label)) != 0);
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
        if (spw_megatron_time_predict(&p->c, &run->shape, SPW_MEGATRON_ALL_TO_ALL, run->ranks,
                                      &(spw_megatron_loads){.load = run->load}, NULL, &says) != SPW_OK)
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

static bool is_listed(const spw_megatron_calibration *c, size_t first, const char *name) {
    for (size_t i = first; i < c->left_outs; i++)
        if (strcmp(c->left_out[i].name, name) == 0) return true;
    return false;
}

/* The names of a label; none when there is one only. */
static void list_names(spw_megatron_calibration *c, spw_measured_label label) {
    const size_t first = c->left_outs;
    for (size_t i = 0; i < c->time.runs && c->left_outs < SPW_CALIBRATE_LEFT_OUT_RUNS; i++) {
        const char *name = spw_measured_label_of(&c->time.run[i], label);
        if (isnan(c->time.run[i].true_step_s) || is_listed(c, first, name)) continue;
        c->left_out[c->left_outs++] = (spw_left_out_runs){.label = label, .name = name};
    }
    if (c->left_outs == first + 1) c->left_outs = first;
}

/* `errors` [runs]: |log| of every step of a routing that was left out; how many. */
static spw_status leave_out(spw_megatron_calibration *c, double *errors, size_t *count) {
    *count = 0;
    for (size_t i = 0; i < c->left_outs; i++) {
        spw_left_out_runs *left = &c->left_out[i];
        problem p = {.time = &c->time, .label = left->label, .without = left->name, .c = c->before};
        spw_status status = fit(&p, NULL);
        if (status == SPW_OK) status = spw_measured_time_predict(&p.c, &c->time);
        if (status == SPW_OK)
            status = spw_measured_time_score(&c->time, left->label, left->name, &left->errors);
        if (status != SPW_OK) return status;
        for (size_t r = 0; r < c->time.runs && left->label == SPW_MEASURED_ROUTING; r++) {
            const spw_measured_time_run *run = &c->time.run[r];
            if (!isnan(run->true_step_s) && strcmp(run->routing, left->name) == 0)
                errors[(*count)++] = fabs(log(run->time.step_s / run->true_step_s));
        }
    }
    return SPW_OK;
}

static void set_interval(spw_megatron_calibration *c, double *errors, size_t count) {
    spw_coefficient *half_width = &c->fitted.half_width;
    if (count == 0) return;
    half_width->value = hypot(spw_quantile(errors, count, COVERED), MACHINE_SPREAD);
    half_width->evidence = SPW_EVIDENCE_FITTED;
    (void)snprintf(half_width->source, sizeof half_width->source,
                   "holds %.0f %% of %zu steps whose routing was left out; %.0f %% between equal GPUs",
                   100.0 * COVERED, count, 100.0 * MACHINE_SPREAD);
    c->left_out_steps = count;
    for (size_t i = 0; i < count; i++) c->left_out_inside += errors[i] <= half_width->value;
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
    double errors[SPW_MEGATRON_FITTED] = {0.0}, *left_out = NULL;
    size_t left_outs = 0;
    spw_status status = SPW_OK;
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_megatron_coefficients_read(from, NULL, &out->before));
    SPW_TRY(spw_measured_time_open(runs, run_count, phases, phase_count, &out->time));
    SPW_TRY(
        spw_measured_time_predict(&out->before, &out->time)); /* loads, which depend on no fitted figure */
    problem p = {.time = &out->time, .c = out->before};
    count(&p, &out->steps, &out->phases);
    SPW_TRY(fit(&p, errors));
    out->fitted = p.c;
    describe(out, errors);
    out->fitted.tables[0] = '\0';
    name_tables(runs, run_count, out->fitted.tables, sizeof out->fitted.tables);
    name_tables(phases, phase_count, out->fitted.tables, sizeof out->fitted.tables);
    name_range(out);
    for (int label = 0; label < SPW_MEASURED_LABELS; label++) list_names(out, (spw_measured_label)label);
    SPW_TRY(SPW_ALLOC(out->time.runs, &left_out));
    SPW_TRY(leave_out(out, left_out, &left_outs));
    set_interval(out, left_out, left_outs);
    SPW_TRY(spw_measured_time_predict(&out->fitted, &out->time));

cleanup:
    spw_free(left_out);
    (void)gsl_set_error_handler(handler);
    if (status != SPW_OK) spw_megatron_calibration_close(out);
    return status;
}

void spw_megatron_calibration_close(spw_megatron_calibration *c) { spw_measured_time_close(&c->time); }
