#include "sim/command/command.h"

#include "base/memory.h"
#include "sim/command/explain/explain_parts.h"
#include "sim/command/job_options.h"
#include "sim/job/grid.h"

#include <errno.h>
#include <string.h>

enum { OPTION_TRACE = SPW_OPTION_OWN, OPTION_RANK, OPTION_STACK, OPTION_TRAFFIC, OPTION_AS };

typedef struct explain_options {
    spw_job_options job;
    const char *trace_path, *rank, *stack, *peer;
    bool traffic;
} explain_options;

static const struct argp_option own_options[] = {
    {"trace", OPTION_TRACE, "FILE.h5", 0, "say also what the rank receives on this trace", 0},
    {"rank", OPTION_RANK, "N", 0, "the rank to explain (default: 0)", 0},
    {"stack", OPTION_STACK, "NAME|FILE|none", 0,
     "the memory that XLA needs, by the coefficients of this stack, instead of what must be live (default, "
     "and none)",
     0},
    {"as", OPTION_AS, "simumax|primus|megatron", 0, "what the formulas of this planner say, beside ours", 0},
    {"traffic", OPTION_TRAFFIC, NULL, 0, "every collective of a step instead of the memory", 0},
    {0},
};

static error_t explain_parse(int key, char *text, struct argp_state *state) {
    explain_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->job; return 0;
    case OPTION_TRACE: o->trace_path = text; return 0;
    case OPTION_RANK: o->rank = text; return 0;
    case OPTION_STACK: o->stack = strcmp(text, "none") != 0 ? text : NULL; return 0;
    case OPTION_AS: o->peer = text; return 0;
    case OPTION_TRAFFIC: o->traffic = true; return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected; a trace is named with --trace", text);
        return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_job_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .options = own_options,
    .parser = explain_parse,
    .args_doc = "--job JOB.yaml --scheme S [--trace TRACE.h5 --rank N]",
    .doc = "Where every byte of a rank's peak comes from: each component with its formula and its source.",
    .children = children,
};

/* Which explanation, and what does not go with it. */
static spw_status explain(explain_options *o) {
    const spw_job *job = &o->job.job;
    uint64_t rank = 0;
    if (o->peer != NULL)
        return o->rank != NULL || o->stack != NULL || o->traffic
                   ? spw_fail(SPW_EARG, "--as goes with --trace alone, not with --rank, --stack or --traffic")
                   : spw_explain_peer(&o->job, o->peer, o->trace_path);
    if (o->traffic)
        return o->trace_path != NULL || o->rank != NULL || o->stack != NULL
                   ? spw_fail(SPW_EARG,
                              "--traffic does not go with --trace, --rank or --stack; replay counts "
                              "the exchanges of a trace")
                   : spw_explain_traffic(&o->job);
    if (o->stack != NULL)
        return o->trace_path != NULL || o->rank != NULL
                   ? spw_fail(SPW_EARG,
                              "--stack does not go with --trace or --rank; every rank needs the same")
                   : spw_explain_compiled(&o->job, o->stack);
    if (o->rank != NULL) {
        const spw_status status = spw_parse_count(
            "--rank", o->rank, spw_grid_stage_gpus(job) / spw_grid_mesh_tensor(job) - 1, &rank);
        if (status != SPW_OK) return status;
        if (o->trace_path == NULL)
            return spw_fail(SPW_EARG, "--rank needs --trace: without a trace every rank holds the same");
    }
    return spw_explain_live(&o->job, o->trace_path, (size_t)rank);
}

spw_status spw_command_explain(int argc, char **argv) {
    spw_status status = SPW_OK;
    explain_options *o = NULL;
    SPW_TRY(SPW_ALLOC(1, &o));
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    SPW_TRY(spw_job_options_finish(&o->job));
    SPW_TRY(explain(o));

cleanup:
    if (o != NULL) spw_job_options_close(&o->job);
    spw_free(o);
    return status;
}
