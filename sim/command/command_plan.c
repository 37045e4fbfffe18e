#include "sim/command/command.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/processes.h"
#include "base/stop.h"
#include "base/temporary.h"
#include "base/text.h"
#include "sim/command/job_options.h"
#include "sim/command/plan/plan_balanced.h"
#include "sim/command/plan/plan_flags.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/command/plan/plan_options.h"
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
    bool listed = false;
    for (size_t i = 0; i < o->job.schemes; i++) listed = listed || o->scheme[i].type->memory.whole_steps;
    spw_status status =
        names == NULL ? spw_job_options_newest(o, software) : spw_software_read(names, software);
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
static const char *routing_of(const spw_plan_options *o) {
    if (o->routing != NULL) return o->routing;
    return o->imbalance != NULL ? "uniform" : SPW_PLAN_ROUTING;
}

static bool is_even(const spw_plan_options *o) {
    return o->trace_path == NULL && o->imbalance == NULL && spw_plan_routing_is_even(routing_of(o));
}

static void describe_routing(const spw_plan_options *o, const spw_trace_info *info,
                             const spw_imbalance_law *law, char *out, size_t size) {
    char name[128], path[256];
    spw_plain_text(info->model_name, name, sizeof name);
    if (o->trace_path != NULL) {
        spw_plain_text(o->trace_path, path, sizeof path);
        (void)snprintf(out, size, "%s: %s, %zu step%s x %zu layer%s, top-%zu of %zu", path,
                       name[0] != '\0' ? name : "no model named", info->steps, spw_plural(info->steps),
                       info->layers, spw_plural(info->layers), info->top_k, info->experts);
    } else {
        const bool unsaid = o->routing == NULL && o->imbalance == NULL;
        (void)snprintf(out, size, "%s, generated by a seed", routing_of(o));
        if (info->groups > 0)
            (void)snprintf(out + strlen(out), size - strlen(out), ", a token in %zu of %zu groups of experts",
                           info->groups_kept, info->groups);
        if (unsaid)
            (void)snprintf(
                out + strlen(out), size - strlen(out),
                "; assumed, as no routing was named: --trace has your own, --routing balanced is even "
                "(docs/routing.md)");
        if (info->ranks < spw_grid_token_ranks(&o->job.job))
            (void)snprintf(out + strlen(out), size - strlen(out),
                           "; sequences of %zu GPU%s, from which all GPUs' are drawn", info->ranks,
                           spw_plural(info->ranks));
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
static spw_status find_others(const spw_plan_options *o, const spw_plan_request *q, const spw_result *result,
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

/* The routing of a search: one trace that was given, or one made for each number of GPUs. */
typedef struct search_trace {
    const spw_plan_options *o;
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
static spw_run_settings settings_of(const spw_plan_options *o, const spw_plan_request *q,
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
                              .tokens_unsaid = o->tokens == NULL,
                              .stack = software->names[0] != '\0' ? software->names : NULL,
                              .stack_distance = software->distance,
                              .memory_fit = q->stack,
                              .time_fit = q->time_stack,
                              .megatron_fit = q->megatron};
}

/* Generated routing has few layers, of which --layers chooses; who names more means the model's. */
static spw_status check_layers(const spw_plan_options *o, const spw_plan_request *request,
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

/* What is printed shows nothing of what only details have. */
static bool is_brief(const spw_plan_options *o) {
    return o->flags != NULL || (o->job.format != SPW_FORMAT_JSON && !o->search.details);
}

/* A call of the command: its words, and what became of them. */
typedef struct plan_call {
    spw_plan_options o;
    char **argv;
    int argc;
    spw_plan_request request;
    spw_software software, other; /* other: beside what must be live */
    spw_memory_bound bound;
    spw_imbalance_law law;
    spw_stated stated;
    double tokens, drop_most;
    uint64_t seed;
    const char *splits; /* as they were written */
    spw_trace *trace;
    spw_token_store *store; /* of the trace; NULL: none */
    spw_result result;
    spw_plan_tries tries;
    spw_plan_others others;
} plan_call;

static spw_status parse_values(plan_call *c) {
    spw_plan_options *o = &c->o;
    spw_status status = SPW_OK;
    SPW_TRY(spw_parse_memory(o->memory, &c->bound, &c->request.memory));
    if (o->drops != NULL) SPW_TRY(spw_parse_percent("--drop-at-most", o->drops, &c->drop_most));
    if (o->tokens != NULL) SPW_TRY(spw_parse_amount("--tokens", o->tokens, "tokens", &c->tokens));
    if (o->imbalance != NULL) SPW_TRY(spw_stated_parse(o->imbalance, &c->stated));
    if (o->seed != NULL) SPW_TRY(spw_parse_count("--seed", o->seed, UINT32_MAX, &c->seed));
    if (o->steps != NULL)
        SPW_TRY(spw_parse_range("--steps", o->steps, &c->request.step_begin, &c->request.step_end));
    if (o->layers != NULL)
        SPW_TRY(spw_parse_range("--layers", o->layers, &c->request.layer_begin, &c->request.layer_end));

cleanup:
    return status;
}

/* The job's files are read, and its batches and schemes are each there once. */
static spw_status finish_job(plan_call *c) {
    spw_plan_options *o = &c->o;
    spw_status status = SPW_OK;
    c->splits = o->job.expert_parallel;
    if (o->search.asked) SPW_TRY(spw_search_check_own(&o->job, &o->search));
    if (o->search.asked) SPW_TRY(spw_search_take_global_batch(&o->job, &o->search));
    if (o->search.asked && c->splits == NULL) o->job.expert_parallel = "all"; /* as a search takes them */
    if (o->allocator != NULL) SPW_TRY(spw_job_options_put_allocator(&o->job, o->allocator));
    o->job.searched = o->search.asked;
    SPW_TRY(spw_job_options_finish(&o->job));
    merge_counts(o->job.job.sequences_per_gpu, &o->job.job.batches);
    merge_counts(o->job.left_out, &o->job.left_outs);
    merge_schemes(&o->job);
    SPW_TRY(spw_plan_options_check_search(o));
    if (o->search.asked) spw_search_keep_batch(&o->job, &o->search);
    if (o->search.asked)
        spw_search_batches(&o->job.job, o->job.left_out, o->job.left_outs,
                           o->job.sequences != NULL || o->job.job.batches + o->job.left_outs > 1);

cleanup:
    return status;
}

static spw_status fill_request(plan_call *c) {
    spw_plan_options *o = &c->o;
    const spw_job *job = &o->job.job;
    spw_plan_request *q = &c->request;
    spw_status status = SPW_OK;
    q->allocator = !o->no_allocator;
    q->every_rank = o->every_rank;
    q->brief = o->search.asked || o->until != NULL || is_brief(o);
    c->tokens = spw_cost_tokens(job, c->tokens);
    o->search.splits = c->splits;
    if (o->imbalance != NULL) SPW_TRY(spw_stated_open(&c->stated, job, c->splits, &c->law));
    if (o->imbalance != NULL) q->imbalance = &c->law;
    if (c->splits != NULL && !o->search.asked) SPW_TRY(parse_splits(c->splits, job, q));
    merge_counts(q->expert, &q->splits);
    SPW_TRY(choose_software(o->stack, &o->job, &c->software, &c->other, q));
    q->job = job;
    q->scheme = o->job.scheme;
    q->schemes = job->schemes;
    q->seed = c->seed;

cleanup:
    return status;
}

/* What an earlier run of the same command has left: the same program, words and files. */
static spw_status open_checkpoint(const plan_call *c, spw_checkpoint **out) {
    const char *path = c->o.search.checkpoint;
    uint64_t run = path != NULL ? spw_checkpoint_hash_file(0, "/proc/self/exe") : 0;
    if (path == NULL) return SPW_OK;
    for (int i = 1; i < c->argc; i++) {
        const char *word = c->argv[i], *equals = word[0] == '-' ? strchr(word, '=') : NULL,
                   *value = equals != NULL ? equals + 1 : word;
        run = spw_checkpoint_hash(run, word, strlen(word));
        if (strcmp(value, path) != 0) run = spw_checkpoint_hash_file(run, value);
    }
    return spw_checkpoint_open(path, run, out);
}

static spw_status search(plan_call *c) {
    spw_plan_options *o = &c->o;
    spw_plan_request *plan = &c->request;
    search_trace routing = {.o = o, .seed = plan->seed};
    char text[768];
    spw_status status = SPW_OK;
    spw_checkpoint *checkpoint = NULL;
    spw_search_request request = {.plan = plan,
                                  .drop_most = c->drop_most,
                                  .cost_tokens = c->tokens,
                                  .generated = o->trace_path == NULL,
                                  .open_trace = open_trace,
                                  .state = &routing};
    SPW_TRY(open_trace(&routing, plan->job, &plan->trace));
    SPW_TRY(check_layers(o, plan, plan->trace));
    if (spw_plan_others_asked(&o->job)) o->search.others_of = o->job.draft->framework;
    describe_routing(o, spw_trace_get_info(plan->trace), plan->imbalance, text, sizeof text);
    const spw_run_settings settings = settings_of(o, plan, &c->software, text, c->tokens);
    const spw_search_origin origin = {text, &settings, c->argv + 1, (size_t)c->argc - 1, is_even(o)};
    SPW_TRY(open_checkpoint(c, &checkpoint));
    request.checkpoint = checkpoint;
    SPW_TRY(spw_plan_search(&o->search, &request, &origin, o->job.format, spw_command_out()));
    if (!spw_stop_is_asked()) {
        spw_checkpoint_finish(checkpoint);
        checkpoint = NULL;
    }

cleanup:
    spw_checkpoint_close(checkpoint);
    close_trace(&routing);
    return status;
}

static spw_status print_points(plan_call *c) {
    const spw_plan_options *o = &c->o;
    const spw_trace_info *info = spw_trace_get_info(c->trace);
    char routing[512];
    spw_status status = SPW_OK;
    describe_routing(o, info, c->request.imbalance, routing, sizeof routing);
    spw_run_settings settings = settings_of(o, &c->request, &c->software, routing, c->tokens);
    spw_run_settings_bind(&settings, &o->job.job, info);
    const spw_plan_view view = {.result = &c->result,
                                .request = &c->request,
                                .tries = &c->tries,
                                .others = &c->others,
                                .settings = &settings,
                                .routing = routing,
                                .argument = c->argv + 1,
                                .arguments = (size_t)c->argc - 1,
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
        SPW_TRY(spw_chrome_trace_write(&c->result, &settings, o->chrome));
    if (o->flags != NULL)
        SPW_TRY(spw_plan_flags_print(o->search.flags, &view, spw_command_out()));
    else
        SPW_TRY(spw_plan_print(&view, o->job.format, spw_command_out()));

cleanup:
    return status;
}

static spw_status plan_points(plan_call *c) {
    const spw_plan_options *o = &c->o;
    spw_plan_request *q = &c->request;
    spw_status status = SPW_OK;
    if (o->trace_path == NULL)
        SPW_TRY(spw_plan_make_trace(q->job, routing_of(o), &o->extent, c->seed, &c->trace));
    else
        SPW_TRY(spw_trace_open(o->trace_path, &c->trace));
    SPW_TRY(check_layers(o, q, c->trace));
    q->trace = c->trace;
    SPW_TRY(spw_plan_share_routing(q, &c->store));
    q->store = c->store;
    status = spw_plan_run(q, &c->result);
    if ((status == SPW_EFORMAT || status == SPW_EIO) && o->trace_path != NULL &&
        strstr(spw_last_error(), o->trace_path) == NULL)
        status = spw_fail_within(status, "%s", o->trace_path);
    SPW_TRY(status);
    SPW_TRY(refuse_batches(&o->job, q, &c->result));
    SPW_TRY(spw_result_answer(&c->result, c->drop_most));
    if (c->result.rows > 0) SPW_TRY(spw_plan_try(q, &c->result, &c->tries));
    SPW_TRY(find_others(o, q, &c->result, &c->others));
    SPW_TRY(print_points(c));

cleanup:
    return status;
}

spw_status spw_command_plan(int argc, char **argv) {
    plan_call *c = NULL;
    spw_status status = SPW_ALLOC(1, &c);
    if (status != SPW_OK) return status;
    spw_plan_options *o = &c->o;
    c->argc = argc, c->argv = argv, c->drop_most = SPW_DROP_MOST, c->seed = 1;
    o->job.points_alone = o->job.expert_lists = true;
    SPW_TRY(spw_command_parse(&spw_plan_argp, argc, argv, o));
    if (o->flags != NULL) SPW_TRY(spw_plan_flags_find(o->flags, &o->search.flags)); /* no line is broken */
    SPW_TRY(spw_plan_options_check(o));
    SPW_TRY(parse_values(c));
    SPW_TRY(finish_job(c));
    SPW_TRY(fill_request(c));
    if (o->search.asked)
        SPW_TRY(search(c));
    else if (o->until != NULL)
        SPW_TRY(spw_plan_until(&(spw_until_options){o->until, o->routing, o->extent, o->trace_path},
                               &c->request, o->job.format, spw_command_out()));
    else
        SPW_TRY(plan_points(c));

cleanup:
    spw_result_clear(&c->result);
    spw_token_store_destroy(c->store);
    spw_trace_close(c->trace);
    spw_imbalance_law_destroy(&c->law);
    spw_job_options_close(&o->job);
    spw_free(c);
    return status;
}
