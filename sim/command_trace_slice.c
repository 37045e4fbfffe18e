#include "sim/command_trace.h"

#include "base/memory.h"
#include "sim/command.h"
#include "sim/job_options.h"
#include "traces/slice.h"
#include "traces/trace.h"

#include <stdint.h>
#include <string.h>

enum { OPTION_STEPS = 0x200, OPTION_LAYERS, OPTION_RANKS, OPTION_TOKENS, OPTION_LEVEL };

typedef struct slice_options {
    const char *in, *out, *steps, *layers, *ranks, *tokens, *level;
} slice_options;

static const struct argp_option options[] = {
    {"steps", OPTION_STEPS, "A:B|LIST", 0,
     "positions of the steps: half open, or a list as in 2,5 (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the layers, half open (default: all)", 0},
    {"ranks", OPTION_RANKS, "A:B", 0, "source ranks, half open; they are renumbered from 0 (default: all)",
     0},
    {"max-tokens", OPTION_TOKENS, "N", 0, "the first N tokens of every step (default: all)", 0},
    {"level", OPTION_LEVEL, "1..12", 0, "effort of the compression (default: 6)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
    slice_options *o = state->input;
    switch (key) {
    case OPTION_STEPS: o->steps = text; return 0;
    case OPTION_LAYERS: o->layers = text; return 0;
    case OPTION_RANKS: o->ranks = text; return 0;
    case OPTION_TOKENS: o->tokens = text; return 0;
    case OPTION_LEVEL: o->level = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "one trace in and one out, '%s' is a third", text);
        if (state->arg_num == 0) o->in = text;
        if (state->arg_num == 1) o->out = text;
        return 0;
    case ARGP_KEY_END:
        if (o->out == NULL)
            argp_error(state, "from where to where? write: spillway trace slice IN.h5 OUT.h5");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "IN.h5 OUT.h5",
    .doc = "Cuts steps, layers and source ranks out of a trace. Columns, weights, attributes, source and "
           "licence "
           "travel along.",
};

/* The positions of --steps, rising; the caller frees *out. */
static spw_status list_steps(const char *text, size_t steps, size_t **out, size_t *count) {
    spw_status status = SPW_OK;
    size_t begin = 0, end = 0;
    *count = 0;
    SPW_TRY(SPW_ALLOC(steps, out));
    if (text != NULL && strchr(text, ',') != NULL) {
        char number[32];
        for (const char *at = text; at != NULL; at = strchr(at, ',')) {
            if (*at == ',') at++;
            size_t length = strcspn(at, ",");
            uint64_t value = 0;
            if (length >= sizeof number || *count == steps) {
                SPW_TRY(spw_fail(SPW_EARG, "--steps %s: must be rising positions below %zu", text, steps));
            }
            memcpy(number, at, length);
            number[length] = '\0';
            SPW_TRY(spw_parse_count("--steps", number, steps - 1, &value));
            (*out)[(*count)++] = (size_t)value;
        }
        goto cleanup;
    }
    if (text != NULL) SPW_TRY(spw_parse_range("--steps", text, &begin, &end));
    if (end == 0) end = steps;
    if (begin >= end || end > steps)
        SPW_TRY(spw_fail(SPW_EARG, "--steps %s: the trace has %zu steps", text, steps));
    for (size_t step = begin; step < end; step++) (*out)[(*count)++] = step;

cleanup:
    return status;
}

spw_status spw_command_trace_slice(int argc, char **argv) {
    spw_status status = SPW_OK;
    slice_options o = {.in = NULL};
    spw_slice_settings settings = {.steps = 0};
    spw_trace *trace = NULL;
    size_t *step = NULL;
    uint64_t value = 0;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(spw_trace_open(o.in, &trace));
    const spw_trace_info *info = spw_trace_get_info(trace);
    SPW_TRY(list_steps(o.steps, info->steps, &step, &settings.steps));
    settings.step = step;
    if (o.layers != NULL)
        SPW_TRY(spw_parse_range("--layers", o.layers, &settings.layer_begin, &settings.layer_end));
    if (settings.layer_end == 0) settings.layer_end = info->layers;
    if (o.ranks != NULL) {
        SPW_TRY(spw_parse_range("--ranks", o.ranks, &settings.rank_begin, &settings.rank_end));
        if (settings.rank_end == 0) settings.rank_end = info->ranks;
        if (settings.rank_begin >= settings.rank_end) {
            SPW_TRY(spw_fail(SPW_EARG, "--ranks %s: the trace has %zu source ranks", o.ranks, info->ranks));
        }
    }
    if (o.tokens != NULL) SPW_TRY(spw_parse_count("--max-tokens", o.tokens, INT64_MAX, &value));
    settings.max_tokens = (size_t)value;
    value = 0;
    if (o.level != NULL) SPW_TRY(spw_parse_count("--level", o.level, 12, &value));
    settings.level = (int)value;
    spw_trace_close(trace);
    trace = NULL;
    SPW_TRY(spw_trace_slice(o.in, o.out, &settings));

cleanup:
    spw_trace_close(trace);
    spw_free(step);
    return status;
}
