#include "sim/command/command.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/processes.h"
#include "base/temporary.h"
#include "base/text.h"
#include "sim/command/job_options.h"
#include "sim/command/plan/plan_balanced.h"
#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_flags.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/command/plan/plan_print.h"
#include "sim/command/plan/plan_routing.h"
#include "sim/command/plan/plan_search.h"
#include "sim/command/plan/plan_until.h"
#include "sim/job/grid.h"
#include "sim/job/job_check.h"
#include "sim/job/software.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/plan/plan_points.h"
#include "sim/print/plural.h"
#include "sim/result/chrome_trace.h"
#include "sim/result/row_cost.h"
#include "sim/time/megatron/megatron_load.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

typedef struct plan_options {
    spw_job_options job;
    const char *trace_path, *routing, *imbalance, *stack, *steps, *layers, *tokens, *seed, *allocator, *drops,
        *chrome, *until, *memory, *flags;
    spw_routing_extent extent;
    spw_search_options search;
    bool all, every_rank, no_allocator;
} plan_options;

static const struct argp_option own_options[] = {
    {"trace", OPTION_TRACE, "TRACE.h5", 0, "real routing: replay this trace", 0},
    {"routing", OPTION_ROUTING, "NAME[:KEY=VALUE,...]", 0,
     "routing that is generated, by the names of `trace generate --distribution` (default: reference, as "
     "uneven as a run late in training; uniform: without any unevenness but chance)",
     0},
    {"imbalance", OPTION_IMBALANCE, "X[,ep=N]", SPW_OPTION_LAST,
     "for times, rows, drops and memory that follows the routing: the fullest rank is chosen X times the "
     "mean at expert-parallel size N (default: the job's), and as much at other sizes as the same experts "
     "make",
     0},
    {"stack", OPTION_STACK, "NAME|FILE[,...]|none", 0,
     "software that is planned: memory and speed of compiled programs, speed of Megatron-Core (default: the "
     "newest of each known for the cluster); none: what must be live, no times",
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
    plan_options *o = state->input;
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
static const struct argp argp = {
    .options = own_options,
    .parser = plan_parse,
    .args_doc = "--job JOB.yaml",
    .doc = "Sweeps schemes, parallel splits and batch sizes: what fits, what is fastest, what real routing "
           "costs.\v"
           "--expert-parallel takes a list, as in 4,8,16, or `all`.",
    .children = children,
};

/* The list of --expert-parallel, or all sizes. */
static spw_status parse_splits(const char *text, const spw_job *job, spw_plan_request *request) {
    char copy[256], *rest = NULL;
    if (strcmp(text, "all") == 0) {
        request->splits = spw_plan_all_splits(job, request->expert);
        return SPW_OK;
    }
    if (strlen(text) >= sizeof copy)
        return spw_fail(SPW_EARG, "--expert-parallel: a list of over 255 characters");
    if (spw_text_has_gap(text))
        return spw_fail(SPW_EARG, "--expert-parallel '%s': an empty place; write a list as in 4,8,16", text);
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        uint64_t value = 0;
        spw_status status = spw_parse_count("--expert-parallel", part, 1 << 20, &value);
        if (status != SPW_OK) return status;
        if (value > 0 && job->expert * job->fsdp % value != 0)
            status = spw_job_fail_expert_size(job, (size_t)value, job->expert * job->fsdp);
        if (status != SPW_OK) return spw_fail_within(SPW_EARG, "--expert-parallel %s", text);
        if (value == 0 || request->splits == SPW_PLAN_SPLITS)
            return spw_fail(SPW_EARG,
                            "--expert-parallel %s: write 1 to %d sizes above 0, as in 4,8,16, or all", text,
                            SPW_PLAN_SPLITS);
        request->expert[request->splits++] = (size_t)value;
    }
    return request->splits > 0
               ? SPW_OK
               : spw_fail(SPW_EARG, "--expert-parallel '%s': write a list as in 4,8,16", text);
}

static spw_status choose_software(const char *names, spw_job_options *o, spw_software *software,
                                  spw_software *other, spw_plan_request *request) {
    const bool compiled =
        o->job.part == SPW_PART_WHOLE && spw_schemes_have_programs(o->scheme, o->job.schemes);
    bool megatron = false, listed = false;
    for (size_t i = 0; i < o->job.schemes; i++) {
        megatron = megatron || spw_scheme_asks_megatron(o->scheme[i].type);
        listed = listed || o->scheme[i].type->memory.whole_steps;
    }
    spw_status status = names == NULL ? spw_software_newest(&o->job, compiled, megatron, software)
                                      : spw_software_read(names, software);
    if (status == SPW_OK && names != NULL) status = spw_software_suits(names, &o->job.cluster);
    if (status == SPW_OK) status = spw_software_measure(&o->job.cluster, software);
    if (status != SPW_OK) return spw_fail_within(status, "--stack (or none)");
    request->listed = listed && (names == NULL || strcmp(names, "none") != 0);
    if (software->compiled) {
        request->stack = &software->stack;
        request->stack_assumed = names == NULL;
        if (spw_grid_is_plain(&o->job))
            status = spw_compiled_layouts_settle(&software->stack, o->scheme, o->job.schemes);
        if (status != SPW_OK) return spw_fail_within(status, "--scheme");
    }
    if (software->timed) request->time_stack = &software->time_stack;
    if (software->megatron) request->megatron = &software->megatron_coefficients;
    return software->compiled
               ? SPW_OK
               : spw_newest_stack_read(&o->job, o->scheme, o->job.schemes, other, &request->newest);
}

/* A point is planned once, however often its batch, split or scheme is named. */
static void merge_counts(size_t *list, size_t *count) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        size_t at = 0;
        while (at < kept && list[at] != list[i]) at++;
        if (at == kept) list[kept++] = list[i];
    }
    *count = kept;
}

