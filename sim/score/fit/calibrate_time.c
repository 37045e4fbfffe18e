#include "sim/score/fit/calibrate_time.h"

#include "base/memory.h"
#include "sim/statistics/nonlinear_fit.h"
#include "sim/statistics/quantiles.h"
#include "sim/time/routing_load.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double KERNEL_WEIGHT = 0.3;
static const double HOLD = 0.02;
static const double COVERED = 0.95;          /* share of the fitted runs that the interval holds */
static const double LEAST_HALF_WIDTH = 0.05; /* repeats of one run differ by 3 % */
static const double STEP = 1e-3;             /* of a derivative, in the logarithm: loads are whole rows */
static const double SILENT = 1e-6;           /* of a derivative: the tables do not speak of the coefficient */

/* What the residuals are a function of. `scheme`: rows of this scheme are left out; NULL: none. */
typedef struct problem {
    spw_time_calibration *c;
    const char *scheme;
    double value[SPW_TIME_ROWS]; /* under trial */
} problem;

/* --- Rows --- */

static spw_time_stack *stack_of(spw_time_calibration *c, const spw_score_row *row) {
    for (size_t i = 0; i < c->stacks; i++) {
        if (strcmp(c->stack[i].name, row->cell.stack_name) == 0) return &c->stack[i];
    }
    return NULL;
}

/* Predicts a used row; such a row was predicted before, so it cannot fail. */
static double log_error(problem *p, size_t index) {
    spw_time_calibration *c = p->c;
    const spw_score_row *row = &c->score.row[index];
    spw_time_stack stack = *stack_of(c, row);
    spw_routing_layer load = c->load[index];
    spw_time_request request;
    spw_timeline time;
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) spw_time_coefficient(&stack, i)->value = p->value[i];
    spw_status status = SPW_OK;
    if (row->cell.real_text) {
        status = spw_score_time_request(&row->cell, &stack, &load, &request);
    } else {
        request = (spw_time_request){
            &stack, &row->cell.job, &row->cell.scheme, row->cell.job.sequences_per_gpu[0], &load, 1, 0.0};
    }
    if (status == SPW_OK) status = spw_compiled_time_predict(&request, &time);
    if (status != SPW_OK) return NAN;
    if (row->cell.family != SPW_KERNEL_NONE)
        return log(spw_score_kernel_seconds(&row->cell, &time) / row->cell.kernel_s);
    return log(row->cell.tokens_per_s_per_gpu / time.tokens_per_s_per_gpu);
}

static bool named(const spw_calibrate_time_request *request, const char *id) {
    for (size_t i = 0; i < request->left_out_count; i++) {
        if (strcmp(request->left_out[i], id) == 0) return true;
    }
    return false;
}

static spw_status choose_rows(const spw_calibrate_time_request *request, spw_time_calibration *c) {
    spw_time_request ignored;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        const bool kernel = cell->family != SPW_KERNEL_NONE;
        const spw_time_stack *stack = stack_of(c, &c->score.row[i]);
        if (stack == NULL) {
            c->other_stack++;
        } else if (cell->skipped[0] != '\0' || (!kernel && !(cell->tokens_per_s_per_gpu > 0.0)) ||
                   !spw_compiled_time_covers(&cell->job, &cell->scheme)) {
            c->silent++;
        } else if (cell->job.remat != SPW_REMAT_FULL || cell->job.pipeline > 1) {
            c->not_full++;
        } else if (named(request, cell->id)) {
            c->left_out++;
        } else {
            spw_status status = spw_score_time_request(cell, stack, &c->load[i], &ignored);
            if (status != SPW_OK) return status;
            c->used[i] = 1;
            (*(kernel ? &c->kernels : &c->runs))++;
        }
    }
    return SPW_OK;
}

