#include "sim/command/plan/plan_options.h"

#include "sim/command/command.h"
#include "sim/job/job_check.h"

enum {
    OPTION_TRACE = SPW_OPTION_OWN,
    OPTION_ROUTING,
    OPTION_IMBALANCE,
    OPTION_STACK,
    OPTION_STEPS,
    OPTION_LAYERS,
    OPTION_TOKENS,
    OPTION_SEED,
    OPTION_ALLOCATOR,
    OPTION_DROPS,
    OPTION_ROUTING_STEPS,
    OPTION_ROUTING_TOKENS,
    OPTION_CHROME,
    OPTION_UNTIL,
    OPTION_MEMORY,
    OPTION_FLAGS,
    OPTION_ALL,
    OPTION_DETAILS,
    OPTION_EVERY_RANK,
    OPTION_NO_ALLOCATOR
};

static const struct argp_option own_options[] = {
    {"trace", OPTION_TRACE, "TRACE.h5", 0, "real routing: replay this trace", 0},
    {"routing", OPTION_ROUTING, "NAME[:KEY=VALUE,...]", 0,
     "routing that is generated, by the names of `trace generate --distribution` (default: reference, as "
     "uneven as a run late in training; balanced: without any unevenness but chance)",
     0},
    {"imbalance", OPTION_IMBALANCE, "X[,ep=N]", SPW_OPTION_LAST,
     "for times, rows, drops and memory that follows the routing: the fullest rank is chosen X times the "
     "mean at expert-parallel size N (default: the job's), and as much at other sizes as the same experts "
     "make",
     0},
    {"stack", OPTION_STACK, "NAME|FILE[,...]|none", 0,
     "software that is planned: memory and speed of compiled programs, speed of Megatron-Core (default: the "
     "newest of each known for the cluster); none: no times, and of compiled programs what must be live",
     0},
    {"steps", OPTION_STEPS, "A:B", 0, "positions of the trace's steps, half open (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the trace's layers, half open (default: all)", 0},
    {"tokens", OPTION_TOKENS, "N", 0,
     "what training on so many tokens takes, and costs with --price (default with a price: 1T); 300B, 1.5e12",
     0},
    {"seed", OPTION_SEED, "N", 0, "of draws and of generated routing (default: 1)", 0},
    {"allocator", OPTION_ALLOCATOR, "KEY:VALUE,...", 0,
     "PyTorch's allocator, as in PYTORCH_CUDA_ALLOC_CONF (default: the job's); it is replayed for schemes of "
     "PyTorch: what is reserved, and whether a step runs out",
     0},
    {"drop-at-most", OPTION_DROPS, "P", 0,
     "what is called fastest drops at most P percent of the assignments (default: 1)", 0},
    {"routing-steps", OPTION_ROUTING_STEPS, "N", 0,
     "steps of generated routing (default: as many as show how it changes, 1 where it does not)", 0},
    {"routing-tokens", OPTION_ROUTING_TOKENS, "N", 0,
     "most tokens of generated routing that are drawn for a step, in all its layers together, as 1M "
     "(default: "
     "1048576): fewer take less time, and rows and drops are less exact",
     0},
    {"until", OPTION_UNTIL, "oom|step=X[,...]", 0,
     "how uneven routing may get before a point runs out of memory, or its step takes X times the balanced "
     "one: of the family of --routing, of --trace as it is made more uneven, or of one hot GPU",
     0},
    {"memory", OPTION_MEMORY, "BYTES", 0,
     "most memory that the process may take, as 4GB: what is needed is said beforehand, and what cannot be "
     "held is refused",
     0},
    {"chrome-trace", OPTION_CHROME, "FILE.json", SPW_OPTION_WRITES,
     "also write the predicted step of every point as a Chrome trace, which Perfetto opens", 0},
    {"every-rank", OPTION_EVERY_RANK, NULL, 0,
     "replay the allocator of every rank of every stage (default: of the fullest 16)", 0},
    {"no-allocator", OPTION_NO_ALLOCATOR, NULL, 0,
     "what must be live alone, a lower bound: the allocator is not replayed", 0},
    {"flags", OPTION_FLAGS, "NAME", 0,
     "print the best point as what a framework reads, in place of tables: megatron, bridge, primus, maxtext "
     "or torchtitan",
     0},
    {"all", OPTION_ALL, NULL, 0, "print every point, not only those that no other beats; with the details",
     0},
    {"details", OPTION_DETAILS, NULL, 0,
     "print what the answer rests on, other answers, and the points that no other beats", 0},
    {0},
};

