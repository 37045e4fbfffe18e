#include "sim/command/trace/command_trace.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/trace_options.h"
#include "sim/verify/trace_record.h"
#include "traces/trace.h"
#include "traces/write/slice.h"

#include <stdint.h>
#include <string.h>

enum {
    OPTION_STEPS = 0x200,
    OPTION_LAYERS,
    OPTION_RANKS,
    OPTION_TOKENS,
    OPTION_LEVEL,
    OPTION_RECORD,
    OPTION_STEP,
    OPTION_LAYER,
    OPTION_GROUP,
    OPTION_EXPERT
};

typedef struct slice_options {
    const char *in, *out, *steps, *layers, *ranks, *tokens, *level;
    const char *record, *step, *layer, *group, *expert_parallel;
} slice_options;

static const struct argp_option options[] = {
    {"steps", OPTION_STEPS, "A:B|LIST", 0,
     "positions of the steps: half open, or a list as in 2,5 (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the layers, half open (default: all)", 0},
    {"ranks", OPTION_RANKS, "A:B", 0,
     "positions of the source ranks, half open; their numbers stay (default: all)", 0},
    {"max-tokens", OPTION_TOKENS, "N", 0, "the first N tokens of every step (default: all)", 0},
    {"level", OPTION_LEVEL, "1..12", 0, "effort of the compression (default: 6)", 0},
    {"record", OPTION_RECORD, "FILE", SPW_OPTION_WRITES,
     "instead of OUT.h5: the choices of one group as text for spillway-verify, with what the simulator "
     "predicts",
     1},
    {"step", OPTION_STEP, "S", 0, "position of the record's step (default: 0)", 1},
    {"layer", OPTION_LAYER, "L", 0, "position of the record's layer (default: 0)", 1},
    {"group", OPTION_GROUP, "G", 0, "expert-parallel group of the record (default: 0)", 1},
    {"expert-parallel", OPTION_EXPERT, "R", 0,
     "ranks of a group (default: the most that divide the experts, up to 8)", 1},
    {0},
};

static error_t trace_slice_parse(int key, char *text, struct argp_state *state) {
    slice_options *o = state->input;
    switch (key) {
    case OPTION_STEPS: o->steps = text; return 0;
    case OPTION_LAYERS: o->layers = text; return 0;
    case OPTION_RANKS: o->ranks = text; return 0;
    case OPTION_TOKENS: o->tokens = text; return 0;
    case OPTION_LEVEL: o->level = text; return 0;
    case OPTION_RECORD: o->record = text; return 0;
    case OPTION_STEP: o->step = text; return 0;
    case OPTION_LAYER: o->layer = text; return 0;
    case OPTION_GROUP: o->group = text; return 0;
    case OPTION_EXPERT: o->expert_parallel = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "one trace in and one out, '%s' is a third", text);
        if (state->arg_num == 0) o->in = text;
        if (state->arg_num == 1) o->out = text;
        return 0;
    case ARGP_KEY_END:
        if (o->record != NULL) {
            if (o->in == NULL || o->out != NULL || o->steps != NULL || o->layers != NULL ||
                o->ranks != NULL || o->tokens != NULL || o->level != NULL)
                argp_error(state, "a record is one group: write: spillway trace slice IN.h5 --record FILE "
                                  "--step S --layer L [--group G --expert-parallel R]");
            return 0;
        }
        if (o->step != NULL || o->layer != NULL || o->group != NULL || o->expert_parallel != NULL)
            argp_error(state, "--step, --layer, --group and --expert-parallel belong to --record");
        if (o->out == NULL)
            argp_error(state, "from where to where? write: spillway trace slice IN.h5 OUT.h5");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = trace_slice_parse,
    .args_doc = "IN.h5 OUT.h5\nIN.h5 --record FILE",
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

static spw_status write_record(const slice_options *o) {
    spw_status status = SPW_OK;
    spw_trace_record_settings settings = {.step = 0};
    const struct {
        const char *option, *text;
        size_t *out;
    } numbers[] = {{"--step", o->step, &settings.step},
                   {"--layer", o->layer, &settings.layer},
                   {"--group", o->group, &settings.group},
                   {"--expert-parallel", o->expert_parallel, &settings.expert_parallel}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint64_t value = 0;
        if (numbers[i].text != NULL)
            SPW_TRY(spw_parse_count(numbers[i].option, numbers[i].text, UINT32_MAX, &value));
        *numbers[i].out = (size_t)value;
    }
    SPW_TRY(spw_trace_record_save(o->in, o->record, &settings));
    fprintf(spw_command_notes(),
            "wrote %s: expert-parallel group %zu of step position %zu, layer position %zu\n", o->record,
            settings.group, settings.step, settings.layer);

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
    if (o.record != NULL) return write_record(&o);
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
    spw_print_trace_written(o.out, NULL);

cleanup:
    spw_trace_close(trace);
    spw_free(step);
    return status;
}
