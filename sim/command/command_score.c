#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/score/figures/score_layer_print.h"
#include "sim/score/kernels/dispatch_print.h"
#include "sim/score/kernels/own_layer_print.h"
#include "sim/score/megatron/measured_print.h"
#include "sim/score/published/score.h"
#include "sim/score/published/score_print.h"
#include "sim/score/table_kind.h"

#include <string.h>
#include <sys/stat.h>

enum { OPTION_STACK = 0x100, OPTION_TIME_STACK, OPTION_FORMAT, OPTION_TRACES };

typedef struct score_options {
    const char *table[SPW_SCORE_TABLES], *stack, *time_stack, *format_text, *traces;
    size_t tables;
} score_options;

static const struct argp_option options[] = {
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "predict every row with this stack (default: the one that the row names)", 0},
    {"time-stack", OPTION_TIME_STACK, "NAME|FILE", 0,
     "predict the time of every row with this time stack (default: the one that the row names)", 0},
    {"traces", OPTION_TRACES, "DIR", 0,
     "the traces of measured runs: their rows, drops and bytes are composed again", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    score_options *o = state->input;
    switch (key) {
    case OPTION_STACK: o->stack = text; return 0;
    case OPTION_TIME_STACK: o->time_stack = text; return 0;
    case OPTION_TRACES: o->traces = text; return 0;
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
    .args_doc = "TABLE.csv...",
    .doc = "Predictions beside published and compiled runs: verdict, GiB, tokens/s, interval, and how far "
           "off they are. "
           "Beside measured runs of PyTorch: rows, drops, bytes, allocated and reserved memory, "
           "milliseconds. Beside the "
           "bars of a published figure: what autograd keeps of one layer.",
};

static spw_status score_bars(const score_options *o, spw_format format) {
    spw_layer_score score = {.table = NULL};
    spw_status status = SPW_OK;
    if (o->tables > 1) return spw_fail(SPW_EARG, "a table of a figure's bars is scored alone");
    SPW_TRY(spw_layer_score_open(o->table[0], &score));
    SPW_TRY(spw_layer_score_print(&score, format, stdout));

cleanup:
    spw_layer_score_close(&score);
    return status;
}

spw_status spw_command_score(int argc, char **argv) {
    spw_status status = SPW_OK;
    score_options o = {.tables = 0};
    spw_score score = {.row = NULL};
    spw_format format = SPW_FORMAT_TABLE;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format_text != NULL) SPW_TRY(spw_format_parse(o.format_text, &format));
    struct stat there;
    if (o.traces != NULL && (stat(o.traces, &there) != 0 || !S_ISDIR(there.st_mode)))
        return spw_fail(SPW_EIO, "--traces %s: is no folder; name the one that holds the traces", o.traces);
    size_t of_kind[SPW_TABLE_KINDS] = {0};
    for (size_t i = 0; i < o.tables; i++) of_kind[spw_table_kind_of(o.table[i])]++;
    const size_t measured = of_kind[SPW_TABLE_RUNS] + of_kind[SPW_TABLE_PHASES] + of_kind[SPW_TABLE_CEILINGS];
    if (measured > 0 && measured == o.tables)
        return spw_measured_print(o.table, o.tables, o.traces,
                                  o.time_stack != NULL ? o.time_stack : SPW_MEASURED_STACK, format, stdout);
    if (of_kind[SPW_TABLE_BARS] > 0) return score_bars(&o, format);
    if (of_kind[SPW_TABLE_DISPATCH] + of_kind[SPW_TABLE_LAYERS] > 0) {
        if (o.tables > 1) return spw_fail(SPW_EARG, "a table of our own kernels is scored alone");
        return of_kind[SPW_TABLE_LAYERS] > 0 ? spw_own_layer_print(o.table[0], format, stdout)
                                             : spw_dispatch_print(o.table[0], format, stdout);
    }
    if (measured > 0) return spw_fail(SPW_EARG, "tables of measured runs are scored apart from the others");
    SPW_TRY(spw_score_open(o.table, o.tables, o.stack, o.time_stack, &score));
    SPW_TRY(spw_score_print(&score, format, stdout));

cleanup:
    spw_score_close(&score);
    return status;
}
