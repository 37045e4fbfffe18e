#include "sim/command/trace/command_trace.h"

#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/trace_options.h"
#include "traces/write/merge.h"

#include <stdint.h>

enum { OPTION_LEVEL = 0x200 };

typedef struct merge_options {
    const char *in, *out, *level;
} merge_options;

static const struct argp_option options[] = {
    {"level", OPTION_LEVEL, "1..12", 0, "effort of the compression (default: 6)", 0},
    {0},
};

static error_t trace_merge_parse(int key, char *text, struct argp_state *state) {
    merge_options *o = state->input;
    switch (key) {
    case OPTION_LEVEL: o->level = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1)
            argp_error(state, "one set of shards in and one trace out, '%s' is a third", text);
        if (state->arg_num == 0) o->in = text;
        if (state->arg_num == 1) o->out = text;
        return 0;
    case ARGP_KEY_END:
        if (o->out == NULL)
            argp_error(state, "from where to where? write: spillway trace merge FOLDER OUT.h5");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = trace_merge_parse,
    .args_doc = "FOLDER OUT.h5\nLIST.shards OUT.h5",
    .doc = "Puts shards of ranks and steps together to one trace. A shard that is missing or there twice is "
           "named, "
           "and nothing is written.",
};

spw_status spw_command_trace_merge(int argc, char **argv) {
    spw_status status = SPW_OK;
    merge_options o = {.in = NULL};
    uint64_t level = 0;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.level != NULL) SPW_TRY(spw_parse_count("--level", o.level, 12, &level));
    SPW_TRY(spw_trace_merge(o.in, o.out, (int)level));
    spw_print_trace_written(o.out, NULL);

cleanup:
    return status;
}
