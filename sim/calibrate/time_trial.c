#include "sim/calibrate/time_trial.h"

#include "base/memory.h"
#include "sim/statistics/nonlinear_fit.h"
#include "sim/statistics/quantiles.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double KERNEL_WEIGHT = 0.3;
static const double COVERED = 0.95;          /* share of the fitted runs that the interval holds */
static const double LEAST_HALF_WIDTH = 0.05; /* repeats of one run differ by 3 % */
static const double STEP = 1e-3;             /* of a derivative, in the logarithm: loads are whole rows */
static const double SILENT = 1e-6;           /* of a derivative: the tables do not speak of the coefficient */

/* --- Labels --- */

static size_t nodes_of(const spw_job *job) {
    return (job->expert + job->cluster.gpus_per_node - 1) / job->cluster.gpus_per_node;
}

void spw_time_label_text(const spw_score_cell *cell, spw_time_label label, char out[SPW_TIME_LABEL_TEXT]) {
    const size_t number =
        label == SPW_TIME_LABEL_NODES ? nodes_of(&cell->job) : cell->job.sequences_per_gpu[0];
    switch (label) {
    case SPW_TIME_LABEL_TABLE: (void)snprintf(out, SPW_TIME_LABEL_TEXT, "%s", cell->table); break;
    case SPW_TIME_LABEL_SCHEME: (void)snprintf(out, SPW_TIME_LABEL_TEXT, "%s", cell->scheme_text); break;
    case SPW_TIME_LABEL_ROUTING:
        (void)snprintf(out, SPW_TIME_LABEL_TEXT, "%s", cell->real_text ? "real text" : "synthetic");
        break;
    default: (void)snprintf(out, SPW_TIME_LABEL_TEXT, "%zu", number);
    }
}

/* --- Rows --- */

static bool is_left_out(const spw_time_trial *t, size_t index) {
    char text[SPW_TIME_LABEL_TEXT];
    if (t->name == NULL) return false;
    spw_time_label_text(&t->calibration->score.row[index].cell, t->label, text);
    return strcmp(text, t->name) == 0;
}

bool spw_time_trial_takes(const spw_time_trial *t, size_t index) {
    return t->calibration->used[index] && !is_left_out(t, index);
}

bool spw_time_trial_is_run(const spw_time_trial *t, size_t index) {
    return t->calibration->used[index] && t->calibration->score.row[index].cell.family == SPW_KERNEL_NONE;
}

size_t spw_time_trial_runs(const spw_time_trial *t) {
    size_t runs = 0;
    for (size_t i = 0; i < t->calibration->score.rows; i++)
        runs += spw_time_trial_is_run(t, i) && !is_left_out(t, i);
    return runs;
}

/* The published constants of the row's stack, with the trial's coefficients. */
static spw_time_stack stack_of(const spw_time_trial *t, const spw_score_cell *cell) {
    const spw_time_calibration *c = t->calibration;
    spw_time_stack stack = c->stack[0];
    for (size_t i = 0; i < c->stacks; i++) {
        if (strcmp(c->stack[i].name, cell->stack_name) == 0) stack = c->stack[i];
    }
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) spw_time_coefficient(&stack, i)->value = t->value[i];
    return stack;
}

double spw_time_trial_log_error(const spw_time_trial *t, size_t index) {
    const spw_time_calibration *c = t->calibration;
    const spw_score_cell *cell = &c->score.row[index].cell;
    const spw_time_stack stack = stack_of(t, cell);
    spw_routing_layer load = c->load[index];
    spw_time_request request = {&stack, &cell->job, &cell->scheme, cell->job.sequences_per_gpu[0], &load,
                                1,      0.0};
    spw_timeline time;
    spw_status status = SPW_OK;
    if (cell->real_text) status = spw_score_time_request(cell, &stack, &load, &request);
    if (status == SPW_OK) status = spw_compiled_time_predict(&request, &time);
    if (status != SPW_OK) return NAN;
    if (cell->family != SPW_KERNEL_NONE) return log(spw_score_kernel_seconds(cell, &time) / cell->kernel_s);
    return log(cell->tokens_per_s_per_gpu / time.tokens_per_s_per_gpu);
}

/* --- The fit --- */

/* Unknowns are logarithms; a coefficient that can be 0 begins above it. */
static void apply(const double *x, spw_time_trial *t) {
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
        const spw_time_row *row = &spw_time_rows[i];
        t->value[i] = fmin(fmax(exp(x[i]), row->minimum), row->maximum);
    }
}

static int residuals(const gsl_vector *x, void *data, gsl_vector *out) {
    spw_time_trial *t = data;
    size_t n = 0;
    apply(gsl_vector_const_ptr(x, 0), t);
    for (size_t i = 0; i < t->calibration->score.rows; i++) {
        if (!spw_time_trial_takes(t, i)) continue;
        const size_t partner = t->calibration->partner[i];
        const double error =
            spw_time_trial_log_error(t, i) - (partner != i ? spw_time_trial_log_error(t, partner) : 0.0);
        const double weight =
            t->calibration->score.row[i].cell.family != SPW_KERNEL_NONE ? KERNEL_WEIGHT : 1.0;
        gsl_vector_set(out, n++, isfinite(error) ? weight * error : 1e3);
    }
    for (size_t i = 0; i < SPW_TIME_ROWS; i++)
        gsl_vector_set(out, n++,
                       spw_time_rows[i].hold * (gsl_vector_get(x, i) - log(spw_time_rows[i].start)));
    return GSL_SUCCESS;
}

