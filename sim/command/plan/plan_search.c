#include "sim/command/plan/plan_search.h"

#include "base/memory.h"
#include "base/processes.h"
#include "base/stop.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/frameworks/flags.h"
#include "sim/job/job_split.h"

#include <stdlib.h>
#include <string.h>

/* --- Options --- */

enum {
    OPTION_SEARCH = SPW_OPTION_OWN + 0x200,
    OPTION_OVER,
    OPTION_GPUS_AT_MOST,
    OPTION_TOKENS_PER_DAY,
    OPTION_GLOBAL_BATCH,
    OPTION_CHECKPOINT
};

static const struct argp_option own_options[] = {
    {"search", OPTION_SEARCH, NULL, 0,
     "the best point over expert-parallel sizes, pipelines, virtual stages, micro-batches, remat, batches "
     "and "
     "schemes",
     0},
    {"over", OPTION_OVER, "KEY=LIST", 0,
     "values that a search takes, as in pipeline=1,2,4; KEY is gpus, pipeline, tensor, context, "
     "expert-tensor, micro-batches, "
     "expert-parallel, virtual-stages or remat; may be repeated",
     0},
    {"gpus-at-most", OPTION_GPUS_AT_MOST, "N", 0,
     "a search also takes clusters of one node up to N GPUs, doubled", 0},
    {"tokens-per-day", OPTION_TOKENS_PER_DAY, "N", 0,
     "a search takes what reaches N tokens a day, the fewest GPUs first; 1B, 2.5e9", 0},
    {"global-batch-at-most", OPTION_GLOBAL_BATCH, "N", 0,
     "a search takes what has at most N tokens in a step of all GPUs; 4M, 1.6e7", 0},
    {"checkpoint", OPTION_CHECKPOINT, "FILE", SPW_OPTION_WRITES,
     "a search keeps what it replays in FILE: after a kill or ^C, the same command goes on there, and gives "
     "the same bytes",
     0},
    {0},
};

