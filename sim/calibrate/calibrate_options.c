#include "sim/calibrate/calibrate_options.h"

#include "sim/command/command.h"

#include <stdio.h>

static error_t calibrate_options_parse(int key, char *text, struct argp_state *state) {
    spw_calibrate_options *o = state->input;
    switch (key) {
    case SPW_CALIBRATE_STACK:
        if (o->most_stacks == 1) o->stacks = 0;
        spw_command_add_word(text, state, o->stack, &o->stacks, o->most_stacks, "stacks");
        return 0;
    case SPW_CALIBRATE_FROM: o->from = text; return 0;
    case SPW_CALIBRATE_OUTPUT: o->output = text; return 0;
    case SPW_CALIBRATE_FORMAT: o->format_text = text; return 0;
    case SPW_CALIBRATE_LEAVE_OUT:
        spw_command_add_word(text, state, o->left_out, &o->left_outs, SPW_CALIBRATE_LEFT_OUT,
                             "rows left out");
        return 0;
    case ARGP_KEY_ARG:
        spw_command_add_word(text, state, o->table, &o->tables, SPW_SCORE_TABLES, "tables");
        return 0;
    case ARGP_KEY_END:
        if (o->tables == 0) argp_error(state, "no table; tables come in notebooks_data/");
        if (o->stacks == 0 && o->needs_stack)
            argp_error(state, "--stack is needed; it says whose rows are fitted");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

spw_status spw_calibrate_parse(const struct argp_option *rows, const char *args_doc, const char *doc,
                               int argc, char **argv, spw_calibrate_options *o) {
    const struct argp argp = {
        .options = rows, .parser = calibrate_options_parse, .args_doc = args_doc, .doc = doc};
    o->format = SPW_FORMAT_TABLE;
    const spw_status status = spw_command_parse(&argp, argc, argv, o);
    return status == SPW_OK && o->format_text != NULL ? spw_command_format(o->format_text, &o->format)
                                                      : status;
}

spw_status spw_calibrate_path(const char *folder, const char *name, size_t size, char *path) {
    const int length = snprintf(path, size, "%s/%s.yaml", folder, name);
    if (length >= 0 && (size_t)length < size) return SPW_OK;
    return spw_fail(SPW_EARG, "the path of %s in '%.60s...' is too long", name, folder);
}