static error_t plan_parse(int key, char *text, struct argp_state *state) {
    spw_plan_options *o = state->input;
    const char **const target[] = {&o->trace_path, &o->routing, &o->imbalance,    &o->stack,
                                   &o->steps,      &o->layers,  &o->tokens,       &o->seed,
                                   &o->allocator,  &o->drops,   &o->extent.steps, &o->extent.tokens,
                                   &o->chrome,     &o->until,   &o->memory,       &o->flags};
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &o->job;
        state->child_inputs[1] = &o->search;
    } else if (key >= OPTION_TRACE && key <= OPTION_FLAGS) {
        *target[key - OPTION_TRACE] = text;
    } else if (key == OPTION_ALL || key == OPTION_DETAILS) {
        o->all = o->all || key == OPTION_ALL;
        o->search.details = true;
    } else if (key == OPTION_EVERY_RANK) {
        o->every_rank = true;
    } else if (key == OPTION_NO_ALLOCATOR) {
        o->no_allocator = true;
    } else if (key == ARGP_KEY_ARG) {
        argp_error(state, "'%s' is no option; a trace is given as --trace %s", text, text);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_child children[] = {
    {&spw_job_argp, 0, NULL, 0}, {&spw_search_argp, 0, NULL, 0}, {0}};
const struct argp spw_plan_argp = {
    .options = own_options,
    .parser = plan_parse,
    .args_doc = "--job JOB.yaml",
    .doc = "Sweeps schemes, parallel splits and batch sizes: what fits, what is fastest, what real routing "
           "costs.\v"
           "--expert-parallel takes a list, as in 4,8,16, or `all`.",
    .children = children,
};

/* What goes with a search, and what with a plan alone. */
spw_status spw_plan_options_check_search(const spw_plan_options *o) {
    const spw_status status = spw_search_options_check(&o->search);
    if (!o->search.asked || status != SPW_OK) return status;
    if (o->chrome != NULL || o->until != NULL || o->all)
        return spw_fail(SPW_EARG,
                        "--chrome-trace, --until and --all do not go with --search; ask them of the "
                        "point that it finds");
    if (o->job.job.part != SPW_PART_WHOLE) return spw_job_is_whole(&o->job.job, "--search");
    return SPW_OK;
}

static spw_status check_until(const spw_plan_options *o) {
    if (o->until == NULL) return SPW_OK;
    if (o->imbalance != NULL || o->tokens != NULL || o->chrome != NULL || o->all || o->drops != NULL)
        return spw_fail(SPW_EARG,
                        "--imbalance, --tokens, --chrome-trace, --all and --drop-at-most do not go with "
                        "--until, which answers with a limit of the routing and no cost; the family of "
                        "routings is --routing NAME, that of --trace, or one "
                        "hot GPU without them");
    if (o->flags != NULL) return spw_fail(SPW_EARG, "--flags does not go with --until");
    return SPW_OK;
}

spw_status spw_plan_options_check(const spw_plan_options *o) {
    const spw_status status = check_until(o);
    if (status != SPW_OK) return status;
    if (o->flags != NULL && o->job.format_text != NULL)
        return spw_fail(SPW_EARG,
                        "--flags prints a framework's own settings, which --format does not change; "
                        "leave one of both out");
    if (o->trace_path != NULL && o->routing != NULL)
        return spw_fail(SPW_EARG, "--trace and --routing both say what the routing is; write one");
    if (o->trace_path != NULL && o->extent.steps != NULL)
        return spw_fail(SPW_EARG,
                        "--routing-steps goes with generated routing; --steps chooses those of a trace");
    if (o->trace_path != NULL && o->extent.tokens != NULL)
        return spw_fail(SPW_EARG, "--routing-tokens goes with generated routing; a trace has its own");
    if (o->memory != NULL && (o->trace_path == NULL || o->search.asked))
        return spw_fail(
            SPW_EARG,
            "--memory %.40s: it bounds the memory of this process while a trace is replayed, and goes "
            "with --trace TRACE.h5 and without --search; leave it out here (a GPU's memory is the "
            "cluster's, and --memory-fraction X the share of it that may be used)",
            o->memory);
    return SPW_OK;
}