static error_t plan_search_parse(int key, char *text, struct argp_state *state) {
    spw_search_options *o = state->input;
    switch (key) {
    case OPTION_SEARCH: o->asked = true; break;
    case OPTION_GPUS_AT_MOST: o->gpus_at_most = text; break;
    case OPTION_TOKENS_PER_DAY: o->tokens_per_day = text; break;
    case OPTION_GLOBAL_BATCH: o->global_batch_at_most = text; break;
    case OPTION_CHECKPOINT: o->checkpoint = text; break;
    case OPTION_OVER:
        if (o->overs == SPW_SEARCH_OVERS)
            argp_error(state, "--over more than %d times", (int)SPW_SEARCH_OVERS);
        else
            o->over[o->overs++] = text;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp spw_search_argp = {.options = own_options, .parser = plan_search_parse};

spw_status spw_search_options_check(const spw_search_options *o) {
    const bool wanted = o->overs > 0 || o->gpus_at_most != NULL || o->tokens_per_day != NULL ||
                        o->global_batch_at_most != NULL || o->checkpoint != NULL;
    if (o->asked && o->checkpoint != NULL && spw_processes() > 1)
        return spw_fail(SPW_EARG, "--checkpoint of a search goes with one process, not with mpirun");
    if (o->asked || !wanted) return SPW_OK;
    return spw_fail(SPW_EARG, "--over, --gpus-at-most, --tokens-per-day, --global-batch-at-most and "
                              "--checkpoint go with --search");
}

/* --- The search --- */

enum { MOST_GPUS = 1 << 20, MOST_TRIED_GPUS = 4096, MOST_SEQUENCES = 64 };

static int by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

void spw_search_batches(spw_job *job, const size_t *more, size_t mores, bool given) {
    size_t kept = 0;
    for (size_t i = 0; i < mores && job->batches < SPW_JOB_MAX_BATCHES; i++)
        job->sequences_per_gpu[job->batches++] = more[i];
    for (size_t n = 1; n <= MOST_SEQUENCES && !given && job->batches < SPW_JOB_MAX_BATCHES; n *= 2)
        job->sequences_per_gpu[job->batches++] = n;
    qsort(job->sequences_per_gpu, job->batches, sizeof *job->sequences_per_gpu, by_size);
    for (size_t i = 0; i < job->batches; i++)
        if (kept == 0 || job->sequences_per_gpu[kept - 1] != job->sequences_per_gpu[i])
            job->sequences_per_gpu[kept++] = job->sequences_per_gpu[i];
    job->batches = kept;
}

spw_status spw_search_take_global_batch(spw_job_options *job, spw_search_options *o) {
    uint64_t all = 0;
    size_t kept = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < job->overrides; i++) {
        if (strcmp(job->override[i].key, "batch.global_batch") == 0) {
            SPW_TRY(spw_parse_count("--global-batch", job->override[i].value, 1 << 26, &all));
        } else {
            job->override[kept++] = job->override[i];
        }
    }
    job->overrides = kept;
    o->global_batch = (size_t)all;
    if (all > 0 && job->sequences != NULL)
        return spw_fail(SPW_EARG,
                        "--global-batch says how many sequences a GPU has; leave --sequences-per-gpu out");

cleanup:
    return status;
}

void spw_search_keep_batch(spw_job_options *o, spw_search_options *search) {
    spw_job *job = &o->job;
    bool said = o->sequences != NULL || search->global_batch_at_most != NULL || job->batches != 1;
    if (search->global_batch > 0) return;
    for (size_t i = 0; i < o->overrides; i++)
        said = said || strcmp(o->override[i].key, "batch.sequences_per_gpu") == 0;
    for (size_t i = 0; i < search->overs; i++) said = said || strncmp(search->over[i], "micro", 5) == 0;
    if (said) job->global_batch = 0; /* points have batches of their own */
    if (said || (o->draft == NULL && job->global_batch == 0)) return;
    search->batch_of_file = true;
    search->global_batch =
        job->global_batch > 0 ? job->global_batch : job->sequences_per_gpu[0] * spw_job_batch_ranks(job);
}

static bool lists(const char *list, const char *value) {
    const size_t length = strlen(value);
    for (const char *at = list;; at++) {
        if (strncmp(at, value, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
        at += strcspn(at, ",");
        if (*at == '\0') return false;
    }
}

spw_status spw_search_check_own(const spw_job_options *o, const spw_search_options *search) {
    for (size_t i = 0; i < search->overs; i++) {
        const char *over = search->over[i], *own = NULL;
        const size_t name = strcspn(over, "=");
        for (size_t k = 0; k < o->overrides; k++) { /* the last counts */
            const char *label = o->override[k].label;
            if (strncmp(label, "--", 2) == 0 && strncmp(label + 2, over, name) == 0 && label[2 + name] == ' ')
                own = o->override[k].value;
        }
        if (own == NULL || over[name] == '\0' || lists(over + name + 1, own)) continue;
        return spw_fail(SPW_EARG,
                        "--%.*s %.40s is not among the values of --over %.60s, which take its place; write "
                        "--over %.60s,%.40s, or leave --%.*s out",
                        (int)name, over, own, over, over, own, (int)name, over);
    }
    return SPW_OK;
}

static spw_status open_space(const spw_search_options *o, const spw_plan_request *plan, size_t gpus_most,
                             spw_search_space *out) {
    bool megatron = false;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < plan->schemes; i++) megatron = megatron || plan->scheme[i].type->megatron.timed;
    spw_search_space_open(plan->job, gpus_most, megatron,
                          spw_schemes_have_programs(plan->scheme, plan->schemes), out);
    if (o->splits != NULL && strcmp(o->splits, "all") != 0) {
        char over[256];
        if (snprintf(over, sizeof over, "%s=%s", spw_search_dimension_name(SPW_SEARCH_EXPERT), o->splits) >=
            (int)sizeof over)
            return spw_fail(SPW_EARG, "--expert-parallel: a list of over 200 characters");
        status = spw_search_space_set(out, over);
    }
    for (size_t i = 0; i < o->overs && status == SPW_OK; i++) status = spw_search_space_set(out, o->over[i]);
    if (status == SPW_OK && out->values[SPW_SEARCH_GPUS] == 0)
        status = spw_fail(SPW_EARG, "--gpus-at-most %zu is less than one node of %zu GPUs", gpus_most,
                          plan->job->cluster.gpus_per_node);
    return status;
}

/* The same plan with the batches that come to the global batch. */
static spw_status reach(size_t global_batch, spw_search_space *space, spw_job *job, spw_plan_request *plan) {
    *job = *plan->job;
    job->global_batch = global_batch;
    plan->job = job;
    space->base = job;
    return spw_search_space_reach(space, job);
}

/* Twice the GPUs, and again, until a point keeps to the budgets. More GPUs have other batches of one global batch; with more than
 * there are sequences the search ends. */
static spw_status try_larger(const spw_search_request *request, spw_search_space *space,
                             spw_search_view *view, spw_search_outcome *larger) {
    const size_t *values = space->value[SPW_SEARCH_GPUS], count = space->values[SPW_SEARCH_GPUS];
    const size_t global_batch = space->base->global_batch;
    spw_search_request again = *request;
    spw_plan_request plan = *request->plan;
    spw_job *reached = NULL;
    size_t most = 0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &reached));
    for (size_t i = 0; i < count; i++) most = values[i] > most ? values[i] : most;
    again.space = space;
    again.plan = &plan;
    for (size_t i = 0; i < SPW_SEARCH_TRIES && most <= MOST_TRIED_GPUS / 2 && view->larger == NULL; i++) {
        most *= 2;
        space->value[SPW_SEARCH_GPUS][0] = most;
        space->values[SPW_SEARCH_GPUS] = 1;
        plan = *request->plan;
        if (global_batch > 0 && reach(global_batch, space, reached, &plan) != SPW_OK) break;
        SPW_TRY(spw_search_run(&again, larger));
        if (larger->stopped && !larger->front.found) break;
        if (!spw_search_none_can_be(larger)) view->tried_gpus = most;
        if (larger->front.found) view->larger = larger;
    }

cleanup:
    spw_free(reached);
    return status;
}

