#include "sim/command/trace_options.h"

static const struct argp_option options[] = {
    {"format", SPW_TRACE_OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    spw_trace_options *o = state->input;
    switch (key) {
    case SPW_TRACE_OPTION_FORMAT: o->format_text = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "one trace at a time, '%s' is a second", text);
        o->path = text;
        return 0;
    case ARGP_KEY_END:
        if (o->path == NULL) argp_error(state, "which trace? write: %s TRACE.h5", state->name);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp spw_trace_argp = {.options = options, .parser = parse};

spw_status spw_trace_options_format(const spw_trace_options *o, spw_format *out) {
    *out = SPW_FORMAT_TABLE;
    return o->format_text != NULL ? spw_format_parse(o->format_text, out) : SPW_OK;
}
