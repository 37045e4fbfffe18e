#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/command/calibrate_options.h"

#include <math.h>
#include <stdio.h>

static const struct argp_option options[] = {
    {"stack", SPW_CALIBRATE_STACK, "NAME|FILE", 0,
     "a time stack whose rows to fit; repeated, the stacks are fitted together and have their coefficients "
     "in common",
     0},
    {"output", SPW_CALIBRATE_OUTPUT, "DIR", 0, "write every fitted stack here, as NAME.yaml", 0},
    SPW_CALIBRATE_LEAVE_OUT_ROW,
    SPW_CALIBRATE_FORMAT_ROW,
    {0},
};
static const char args_doc[] = "TABLE.csv... --stack NAME...";
static const char doc[] =
    "Fits the coefficients of the time of compiled programs to tables of runs and of kernel profiles.";

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
    char path[1024];
    spw_status status = SPW_OK;
    for (size_t s = 0; s < c->stacks && status == SPW_OK; s++) {
        status = spw_calibrate_path(folder, c->stack[s].name, sizeof path, path);
        if (status == SPW_OK) status = spw_time_stack_write(&c->stack[s], path);
    }
    return status;
}

spw_status spw_command_calibrate_time(int argc, char **argv) {
    spw_status status = SPW_OK;
    spw_calibrate_options o = {.most_stacks = SPW_CALIBRATE_TIME_STACKS, .needs_stack = true};
    spw_time_calibration *c = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    SPW_TRY(spw_calibrate_parse(options, args_doc, doc, argc, argv, &o));
    const spw_calibrate_time_request request = {o.table,  o.tables,   o.stack,
                                                o.stacks, o.left_out, o.left_outs};
    SPW_TRY(spw_calibrate_time(&request, c));
    SPW_TRY(print_coefficients(c, o.format));
    if (o.format == SPW_FORMAT_TABLE) {
        printf("\n");
        SPW_TRY(print_residuals(c));
        print_summary(c);
    }
    SPW_TRY(spw_command_said());
    if (o.output != NULL) SPW_TRY(write_stacks(c, o.output));

cleanup:
    if (c != NULL) spw_time_calibration_close(c);
    spw_free(c);
    return status;
}
