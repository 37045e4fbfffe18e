#include "sim/command/command.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/processes.h"
#include "sim/command/job_options.h"
#include "sim/command/replay_options.h"
#include "sim/job/grid.h"
#include "sim/job/software.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/read/memory_snapshot.h"
#include "sim/replay/balance.h"
#include "sim/replay/largest_batch.h"
#include "sim/replay/replay.h"
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

static size_t rows_of_steps(const spw_run_settings *settings, const spw_replay_options *o) {
    return (settings->step_end - settings->step_begin) * o->job.job.schemes * o->job.job.batches;
}

/* Rows of every step, apart from those over all. */
static spw_status replay_steps(spw_replay_options *o, const spw_replay_request *request, spw_result *steps) {
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
static spw_status within_trace(const spw_replay_options *o, spw_status status) {
    const bool of_trace = status == SPW_EFORMAT || status == SPW_EIO;
    return of_trace && strstr(spw_last_error(), o->trace_path) == NULL
               ? spw_fail_within(status, "%s", o->trace_path)
               : status;
}

/* The stage that --snapshot has. */
static spw_status take_stage(spw_replay_options *o) {
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

static spw_status print(const spw_replay_options *o, const spw_result *shown,
                        const spw_run_settings *settings) {
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

static spw_status run(const spw_replay_options *o, const spw_replay_request *request,
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
static spw_status open_checkpoint(const spw_replay_options *o, int argc, char **argv,
                                  const spw_trace_info *info, spw_checkpoint **out) {
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

/* A call of the command: its words, and what became of them. */
typedef struct replay_call {
    spw_replay_options o;
    spw_run_settings settings;
    spw_replay_request request;
    spw_trace *trace;
    spw_result result, steps, left;
    spw_result_file *file;
    spw_checkpoint *checkpoint;
    spw_software software, other; /* other: beside what must be live */
    const spw_stack *newest;
    char newest_names[SPW_SOFTWARE_TEXT];
    spw_memory_snapshot snapshot;
    uint64_t seed;
    double drops, fits;
    spw_balancer_spec balancer;
    spw_memory_bound bound, *memory;
} replay_call;

static spw_status parse_values(replay_call *c) {
    const spw_replay_options *o = &c->o;
    spw_run_settings *s = &c->settings;
    spw_status status = SPW_OK;
    *s = (spw_run_settings){.command = "replay",
                            .job_path = o->job.from != NULL ? o->job.from : o->job.job_path,
                            .trace_path = o->trace_path};
    if (o->steps != NULL) SPW_TRY(spw_parse_range("--steps", o->steps, &s->step_begin, &s->step_end));
    if (o->layers != NULL) SPW_TRY(spw_parse_range("--layers", o->layers, &s->layer_begin, &s->layer_end));
    if (o->stack != NULL) {
        status = spw_software_read(o->stack, &c->software);
        if (status != SPW_OK) SPW_TRY(spw_fail_within(status, "--stack"));
    }
    if (o->seed != NULL) SPW_TRY(spw_parse_count("--seed", o->seed, UINT32_MAX, &c->seed));
    if (o->drops != NULL) SPW_TRY(spw_parse_percent("--drop-at-most", o->drops, &c->drops));
    if (o->fits != NULL) SPW_TRY(spw_parse_percent("--fits-at", o->fits, &c->fits));
    SPW_TRY(spw_parse_memory(o->memory, &c->bound, &c->memory));
    if (o->tokens != NULL) SPW_TRY(spw_parse_amount("--tokens", o->tokens, "tokens", &s->tokens));

cleanup:
    return status;
}

/* The job, its trace, and the schemes that go with both. */
static spw_status open_inputs(replay_call *c) {
    spw_replay_options *o = &c->o;
    spw_status status = SPW_OK;
    if (o->allocator != NULL) SPW_TRY(spw_job_options_put_allocator(&o->job, o->allocator));
    SPW_TRY(spw_job_options_finish(&o->job));
    SPW_TRY(spw_replay_options_check(o));
    if (o->balancer != NULL) SPW_TRY(spw_balancer_parse(o->balancer, &c->balancer));
    if (o->snapshot != NULL) {
        SPW_TRY(spw_memory_snapshot_read(o->snapshot, &c->snapshot));
        o->job.job.snapshot = &c->snapshot;
        SPW_TRY(take_stage(o));
    }
    SPW_TRY(spw_trace_open(o->trace_path, &c->trace));
    SPW_TRY(leave_out(&o->job, c->trace, &c->left));

cleanup:
    return status;
}

/* The stacks that a plan of this job takes by itself. Where they cannot be told, nothing is said of them. */
static spw_status name_newest(const spw_job_options *o, char out[SPW_SOFTWARE_TEXT]) {
    spw_software *newest = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &newest));
    if (spw_job_options_newest(o, newest) == SPW_OK) memcpy(out, newest->names, SPW_SOFTWARE_TEXT);

cleanup:
    spw_free(newest);
    return status;
}

static spw_status fill_settings(replay_call *c) {
    spw_replay_options *o = &c->o;
    spw_software *software = &c->software;
    spw_run_settings *s = &c->settings;
    spw_status status = SPW_OK;
    s->job = &o->job.job;
    if (o->stack != NULL) SPW_TRY(spw_software_suits(o->stack, &s->job->cluster));
    s->tokens = spw_cost_tokens(s->job, s->tokens);
    if (software->compiled && spw_grid_is_plain(s->job))
        SPW_TRY(spw_compiled_layouts_settle(&software->stack, o->job.scheme, s->job->schemes));
    else if (!software->compiled)
        SPW_TRY(spw_newest_stack_read(s->job, o->job.scheme, s->job->schemes, &c->other, &c->newest));
    s->override = o->job.override;
    s->overrides = o->job.overrides - (o->job.sequences != NULL);
    s->seed = c->seed;
    s->balancer = o->balancer;
    s->stack = software->names[0] != '\0' ? o->stack : NULL;
    if (o->stack == NULL && o->job.format == SPW_FORMAT_TABLE) /* which says so where it has no times */
        SPW_TRY(name_newest(&o->job, c->newest_names));
    s->newest = c->newest_names;
    SPW_TRY(spw_software_measure(&s->job->cluster, software));
    s->stack_distance = software->distance;
    s->memory_fit = software->compiled ? &software->stack : NULL;
    s->time_fit = software->timed ? &software->time_stack : NULL;
    s->megatron_fit = software->megatron ? &software->megatron_coefficients : NULL;
    spw_run_settings_bind(s, &o->job.job, spw_trace_get_info(c->trace));

cleanup:
    return status;
}

/* Files that are written are begun before anything is replayed. */
static spw_status fill_request(replay_call *c, int argc, char **argv) {
    const spw_replay_options *o = &c->o;
    const spw_run_settings *s = &c->settings;
    spw_status status = SPW_OK;
    SPW_TRY(open_checkpoint(o, argc, argv, s->trace, &c->checkpoint));
    if (o->output != NULL && spw_process_is_first())
        SPW_TRY(spw_result_file_create(o->output, s, o->job.scheme, &c->file));
    spw_replay_sink sink = spw_result_file_sink(c->file);
    sink.elsewhere = o->output != NULL && c->file == NULL;
    c->request = (spw_replay_request){.trace = c->trace,
                                      .job = s->job,
                                      .scheme = o->job.scheme,
                                      .schemes = s->job->schemes,
                                      .step_begin = s->step_begin,
                                      .step_end = s->step_end,
                                      .layer_begin = s->layer_begin,
                                      .layer_end = s->layer_end,
                                      .seed = c->seed,
                                      .overload = true,
                                      .allocator = !o->no_allocator,
                                      .every_rank = o->every_rank,
                                      .stack = s->memory_fit,
                                      .newest = c->newest,
                                      .time_stack = s->time_fit,
                                      .megatron = s->megatron_fit,
                                      .listed = s->stack != NULL,
                                      .checkpoint = c->checkpoint,
                                      .memory = c->memory,
                                      .kept_rows = o->each_step ? rows_of_steps(s, o) : 0,
                                      .sink = sink};

cleanup:
    return status;
}

static spw_status answer(replay_call *c) {
    spw_replay_options *o = &c->o;
    const spw_replay_request *q = &c->request;
    spw_status status = SPW_OK;
    if (!o->each_step || o->output != NULL) status = run(o, q, &c->balancer, &c->result);
    SPW_TRY(within_trace(o, status));
    SPW_TRY(add_refusals(&c->left, &c->result));
    if (o->allocator != NULL) say_if_idle("--allocator", &c->result);
    if (o->snapshot != NULL) say_if_idle("--snapshot", &c->result);
    if (o->drops != NULL) SPW_TRY(spw_smallest_factors(q, c->drops, &c->result));
    if (o->advise) SPW_TRY(spw_safe_factors(q, &c->result));
    if (o->fits != NULL) SPW_TRY(spw_largest_batches(q, c->fits, &c->result));
    SPW_TRY(spw_result_answer(&c->result, o->drops != NULL ? c->drops : SPW_DROP_MOST));
    spw_result shown = c->result; /* borrows of both */
    if (o->each_step) {
        SPW_TRY(within_trace(o, replay_steps(o, q, &c->steps)));
        shown.row = c->steps.row, shown.rows = c->steps.rows;
        shown.answers = (spw_result_answers){.there = false}; /* those are of rows over all steps */
    }
    if (o->chrome != NULL && spw_process_is_first())
        SPW_TRY(spw_chrome_trace_write(&shown, &c->settings, o->chrome));
    SPW_TRY(print(o, &shown, &c->settings));
    SPW_TRY(spw_command_said());
    if (c->file != NULL) SPW_TRY(spw_result_file_commit(c->file, &c->result));
    spw_checkpoint_finish(c->checkpoint);
    c->checkpoint = NULL;

cleanup:
    return status;
}

spw_status spw_command_replay(int argc, char **argv) {
    replay_call *c = NULL;
    spw_status status = SPW_ALLOC(1, &c);
    if (status != SPW_OK) return status;
    c->seed = 1;
    c->o.job.schemes_alone = true;
    SPW_TRY(spw_command_parse(&spw_replay_argp, argc, argv, &c->o));
    SPW_TRY(parse_values(c));
    SPW_TRY(open_inputs(c));
    SPW_TRY(fill_settings(c));
    SPW_TRY(fill_request(c, argc, argv));
    SPW_TRY(answer(c));

cleanup:
    spw_checkpoint_close(c->checkpoint);
    spw_result_file_discard(c->file);
    spw_result_clear(&c->result);
    spw_result_clear(&c->steps);
    spw_result_clear(&c->left);
    spw_trace_close(c->trace);
    spw_memory_snapshot_destroy(&c->snapshot);
    spw_job_options_close(&c->o.job);
    spw_free(c);
    return status;
}