/* Each scheme once, as it was written first. */
static void merge_schemes(spw_job_options *o) {
    size_t kept = 0;
    for (size_t i = 0; i < o->job.schemes; i++) {
        size_t at = 0;
        while (at < kept && !spw_scheme_is_same(&o->scheme[at], &o->scheme[i])) at++;
        if (at == kept) o->scheme[kept++] = o->scheme[i];
    }
    o->job.schemes = kept;
}

/* A refusal for every point whose batch micro_batches does not divide. */
static spw_status refuse_batches(const spw_job_options *o, const spw_plan_request *q, spw_result *result) {
    const size_t splits = q->splits > 0 ? q->splits : 1, schemes = o->job.schemes;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < splits * o->left_outs * schemes && status == SPW_OK; i++) {
        const size_t split = i / schemes / o->left_outs;
        spw_refusal *refusal = NULL;
        status = spw_result_append_refusal(result, &refusal);
        if (status != SPW_OK) return status;
        *refusal = (spw_refusal){.sequences = o->left_out[i / schemes % o->left_outs],
                                 .expert = q->splits > 0 ? q->expert[split] : o->job.expert};
        memcpy(refusal->scheme, o->scheme[i % schemes].text, sizeof refusal->scheme);
        (void)snprintf(refusal->reason, sizeof refusal->reason,
                       "micro_batches %zu does not divide %zu sequences of %s", o->job.micro_batches,
                       refusal->sequences, spw_grid_tokens_of(&o->job));
    }
    return status;
}

/* What --routing says, or stands for it. With a stated imbalance all else is even. */
static const char *routing_of(const plan_options *o) {
    if (o->routing != NULL) return o->routing;
    return o->imbalance != NULL ? "uniform" : SPW_PLAN_ROUTING;
}

static bool is_even(const plan_options *o) {
    return o->trace_path == NULL && o->imbalance == NULL && spw_plan_routing_is_even(routing_of(o));
}