/* The same run on synthetic data. */
static size_t find_partner(const spw_time_calibration *c, size_t index) {
    const spw_score_cell *cell = &c->score.row[index].cell;
    for (size_t i = 0; i < c->score.rows && cell->real_text && c->used[index]; i++) {
        const spw_score_cell *other = &c->score.row[i].cell;
        if (c->used[i] && !other->real_text && other->family == SPW_KERNEL_NONE &&
            strcmp(other->table, cell->table) == 0 && strcmp(other->stack_name, cell->stack_name) == 0 &&
            strcmp(other->scheme_text, cell->scheme_text) == 0 && other->job.expert == cell->job.expert &&
            other->job.sequences_per_gpu[0] == cell->job.sequences_per_gpu[0])
            return i;
    }
    return index;
}

static bool taken(const problem *p, size_t index) {
    const spw_score_cell *cell = &p->c->score.row[index].cell;
    return p->c->used[index] && (p->scheme == NULL || strcmp(p->scheme, cell->scheme_text) != 0);
}

/* --- The fit --- */

/* Unknowns are logarithms; a coefficient that can be 0 begins above it. */
static void apply(const double *x, problem *p) {
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
        const spw_time_row *row = &spw_time_rows[i];
        p->value[i] = fmin(fmax(exp(x[i]), row->minimum), row->maximum);
    }
}

static int residuals(const gsl_vector *x, void *data, gsl_vector *out) {
    problem *p = data;
    size_t n = 0;
    apply(gsl_vector_const_ptr(x, 0), p);
    for (size_t i = 0; i < p->c->score.rows; i++) {
        if (!taken(p, i)) continue;
        const size_t partner = p->c->partner[i];
        const double error = log_error(p, i) - (partner != i ? log_error(p, partner) : 0.0);
        const double weight = p->c->score.row[i].cell.family != SPW_KERNEL_NONE ? KERNEL_WEIGHT : 1.0;
        gsl_vector_set(out, n++, isfinite(error) ? weight * error : 1e3);
    }
    for (size_t i = 0; i < SPW_TIME_ROWS; i++)
        gsl_vector_set(out, n++, HOLD * (gsl_vector_get(x, i) - log(spw_time_rows[i].start)));
    return GSL_SUCCESS;
}

/* Fits into p->value; relative standard errors and silence unless NULL. */
static spw_status fit(problem *p, double errors[SPW_TIME_ROWS], bool silent[SPW_TIME_ROWS]) {
    double value[SPW_TIME_ROWS], slope[SPW_TIME_ROWS];
    size_t rows = 0;
    for (size_t i = 0; i < p->c->score.rows; i++) rows += taken(p, i);
    const spw_nonlinear_fit how = {.residuals = residuals,
                                   .problem = p,
                                   .rows = rows + SPW_TIME_ROWS,
                                   .parameters = SPW_TIME_ROWS,
                                   .step = STEP,
                                   .iterations = 200,
                                   .tolerance = 1e-8,
                                   .data_rows = rows};
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) value[i] = log(spw_time_rows[i].start);
    const spw_status status = spw_nonlinear_fit_run(&how, value, errors, slope);
    if (status != SPW_OK) return status;
    apply(value, p);
    for (size_t i = 0; i < SPW_TIME_ROWS && silent != NULL; i++) silent[i] = slope[i] < SILENT;
    return SPW_OK;
}

/* --- What the fit says --- */

static void describe(spw_time_calibration *c, const problem *p, const double *errors, const bool *silent) {
    for (size_t s = 0; s < c->stacks; s++) {
        for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
            spw_coefficient *k = spw_time_coefficient(&c->stack[s], i);
            *k = (spw_coefficient){.value = silent[i] ? spw_time_rows[i].start : p->value[i],
                                   .uncertainty = silent[i] ? 0.0 : errors[i] * p->value[i],
                                   .evidence = silent[i] ? SPW_EVIDENCE_ASSUMED : SPW_EVIDENCE_FITTED};
            (void)snprintf(k->source, sizeof k->source,
                           silent[i] ? "where the fit begins; the tables do not speak of it"
                                     : "spillway calibrate time, %zu runs and %zu families of kernels",
                           c->runs, c->kernels);
        }
    }
}