/* The best point as a framework's configuration. */
static spw_status print_flags(const spw_framework *framework, const spw_search_view *view, FILE *out) {
    const spw_search_request *q = view->request;
    const spw_search_point *best = &view->outcome->front.best;
    spw_job *job = NULL;
    char *doubts = NULL;
    size_t size = 0;
    spw_status status = SPW_OK;
    if (!view->outcome->front.found)
        return spw_fail(SPW_ECONFIG,
                        "--flags: no point keeps to the budgets; ask without --flags what comes nearest");
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(spw_search_space_job(q->space, best->value, job));
    job->batches = 1;
    job->sequences_per_gpu[0] = best->sequences;
    FILE *text = open_memstream(&doubts, &size);
    if (text == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a stream"));
    spw_search_print_doubts(view, best, text);
    if (fclose(text) != 0) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot keep the doubts"));
    SPW_TRY(spw_flags_print(framework, job, &q->plan->scheme[best->scheme], doubts, out));

cleanup:
    free(doubts);
    spw_free(job);
    return status;
}

/* Beside the best point with this expert-parallel size. */
static spw_status try_others(const spw_framework *framework, const spw_search_request *q,
                             const spw_search_point *best, size_t expert, spw_plan_others *out) {
    spw_plan_request plan = *q->plan;
    size_t value[SPW_SEARCH_DIMENSIONS];
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    *out = (spw_plan_others){.schemes.count = 0};
    memcpy(value, best->value, sizeof value);
    value[SPW_SEARCH_EXPERT] = expert;
    SPW_TRY(SPW_ALLOC(1, &job));
    status = spw_search_space_job(q->space, value, job);
    if (status == SPW_ECONFIG) status = SPW_OK, job->batches = 0; /* it does not divide these GPUs */
    SPW_TRY(status);
    if (job->batches == 0) goto cleanup;
    job->batches = 1;
    job->sequences_per_gpu[0] = best->sequences;
    SPW_TRY(q->open_trace(q->state, job, &plan.trace));
    plan.splits = 0;
    const spw_other_point point = {job, &q->plan->scheme[best->scheme], best->pace, q->drop_most};
    SPW_TRY(spw_plan_others_find(&plan, &point, framework, out));
    if (expert != best->value[SPW_SEARCH_EXPERT]) out->expert = expert;

cleanup:
    spw_free(job);
    return status;
}

/* Of the best point alone: at its split, and at the expert-parallel size that the file says, which suits another scheme better. */
static spw_status find_others(const spw_framework *framework, const spw_search_request *q,
                              const spw_search_outcome *outcome, spw_plan_others *out) {
    const spw_search_point *best = &outcome->front.best;
    const size_t own = q->space->base->expert;
    spw_plan_others *other = NULL;
    spw_status status = SPW_OK;
    if (framework == NULL || !outcome->front.found || !best->timed) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &other));
    SPW_TRY(try_others(framework, q, best, best->value[SPW_SEARCH_EXPERT], out));
    if (own == best->value[SPW_SEARCH_EXPERT]) goto cleanup;
    SPW_TRY(try_others(framework, q, best, own, other));
    const spw_other_schemes *at = &out->schemes, *there = &other->schemes;
    if (there->count > 0 &&
        (at->count == 0 || there->item[0].times.value > at->item[0].times.value * SPW_SEARCH_EQUAL_SPEED))
        *out = *other;

