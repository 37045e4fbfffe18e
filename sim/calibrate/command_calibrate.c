#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/calibrate/calibrate_options.h"
#include "sim/score/table_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static const struct argp_option options[] = {
    {"stack", SPW_CALIBRATE_STACK, "NAME|FILE", 0, "whose rows to fit", 0},
    {"from", SPW_CALIBRATE_FROM, "NAME|FILE", 0,
     "coefficients before the fit (default: counted, where nothing is fitted)", 0},
    {"output", SPW_CALIBRATE_OUTPUT, "STACK.yaml", SPW_OPTION_WRITES, "write the fitted stack here", 0},
    SPW_CALIBRATE_LEAVE_OUT_ROW,
    SPW_CALIBRATE_FORMAT_ROW,
    {0},
};
static const char args_doc[] = "TABLE.csv... --stack NAME";
static const char doc[] = "Fits the coefficients of the memory of compiled programs to tables of runs.";

static void put_coefficient(spw_table *t, const char *key, const char *help, const spw_coefficient *before,
                            const spw_coefficient *after) {
    spw_table_text(spw_table_in(t, "coefficient", "coefficient"), key);
    spw_table_real(spw_table_in(t, "before", "before"), before->value, "%.3f");
    spw_table_real(spw_table_in(t, "value", "fitted"), after->value, "%.3f");
    spw_table_real(spw_table_in(t, "uncertainty", "+-"), after->uncertainty, "%.3f");
    spw_table_text(spw_table_in(t, "evidence", "evidence"), spw_evidence_name(after->evidence));
    spw_table_text(spw_table_in(t, "source", "source"), after->source);
    spw_table_text(spw_table_in(t, "help", NULL), help);
}

static spw_status print_coefficients(spw_calibration *c, spw_format format) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    for (size_t i = 0; status == SPW_OK && i < SPW_STACK_FITTED; i++) {
        put_coefficient(t, spw_stack_rows[i].key, spw_stack_rows[i].help,
                        spw_stack_coefficient(&c->before, i), spw_stack_coefficient(&c->fitted, i));
    }
    if (status == SPW_OK) {
        put_coefficient(t, "half_width", "half width of the interval, as a logarithm", &c->before.half_width,
                        &c->fitted.half_width);
        status = spw_table_print(t, format, stdout);
    }
    spw_table_destroy(t);
    return status;
}

static spw_status print_residuals(const spw_calibration *c) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    for (size_t i = 0; status == SPW_OK && i < c->score.rows; i++) {
        const spw_score_row *row = &c->score.row[i];
        if (c->used[i] != 1) continue;
        const bool temporary = !isnan(row->cell.temporary_gib);
        const double arguments = temporary ? 0.0 : row->memory.argument_bytes / GIB;
        spw_table_text(spw_table_in(t, "id", "row"), row->cell.id);
        spw_table_text(spw_table_in(t, "fitted", "by"), temporary ? "temporary" : "total");
        spw_table_real(spw_table_in(t, "true_gib", "true GiB"),
                       temporary ? row->cell.temporary_gib : row->cell.total_gib, "%.1f");
        spw_table_real(spw_table_in(t, "gib", "fitted GiB"), row->memory.temporary_bytes / GIB + arguments,
                       "%.1f");
        spw_table_scaled(spw_table_in(t, "residual", "residual %"),
                         temporary ? spw_score_temporary_error(row) : spw_score_total_error(row), 0.01,
                         "%+.1f");
    }
    if (status == SPW_OK) status = spw_table_print(t, SPW_FORMAT_TABLE, stdout);
    spw_table_destroy(t);
    return status;
}

static void print_summary(const spw_calibration *c) {
    printf(
        "\n%zu figures and %zu verdicts fitted; %zu rows of other stacks, %zu that cannot be predicted, %zu "
        "left out by name\n",
        c->figures, c->verdicts, c->other_stack, c->skipped, c->left_out);
    printf("|error| of the figures: median %.1f %%, rms %.1f %%, max %.1f %%\n", 100.0 * c->median_error,
           100.0 * c->rms_error, 100.0 * c->max_error);
    for (size_t m = 0; m < c->models; m++) {
        printf("%s: %zu rows", c->model[m].name, c->model[m].rows);
        if (!isnan(c->model[m].median_error))
            printf("; by a fit without them: median |error| %.1f %%, %zu of %zu inside the interval, whose "
                   "median width is %.1f %%",
                   100.0 * c->model[m].median_error, c->model[m].inside, c->model[m].figures,
                   100.0 * c->model[m].median_width);
        printf("\n");
    }
}

static spw_status calibrate_memory(int argc, char **argv) {
    spw_status status = SPW_OK;
    spw_calibrate_options o = {.most_stacks = 1, .needs_stack = true, .from = "counted"};
    spw_calibration *c = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    SPW_TRY(spw_calibrate_parse(options, args_doc, doc, argc, argv, &o));
    const spw_calibrate_request request = {.tables = o.table,
                                           .table_count = o.tables,
                                           .stack = o.stack[0],
                                           .from = o.from,
                                           .left_out = o.left_out,
                                           .left_out_count = o.left_outs};
    SPW_TRY(spw_calibrate_memory(&request, c));
    SPW_TRY(print_coefficients(c, o.format));
    if (o.format == SPW_FORMAT_TABLE) {
        printf("\n");
        SPW_TRY(print_residuals(c));
        print_summary(c);
    }
    SPW_TRY(spw_command_said());
    if (o.output != NULL) SPW_TRY(spw_stack_write(&c->fitted, o.output));

cleanup:
    if (c != NULL) spw_calibration_close(c);
    spw_free(c);
    return status;
}

/* Tables of measured Megatron-Core layers have a fit of their own. */
static spw_status calibrate_time(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const spw_table_kind kind = spw_table_kind_of(argv[i]);
        if (kind == SPW_TABLE_RUNS || kind == SPW_TABLE_PHASES || kind == SPW_TABLE_CEILINGS)
            return spw_command_calibrate_megatron(argc, argv);
    }
    return spw_command_calibrate_time(argc, argv);
}

const spw_command_row spw_calibrate_parts[] = {
    {"memory", calibrate_memory, "of compiled programs, from tables of runs", NULL},
    {"time", calibrate_time, "of compiled programs, or of Megatron-Core from tables of measured stacks",
     NULL},
    {0},
};

spw_status spw_command_calibrate(int argc, char **argv) {
    if (argc > 1 && spw_asks_for_help(argv[1])) {
        printf("usage: spillway calibrate WHAT TABLE.csv... --stack NAME (spillway calibrate WHAT --help "
               "tells more)\n");
        spw_command_list(spw_calibrate_parts, stdout);
        return SPW_OK;
    }
    const spw_command_row *part = argc > 1 ? spw_command_find(spw_calibrate_parts, argv[1]) : NULL;
    if (part != NULL) return spw_command_run(part, argc, argv);
    return spw_fail(SPW_EARG, "calibrate what? spillway calibrate memory | time TABLE.csv... --stack NAME");
}
