#include "sim/calibrate/time_left_out.h"

#include "base/memory.h"
#include "sim/calibrate/time_trial.h"
#include "sim/statistics/quantiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double COVERED = 0.95;
enum { GROUPS = 256 };

#define LABEL_TEXT(name, text) text,
const char *spw_time_label_name(spw_time_label label) {
    static const char *const names[] = {SPW_TIME_LABEL_LIST(LABEL_TEXT)};
    return names[label];
}

/* --- Groups --- */

/* Adds the names that the runs have under a label, unless they all have one. */
static void list_names(spw_time_calibration *c, spw_time_label label) {
    const spw_time_trial all = {.calibration = c};
    const size_t first = c->groups;
    for (size_t i = 0; i < c->score.rows && c->groups < GROUPS; i++) {
        spw_time_left_out *next = &c->group[c->groups];
        size_t known = first;
        if (!spw_time_trial_is_run(&all, i)) continue;
        *next = (spw_time_left_out){.label = label, .mape = NAN, .max_error = NAN, .half_width = NAN};
        spw_time_label_text(&c->score.row[i].cell, label, next->name);
        while (strcmp(c->group[known].name, next->name) != 0) known++;
        c->groups += known == c->groups;
        c->group[known].runs++;
    }
    if (c->groups == first + 1) c->groups = first;
}

/* Fits without a group, and keeps what the fit says of the group's runs. */
static spw_status try_without(spw_time_calibration *c, size_t group) {
    spw_time_left_out *g = &c->group[group];
    spw_time_trial t = {.calibration = c, .label = g->label, .name = g->name};
    spw_status status = SPW_OK;
    if (spw_time_trial_runs(&t) < SPW_TIME_ROWS) return SPW_OK;
    SPW_TRY(spw_time_trial_fit(&t));
    g->stack = c->stack[0];
    SPW_TRY(spw_time_trial_describe(&t, &g->stack));
    g->tried = true;
    for (size_t i = 0; i < c->score.rows; i++) {
        if (spw_time_trial_is_run(&t, i) && !spw_time_trial_takes(&t, i))
            c->verdict[c->verdicts++] = (spw_time_verdict){group, i, spw_time_trial_log_error(&t, i), NAN};
    }

cleanup:
    return status;
}

/* --- Widths --- */

/* Is a row among the runs of a group? */
static bool belongs(const spw_time_calibration *c, size_t row, const spw_time_left_out *g) {
    char text[SPW_TIME_LABEL_TEXT];
    spw_time_label_text(&c->score.row[row].cell, g->label, text);
    return strcmp(text, g->name) == 0;
}

/* What a job can have that the tables lack. */
static const spw_time_label unseen_labels[] = {SPW_TIME_LABEL_SCHEME, SPW_TIME_LABEL_ROUTING,
                                               SPW_TIME_LABEL_NODES};
enum { UNSEEN_LABELS = sizeof unseen_labels / sizeof *unseen_labels };

/* The COVERED quantile of what runs that were left out under a label miss by beyond `seen`; runs of the group `without`, if
 * there is one, are not asked. NAN without runs. work [verdicts]. */
static double width_of(const spw_time_calibration *c, const spw_time_left_out *without, spw_time_label label,
                       double seen, double *work) {
    size_t count = 0;
    for (size_t i = 0; i < c->verdicts; i++) {
        const spw_time_verdict *v = &c->verdict[i];
        if (c->group[v->group].label != label || (without != NULL && belongs(c, v->row, without))) continue;
        work[count++] = sqrt(fmax(0.0, v->error * v->error - seen * seen));
    }
    return spw_quantile(work, count, COVERED);
}

/* Both widths of a stack; half_width stays that of the fitted runs where no table could be left out. */
static void set_widths(const spw_time_calibration *c, const spw_time_left_out *without, double *work,
                       spw_time_stack *stack) {
    const double tables = width_of(c, without, SPW_TIME_LABEL_TABLE, 0.0, work);
    double unseen = 0.0;
    if (tables > stack->half_width.value) {
        stack->half_width.value = tables;
        (void)snprintf(stack->half_width.source, sizeof stack->half_width.source,
                       "holds %.0f %% of the runs, each by a fit without its table", 100.0 * COVERED);
    }
    for (size_t i = 0; i < UNSEEN_LABELS; i++) /* fmax passes over what is no number */
        unseen = fmax(unseen, width_of(c, without, unseen_labels[i], stack->half_width.value, work));
    stack->half_width_unseen = (spw_coefficient){.value = unseen, .evidence = SPW_EVIDENCE_FITTED};
    (void)snprintf(stack->half_width_unseen.source, sizeof stack->half_width_unseen.source,
                   "with half_width %.0f %% of the runs by fits without their scheme, routing or number of "
                   "nodes, the worst of the three",
                   100.0 * COVERED);
}

spw_status spw_time_left_out_widths(const spw_time_calibration *c, spw_time_stack *stack) {
    double *work = NULL;
    const spw_status status = SPW_ALLOC(c->verdicts + 1, &work);
    if (status == SPW_OK) set_widths(c, NULL, work, stack);
    spw_free(work);
    return status;
}

/* --- Verdicts --- */

/* The interval of a run that was left out, by the fit without it and the names of its own stack. */
static spw_status judge(spw_time_calibration *c, spw_time_verdict *v) {
    spw_time_left_out *g = &c->group[v->group];
    const spw_score_cell *cell = &c->score.row[v->row].cell;
    spw_time_stack stack = g->stack;
    spw_timeline time;
    for (size_t i = 0; i < c->stacks; i++) {
        if (strcmp(c->stack[i].name, cell->stack_name) == 0)
            stack.gather_limit_gib = c->stack[i].gather_limit_gib;
    }
    const spw_status status = spw_score_time_of(cell, &stack, &time);
    if (status != SPW_OK) return status;
    v->half_width = v->error > 0.0 ? log(time.step_s / time.low_s) : log(time.high_s / time.step_s);
    g->inside += fabs(v->error) <= v->half_width;
    return SPW_OK;
}

static void sum_up(const spw_time_calibration *c, size_t group, spw_time_left_out *g) {
    if (!g->tried) return;
    g->mape = g->max_error = g->half_width = 0.0;
    for (size_t i = 0; i < c->verdicts; i++) {
        const spw_time_verdict *v = &c->verdict[i];
        if (v->group != group) continue;
        const double error = fabs(expm1(v->error));
        g->mape += error / (double)g->runs;
        g->max_error = fmax(g->max_error, error);
        g->half_width += v->half_width / (double)g->runs;
    }
}

spw_status spw_time_leave_out(spw_time_calibration *c) {
    double *work = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(GROUPS + 1, &c->group));
    SPW_TRY(SPW_ALLOC((size_t)SPW_TIME_LABELS * c->score.rows, &c->verdict));
    SPW_TRY(SPW_ALLOC((size_t)SPW_TIME_LABELS * c->score.rows + 1, &work));
    for (int label = 0; label < SPW_TIME_LABELS; label++) list_names(c, (spw_time_label)label);
    for (size_t g = 0; g < c->groups; g++) SPW_TRY(try_without(c, g));
    for (size_t g = 0; g < c->groups; g++)
        if (c->group[g].tried) set_widths(c, &c->group[g], work, &c->group[g].stack);
    for (size_t i = 0; i < c->verdicts; i++) SPW_TRY(judge(c, &c->verdict[i]));
    for (size_t g = 0; g < c->groups; g++) sum_up(c, g, &c->group[g]);

cleanup:
    spw_free(work);
    return status;
}