cleanup:
    spw_free(other);
    return status;
}

static spw_search_effort last_effort;

spw_search_effort spw_plan_search_effort(void) { return last_effort; }

spw_status spw_plan_search(const spw_search_options *o, const spw_search_request *asked,
                           const spw_search_origin *origin, spw_format format, FILE *out) {
    spw_search_request request = *asked;
    spw_plan_request plan = *asked->plan;
    spw_job *reached = NULL;
    spw_search_space *space = NULL, *wider = NULL;
    spw_search_outcome *outcome = NULL, *larger = NULL;
    uint64_t gpus_most = 0;
    double batch = 0.0;
    spw_plan_others others = {.schemes.count = 0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &space));
    SPW_TRY(SPW_ALLOC(1, &wider));
    SPW_TRY(SPW_ALLOC(1, &outcome));
    SPW_TRY(SPW_ALLOC(1, &larger));
    if (o->gpus_at_most != NULL) {
        SPW_TRY(spw_parse_count("--gpus-at-most", o->gpus_at_most, MOST_GPUS, &gpus_most));
        if (gpus_most == 0) SPW_TRY(spw_fail(SPW_EARG, "--gpus-at-most 0: write 1 or more"));
    }
    if (o->tokens_per_day != NULL)
        SPW_TRY(spw_parse_amount("--tokens-per-day", o->tokens_per_day, "tokens", &request.tokens_per_day));
    if (o->global_batch_at_most != NULL)
        SPW_TRY(spw_parse_amount("--global-batch-at-most", o->global_batch_at_most, "tokens", &batch));
    request.most_step_tokens = (uint64_t)batch;
    SPW_TRY(open_space(o, request.plan, (size_t)gpus_most, space));
    request.space = space;
    request.plan = &plan;
    SPW_TRY(SPW_ALLOC(1, &reached));
    if (o->global_batch > 0) SPW_TRY(reach(o->global_batch, space, reached, &plan));
    if (spw_processes() == 1) spw_stop_listen();
    SPW_TRY(spw_search_run(&request, outcome));
    last_effort = outcome->effort;
    if (!outcome->stopped) SPW_TRY(find_others(o->others_of, &request, outcome, &others));
    spw_search_view view = {.request = &request,
                            .outcome = outcome,
                            .gpus_most = (size_t)gpus_most,
                            .origin = origin,
                            .details = o->details,
                            .others = &others,
                            .batch_of_file = o->batch_of_file};
    *wider = *space;
    if (!outcome->stopped && !outcome->front.found && gpus_most == 0)
        SPW_TRY(try_larger(&request, wider, &view, larger));
    if (o->flags != NULL && outcome->front.found) spw_search_print_brief(&view, spw_command_notes());
    if (o->flags != NULL)
        SPW_TRY(print_flags(o->flags, &view, out));
    else
        SPW_TRY(spw_search_print(&view, format, out));

cleanup:
    spw_stop_leave();
    spw_free(reached), spw_free(larger), spw_free(outcome), spw_free(wider), spw_free(space);
    return status;
}