spw_status spw_time_trial_fit(spw_time_trial *t) {
    double value[SPW_TIME_ROWS], slope[SPW_TIME_ROWS];
    size_t rows = 0;
    const size_t runs = spw_time_trial_runs(t);
    if (runs < SPW_TIME_ROWS)
        return spw_fail(SPW_ECONFIG, "%zu runs with tokens/s for these stacks; %d coefficients need as many",
                        runs, SPW_TIME_ROWS);
    for (size_t i = 0; i < t->calibration->score.rows; i++) rows += spw_time_trial_takes(t, i);
    const spw_nonlinear_fit how = {.residuals = residuals,
                                   .problem = t,
                                   .rows = rows + SPW_TIME_ROWS,
                                   .parameters = SPW_TIME_ROWS,
                                   .step = STEP,
                                   .iterations = 200,
                                   .tolerance = 1e-8,
                                   .data_rows = rows};
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) value[i] = log(spw_time_rows[i].start);
    const spw_status status = spw_nonlinear_fit_run(&how, value, t->error, slope);
    if (status != SPW_OK) return status;
    apply(value, t);
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
        t->silent[i] = slope[i] < SILENT;
        if (t->silent[i]) t->value[i] = spw_time_rows[i].start;
    }
    return SPW_OK;
}

/* --- What the fit says --- */

static void describe_coefficients(const spw_time_trial *t, spw_time_stack *stack) {
    const spw_time_calibration *c = t->calibration;
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
        const double deviation = t->silent[i] ? spw_time_rows[i].doubt : t->error[i];
        spw_coefficient *k = spw_time_coefficient(stack, i);
        *k = (spw_coefficient){.value = t->value[i],
                               .uncertainty = deviation * t->value[i],
                               .evidence = t->silent[i] ? SPW_EVIDENCE_ASSUMED : SPW_EVIDENCE_FITTED};
        (void)snprintf(k->source, sizeof k->source,
                       t->silent[i] ? "where the fit begins; the tables do not speak of it"
                                    : "spillway calibrate time, %zu runs and %zu families of kernels",
                       c->runs, c->kernels);
    }
}

static void add_word(char *words, size_t size, const char *word) {
    const size_t used = strlen(words);
    if (!spw_has_word(words, word))
        (void)snprintf(words + used, size - used, "%s%s", used == 0 ? "" : " ", word);
}

/* Models, clusters, schemes and batches that the fit has seen; of all stacks together, since they share it. */
static void describe_range(const spw_time_trial *t, spw_time_stack *stack) {
    char number[24];
    stack->models[0] = stack->clusters[0] = stack->schemes[0] = '\0';
    stack->expert_parallel[0] = stack->fsdp[0] = stack->sequence_lengths[0] = '\0';
    stack->sequences_min = SIZE_MAX;
    stack->sequences_max = 0;
    for (size_t i = 0; i < t->calibration->score.rows; i++) {
        const spw_score_cell *cell = &t->calibration->score.row[i].cell;
        if (!spw_time_trial_takes(t, i)) continue;
        const size_t sequences = cell->job.sequences_per_gpu[0];
        if (sequences < stack->sequences_min) stack->sequences_min = sequences;
        if (sequences > stack->sequences_max) stack->sequences_max = sequences;
        add_word(stack->models, sizeof stack->models, cell->job.model.name);
        add_word(stack->clusters, sizeof stack->clusters, cell->job.cluster.name);
        (void)snprintf(number, sizeof number, "%zu", cell->job.expert);
        add_word(stack->expert_parallel, sizeof stack->expert_parallel, number);
        (void)snprintf(number, sizeof number, "%zu", cell->job.fsdp);
        add_word(stack->fsdp, sizeof stack->fsdp, number);
        (void)snprintf(number, sizeof number, "%zu", cell->job.sequence_length);
        add_word(stack->sequence_lengths, sizeof stack->sequence_lengths, number);
        add_word(stack->schemes, sizeof stack->schemes, spw_compiled_kind(&cell->scheme));
    }
}

/* The interval that holds most of the fitted runs. */
static spw_status describe_interval(const spw_time_trial *t, spw_time_stack *stack) {
    double *errors = NULL;
    size_t count = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(t->calibration->score.rows, &errors));
    for (size_t i = 0; i < t->calibration->score.rows; i++) {
        if (spw_time_trial_is_run(t, i) && spw_time_trial_takes(t, i))
            errors[count++] = fabs(spw_time_trial_log_error(t, i));
    }
    spw_coefficient *k = &stack->half_width;
    *k = (spw_coefficient){.value = fmax(LEAST_HALF_WIDTH, spw_quantile(errors, count, COVERED)),
                           .evidence = SPW_EVIDENCE_FITTED};
    (void)snprintf(k->source, sizeof k->source, "holds %.0f %% of %zu runs", 100.0 * COVERED, count);

cleanup:
    spw_free(errors);
    return status;
}

spw_status spw_time_trial_describe(const spw_time_trial *t, spw_time_stack *stack) {
    describe_coefficients(t, stack);
    describe_range(t, stack);
    return describe_interval(t, stack);
}