static void add_word(char *words, size_t size, const char *word) {
    const size_t used = strlen(words);
    if (!spw_has_word(words, word))
        (void)snprintf(words + used, size - used, "%s%s", used == 0 ? "" : " ", word);
}

/* Models, clusters, schemes and batches that the fit has seen; of all stacks together, since they share it. */
static void list_range(const spw_calibrate_time_request *request, spw_time_calibration *c) {
    spw_time_stack seen = {.sequences_min = SIZE_MAX};
    char number[24];
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        const size_t sequences = cell->job.sequences_per_gpu[0];
        if (!c->used[i]) continue;
        if (sequences < seen.sequences_min) seen.sequences_min = sequences;
        if (sequences > seen.sequences_max) seen.sequences_max = sequences;
        add_word(seen.models, sizeof seen.models, cell->job.model.name);
        add_word(seen.clusters, sizeof seen.clusters, cell->job.cluster.name);
        (void)snprintf(number, sizeof number, "%zu", cell->job.expert);
        add_word(seen.expert_parallel, sizeof seen.expert_parallel, number);
        (void)snprintf(number, sizeof number, "%zu", cell->job.sequence_length);
        add_word(seen.sequence_lengths, sizeof seen.sequence_lengths, number);
        add_word(seen.schemes, sizeof seen.schemes, spw_compiled_kind(&cell->scheme));
    }
    for (size_t i = 0; i < request->table_count; i++) {
        const char *slash = strrchr(request->tables[i], '/');
        add_word(seen.tables, sizeof seen.tables, slash != NULL ? slash + 1 : request->tables[i]);
    }
    for (size_t s = 0; s < c->stacks; s++) {
        spw_time_stack *stack = &c->stack[s];
        memcpy(stack->tables, seen.tables, sizeof stack->tables);
        memcpy(stack->models, seen.models, sizeof stack->models);
        memcpy(stack->clusters, seen.clusters, sizeof stack->clusters);
        memcpy(stack->expert_parallel, seen.expert_parallel, sizeof stack->expert_parallel);
        memcpy(stack->sequence_lengths, seen.sequence_lengths, sizeof stack->sequence_lengths);
        memcpy(stack->schemes, seen.schemes, sizeof stack->schemes);
        stack->sequences_min = seen.sequences_min;
        stack->sequences_max = seen.sequences_max;
    }
}

/* The interval that holds most of the fitted runs. */
static spw_status fit_interval(spw_time_calibration *c, problem *p) {
    double *errors = NULL;
    size_t count = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(c->runs, &errors));
    for (size_t i = 0; i < c->score.rows; i++) {
        if (c->used[i] && c->score.row[i].cell.family == SPW_KERNEL_NONE)
            errors[count++] = fabs(log_error(p, i));
    }
    const double width = fmax(LEAST_HALF_WIDTH, spw_quantile(errors, count, COVERED));
    for (size_t s = 0; s < c->stacks; s++) {
        spw_coefficient *k = &c->stack[s].half_width;
        *k = (spw_coefficient){.value = width, .evidence = SPW_EVIDENCE_FITTED};
        (void)snprintf(k->source, sizeof k->source, "holds %.0f %% of %zu runs", 100.0 * COVERED, count);
    }

cleanup:
    spw_free(errors);
    return status;
}

static spw_status predict_all(spw_time_calibration *c) {
    double sum = 0.0;
    for (size_t i = 0; i < c->score.rows; i++) {
        spw_score_row *row = &c->score.row[i];
        const spw_time_stack *stack = stack_of(c, row);
        spw_time_request request;
        spw_routing_layer load;
        memset(&row->time, 0, sizeof row->time);
        if (!c->used[i]) continue;
        spw_status status = spw_score_time_request(&row->cell, stack, &load, &request);
        if (status == SPW_OK) status = spw_compiled_time_predict(&request, &row->time);
        if (status != SPW_OK) return status;
        const double error = fabs(spw_score_throughput_error(row));
        if (row->cell.family != SPW_KERNEL_NONE) continue;
        sum += error;
        c->max_error = fmax(c->max_error, error);
    }
    c->mape = sum / (double)c->runs;
    return SPW_OK;
}

