#include "sim/command/command.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/processes.h"
#include "sim/command/job_options.h"
#include "sim/job/grid.h"
#include "sim/job/software.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/read/memory_snapshot.h"
#include "sim/replay/balance.h"
#include "sim/replay/largest_batch.h"
#include "sim/replay/replay.h"
#include "sim/replay/replay_memory.h"
#include "sim/replay/replay_row.h"
#include "sim/replay/result_answers.h"
#include "sim/replay/safe_factor.h"
#include "sim/replay/smallest_factor.h"
#include "sim/result/chrome_trace.h"
#include "sim/result/overload_print.h"
#include "sim/result/result_hdf5.h"
#include "sim/result/result_print.h"
#include "sim/result/row_cost.h"
#include "traces/trace.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct replay_options {
    spw_job_options job;
    const char *trace_path, *steps, *layers, *output, *seed, *stack, *drops, *fits, *allocator, *chrome,
        *tokens, *checkpoint, *balancer, *snapshot, *snapshot_stage, *memory;
    bool each_step, overload, advise, every_rank, no_allocator;
} replay_options;

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
     "of "
     "compiled programs and of Megatron-Core (default, and none: what must be live, no times)",
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
    replay_options *o = state->input;
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
static const struct argp argp = {
    .options = own_options,
    .parser = replay_parse,
    .args_doc = "TRACE.h5 --job JOB.yaml",
    .doc =
        "Replays a routing trace: what each GPU must hold, what crosses the links, which tokens are dropped.",
    .children = children,
};

/* Rows of one scheme stand together when every step has its own. */
static int by_scheme(const void *left, const void *right, void *context) {
    const spw_result_row *a = left, *b = right;
    const spw_job_options *o = context;
    size_t ia = 0, ib = 0;
    if (a->sequences != b->sequences) return a->sequences < b->sequences ? -1 : 1;
    for (size_t i = o->job.schemes; i-- > 0;) {
        if (strcmp(o->job.scheme[i], a->scheme.text) == 0) ia = i;
        if (strcmp(o->job.scheme[i], b->scheme.text) == 0) ib = i;
    }
    if (ia != ib) return ia < ib ? -1 : 1;
    return a->first_step < b->first_step ? -1 : a->first_step > b->first_step;
}

static size_t rows_of_steps(const spw_run_settings *settings, const replay_options *o) {
    return (settings->step_end - settings->step_begin) * o->job.job.schemes * o->job.job.batches;
}

/* Rows of every step, apart from those over all. */
static spw_status replay_steps(replay_options *o, const spw_replay_request *request, spw_result *steps) {
    spw_status status = spw_replay_fit_memory(request); /* before anything is kept */
    if (status == SPW_OK) status = spw_result_reserve(steps, request->kept_rows);
    for (size_t step = request->step_begin; step < request->step_end && status == SPW_OK; step++) {
        spw_replay_request one = *request;
        one.step_begin = step;
        one.step_end = step + 1;
        one.allocator = false; /* its state goes from step to step */
        one.sink = (spw_replay_sink){.state = NULL};
        one.first_row = steps->rows;
        status = spw_replay_run(&one, steps);
    }
    if (steps->row != NULL) qsort_r(steps->row, steps->rows, sizeof *steps->row, by_scheme, &o->job);
    return status;
}

/* What is wrong with the trace is said of its file. */
static spw_status within_trace(const replay_options *o, spw_status status) {
    const bool of_trace = status == SPW_EFORMAT || status == SPW_EIO;
    return of_trace && strstr(spw_last_error(), o->trace_path) == NULL
               ? spw_fail_within(status, "%s", o->trace_path)
               : status;
}

/* The stage that --snapshot has. */
static spw_status take_stage(replay_options *o) {
    const size_t stages = o->job.job.pipeline > 0 ? o->job.job.pipeline : 1;
    uint64_t stage = 0;
    if (o->snapshot_stage == NULL || strcmp(o->snapshot_stage, "0") == 0) return SPW_OK;
    const spw_status status = spw_parse_count("--snapshot-stage", o->snapshot_stage, stages, &stage);
    if (status != SPW_OK) return status;
    if (stage >= stages)
        return spw_fail(SPW_EARG, "--snapshot-stage %zu: the job has %zu stages, from 0 on", (size_t)stage,
                        stages);
    o->job.job.snapshot_stage = (size_t)stage;
    return SPW_OK;
}

