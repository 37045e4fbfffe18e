#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/replay/table.h"
#include "sim/score/calibrate_time.h"
#include "sim/score/score_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_STACK = 0x100, OPTION_OUTPUT, OPTION_LEAVE_OUT, OPTION_FORMAT };

typedef struct calibrate_options {
    const char *table[SPW_SCORE_TABLES], *left_out[SPW_CALIBRATE_TIME_LEFT_OUT],
        *stack[SPW_CALIBRATE_TIME_STACKS], *output, *format_text;
    size_t tables, left_outs, stacks;
} calibrate_options;

static const struct argp_option options[] = {
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "a time stack whose rows to fit; repeated, the stacks are fitted together and have their coefficients "
     "in common",
     0},
    {"output", OPTION_OUTPUT, "DIR", 0, "write every fitted stack here, as NAME.yaml", 0},
    {"leave-out", OPTION_LEAVE_OUT, "ID", 0, "a row that is not to be fitted, may be repeated", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0,
     "how to print the coefficients (default: table, with residuals)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    calibrate_options *o = state->input;
    switch (key) {
    case OPTION_STACK:
        if (o->stacks == SPW_CALIBRATE_TIME_STACKS)
            argp_error(state, "more than %d stacks", SPW_CALIBRATE_TIME_STACKS);
        o->stack[o->stacks++] = text;
        return 0;
    case OPTION_OUTPUT: o->output = text; return 0;
    case OPTION_FORMAT: o->format_text = text; return 0;
    case OPTION_LEAVE_OUT:
        if (o->left_outs == SPW_CALIBRATE_TIME_LEFT_OUT)
            argp_error(state, "more than %d rows left out", SPW_CALIBRATE_TIME_LEFT_OUT);
        o->left_out[o->left_outs++] = text;
        return 0;
    case ARGP_KEY_ARG:
        if (o->tables == SPW_SCORE_TABLES) argp_error(state, "more than %d tables", SPW_SCORE_TABLES);
        o->table[o->tables++] = text;
        return 0;
    case ARGP_KEY_END:
        if (o->tables == 0) argp_error(state, "no table; tables come in notebooks_data/");
        if (o->stacks == 0) argp_error(state, "--stack is needed; it says whose rows are fitted");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "TABLE.csv... --stack NAME...",
    .doc = "Fits the coefficients of the time of compiled programs to tables of runs and of kernel profiles.",
};

static const spw_column coefficient_columns[] = {
    {"coefficient", "coefficient"}, {"start", "start"},   {"value", "fitted"}, {"uncertainty", "+-"},
    {"evidence", "evidence"},       {"source", "source"}, {"help", "what"},    {NULL, NULL},
};

static spw_status print_coefficients(spw_time_calibration *c, spw_format format) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(coefficient_columns, &t);
    for (size_t i = 0; status == SPW_OK && i < SPW_TIME_ROWS; i++) {
        const spw_coefficient *k = spw_time_coefficient(&c->stack[0], i);
        spw_table_text(t, spw_time_rows[i].key);
        spw_table_real(t, spw_time_rows[i].start, "%.4f");
        spw_table_real(t, k->value, "%.4f");
        spw_table_real(t, k->uncertainty, "%.4f");
        spw_table_text(t, spw_evidence_name(k->evidence));
        spw_table_text(t, k->source);
        spw_table_text(t, spw_time_rows[i].help);
    }
    if (status == SPW_OK) status = spw_table_print(t, format, stdout);
    spw_table_destroy(t);
    return status;
}

static const spw_column residual_columns[] = {
    {"table", "table"},   {"id", "row"},     {"scheme", "scheme"},       {"sequences", "seqs"},
    {"true_s", "true s"}, {"s", "fitted s"}, {"residual", "residual %"}, {NULL, NULL},
};

static spw_status print_residuals(const spw_time_calibration *c) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(residual_columns, &t);
    for (size_t i = 0; status == SPW_OK && i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        const bool kernel = row->cell.family != SPW_KERNEL_NONE;
        const double tokens = (double)(row->cell.job.sequences_per_gpu[0] * row->cell.job.sequence_length);
        const double fitted = kernel ? spw_score_kernel_seconds(&row->cell, &row->time) : row->time.step_s;
        const double truth = kernel ? row->cell.kernel_s : tokens / row->cell.tokens_per_s_per_gpu;
        if (!c->used[i]) continue;
        spw_table_text(t, row->cell.table);
        spw_table_text(t, row->cell.id);
        spw_table_text(t, row->cell.scheme_text);
        spw_table_count(t, row->cell.job.sequences_per_gpu[0]);
        spw_table_real(t, truth, "%.2f");
        spw_table_real(t, fitted, "%.2f");
        spw_table_scaled(t, fitted / truth - 1.0, 0.01, "%+.1f");
    }
    if (status == SPW_OK) status = spw_table_print(t, SPW_FORMAT_TABLE, stdout);
    spw_table_destroy(t);
    return status;
}

static void print_summary(const spw_time_calibration *c) {
    printf("\n%zu runs and %zu families of kernels fitted; %zu rows of other stacks, %zu without a speed, "
           "%zu not under "
           "remat full, %zu left out by name\n",
           c->runs, c->kernels, c->other_stack, c->silent, c->not_full, c->left_out);
    printf("|error| of the runs' tokens/s: mean %.1f %%, max %.1f %%; interval +-%.1f %%\n", 100.0 * c->mape,
           100.0 * c->max_error, 100.0 * expm1(c->stack[0].half_width.value));
    for (size_t s = 0; s < c->schemes; s++) {
        printf("%s: %zu runs", c->scheme[s].text, c->scheme[s].rows);
        if (!isnan(c->scheme[s].mape))
            printf("; by a fit without them: mean |error| %.1f %%", 100.0 * c->scheme[s].mape);
        printf("\n");
    }
    if (!isnan(c->left_out_mape))
        printf("every scheme by a fit without it: mean |error| %.1f %%\n", 100.0 * c->left_out_mape);
}

static spw_status write_stacks(const spw_time_calibration *c, const char *folder) {
    for (size_t s = 0; s < c->stacks; s++) {
        char path[1024];
        const int length = snprintf(path, sizeof path, "%s/%s.yaml", folder, c->stack[s].name);
        if (length < 0 || (size_t)length >= sizeof path)
            return spw_fail(SPW_EARG, "the path of %s in '%.60s...' is too long", c->stack[s].name, folder);
        spw_status status = spw_time_stack_write(&c->stack[s], "Written by spillway calibrate time.", path);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

spw_status spw_command_calibrate_time(int argc, char **argv) {
    spw_status status = SPW_OK;
    calibrate_options *o = NULL;
    spw_time_calibration *c = NULL;
    spw_format format = SPW_FORMAT_TABLE;
    SPW_TRY(SPW_ALLOC(1, &o));
    SPW_TRY(SPW_ALLOC(1, &c));
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    if (o->format_text != NULL) SPW_TRY(spw_format_parse(o->format_text, &format));
    const spw_calibrate_time_request request = {o->table,  o->tables,   o->stack,
                                                o->stacks, o->left_out, o->left_outs};
    SPW_TRY(spw_calibrate_time(&request, c));
    SPW_TRY(print_coefficients(c, format));
    if (format == SPW_FORMAT_TABLE) {
        printf("\n");
        SPW_TRY(print_residuals(c));
        print_summary(c);
    }
    if (o->output != NULL) SPW_TRY(write_stacks(c, o->output));

cleanup:
    if (c != NULL) spw_time_calibration_close(c);
    spw_free(c);
    spw_free(o);
    return status;
}