static void describe_routing(const plan_options *o, const spw_trace_info *info, const spw_imbalance_law *law,
                             char *out, size_t size) {
    char name[128], path[256];
    spw_plain_text(info->model_name, name, sizeof name);
    if (o->trace_path != NULL) {
        spw_plain_text(o->trace_path, path, sizeof path);
        (void)snprintf(out, size, "%s: %s, %zu step%s x %zu layer%s, top-%zu of %zu", path, name, info->steps,
                       spw_plural(info->steps), info->layers, spw_plural(info->layers), info->top_k,
                       info->experts);
    } else {
        const bool unsaid = o->routing == NULL && o->imbalance == NULL;
        (void)snprintf(out, size, "%s, generated by a seed", routing_of(o));
        if (info->groups > 0)
            (void)snprintf(out + strlen(out), size - strlen(out), ", a token in %zu of %zu groups of experts",
                           info->groups_kept, info->groups);
        if (unsaid)
            (void)snprintf(
                out + strlen(out), size - strlen(out),
                "; assumed, as no routing was named: --trace has your own, --routing uniform is even "
                "(docs/routing.md)");
        if (info->ranks < spw_grid_token_ranks(&o->job.job))
            (void)snprintf(out + strlen(out), size - strlen(out),
                           "; sequences of %zu GPUs, from which all GPUs' are drawn", info->ranks);
        if (info->steps > 1)
            (void)snprintf(out + strlen(out), size - strlen(out), ", its first %zu steps (--routing-steps)",
                           info->steps);
    }
    if (law != NULL)
        (void)snprintf(
            out + strlen(out), size - strlen(out),
            "; its times, rows, drops and memory at EP %zu: those of a fullest rank with %.4g times "
            "the mean",
            law->ranks, law->max_over_mean);
}

/* --- A search --- */

/* Beside the fastest point. */
static spw_status find_others(const plan_options *o, const spw_plan_request *q, const spw_result *result,
                              spw_plan_others *out) {
    const spw_result_row *row = spw_result_row_at(result, result->answers.fastest);
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    if (row == NULL || !spw_plan_others_asked(&o->job)) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &job));
    spw_plan_point_job(q, row, job);
    const spw_other_point point = {job, &row->scheme, spw_timeline_pace(&row->time),
                                   result->answers.drop_most};
    SPW_TRY(spw_plan_others_find(q, &point, o->job.draft->framework, out));

cleanup:
    spw_free(job);
    return status;
}

/* What goes with a search, and what with a plan alone. */
static spw_status check_search(const plan_options *o) {
    if (!o->search.asked) return spw_search_options_check(&o->search);
    if (o->chrome != NULL || o->until != NULL || o->all)
        return spw_fail(SPW_EARG,
                        "--chrome-trace, --until and --all do not go with --search; ask them of the "
                        "point that it finds");
    if (o->job.job.part != SPW_PART_WHOLE) return spw_job_is_whole(&o->job.job, "--search");
    return SPW_OK;
}

/* The routing of a search: one trace that was given, or one made for each number of GPUs. */
typedef struct search_trace {
    const plan_options *o;
    uint64_t seed;
    spw_trace *trace;
    size_t gpus; /* that it was made for */
} search_trace;

static void close_trace(search_trace *t) {
    spw_trace_close(t->trace);
    t->trace = NULL;
}

static spw_status open_trace(void *state, const spw_job *job, spw_trace **out) {
    search_trace *t = state;
    const char *path = t->o->trace_path;
    const size_t gpus = job->cluster.nodes * job->cluster.gpus_per_node;
    spw_job *whole = NULL;
    spw_status status = SPW_OK;
    *out = t->trace;
    if (t->trace != NULL && (path != NULL || t->gpus == gpus)) return SPW_OK;
    close_trace(t);
    t->gpus = gpus;
    if (path == NULL) {
        SPW_TRY(SPW_ALLOC(1, &whole));
        *whole = *job;
        whole->expert = gpus;
        whole->fsdp = whole->pipeline = whole->tensor = whole->expert_tensor = 1;
        SPW_TRY(spw_plan_make_trace(whole, routing_of(t->o), &t->o->extent, t->seed, &t->trace));
    } else {
        SPW_TRY(spw_trace_open(path, &t->trace));
    }
    *out = t->trace;

cleanup:
    spw_free(whole);
    return status;
}