static void say_if_idle(const char *option, const spw_result *result) {
    for (size_t i = 0; i < result->rows; i++) {
        if (result->row[i].reserved.there) return;
    }
    fprintf(spw_command_notes(),
            "spillway: %s has no effect here: it is replayed over all steps of schemes that allocate "
            "what arrives\n",
            option);
}

static spw_status print(const replay_options *o, const spw_result *shown, const spw_run_settings *settings) {
    const spw_format format = o->job.format;
    FILE *out = spw_command_out();
    spw_status status = SPW_OK;
    if (!(o->overload || o->advise || o->balancer != NULL) || format != SPW_FORMAT_CSV)
        SPW_TRY(spw_result_print(shown, settings, format, out));
    if (o->overload && format != SPW_FORMAT_JSON) SPW_TRY(spw_overload_print(shown, format, out));
    if (o->balancer != NULL && format != SPW_FORMAT_JSON) SPW_TRY(spw_balance_print(shown, format, out));
    if (o->advise && format != SPW_FORMAT_JSON) SPW_TRY(spw_safe_factors_print(shown, format, out));

cleanup:
    return status;
}

/* Options that say different things of the same replay. */
static spw_status check_together(const replay_options *o) {
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

static spw_status run(const replay_options *o, const spw_replay_request *request,
                      const spw_balancer_spec *balancer, spw_result *result) {
    return o->balancer != NULL ? spw_balance_run(request, balancer, result) : spw_replay_run(request, result);
}

/* The first reason why a scheme cannot be, at any batch of the job. */
static spw_status check_scheme(const spw_replay_request *q, const spw_scheme *scheme) {
    spw_status status = SPW_OK;
    for (size_t b = 0; b < q->job->batches && status == SPW_OK; b++) {
        const spw_point point = spw_point_of(q->job, scheme, q->job->sequences_per_gpu[b]);
        status = spw_replay_point_check(q, &point);
    }
    return status;
}

/* Schemes that do not go with the job or the trace are left out, and why; an error where none goes. */
static spw_status leave_out(spw_job_options *o, spw_trace *trace, spw_result *left) {
    const spw_replay_request request = {.trace = trace, .job = &o->job};
    size_t kept = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < o->job.schemes; i++) {
        const spw_status checked = check_scheme(&request, &o->scheme[i]);
        if (checked != SPW_OK && (checked != SPW_ECONFIG || o->job.schemes == 1)) return checked;
        if (checked != SPW_OK) {
            spw_refusal *refusal = NULL;
            SPW_TRY(spw_result_append_refusal(left, &refusal));
            *refusal = (spw_refusal){.expert = o->job.expert, .sequences = o->job.sequences_per_gpu[0]};
            memcpy(refusal->scheme, o->scheme[i].text, sizeof refusal->scheme);
            (void)snprintf(refusal->reason, sizeof refusal->reason, "%s", spw_last_error());
            continue;
        }
        if (kept < i) {
            o->scheme[kept] = o->scheme[i];
            memcpy(o->job.scheme[kept], o->job.scheme[i], sizeof o->job.scheme[kept]);
        }
        kept++;
    }
    if (kept == 0)
        return spw_fail(SPW_ECONFIG, "no scheme of this job can be; %s: %s", left->refusal[0].scheme,
                        left->refusal[0].reason);
    o->job.schemes = kept;

cleanup:
    return status;
}

/* Those that were left out, told with the result. */
static spw_status add_refusals(const spw_result *left, spw_result *result) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < left->refusals && status == SPW_OK; i++) {
        spw_refusal *refusal = NULL;
        status = spw_result_append_refusal(result, &refusal);
        if (status == SPW_OK) *refusal = left->refusal[i];
    }
    return status;
}

