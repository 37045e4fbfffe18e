#include "sim/calibrate/calibrate_memory.h"

#include "base/memory.h"
#include "sim/machine/compiled_layer.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double ROBUST = 0.05;         /* where a residual begins to count linearly */
static const double HOLD = 0.05;           /* strength of the values before the fit */
static const double VERDICT_WEIGHT = 2.0;  /* of a row without a figure */
static const double VERDICT_MARGIN = 0.01; /* how far on the right side a verdict should be */
static const double COVERED = 0.975;       /* share of the fitted figures that the interval is made to hold */

/* No stack is trusted more than that around what its scheduler may do, however well its few rows are met. */
static const double LEAST_HALF_WIDTH = 0.04;

enum { FIGURE = 1, VERDICT = 2, GRID = 200, FEWEST_SHARES = 5 };

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

static bool is_left_out(const char *model, const spw_score_row *row) {
    return model != NULL && strcmp(model, row->cell.job.model.name) == 0;
}

/* Does a row say anything about a share: is it past its limit, and by more than what XLA leaves? */
static bool touches(const spw_score_row *row, size_t share) {
    const spw_compiled_layer *program = spw_scheme_program(&row->cell.scheme);
    return row->memory.wanted_bytes > row->memory.limit_bytes + row->memory.held_bytes &&
           spw_stack_recovers(program->program) == share;
}

static double soften(double residual) {
    const double part = residual / ROBUST;
    return 2.0 * ROBUST * ROBUST * (sqrt(1.0 + part * part) - 1.0);
}

static double cost_of(const spw_score_row *row, unsigned char used, double share) {
    const double temporary = spw_compiled_temporary(&row->memory, share);
    if (used == FIGURE) return soften(log(temporary / true_temporary(row)));
    const double over = log(temporary / (row->cell.budget_bytes - row->memory.argument_bytes));
    const double wrong = row->cell.status == SPW_OUTCOME_FITS ? over : -over;
    return soften(VERDICT_WEIGHT * fmax(0.0, wrong + VERDICT_MARGIN));
}

/* Of the rows that touch a share, and of moving away from its value before the fit. */
static double cost(const spw_calibration *c, const char *left_out, size_t share, double value, size_t *rows) {
    const double moved = value - c->before_share[share];
    double sum = pow(HOLD * moved / spw_stack_rows[share].spread, 2.0);
    *rows = 0;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] == 0 || is_left_out(left_out, row) || !touches(row, share)) continue;
        sum += cost_of(row, c->used[i], value);
        (*rows)++;
    }
    return sum;
}

/* How far from a share those of its programs lie, each of which recovers (wanted - true) / (wanted - limit): what the interval spans. A few
 * programs say nothing of others, which may recover nothing or everything. */
static double farthest(const spw_calibration *c, const char *left_out, size_t share, double value) {
    double most = 0.0;
    size_t figures = 0;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] != FIGURE || is_left_out(left_out, row) || !touches(row, share)) continue;
        const spw_compiled_memory *m = &row->memory;
        const double own = (m->wanted_bytes - true_temporary(row)) / (m->wanted_bytes - m->limit_bytes);
        most = fmax(most, fabs(fmin(1.0, fmax(0.0, own)) - value));
        figures++;
    }
    return figures < FEWEST_SHARES ? fmax(value, 1.0 - value) : most;
}

/* Every share on a grid, each alone: a row takes one of them. */
static void fit(const spw_calibration *c, const char *left_out, spw_stack *stack,
                double error[SPW_STACK_FITTED], size_t touched[SPW_STACK_FITTED]) {
    for (size_t k = 0; k < SPW_STACK_FITTED; k++) {
        double least = INFINITY, best = c->before_share[k];
        touched[k] = 0;
        for (size_t i = 0; i <= GRID; i++) {
            const double sum = cost(c, left_out, k, (double)i / GRID, &touched[k]);
            if (touched[k] == 0 || sum >= least) continue;
            least = sum;
            best = (double)i / GRID;
        }
        spw_stack_coefficient(stack, k)->value = best;
        error[k] = farthest(c, left_out, k, best);
        if (touched[k] > 0 || left_out != NULL) spw_stack_coefficient(stack, k)->uncertainty = error[k];
    }
}

