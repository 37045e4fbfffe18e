#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/replay/table.h"
#include "sim/score/calibrate_megatron_time.h"
#include "sim/score/measured_print.h"
#include "sim/score/score_print.h"

#include <stdio.h>

enum { OPTION_STACK = 0x100, OPTION_OUTPUT, OPTION_FORMAT };

typedef struct time_options {
    const char *table[SPW_SCORE_TABLES], *stack, *output, *format_text;
    size_t tables;
} time_options;

static const struct argp_option options[] = {
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "gives the name and what is not fitted (default: " SPW_MEASURED_STACK ")", 0},
    {"output", OPTION_OUTPUT, "DIR", 0, "write the fitted stack here, as NAME.yaml", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0,
     "how to print the coefficients (default: table, with residuals)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    time_options *o = state->input;
    switch (key) {
    case OPTION_STACK: o->stack = text; return 0;
    case OPTION_OUTPUT: o->output = text; return 0;
    case OPTION_FORMAT: o->format_text = text; return 0;
    case ARGP_KEY_ARG:
        if (o->tables == SPW_SCORE_TABLES) argp_error(state, "more than %d tables", SPW_SCORE_TABLES);
        o->table[o->tables++] = text;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no table; tables come in notebooks_data/"); return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "RUNS.csv... PHASES.csv...",
    .doc = "Fits the coefficients of the time of measured Megatron-Core stacks to their steps and phases.",
};

static const spw_column columns[] = {
    {"coefficient", "coefficient"}, {"before", "before"}, {"value", "fitted"}, {"uncertainty", "+-"},
    {"evidence", "evidence"},       {"help", "help"},     {"source", NULL},    {NULL, NULL},
};

static spw_status print_coefficients(const spw_megatron_calibration *c, spw_format format) {
    spw_table *t = NULL;
    spw_status status = spw_table_create(columns, &t);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++) {
        const spw_coefficient *after = spw_megatron_coefficient_of(&c->fitted, i);
        const double start = spw_megatron_coefficient_rows[i].start;
        spw_table_text(t, spw_megatron_coefficient_rows[i].key);
        spw_table_real(t, i < SPW_MEGATRON_FITTED ? start : after->value, "%.4g");
        spw_table_real(t, after->value, "%.4g");
        spw_table_real(t, after->uncertainty, "%.2g");
        spw_table_text(t, spw_evidence_name(after->evidence));
        spw_table_text(t, spw_megatron_coefficient_rows[i].help);
        spw_table_text(t, after->source);
    }
    status = spw_table_print(t, format, stdout);
    spw_table_destroy(t);
    return status;
}

static spw_status write_stack(const spw_megatron_coefficients *c, const char *folder) {
    char path[1024];
    const int length = snprintf(path, sizeof path, "%s/%s.yaml", folder, c->name);
    if (length < 0 || (size_t)length >= sizeof path)
        return spw_fail(SPW_EARG, "the path of %s in '%.60s...' is too long", c->name, folder);
    return spw_megatron_coefficients_write(c, "Written by spillway calibrate time.", path);
}

spw_status spw_command_calibrate_megatron(int argc, char **argv) {
    spw_status status = SPW_OK;
    time_options o = {.stack = SPW_MEASURED_STACK};
    spw_megatron_calibration c = {.shapes = 0};
    spw_measured_tables tables = {.runs = 0};
    spw_format format = SPW_FORMAT_TABLE;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format_text != NULL) SPW_TRY(spw_format_parse(o.format_text, &format));
    SPW_TRY(spw_measured_tables_sort(o.table, o.tables, &tables));
    SPW_TRY(spw_calibrate_megatron_time(tables.run, tables.runs, tables.phase, tables.phases, o.stack, &c));
    SPW_TRY(print_coefficients(&c, format));
    if (format == SPW_FORMAT_TABLE) {
        SPW_TRY(spw_measured_time_print(&c.time, stdout));
        for (size_t s = 0; s < c.shapes; s++)
            printf("without %s in the fit, on its %zu steps: mean |error| %.2f %%, most %.2f %%\n",
                   c.shape[s].model, c.shape[s].errors.steps, 100.0 * c.shape[s].errors.step_mean,
                   100.0 * c.shape[s].errors.step_max);
    }
    if (o.output != NULL) SPW_TRY(write_stack(&c.fitted, o.output));

cleanup:
    spw_measured_tables_free(&tables);
    spw_megatron_calibration_close(&c);
    return status;
}
