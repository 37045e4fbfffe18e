#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/calibrate/calibrate_megatron_time.h"
#include "sim/calibrate/calibrate_options.h"
#include "sim/score/megatron/measured_print.h"

#include <math.h>
#include <stdio.h>

static const struct argp_option options[] = {
    {"stack", SPW_CALIBRATE_STACK, "NAME|FILE", 0,
     "gives the name and what is not fitted (default: " SPW_MEASURED_STACK ")", 0},
    {"output", SPW_CALIBRATE_OUTPUT, "DIR", 0, "write the fitted stack here, as NAME.yaml", 0},
    SPW_CALIBRATE_FORMAT_ROW,
    {0},
};
static const char args_doc[] = "RUNS.csv... PHASES.csv...";
static const char doc[] =
    "Fits the coefficients of the time of measured Megatron-Core stacks to their steps and phases.";

static spw_status print_coefficients(const spw_megatron_calibration *c, spw_format format) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(NULL, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++) {
        const spw_coefficient *after = spw_megatron_coefficient_of(&c->fitted, i);
        const double start = spw_megatron_coefficient_rows[i].start;
        spw_table_text(spw_table_in(t, "coefficient", "coefficient"), spw_megatron_coefficient_rows[i].key);
        spw_table_real(spw_table_in(t, "before", "before"), i < SPW_MEGATRON_FITTED ? start : after->value,
                       "%.4g");
        spw_table_real(spw_table_in(t, "value", "fitted"), after->value, "%.4g");
        spw_table_real(spw_table_in(t, "uncertainty", "+-"), after->uncertainty, "%.2g");
        spw_table_text(spw_table_in(t, "evidence", "evidence"), spw_evidence_name(after->evidence));
        spw_table_text(spw_table_in(t, "help", "help"), spw_megatron_coefficient_rows[i].help);
        spw_table_text(spw_table_in(t, "source", NULL), after->source);
    }
    status = spw_table_print(t, format, stdout);
    spw_table_destroy(t);
    return status;
}

static const spw_column left_out_columns[] = {
    {"label", "left out"},
    {"name", "name"},
    {"steps", "steps"},
    {"step_mean", "step %"},
    {"step_max", "most %"},
    {"ratios", "ratios"},
    {"ratio_median", "real/balanced %"},
    {NULL, NULL},
};

static spw_status print_left_out(const spw_megatron_calibration *c) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(left_out_columns, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < c->left_outs; i++) {
        const spw_measured_time_errors *e = &c->left_out[i].errors;
        spw_table_text(t, spw_measured_label_name(c->left_out[i].label));
        spw_table_text(t, c->left_out[i].name);
        spw_table_count(t, e->steps);
        spw_table_scaled(t, e->step_mean, 0.01, "%.2f");
        spw_table_scaled(t, e->step_max, 0.01, "%.2f");
        spw_table_count(t, e->ratios);
        spw_table_scaled(t, e->ratio_median, 0.01, "%.2f");
    }
    printf("\nErrors on what was left out of the fit:\n\n");
    status = spw_table_print(t, SPW_FORMAT_TABLE, stdout);
    spw_table_destroy(t);
    printf("\nThe interval is +-%.1f %%; it holds %zu of %zu steps whose routing was left out.\n",
           100.0 * expm1(c->fitted.half_width.value), c->left_out_inside, c->left_out_steps);
    return status;
}

spw_status spw_command_calibrate_megatron(int argc, char **argv) {
    spw_status status = SPW_OK;
    spw_calibrate_options o = {.most_stacks = 1};
    spw_megatron_calibration c = {.left_outs = 0};
    spw_measured_tables tables = {.runs = 0};
    char path[1024];
    SPW_TRY(spw_calibrate_parse(options, args_doc, doc, argc, argv, &o));
    SPW_TRY(spw_measured_tables_sort(o.table, o.tables, &tables));
    SPW_TRY(spw_calibrate_megatron_time(tables.run, tables.runs, tables.phase, tables.phases,
                                        o.stacks > 0 ? o.stack[0] : SPW_MEASURED_STACK, &c));
    SPW_TRY(print_coefficients(&c, o.format));
    if (o.format == SPW_FORMAT_TABLE) {
        SPW_TRY(spw_measured_time_print(&c.time, stdout));
        SPW_TRY(print_left_out(&c));
    }
    SPW_TRY(spw_command_said());
    if (o.output != NULL) {
        SPW_TRY(spw_calibrate_path(o.output, c.fitted.name, sizeof path, path));
        SPW_TRY(spw_megatron_coefficients_write(&c.fitted, path));
    }

cleanup:
    spw_measured_tables_free(&tables);
    spw_megatron_calibration_close(&c);
    return status;
}
