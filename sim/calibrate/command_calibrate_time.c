#include "sim/command/command.h"

#include "base/memory.h"
#include "base/run_files.h"
#include "sim/calibrate/calibrate_options.h"

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

static spw_status print_coefficients(spw_time_calibration *c, spw_format format) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    for (size_t i = 0; status == SPW_OK && i < SPW_TIME_ROWS; i++) {
        const spw_coefficient *k = spw_time_coefficient(&c->stack[0], i);
        spw_table_text(spw_table_in(t, "coefficient", "coefficient"), spw_time_rows[i].key);
        spw_table_real(spw_table_in(t, "start", "start"), spw_time_rows[i].start, "%.4f");
        spw_table_real(spw_table_in(t, "value", "fitted"), k->value, "%.4f");
        spw_table_real(spw_table_in(t, "uncertainty", "+-"), k->uncertainty, "%.4f");
        spw_table_text(spw_table_in(t, "evidence", "evidence"), spw_evidence_name(k->evidence));
        spw_table_text(spw_table_in(t, "source", "source"), k->source);
        spw_table_text(spw_table_in(t, "help", "what"), spw_time_rows[i].help);
    }
    if (status == SPW_OK) status = spw_table_print(t, format, stdout);
    spw_table_destroy(t);
    return status;
}

static spw_status print_residuals(const spw_time_calibration *c) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    for (size_t i = 0; status == SPW_OK && i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        const bool kernel = row->cell.family != SPW_KERNEL_NONE;
        const double tokens = (double)(row->cell.job.sequences_per_gpu[0] * row->cell.job.sequence_length);
        const double fitted = kernel ? spw_score_kernel_seconds(&row->cell, &row->time) : row->time.step_s;
        const double truth = kernel ? row->cell.kernel_s : tokens / row->cell.tokens_per_s_per_gpu;
        if (!c->used[i]) continue;
        spw_table_text(spw_table_in(t, "table", "table"), row->cell.table);
        spw_table_text(spw_table_in(t, "id", "row"), row->cell.id);
        spw_table_text(spw_table_in(t, "scheme", "scheme"), row->cell.scheme_text);
        spw_table_count(spw_table_in(t, "sequences", "seqs"), row->cell.job.sequences_per_gpu[0]);
        spw_table_real(spw_table_in(t, "true_s", "true s"), truth, "%.2f");
        spw_table_real(spw_table_in(t, "s", "fitted s"), fitted, "%.2f");
        spw_table_scaled(spw_table_in(t, "residual", "residual %"), fitted / truth - 1.0, 0.01, "%+.1f");
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
}

static spw_status print_left_out(const spw_time_calibration *c) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    for (size_t i = 0; status == SPW_OK && i < c->groups; i++) {
        const spw_time_left_out *g = &c->group[i];
        spw_table_text(spw_table_in(t, "label", "left out"), spw_time_label_name(g->label));
        spw_table_text(spw_table_in(t, "name", "name"), g->name);
        spw_table_count(spw_table_in(t, "runs", "runs"), g->runs);
        spw_table_scaled(spw_table_in(t, "mean", "mean %"), g->mape, 0.01, "%.1f");
        spw_table_scaled(spw_table_in(t, "most", "most %"), g->max_error, 0.01, "%.1f");
        spw_table_in(t, "inside", "inside");
        if (g->tried)
            spw_table_count(t, g->inside);
        else
            spw_table_text(t, "too few runs left to fit");
        spw_table_scaled(spw_table_in(t, "width", "+- %"), expm1(g->half_width), 0.01, "%.1f");
    }
    if (status == SPW_OK && c->groups > 0) {
        printf("\nSteps of what was left out of the fit, by the fit without it:\n\n");
        status = spw_table_print(t, SPW_FORMAT_TABLE, stdout);
    }
    spw_table_destroy(t);
    return status;
}

/* How much of its interval's side each run that was left out uses. */
static void print_coverage(const spw_time_calibration *c) {
    enum { BINS = 6, WIDTH = 60 };
    size_t count[BINS] = {0}, most = 1, inside = 0;
    for (size_t i = 0; i < c->verdicts; i++) {
        const double used = fabs(c->verdict[i].error) / c->verdict[i].half_width;
        const size_t bin = used < 1.25 ? (size_t)(used * 4.0) : BINS - 1;
        inside += used <= 1.0;
        count[bin]++;
    }
    if (c->verdicts == 0) return;
    for (size_t b = 0; b < BINS; b++) most = count[b] > most ? count[b] : most;
    printf("\nError over half of the interval, of all runs under every label (%zu of %zu inside):\n\n",
           inside, c->verdicts);
    for (size_t b = 0; b < BINS; b++) {
        printf(b == BINS - 1 ? "from %.2f       " : "%.2f to %.2f    ", 0.25 * (double)b,
               0.25 * (double)(b + 1));
        printf("%5zu  ", count[b]);
        for (size_t i = 0; i < (count[b] * WIDTH + most - 1) / most; i++) printf("#");
        printf("\n");
    }
}

static spw_status write_stacks(const spw_time_calibration *c, const char *folder) {
    char path[1024];
    spw_status status = SPW_OK;
    for (size_t s = 0; s < c->stacks && status == SPW_OK; s++) { /* before any of them is written */
        status = spw_calibrate_path(folder, c->stack[s].name, sizeof path, path);
        if (status == SPW_OK) status = spw_file_writes(path, "--output");
    }
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
        SPW_TRY(print_left_out(c));
        print_coverage(c);
    }
    SPW_TRY(spw_command_said());
    if (o.output != NULL) SPW_TRY(write_stacks(c, o.output));

cleanup:
    if (c != NULL) spw_time_calibration_close(c);
    spw_free(c);
    return status;
}
