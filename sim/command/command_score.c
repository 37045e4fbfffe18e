#include "sim/command/command.h"

#include "sim/score/scorer.h"

#include <string.h>
#include <sys/stat.h>

enum { OPTION_STACK = 0x100, OPTION_TIME_STACK, OPTION_FORMAT, OPTION_TRACES, OPTION_CLUSTER };

typedef struct score_options {
    const char *table[SPW_SCORE_TABLES], *stack, *time_stack, *format_text, *traces, *cluster;
    size_t tables;
} score_options;

static const struct argp_option options[] = {
    {"stack", OPTION_STACK, "NAME|FILE", 0,
     "predict every row with this stack (default: the one that the row names)", 0},
    {"time-stack", OPTION_TIME_STACK, "NAME|FILE", 0,
     "predict the time of every row with this time stack (default: the one that the row names)", 0},
    {"traces", OPTION_TRACES, "DIR", 0,
     "the traces of measured runs: their rows, drops and bytes are composed again", 0},
    {"cluster", OPTION_CLUSTER, "NAME|FILE", 0,
     "where our own kernels, or whole models, were measured, for a table without a column `cluster`", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static error_t score_parse(int key, char *text, struct argp_state *state) {
    score_options *o = state->input;
    switch (key) {
    case OPTION_STACK: o->stack = text; return 0;
    case OPTION_TIME_STACK: o->time_stack = text; return 0;
    case OPTION_TRACES: o->traces = text; return 0;
    case OPTION_CLUSTER: o->cluster = text; return 0;
    case OPTION_FORMAT: o->format_text = text; return 0;
    case ARGP_KEY_ARG:
        spw_command_add_word(text, state, o->table, &o->tables, SPW_SCORE_TABLES, "tables");
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no table; tables come in notebooks_data/"); return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = score_parse,
    .args_doc = "TABLE.csv...",
    .doc = "Predictions beside published and compiled runs: verdict, GiB, tokens/s, interval, and how far "
           "off they are. Beside published training runs, a recipe a row: tokens/s and what fits. Beside "
           "measured runs of PyTorch, of layers or whole models: rows, drops, bytes, allocated and reserved "
           "memory, milliseconds. Beside the bars of a published figure: what autograd keeps of one layer.",
};

spw_status spw_command_score(int argc, char **argv) {
    spw_status status = SPW_OK;
    score_options o = {.tables = 0};
    spw_format format = SPW_FORMAT_TABLE;
    struct stat there;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format_text != NULL) SPW_TRY(spw_command_format(o.format_text, &format));
    if (o.traces != NULL && (stat(o.traces, &there) != 0 || !S_ISDIR(there.st_mode)))
        return spw_fail(SPW_EIO, "--traces %s: is no folder; name the one that holds the traces", o.traces);
    SPW_TRY(spw_score_tables(&(spw_score_request){.table = o.table,
                                                  .tables = o.tables,
                                                  .stack = o.stack,
                                                  .time_stack = o.time_stack,
                                                  .traces = o.traces,
                                                  .cluster = o.cluster,
                                                  .format = format,
                                                  .out = spw_command_out()}));

cleanup:
    return status;
}