/* --- What the fit says --- */

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
    out->half_width_unseen = from.half_width_unseen;
    take_over(&from, &out->half_width);
    return SPW_OK;
}

static void describe_coefficients(spw_calibration *c, const double error[SPW_STACK_FITTED],
                                  const size_t touched[SPW_STACK_FITTED]) {
    for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
        spw_coefficient *fitted = spw_stack_coefficient(&c->fitted, i);
        const double value = fitted->value;
        *fitted = *spw_stack_coefficient(&c->before, i);
        if (touched[i] == 0) continue;
        fitted->value = value;
        fitted->uncertainty = error[i];
        fitted->evidence = SPW_EVIDENCE_FITTED;
        (void)snprintf(fitted->source, sizeof fitted->source,
                       "spillway calibrate memory, %zu rows of the tables", touched[i]);
    }
}

static void set_width(spw_coefficient *c, double value, size_t rows) {
    c->value = value;
    c->uncertainty = 0.0;
    c->evidence = SPW_EVIDENCE_FITTED;
    (void)snprintf(c->source, sizeof c->source, "holds %.0f %% of %zu rows of the tables", 100.0 * COVERED,
                   rows);
}

/* Is a figure of the fit, and not of the model that is left out? */
static bool counts(const spw_calibration *c, const char *left_out, size_t row) {
    return c->used[row] == FIGURE &&
           (left_out == NULL || strcmp(left_out, c->score.row[row].cell.job.model.name) != 0);
}

/* The interval: by how much figures lie outside what the scheduler may do. */
static spw_status fit_interval(const spw_calibration *c, const char *left_out, spw_stack *stack) {
    double *beyond = NULL;
    size_t count = 0;
    spw_status status = SPW_OK;
    spw_stack bare = *stack;
    bare.half_width.value = bare.half_width_unseen.value = 0.0;
    SPW_TRY(SPW_ALLOC(c->score.rows, &beyond));
    for (size_t i = 0; i < c->score.rows; i++) {
        if (!counts(c, left_out, i)) continue;
        const spw_score_row *row = &c->score.row[i];
        const spw_compiled_memory m = predict(&bare, row);
        const double truth = true_temporary(row);
        beyond[count++] = fmax(0.0, fmax(log(m.low_bytes / truth), log(truth / m.high_bytes)));
    }
    if (count >= 10)
        set_width(&stack->half_width, fmax(LEAST_HALF_WIDTH, spw_quantile(beyond, count, COVERED)), count);

cleanup:
    spw_free(beyond);
    return status;
}

static void predict_all(spw_calibration *c) {
    for (size_t i = 0; i < c->score.rows; i++) {
        spw_score_row *row = &c->score.row[i];
        if (row->cell.skipped[0] == '\0') row->memory = predict(&c->fitted, row);
    }
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

static void add_word(char text[SPW_STACK_TEXT], const char *word) {
    const size_t used = strlen(text);
    if (spw_has_word(text, word)) return;
    (void)snprintf(text + used, SPW_STACK_TEXT - used, "%s%s", used > 0 ? " " : "", word);
}

/* What the rows hold: models, batches, kinds of programs, policies, scans. */
static void describe_rows(const spw_calibration *c, const char *left_out, spw_stack *stack) {
    stack->sequences_min = SIZE_MAX;
    stack->sequences_max = 0;
    stack->models[0] = stack->programs[0] = stack->remats[0] = stack->turns[0] = stack->parts[0] = '\0';
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        const size_t sequences = cell->job.sequences_per_gpu[0];
        char turn[24];
        if (c->used[i] == 0 || (left_out != NULL && strcmp(left_out, cell->job.model.name) == 0)) continue;
        (void)snprintf(turn, sizeof turn, "%zu", cell->job.model.layers_per_turn);
        if (sequences < stack->sequences_min) stack->sequences_min = sequences;
        if (sequences > stack->sequences_max) stack->sequences_max = sequences;
        add_word(stack->models, cell->job.model.name);
        add_word(stack->programs, spw_compiled_kind(&cell->scheme));
        add_word(stack->remats, spw_remat_name(cell->job.remat));
        add_word(stack->turns, turn);
        if (cell->job.pipeline > 1)
            add_word(stack->parts, "pipeline");
        else if (cell->job.micro_batches > 1)
            add_word(stack->parts, "micro_batches");
        if (cell->job.precision.weights == sizeof(float)) add_word(stack->parts, "fp32");
    }
}