/* Of no job and trace yet. `routing`: where it comes from, for a person. */
static spw_run_settings settings_of(const plan_options *o, const spw_plan_request *q,
                                    const spw_software *software, const char *routing, double tokens) {
    return (spw_run_settings){.command = "plan",
                              .job_path = o->job.from != NULL ? o->job.from : o->job.job_path,
                              .trace_path = o->trace_path != NULL ? o->trace_path : routing,
                              .step_begin = q->step_begin,
                              .step_end = q->step_end,
                              .layer_begin = q->layer_begin,
                              .layer_end = q->layer_end,
                              .seed = q->seed,
                              .tokens = tokens,
                              .stack = software->names[0] != '\0' ? software->names : NULL,
                              .stack_distance = software->distance,
                              .memory_fit = q->stack,
                              .time_fit = q->time_stack,
                              .megatron_fit = q->megatron};
}

/* Generated routing has few layers, of which --layers chooses; who names more means the model's. */
static spw_status check_layers(const plan_options *o, const spw_plan_request *request,
                               const spw_trace *trace) {
    const size_t layers = spw_trace_get_info(trace)->layers;
    if (o->trace_path != NULL || o->layers == NULL || request->layer_end <= layers) return SPW_OK;
    return spw_fail(
        SPW_EARG,
        "--layers %s: it chooses among layers of the routing, and that which is generated, as no --trace "
        "was given, has 0:%zu; a model of fewer layers is a config.json with another num_hidden_layers "
        "(--model FILE), or its expert layers alone: --set model_part=expert_layers --set layers=N",
        o->layers, layers);
}

static spw_status search(plan_options *o, spw_plan_request *plan, const spw_software *software,
                         double drop_most, double tokens, int argc, char **argv) {
    search_trace routing = {.o = o, .seed = plan->seed};
    char text[768];
    spw_status status = SPW_OK;
    const spw_search_request request = {.plan = plan,
                                        .drop_most = drop_most,
                                        .cost_tokens = tokens,
                                        .generated = o->trace_path == NULL,
                                        .open_trace = open_trace,
                                        .state = &routing};
    SPW_TRY(open_trace(&routing, plan->job, &plan->trace));
    SPW_TRY(check_layers(o, plan, plan->trace));
    if (spw_plan_others_asked(&o->job)) o->search.others_of = o->job.draft->framework;
    describe_routing(o, spw_trace_get_info(plan->trace), plan->imbalance, text, sizeof text);
    const spw_run_settings settings = settings_of(o, plan, software, text, tokens);
    const spw_search_origin origin = {text, &settings, argv + 1, (size_t)argc - 1, is_even(o)};
    SPW_TRY(spw_plan_search(&o->search, &request, &origin, o->job.format, spw_command_out()));

cleanup:
    close_trace(&routing);
    return status;
}

