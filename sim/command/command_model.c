#include "sim/command/command.h"

#include "sim/command/job_options.h"
#include "sim/command/model/model_print.h"
#include "sim/command/model/model_tables.h"

#include <math.h>
#include <stdio.h>

enum {
    OPTION_CHECK = 0x100,
    OPTION_LENGTH,
    OPTION_FORMAT,
    OPTION_DIFF,
    OPTION_LAYERS,
    USUAL_LENGTH = 4096,
    LONGEST = 1 << 24
};
static const double AGREES = 0.01;

typedef struct model_options {
    const char *name, *second, *check, *length, *format;
    bool diff, layers;
} model_options;

static const struct argp_option options[] = {
    {"check", OPTION_CHECK, "N", 0,
     "a published total, as in 355e9 or 355B; exit status 1 when the model's is more than 1 % away", 0},
    {"sequence-length", OPTION_LENGTH, "S", 0,
     "tokens over which attention looks, for its work (default: 4096)", 0},
    {"diff", OPTION_DIFF, NULL, 0, "of two models, the lines in which they differ: spillway model --diff A B",
     0},
    {"layers", OPTION_LAYERS, NULL, 0, "every kind of layer with its matrices, in the place of the parts", 0},
    {"format", OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static void check_names(struct argp_state *state, const model_options *o) {
    if (o->name == NULL)
        argp_error(state, "which model? write: spillway model glm-4.5, or the path of a config.json");
    if (o->second != NULL && !o->diff)
        argp_error(state, "one model at a time, '%s' is a second; to compare two, write --diff", o->second);
    if (o->diff && o->second == NULL)
        argp_error(state, "--diff compares two models: spillway model --diff A B");
    if (o->layers && (o->diff || o->check != NULL || o->length != NULL))
        argp_error(state, "--layers goes with --format alone");
    if (o->diff && (o->check != NULL || o->length != NULL))
        argp_error(state, "--diff compares shapes; %s is of one model",
                   o->check != NULL ? "--check" : "--sequence-length");
}

static error_t model_parse(int key, char *text, struct argp_state *state) {
    model_options *o = state->input;
    switch (key) {
    case OPTION_CHECK: o->check = text; return 0;
    case OPTION_LENGTH: o->length = text; return 0;
    case OPTION_FORMAT: o->format = text; return 0;
    case OPTION_DIFF: o->diff = true; return 0;
    case OPTION_LAYERS: o->layers = true; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "two models at most, '%s' is a third", text);
        *(state->arg_num == 0 ? &o->name : &o->second) = text;
        return 0;
    case ARGP_KEY_END: check_names(state, o); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = model_parse,
    .args_doc = "PRESET|CONFIG.json\n--diff PRESET|CONFIG.json PRESET|CONFIG.json",
    .doc = "What a model is made of: parameters in all and at work on a token, by part; layers by kind; "
           "memory of the "
           "weights; operations a token; what is not modelled. A model is a preset or the config.json of a "
           "Hugging Face "
           "repository.",
};

spw_status spw_command_model(int argc, char **argv) {
    spw_status status = SPW_OK;
    model_options o = {.name = NULL};
    spw_model model, second;
    spw_model_check check = {.published = 0.0};
    spw_format format = SPW_FORMAT_TABLE;
    uint64_t length = USUAL_LENGTH;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.format != NULL) SPW_TRY(spw_command_format(o.format, &format));
    if (o.length != NULL) SPW_TRY(spw_parse_count("--sequence-length", o.length, LONGEST, &length));
    if (o.check != NULL) SPW_TRY(spw_parse_amount("--check", o.check, "parameters", &check.published));
    SPW_TRY(spw_model_read(o.name, NULL, &model));
    if (o.diff) {
        SPW_TRY(spw_model_read(o.second, NULL, &second));
        SPW_TRY(spw_model_diff(&model, &second, format));
        goto cleanup;
    }
    if (o.layers) {
        SPW_TRY(spw_layer_table_print(&model, format));
        goto cleanup;
    }
    const double total = (double)spw_model_parameters(&model).total;
    if (o.check != NULL) check.agrees = fabs(total / check.published - 1.0) <= AGREES;
    SPW_TRY(spw_model_print(&model, (size_t)length, &check, format));
    if (o.check != NULL && !check.agrees)
        status = spw_fail(SPW_EMISMATCH, "%s: %.4g B parameters, not the %.4g B of --check", model.name,
                          total / 1e9, check.published / 1e9);

cleanup:
    return status;
}
