#include "sim/command/trace/trace_options.h"

#include "base/child.h"
#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/print/plural.h"
#include "traces/trace.h"

#include <inttypes.h>

static const struct argp_option options[] = {
    {"format", SPW_TRACE_OPTION_FORMAT, "table|json|csv", 0, "how to print (default: table)", 0},
    {0},
};

static error_t trace_options_parse(int key, char *text, struct argp_state *state) {
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

const struct argp spw_trace_argp = {.options = options, .parser = trace_options_parse};

spw_status spw_trace_options_format(const spw_trace_options *o, spw_format *out) {
    *out = SPW_FORMAT_TABLE;
    return o->format_text != NULL ? spw_command_format(o->format_text, out) : SPW_OK;
}

void spw_print_trace_line(const char *path, const spw_trace_info *info, FILE *out) {
    char plain[4096];
    spw_plain_text(path, plain, sizeof plain);
    fprintf(out, "%s: %zu step%s, %zu MoE layer%s, top-%zu of %zu experts", plain, info->steps,
            spw_plural(info->steps), info->layers, spw_plural(info->layers), info->top_k, info->experts);
    if (info->has_tokens)
        fprintf(out, ", %" PRIu64 " token%s%s", info->tokens, spw_plural(info->tokens),
                info->has_weights ? " with weights" : "");
    if (!info->has_tokens) fprintf(out, ", counts only");
    if (info->ranks > 0) fprintf(out, ", %zu source rank%s", info->ranks, spw_plural(info->ranks));
    fprintf(out, info->synthetic ? ", synthetic\n" : "\n");
}

typedef struct written {
    const char *path;
    spw_trace_remark *remark;
} written;

static spw_status describe_written(void *context, FILE *out) {
    const written *w = context;
    spw_trace *trace = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_open(w->path, &trace));
    if (w->remark != NULL) SPW_TRY(w->remark(trace, out));
    (void)fprintf(out, "wrote ");
    spw_print_trace_line(w->path, spw_trace_get_info(trace), out);

cleanup:
    spw_trace_close(trace);
    return status;
}

void spw_print_trace_written(const char *path, spw_trace_remark *remark) {
    enum { CPU_SECONDS = 3600, MOST_BYTES = 1 << 16 };
    written w = {path, remark};
    char plain[4096], *text = NULL;
    size_t bytes = 0;
    spw_plain_text(path, plain, sizeof plain);
    if (spw_child_run(path, CPU_SECONDS, MOST_BYTES, describe_written, &w, &text, &bytes) == SPW_OK) {
        (void)fwrite(text, 1, bytes, spw_command_notes());
    } else {
        fprintf(spw_command_notes(), "wrote %s\n", plain);
    }
    spw_free(text);
    spw_forget_causes();
}