static spw_status check_until(const plan_options *o) {
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

static spw_status ask_until(const plan_options *o, spw_plan_request *plan) {
    const spw_until_options options = {o->until, o->routing, o->extent, o->trace_path};
    return spw_plan_until(&options, plan, o->job.format, spw_command_out());
}

/* What is printed shows nothing of what only details have. */
static bool is_brief(const plan_options *o) {
    return o->flags != NULL || (o->job.format != SPW_FORMAT_JSON && !o->search.details);
}

spw_status spw_command_plan(int argc, char **argv) {
    spw_status status = SPW_OK;
    plan_options *o = NULL;
    spw_trace *trace = NULL;
    spw_result result = {.rows = 0};
    spw_plan_request request = {.trace = NULL};
    spw_software *software = NULL, *other = NULL; /* other: beside what must be live */
    char routing[512];
    const char *splits = NULL;
    double tokens = 0.0, drop_most = SPW_DROP_MOST;
    uint64_t seed = 1;
    spw_plan_tries *tries = NULL;
    spw_memory_bound bound;
    spw_imbalance_law law = {.sizes = 0};
    spw_stated stated;
    spw_plan_others others = {.schemes.count = 0};
    SPW_TRY(SPW_ALLOC(1, &o));
    SPW_TRY(SPW_ALLOC(1, &tries));
    SPW_TRY(SPW_ALLOC(1, &software));
    SPW_TRY(SPW_ALLOC(1, &other));
    o->job.points_alone = o->job.expert_lists = true;
    SPW_TRY(spw_command_parse(&argp, argc, argv, o));
    if (o->flags != NULL) SPW_TRY(spw_plan_flags_find(o->flags, &o->search.flags)); /* no line is broken */
    SPW_TRY(check_until(o)); /* before a file is read */
    if (o->flags != NULL && o->job.format_text != NULL)
        SPW_TRY(spw_fail(SPW_EARG,
                         "--flags prints a framework's own settings, which --format does not change; leave "
                         "one of both out"));
    if (o->trace_path != NULL && o->routing != NULL)
        SPW_TRY(spw_fail(SPW_EARG, "--trace and --routing both say what the routing is; write one"));
    if (o->trace_path != NULL && o->extent.steps != NULL)
        SPW_TRY(spw_fail(SPW_EARG,
                         "--routing-steps goes with generated routing; --steps chooses those of a trace"));
    if (o->trace_path != NULL && o->extent.tokens != NULL)
        SPW_TRY(spw_fail(SPW_EARG, "--routing-tokens goes with generated routing; a trace has its own"));
    if (o->memory != NULL && (o->trace_path == NULL || o->search.asked))
        SPW_TRY(spw_fail(SPW_EARG,
                         "--memory bounds how a trace is replayed: it goes with --trace and without "
                         "--search"));
    SPW_TRY(spw_parse_memory(o->memory, &bound, &request.memory));
    if (o->drops != NULL) SPW_TRY(spw_parse_percent("--drop-at-most", o->drops, &drop_most));
    if (o->tokens != NULL) SPW_TRY(spw_parse_amount("--tokens", o->tokens, "tokens", &tokens));
    if (o->imbalance != NULL) SPW_TRY(spw_stated_parse(o->imbalance, &stated));
    if (o->seed != NULL) SPW_TRY(spw_parse_count("--seed", o->seed, UINT32_MAX, &seed));
    if (o->steps != NULL)
        SPW_TRY(spw_parse_range("--steps", o->steps, &request.step_begin, &request.step_end));
    if (o->layers != NULL)
        SPW_TRY(spw_parse_range("--layers", o->layers, &request.layer_begin, &request.layer_end));
    splits = o->job.expert_parallel;
    if (o->search.asked) SPW_TRY(spw_search_take_global_batch(&o->job, &o->search));
    if (o->search.asked && splits == NULL) o->job.expert_parallel = "all"; /* as a search takes them */
    if (o->allocator != NULL) SPW_TRY(spw_job_options_put_allocator(&o->job, o->allocator));
    o->job.searched = o->search.asked;
    SPW_TRY(spw_job_options_finish(&o->job));
    merge_counts(o->job.job.sequences_per_gpu, &o->job.job.batches);
    merge_counts(o->job.left_out, &o->job.left_outs);
    merge_schemes(&o->job);
    SPW_TRY(check_search(o));
    if (o->search.asked) spw_search_keep_batch(&o->job, &o->search);
    if (o->search.asked)
        spw_search_batches(&o->job.job, o->job.left_out, o->job.left_outs,
                           o->job.sequences != NULL || o->job.job.batches + o->job.left_outs > 1);
    request.allocator = !o->no_allocator;
    request.every_rank = o->every_rank;
    request.brief = o->search.asked || o->until != NULL || is_brief(o);
    const spw_job *job = &o->job.job;
    tokens = spw_cost_tokens(job, tokens);
    o->search.splits = splits;
    if (o->imbalance != NULL) SPW_TRY(spw_stated_open(&stated, job, splits, &law));
    if (o->imbalance != NULL) request.imbalance = &law;
    if (splits != NULL && !o->search.asked) SPW_TRY(parse_splits(splits, job, &request));
    merge_counts(request.expert, &request.splits);
    SPW_TRY(choose_software(o->stack, &o->job, software, other, &request));
    request.job = job;
    request.scheme = o->job.scheme;
    request.schemes = job->schemes;
    request.seed = seed;
    if (o->search.asked) {
        SPW_TRY(search(o, &request, software, drop_most, tokens, argc, argv));
        goto cleanup;
    }
    if (o->until != NULL) {
        SPW_TRY(ask_until(o, &request));
        goto cleanup;
    }
    if (o->trace_path == NULL)
        SPW_TRY(spw_plan_make_trace(job, routing_of(o), &o->extent, seed, &trace));
    else
        SPW_TRY(spw_trace_open(o->trace_path, &trace));
    SPW_TRY(check_layers(o, &request, trace));
    request.trace = trace;
    status = spw_plan_run(&request, &result);
    if ((status == SPW_EFORMAT || status == SPW_EIO) && o->trace_path != NULL &&
        strstr(spw_last_error(), o->trace_path) == NULL)
        status = spw_fail_within(status, "%s", o->trace_path);
    SPW_TRY(status);
    SPW_TRY(refuse_batches(&o->job, &request, &result));
    SPW_TRY(spw_result_answer(&result, drop_most));
    if (result.rows > 0) SPW_TRY(spw_plan_try(&request, &result, tries));
    SPW_TRY(find_others(o, &request, &result, &others));
    const spw_trace_info *info = spw_trace_get_info(trace);
    describe_routing(o, info, request.imbalance, routing, sizeof routing);
    spw_run_settings settings = settings_of(o, &request, software, routing, tokens);
    spw_run_settings_bind(&settings, job, info);
    const spw_plan_view view = {.result = &result,
                                .request = &request,
                                .tries = tries,
                                .others = &others,
                                .settings = &settings,
                                .routing = routing,
                                .argument = argv + 1,
                                .arguments = (size_t)argc - 1,
                                .traced = o->trace_path != NULL && !info->synthetic,
                                .given = o->trace_path != NULL,
                                .even = is_even(o),
                                .allocator = o->allocator != NULL,
                                .all = o->all,
                                .details = o->search.details,
                                .schemes_unsaid = o->job.schemes_unsaid,
                                .split_unsaid = o->job.split_unsaid,
                                .batch_unsaid = o->job.batch_unsaid};
    if (o->chrome != NULL && spw_process_is_first())
        SPW_TRY(spw_chrome_trace_write(&result, &settings, o->chrome));
    if (o->flags != NULL) spw_plan_print_brief(&view, spw_command_notes()); /* whose flags these are */
    if (o->flags != NULL)
        SPW_TRY(spw_plan_flags_print(o->search.flags, &view, spw_command_out()));
    else
        SPW_TRY(spw_plan_print(&view, o->job.format, spw_command_out()));

cleanup:
    spw_result_clear(&result);
    spw_trace_close(trace);
    spw_imbalance_law_destroy(&law);
    spw_free(software);
    spw_free(other);
    spw_free(tries);
    if (o != NULL) spw_job_options_close(&o->job);
    spw_free(o);
    return status;
}