static void list_models(spw_calibration *c) {
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_cell *cell = &c->score.row[i].cell;
        size_t m = 0;
        if (c->used[i] == 0) continue;
        while (m < c->models && strcmp(c->model[m].name, cell->job.model.name) != 0) m++;
        if (m == c->models && m < SPW_CALIBRATE_MODELS) {
            c->model[c->models++] = (spw_calibrate_model){.median_error = NAN};
            (void)snprintf(c->model[m].name, sizeof c->model[m].name, "%s", cell->job.model.name);
        }
        if (m < c->models) c->model[m].rows++;
    }
}

/* Scores the figures of a model by a stack that has not seen it. */
static void score_unseen(const spw_calibration *c, const spw_stack *stack, spw_calibrate_model *model,
                         double *values) {
    size_t count = 0, inside = 0;
    for (size_t i = 0; i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] != FIGURE || strcmp(row->cell.job.model.name, model->name) != 0) continue;
        const spw_compiled_memory m = predict(stack, row);
        const double truth = true_temporary(row);
        inside += truth >= m.low_bytes && truth <= m.high_bytes;
        values[count++] = (m.high_bytes - m.low_bytes) / m.temporary_bytes;
    }
    model->figures = count;
    model->inside = inside;
    model->median_width = spw_quantile(values, count, 0.5);
    count = errors_of(c, stack, model->name, values);
    if (count > 0) model->median_error = spw_quantile(values, count, 0.5);
}

/* Each model by a fit that has not seen it: shares, what the tables hold and the interval are the others'. */
static spw_status leave_out_models(spw_calibration *c, double *values) {
    for (size_t m = 0; m < c->models && c->models > 1; m++) {
        const char *name = c->model[m].name;
        double error[SPW_STACK_FITTED];
        size_t touched[SPW_STACK_FITTED];
        spw_stack stack = c->before;
        fit(c, name, &stack, error, touched);
        describe_rows(c, name, &stack);
        const spw_status status = fit_interval(c, name, &stack);
        if (status != SPW_OK) return status;
        score_unseen(c, &stack, &c->model[m], values);
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
    double error[SPW_STACK_FITTED], *row_errors = NULL;
    size_t touched[SPW_STACK_FITTED];
    memset(out, 0, sizeof *out);
    SPW_TRY(read_before(request, &out->before));
    for (size_t i = 0; i < SPW_STACK_FITTED; i++)
        out->before_share[i] = spw_stack_coefficient(&out->before, i)->value;
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
    out->fitted = out->before;
    fit(out, NULL, &out->fitted, error, touched);
    list_models(out);
    describe_rows(out, NULL, &out->fitted);
    name_tables(request, &out->fitted);
    describe_coefficients(out, error, touched);
    SPW_TRY(fit_interval(out, NULL, &out->fitted));
    predict_all(out);
    summarise(out, row_errors);
    SPW_TRY(leave_out_models(out, row_errors));

cleanup:
    spw_free(row_errors);
    if (status != SPW_OK) spw_calibration_close(out);
    return status;
}

void spw_calibration_close(spw_calibration *calibration) {
    spw_score_close(&calibration->score);
    spw_free(calibration->used);
    calibration->used = NULL;
}