static void list_schemes(spw_time_calibration *c) {
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        size_t s = 0;
        if (!c->used[i] || cell->family != SPW_KERNEL_NONE) continue;
        while (s < c->schemes && strcmp(c->scheme[s].text, cell->scheme_text) != 0) s++;
        if (s == SPW_CALIBRATE_TIME_SCHEMES) continue;
        if (s == c->schemes) {
            c->scheme[c->schemes++] = (spw_calibrate_time_scheme){.mape = NAN};
            memcpy(c->scheme[s].text, cell->scheme_text, sizeof c->scheme[s].text);
        }
        c->scheme[s].rows++;
    }
}

/* The error on each scheme by a fit that has not seen it. */
static spw_status leave_out_schemes(spw_time_calibration *c) {
    double all = 0.0;
    size_t rows = 0;
    c->left_out_mape = NAN;
    for (size_t s = 0; s < c->schemes && c->schemes > 1; s++) {
        problem p = {.c = c, .scheme = c->scheme[s].text};
        double sum = 0.0;
        spw_status status = fit(&p, NULL, NULL);
        if (status != SPW_OK) return status;
        for (size_t i = 0; i < c->score.rows; i++) {
            if (c->used[i] && !taken(&p, i) && c->score.row[i].cell.family == SPW_KERNEL_NONE)
                sum += fabs(expm1(-log_error(&p, i)));
        }
        c->scheme[s].mape = sum / (double)c->scheme[s].rows;
        all += sum;
        rows += c->scheme[s].rows;
        c->left_out_mape = all / (double)rows;
    }
    return SPW_OK;
}

spw_status spw_calibrate_time(const spw_calibrate_time_request *request, spw_time_calibration *out) {
    spw_status status = SPW_OK;
    double errors[SPW_TIME_ROWS] = {0.0};
    bool silent[SPW_TIME_ROWS] = {false};
    problem p = {.c = out};
    memset(out, 0, sizeof *out);
    if (request->stack_count == 0 || request->stack_count > SPW_CALIBRATE_TIME_STACKS)
        return spw_fail(SPW_EARG, "%zu stacks to fit together; 1 to %d can be", request->stack_count,
                        SPW_CALIBRATE_TIME_STACKS);
    for (; out->stacks < request->stack_count; out->stacks++)
        SPW_TRY(spw_time_stack_read(request->stacks[out->stacks], NULL, &out->stack[out->stacks]));
    SPW_TRY(spw_score_open(request->tables, request->table_count, NULL, NULL, &out->score));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->used));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->load));
    SPW_TRY(SPW_ALLOC(out->score.rows, &out->partner));
    SPW_TRY(spw_score_has_rows(&out->score, request->left_out, request->left_out_count));
    SPW_TRY(choose_rows(request, out));
    for (size_t i = 0; i < out->score.rows; i++) out->partner[i] = find_partner(out, i);
    if (out->runs < SPW_TIME_ROWS)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%zu runs with tokens/s for these stacks; %d coefficients need as many",
                         out->runs, SPW_TIME_ROWS));
    SPW_TRY(fit(&p, errors, silent));
    describe(out, &p, errors, silent);
    list_range(request, out);
    SPW_TRY(fit_interval(out, &p));
    SPW_TRY(predict_all(out));
    list_schemes(out);
    SPW_TRY(leave_out_schemes(out));

cleanup:
    if (status != SPW_OK) spw_time_calibration_close(out);
    return status;
}

void spw_time_calibration_close(spw_time_calibration *calibration) {
    spw_free(calibration->partner);
    spw_free(calibration->load);
    spw_free(calibration->used);
    spw_score_close(&calibration->score);
    memset(calibration, 0, sizeof *calibration);
}
