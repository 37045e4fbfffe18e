#include "sim/command/replay_options.h"

#include "sim/command/command.h"

enum {
    OPTION_STEPS = SPW_OPTION_OWN,
    OPTION_LAYERS,
    OPTION_OUTPUT,
    OPTION_SEED,
    OPTION_EACH_STEP,
    OPTION_DROPS,
    OPTION_FITS,
    OPTION_ALLOCATOR,
    OPTION_CHECKPOINT,
    OPTION_STACK,
    OPTION_OVERLOAD,
    OPTION_TOKENS,
    OPTION_ADVISE,
    OPTION_CHROME,
    OPTION_BALANCER,
    OPTION_SNAPSHOT,
    OPTION_SNAPSHOT_STAGE,
    OPTION_EVERY_RANK,
    OPTION_NO_ALLOCATOR,
    OPTION_MEMORY
};

static const struct argp_option own_options[] = {
    {"snapshot-stage", OPTION_SNAPSHOT_STAGE, "N", 0,
     "the pipeline stage of the rank that was recorded (default: 0); no other is replayed", 0},
    {"steps", OPTION_STEPS, "A:B", 0, "positions of the trace's steps, half open (default: all)", 0},
    {"layers", OPTION_LAYERS, "A:B", 0, "positions of the trace's layers, half open (default: all)", 0},
    {"each-step", OPTION_EACH_STEP, NULL, 0, "a row for every step instead of one over all", 0},
    {"overload", OPTION_OVERLOAD, NULL, 0,
     "also print overload factors by layer and over the steps, with the step time that each costs (CSV: "
     "instead; JSON and "
     "--output always have them)",
     0},
    {"advise", OPTION_ADVISE, NULL, 0,
     "also find the smallest capacity factor, buffer factor or budget with which no step, 0.1 % or 1 % of "
     "the "
     "steps overflow, what an overflow costs and what memory is saved (CSV: instead)",
     0},
    {"tokens", OPTION_TOKENS, "N", 0,
     "also what training on so many tokens takes, and costs with --price; 300B, 1T, 1.5e12", 0},
    {"balancer", OPTION_BALANCER, "NAME:replicas=N,every=STEPS", 0,
     "place and copy experts by past load, eplb[,hierarchical] or echo, and compare with no balancer: "
     "max/mean, memory, "
     "traffic of copies and moves, step time (CSV: instead)",
     0},
    {"output", OPTION_OUTPUT, "FILE.h5", SPW_OPTION_WRITES,
     "also write rows, bytes and drops per step, layer and rank", 0},
    {"snapshot", OPTION_SNAPSHOT, "FILE.json", 0,
     "what the whole job reserves: a recording of PyTorch's memory of one balanced rank, in which the expert "
     "layers get the trace's rows (megatron-alltoall; docs/snapshot.md)",
     0},
    {"chrome-trace", OPTION_CHROME, "FILE.json", SPW_OPTION_WRITES,
     "also write the predicted step of every row as a Chrome trace, which Perfetto opens", 0},
    {"checkpoint", OPTION_CHECKPOINT, "FILE", SPW_OPTION_WRITES,
     "keep what is done in FILE: after a kill, the same command goes on there, and gives the same bytes", 0},
    {"memory", OPTION_MEMORY, "BYTES", 0,
     "most memory that the process may take, as 4GB: what is needed is said beforehand, and what cannot be "
     "held is refused",
     0},
    {"stack", OPTION_STACK, "NAME|FILE[,...]|none", 0,
     "by the coefficients of this software: memory of compiled programs as XLA's arena holds it, step times "
     "of compiled programs and of Megatron-Core (default, and none: no times, and of compiled programs what "
     "must be live; PyTorch's allocator needs no stack); plan says which it takes by itself",
     0},
    {"seed", OPTION_SEED, "N", 0, "of the draws when the trace has to be resampled (default: 1)", 0},
    {"allocator", OPTION_ALLOCATOR, "KEY:VALUE,...", 0,
     "PyTorch's allocator, as in PYTORCH_CUDA_ALLOC_CONF (default: the job's)", 0},
    {"no-allocator", OPTION_NO_ALLOCATOR, NULL, 0,
     "what must be live alone, a lower bound: the allocator is not replayed", 0},
    {"every-rank", OPTION_EVERY_RANK, NULL, 0,
     "replay the allocator of every rank of every stage (default: of the fullest 16)", 0},
    {"drop-at-most", OPTION_DROPS, "PERCENT", 0,
     "also find the smallest capacity or buffer factor that drops no more", 0},
    {"fits-at", OPTION_FITS, "PERCENT", 0,
     "also find the largest number of sequences per GPU that fits in so many of the steps, as 99.9", 0},
    {0},
};

static error_t replay_parse(int key, char *text, struct argp_state *state) {
    spw_replay_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->job; return 0;
    case OPTION_STEPS: o->steps = text; return 0;
    case OPTION_LAYERS: o->layers = text; return 0;
    case OPTION_OUTPUT: o->output = text; return 0;
    case OPTION_SEED: o->seed = text; return 0;
    case OPTION_STACK: o->stack = text; return 0;
    case OPTION_ALLOCATOR: o->allocator = text; return 0;
    case OPTION_CHECKPOINT: o->checkpoint = text; return 0;
    case OPTION_DROPS: o->drops = text; return 0;
    case OPTION_FITS: o->fits = text; return 0;
    case OPTION_TOKENS: o->tokens = text; return 0;
    case OPTION_EACH_STEP: o->each_step = true; return 0;
    case OPTION_OVERLOAD: o->overload = true; return 0;
    case OPTION_ADVISE: o->advise = true; return 0;
    case OPTION_EVERY_RANK: o->every_rank = true; return 0;
    case OPTION_NO_ALLOCATOR: o->no_allocator = true; return 0;
    case OPTION_CHROME: o->chrome = text; return 0;
    case OPTION_BALANCER: o->balancer = text; return 0;
    case OPTION_SNAPSHOT: o->snapshot = text; return 0;
    case OPTION_SNAPSHOT_STAGE: o->snapshot_stage = text; return 0;
    case OPTION_MEMORY: o->memory = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "one trace at a time, '%s' is a second", text);
        o->trace_path = text;
        return 0;
    case ARGP_KEY_END:
        if (o->trace_path == NULL)
            argp_error(state, "which trace? write: spillway replay TRACE.h5 --job JOB.yaml");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_job_argp, 0, NULL, 0}, {0}};
const struct argp spw_replay_argp = {
    .options = own_options,
    .parser = replay_parse,
    .args_doc = "TRACE.h5 --job JOB.yaml",
    .doc =
        "Replays a routing trace: what each GPU must hold, what crosses the links, which tokens are dropped.",
    .children = children,
};

spw_status spw_replay_options_check(const spw_replay_options *o) {
    const int tables = o->overload + o->advise + (o->balancer != NULL);
    if (tables > 1 && o->job.format == SPW_FORMAT_CSV)
        return spw_fail(
            SPW_EARG, "--format csv is one table: one of --overload, --advise and --balancer would be right");
    if (o->balancer != NULL && (o->each_step || o->advise || o->drops != NULL || o->fits != NULL))
        return spw_fail(
            SPW_EARG,
            "--balancer compares whole replays: --each-step, --advise, --drop-at-most and --fits-at go "
            "without it");
    return SPW_OK;
}