/* Opens what an earlier run of the same command has left: the same program, words and files. */
static spw_status open_checkpoint(const replay_options *o, int argc, char **argv, const spw_trace_info *info,
                                  spw_checkpoint **out) {
    if (o->checkpoint == NULL || !spw_process_is_first()) return SPW_OK;
    uint64_t run = spw_checkpoint_hash_file(0, "/proc/self/exe");
    for (int i = 1; i < argc; i++) {
        const char *value =
            argv[i][0] == '-' && strchr(argv[i], '=') != NULL ? strchr(argv[i], '=') + 1 : argv[i];
        const char *const written[] = {o->checkpoint, o->output, o->chrome};
        bool reads = true;
        for (size_t w = 0; w < sizeof written / sizeof *written; w++)
            reads = reads && (written[w] == NULL || strcmp(written[w], value) != 0);
        run = spw_checkpoint_hash(run, argv[i], strlen(argv[i]));
        if (reads) run = spw_checkpoint_hash_file(run, value);
    }
    run = spw_checkpoint_hash(run, info->step_id, info->steps * sizeof *info->step_id);
    run = spw_checkpoint_hash(run, info->step_tokens, info->steps * sizeof *info->step_tokens);
    return spw_checkpoint_open(o->checkpoint, run, out);
}

spw_status spw_command_replay(int argc, char **argv) {
    spw_status status = SPW_OK;
    replay_options *o = NULL;
    spw_trace *trace = NULL;
    spw_result result = {.rows = 0}, steps = {.rows = 0}, left = {.rows = 0},
               shown; /* shown: borrows of both */
    spw_result_file *file = NULL;
    spw_checkpoint *checkpoint = NULL;
    spw_software *software = NULL, *other = NULL;
    const spw_stack *newest = NULL;
    spw_memory_snapshot snapshot = {.events = 0};
    uint64_t seed = 1;
    double drops = 0.0, fits = 0.0;
    spw_balancer_spec balancer;
    spw_memory_bound bound, *memory = NULL;
    SPW_TRY(SPW_ALLOC(1, &o));
    SPW_TRY(SPW_ALLOC(1, &software));
    SPW_TRY(SPW_ALLOC(1, &other));
    o->job.schemes_alone = true;
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    spw_run_settings settings = {.command = "replay",
                                 .job_path = o->job.from != NULL ? o->job.from : o->job.job_path,
                                 .trace_path = o->trace_path};
    if (o->steps != NULL)
        SPW_TRY(spw_parse_range("--steps", o->steps, &settings.step_begin, &settings.step_end));
    if (o->layers != NULL)
        SPW_TRY(spw_parse_range("--layers", o->layers, &settings.layer_begin, &settings.layer_end));
    if (o->stack != NULL) {
        status = spw_software_read(o->stack, software);
        if (status != SPW_OK) SPW_TRY(spw_fail_within(status, "--stack"));
    }
    if (o->seed != NULL) SPW_TRY(spw_parse_count("--seed", o->seed, UINT32_MAX, &seed));
    if (o->drops != NULL) SPW_TRY(spw_parse_percent("--drop-at-most", o->drops, &drops));
    if (o->fits != NULL) SPW_TRY(spw_parse_percent("--fits-at", o->fits, &fits));
    SPW_TRY(spw_parse_memory(o->memory, &bound, &memory));
    if (o->tokens != NULL) SPW_TRY(spw_parse_amount("--tokens", o->tokens, "tokens", &settings.tokens));
    if (o->allocator != NULL) SPW_TRY(spw_job_options_put_allocator(&o->job, o->allocator));
    SPW_TRY(spw_job_options_finish(&o->job));
    SPW_TRY(check_together(o));
    if (o->balancer != NULL) SPW_TRY(spw_balancer_parse(o->balancer, &balancer));
    if (o->snapshot != NULL) {
        SPW_TRY(spw_memory_snapshot_read(o->snapshot, &snapshot));
        o->job.job.snapshot = &snapshot;
        SPW_TRY(take_stage(o));
    }
    SPW_TRY(spw_trace_open(o->trace_path, &trace));
    SPW_TRY(leave_out(&o->job, trace, &left));
    settings.job = &o->job.job;
    if (o->stack != NULL) SPW_TRY(spw_software_suits(o->stack, &settings.job->cluster));
    settings.tokens = spw_cost_tokens(settings.job, settings.tokens);
    if (software->compiled && spw_grid_is_plain(settings.job))
        SPW_TRY(spw_compiled_layouts_settle(&software->stack, o->job.scheme, settings.job->schemes));
    else if (!software->compiled)
        SPW_TRY(spw_newest_stack_read(settings.job, o->job.scheme, settings.job->schemes, other, &newest));
    settings.override = o->job.override;
    settings.overrides = o->job.overrides - (o->job.sequences != NULL);
    settings.seed = seed;
    settings.balancer = o->balancer;
    settings.stack = software->names[0] != '\0' ? o->stack : NULL;
    SPW_TRY(spw_software_measure(&settings.job->cluster, software));
    settings.stack_distance = software->distance;
    settings.memory_fit = software->compiled ? &software->stack : NULL;
    settings.time_fit = software->timed ? &software->time_stack : NULL;
    settings.megatron_fit = software->megatron ? &software->megatron_coefficients : NULL;
    spw_run_settings_bind(&settings, &o->job.job, spw_trace_get_info(trace));
    SPW_TRY(open_checkpoint(o, argc, argv, settings.trace, &checkpoint));
    if (o->output != NULL && spw_process_is_first())
        SPW_TRY(spw_result_file_create(o->output, &settings, o->job.scheme, &file));
    spw_replay_sink sink = spw_result_file_sink(file);
    sink.elsewhere = o->output != NULL && file == NULL;
    const spw_replay_request request = {.trace = trace,
                                        .job = settings.job,
                                        .scheme = o->job.scheme,
                                        .schemes = settings.job->schemes,
                                        .step_begin = settings.step_begin,
                                        .step_end = settings.step_end,
                                        .layer_begin = settings.layer_begin,
                                        .layer_end = settings.layer_end,
                                        .seed = seed,
                                        .overload = true,
                                        .allocator = !o->no_allocator,
                                        .every_rank = o->every_rank,
                                        .stack = software->compiled ? &software->stack : NULL,
                                        .newest = newest,
                                        .time_stack = software->timed ? &software->time_stack : NULL,
                                        .megatron =
                                            software->megatron ? &software->megatron_coefficients : NULL,
                                        .listed = settings.stack != NULL,
                                        .checkpoint = checkpoint,
                                        .memory = memory,
                                        .kept_rows = o->each_step ? rows_of_steps(&settings, o) : 0,
                                        .sink = sink};
    if (!o->each_step || o->output != NULL) status = run(o, &request, &balancer, &result);
    SPW_TRY(within_trace(o, status));
    SPW_TRY(add_refusals(&left, &result));
    if (o->allocator != NULL) say_if_idle("--allocator", &result);
    if (o->snapshot != NULL) say_if_idle("--snapshot", &result);
    if (o->drops != NULL) SPW_TRY(spw_smallest_factors(&request, drops, &result));
    if (o->advise) SPW_TRY(spw_safe_factors(&request, &result));
    if (o->fits != NULL) SPW_TRY(spw_largest_batches(&request, fits, &result));
    SPW_TRY(spw_result_answer(&result, o->drops != NULL ? drops : SPW_DROP_MOST));
    shown = result;
    if (o->each_step) {
        SPW_TRY(within_trace(o, replay_steps(o, &request, &steps)));
        shown.row = steps.row, shown.rows = steps.rows;
        shown.answers = (spw_result_answers){.there = false}; /* those are of rows over all steps */
    }
    if (o->chrome != NULL && spw_process_is_first())
        SPW_TRY(spw_chrome_trace_write(&shown, &settings, o->chrome));
    SPW_TRY(print(o, &shown, &settings));
    SPW_TRY(spw_command_said());
    if (file != NULL) SPW_TRY(spw_result_file_commit(file, &result));
    spw_checkpoint_finish(checkpoint);
    checkpoint = NULL;

cleanup:
    spw_checkpoint_close(checkpoint);
    spw_result_file_discard(file);
    spw_result_clear(&result);
    spw_result_clear(&steps);
    spw_result_clear(&left);
    spw_trace_close(trace);
    spw_memory_snapshot_destroy(&snapshot);
    spw_free(software);
    spw_free(other);
    if (o != NULL) spw_job_options_close(&o->job);
    spw_free(o);
    return status;
}
