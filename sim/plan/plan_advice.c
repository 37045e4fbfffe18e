#include "sim/plan/plan_advice.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/replicas.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/plan/other_split.h"
#include "sim/plan/search_bound.h"
#include "sim/print/plural.h"
#include "sim/schemes/point.h"
#include "sim/weights/muon_packing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* What an allocator adds is not in the memory of such a point. */
static const char *live(const spw_result_row *row) {
    return spw_point_is_live_alone(row) ? " by what must be live" : "";
}

/* Changes the job; false where the change is none, or cannot be with this framework. what: how the change is written. */
typedef bool spw_try_function(size_t amount, const spw_trainer *trainer, spw_job *job, char *what,
                              size_t size);

static bool fewer_sequences(size_t amount, const spw_trainer *trainer, spw_job *job, char *what,
                            size_t size) {
    (void)trainer;
    const size_t parts = spw_job_micro_batches(job),
                 sequences = job->sequences_per_gpu[0] / amount / parts * parts;
    if (sequences == 0 || sequences == job->sequences_per_gpu[0] || job->global_batch > 0) return false;
    job->sequences_per_gpu[0] = sequences;
    (void)snprintf(what, size, "%zu sequence%s a GPU", sequences, sequences == 1 ? "" : "s");
    return true;
}

/* With a global batch a rank has as many sequences as come to it, in more parts. */
static bool more_micro_batches(size_t amount, const spw_trainer *trainer, spw_job *job, char *what,
                               size_t size) {
    (void)trainer;
    const size_t parts = spw_job_micro_batches(job) * amount;
    if (job->global_batch == 0 || job->sequences_per_gpu[0] % parts != 0) return false;
    job->micro_batches = parts;
    (void)snprintf(what, size, "--micro-batches %zu", parts);
    return true;
}

static bool full_remat(size_t amount, const spw_trainer *trainer, spw_job *job, char *what, size_t size) {
    (void)trainer;
    (void)amount;
    if (job->remat == SPW_REMAT_FULL) return false;
    (void)snprintf(what, size, "%s", spw_split_remat_full(job));
    return true;
}

static bool small_optimizer(size_t amount, const spw_trainer *trainer, spw_job *job, char *what,
                            size_t size) {
    (void)trainer;
    if (job->precision.optimizer <= amount) return false;
    job->precision.optimizer = amount;
    (void)snprintf(what, size, "precision.optimizer bf16");
    return true;
}

static bool shared_optimizer(size_t amount, const spw_trainer *trainer, spw_job *job, char *what,
                             size_t size) {
    const spw_optimizer_kind kind = trainer->shared_optimizer;
    (void)amount;
    if (job->optimizer <= kind) return false; /* sharded, distributed, replicated: from least to most */
    job->optimizer = kind;
    const bool fsdp2 = spw_state_is_sharded(job), widens = fsdp2 && trainer->tunes &&
                                                           job->precision.weights == 2 &&
                                                           spw_finetune_is_whole(&job->finetune);
    (void)snprintf(what, size, "--optimizer %s%s", spw_optimizer_name(kind),
                   widens  ? " (FSDP2, weights as loaded; accelerate's bf16: true makes them fp32)"
                   : fsdp2 ? " (FSDP2)"
                           : "");
    return true;
}

/* What is trained is another thing then: after all that leaves it as it is on the same GPUs. */
static bool adapters(size_t amount, const spw_trainer *trainer, spw_job *job, char *what, size_t size) {
    if (!trainer->tunes || !spw_finetune_is_whole(&job->finetune)) return false;
    job->finetune.frozen = SPW_FROZEN_BASE;
    job->finetune.lora_rank = amount;
    if (trainer->shared_optimizer < job->optimizer) job->optimizer = trainer->shared_optimizer;
    (void)snprintf(what, size, "adapters, --set finetune.lora_rank=%zu --set finetune.frozen=base%s%s,",
                   amount, job->optimizer == trainer->shared_optimizer ? " with --optimizer " : "",
                   job->optimizer == trainer->shared_optimizer ? spw_optimizer_name(job->optimizer) : "");
    return true;
}

static bool dealt_muon(size_t amount, const spw_trainer *trainer, spw_job *job, char *what, size_t size) {
    (void)trainer;
    (void)amount;
    if (!spw_muon_packs(job)) return false;
    job->muon_ping_pong = true;
    (void)snprintf(what, size, "muon_layout: ping_pong (--no-use-layer-wise-param-layout)");
    return true;
}

/* From the smallest change to the largest. `state`: it makes the state smaller. Splits of the same GPUs must surely fit; of more GPUs
 * the fewest count, and of as many one that surely fits. */
enum { AMOUNTS, SCHEMES, EXPERT_SIZES, SAME_GPUS, ANY_GPUS };
static const struct {
    const char *name;         /* of the whole row, for what was tried in vain */
    spw_try_function *change; /* of AMOUNTS */
    bool state;
    int kind;
    size_t amount[5]; /* of AMOUNTS, ended by 0; of other kinds they are 0, 1, ... */
} tries[] = {
    {"fewer sequences", fewer_sequences, false, AMOUNTS, {2, 4, 8, 16, 64}},
    {"more micro-batches", more_micro_batches, false, AMOUNTS, {2, 4, 8, 16, 64}},
    {"remat full", full_remat, false, AMOUNTS, {1}},
    {"other expert-parallel sizes", NULL, true, EXPERT_SIZES, {0}},
    {"an optimizer that is shared more",
     shared_optimizer,
     true,
     AMOUNTS,
     {1}}, /* the framework's own way: FSDP is no switch of Megatron-Core's */
    {"muon_layout: ping_pong", dealt_muon, true, AMOUNTS, {1}},
    {"pipeline stages of the same GPUs", NULL, true, SAME_GPUS, {0}},
    {"precision.optimizer bf16", small_optimizer, true, AMOUNTS, {2}},
    {"adapters", adapters, true, AMOUNTS, {16}},
    {"another scheme of the plan", NULL, false, SCHEMES, {0}},
    {"all splits of up to 16 times the GPUs, one sequence a micro-batch and remat full",
     NULL,
     true,
     ANY_GPUS,
     {0}},
};

typedef struct attempt {
    const spw_plan_request *request;
    const spw_result_row *row;
    spw_job *job;
    double drop_most; /* of another scheme */
    bool tried;       /* of the row of the table under way */
    bool fits, surely;
    size_t gpus;    /* of what fits */
    uint64_t work;  /* of replays: layers, each as often as it has a micro-batch */
    size_t replays; /* of them */
    bool ended;     /* before all was tried */
    spw_progress progress;
    size_t looked_at; /* changes */
    spw_plan_misfit_advice *out;
} attempt;

static size_t amounts_of(const attempt *a, size_t t) {
    switch (tries[t].kind) {
    case SCHEMES: return a->request->schemes;
    case EXPERT_SIZES: return SPW_PLAN_SPLITS;
    case SAME_GPUS: return spw_split_tries_same();
    case ANY_GPUS: return spw_split_tries();
    default: break;
    }
    size_t amounts = 0;
    while (amounts < sizeof tries[t].amount / sizeof tries[t].amount[0] && tries[t].amount[amounts] > 0)
        amounts++;
    return amounts;
}

/* Changes a->job, or takes another scheme in the place of *scheme; false where the change is none, or cannot be. */
static bool make_change(attempt *a, size_t t, size_t i, const spw_scheme **scheme,
                        char what[SPW_OTHER_SPLIT_TEXT]) {
    const bool compiled = spw_scheme_needs_stack(a->row->scheme.type);
    const spw_trainer *trainer = spw_scheme_trainer(&a->row->scheme);
    const spw_split_try one = spw_split_try_of(i);
    const bool splits = tries[t].kind == SAME_GPUS || tries[t].kind == ANY_GPUS;
    if (splits && one.stages > 1 && trainer->stages_words != NULL) return false;
    spw_plan_point_job(a->request, a->row, a->job);
    if (tries[t].kind == SCHEMES) {
        if (strcmp(a->request->scheme[i].text, (*scheme)->text) == 0) return false;
        *scheme = &a->request->scheme[i];
        (void)snprintf(what, SPW_OTHER_SPLIT_TEXT, "%s", (*scheme)->text);
        return true;
    }
    const bool there = tries[t].kind == AMOUNTS
                           ? tries[t].change(tries[t].amount[i], trainer, a->job, what, SPW_OTHER_SPLIT_TEXT)
                           : spw_split_try_apply(&one, !compiled, a->job, what, SPW_OTHER_SPLIT_TEXT);
    return there && spw_job_check(a->job) == SPW_OK;
}

/* Can the changed job fit, by what it needs at least? Much quicker than a replay. */
static bool may_fit(const attempt *a, const spw_scheme *scheme) {
    spw_plan_request plan = *a->request;
    plan.time_stack = NULL, plan.megatron = NULL;
    const spw_search_facts facts = {.plan = &plan};
    const spw_point point = spw_point_of(a->job, scheme, a->job->sequences_per_gpu[0]);
    const spw_search_asked asked = {.enough = 0};
    spw_search_point_facts found;
    return spw_search_bound_of(&facts, &point, &asked, &found) == SPW_OK &&
           found.bound.least_bytes <= found.budget_bytes;
}

static void write_advice(attempt *a, const char *what, const spw_result_row *row) {
    const double high =
        row->reserved.there ? spw_reserved_high(&row->reserved) : (double)row->footprint.high_bytes;
    char up_to[48] = "";
    a->fits = true;
    a->surely = row->surely_fits || *live(row) != '\0';
    a->gpus = spw_job_gpus(a->job);
    a->out->gpus = a->gpus * spw_job_replicas(a->job);
    if (!a->surely && isfinite(high))
        (void)snprintf(up_to, sizeof up_to, ", up to %.1f%s", high / GIB,
                       row->reserved.there ? " reserved" : "");
    (void)snprintf(a->out->advice, sizeof a->out->advice, "%s %s do%s (%.1f GiB%s)", what,
                   a->surely ? "would" : "may", live(row), (double)row->memory.max_bytes / GIB, up_to);
}

static spw_status try_change(attempt *a, size_t t, size_t i, bool *done) {
    spw_result with = {.rows = 0};
    const spw_scheme *scheme = &a->row->scheme;
    char what[SPW_OTHER_SPLIT_TEXT];
    bool there = false;
    if (!make_change(a, t, i, &scheme, what)) return SPW_OK;
    *done = a->fits && spw_job_gpus(a->job) > a->gpus;
    if (*done) return SPW_OK;
    a->tried = true;
    if (!may_fit(a, scheme)) return SPW_OK;
    a->ended = a->work >= (a->request->advice_work > 0 ? a->request->advice_work : SPW_ADVICE_WORK);
    *done = a->ended;
    if (a->ended) return SPW_OK;
    a->work += spw_job_micro_batches(a->job) * (uint64_t)a->job->model.layers;
    a->replays++;
    const bool other = scheme != &a->row->scheme;
    const spw_status status = spw_plan_replay_point(
        a->request, a->job, scheme, true, !other && !a->row->footprint.follows_routing, &with, &there);
    const spw_result_row *row = there ? &with.row[0] : NULL;
    there =
        there && !(other && row->drops.fraction > a->drop_most) && row->memory_kind == a->row->memory_kind &&
        (row->reserved.there || !a->row->reserved.there) &&
        (row->unlisted == NULL || a->row->unlisted != NULL); /* no sum of components where a list says more */
    if (status == SPW_OK && there && spw_point_fits(row) &&
        (row->surely_fits || (!a->fits && tries[t].kind != SAME_GPUS)))
        write_advice(a, what, row);
    *done = a->fits && (a->surely || tries[t].kind != ANY_GPUS);
    spw_result_clear(&with);
    return status;
}

static spw_status try_row(attempt *a, size_t t) {
    const size_t amounts = amounts_of(a, t);
    spw_status status = SPW_OK;
    bool done = false;
    a->tried = false;
    for (size_t i = 0; i < amounts && status == SPW_OK && !done; i++) {
        status = try_change(a, t, i, &done);
        spw_progress_update(&a->progress, a->looked_at + i + 1);
    }
    a->looked_at += amounts;
    return status;
}

/* What was not tried is not known to be in vain. */
static void say_end(const attempt *a) {
    const size_t used = strlen(a->out->advice);
    if (a->ended)
        (void)snprintf(
            a->out->advice + used, sizeof a->out->advice - used,
            "; advice ended early, after %zu replay%s: changes on %zu GPUs and more are not all tried",
            a->replays, spw_plural(a->replays), spw_job_gpus(a->job));
}

/* The first change of the table that makes the point fit, or what was tried in vain. */
static spw_status try_changes(const spw_plan_request *q, const spw_result_row *row, double drop_most,
                              spw_plan_misfit_advice *out) {
    attempt a = {.request = q, .row = row, .drop_most = drop_most, .out = out};
    char vain[SPW_ADVICE_SENTENCE - 224] = "";
    spw_status status = SPW_OK;
    size_t total = 0;
    for (size_t t = 0; t < sizeof tries / sizeof tries[0]; t++) total += amounts_of(&a, t);
    a.progress = spw_progress_begin("advice", "changes", total);
    SPW_TRY(SPW_ALLOC(1, &a.job));
    for (size_t t = 0; t < sizeof tries / sizeof tries[0] && !a.fits && !a.ended; t++) {
        const size_t used = strlen(vain);
        if (out->state_alone && !tries[t].state) {
            a.looked_at += amounts_of(&a, t);
            continue;
        }
        SPW_TRY(try_row(&a, t));
        if (a.tried && !a.ended)
            (void)snprintf(vain + used, sizeof vain - used, "%s%s", used > 0 ? ", " : "", tries[t].name);
    }
    if (!a.fits)
        (void)snprintf(out->advice, sizeof out->advice, "%s%s; not tried: --tensor, --context",
                       vain[0] != '\0' ? "nothing that was tried helps: "
                       : a.ended       ? "nothing that was tried helps"
                                       : "nothing can be tried",
                       vain);
    say_end(&a);

cleanup:
    spw_progress_end(&a.progress);
    spw_free(a.job);
    return status;
}

spw_status spw_plan_advise(const spw_plan_request *q, const spw_result *result, const spw_result_row *row,
                           spw_plan_misfit_advice *out) {
    const spw_plan_change c = spw_plan_change_of(result, row, q->job->cluster.hbm_gib.value * GIB);
    char *text = out->advice;
    const size_t size = sizeof out->advice;
    const bool moves = c.kind == SPW_CHANGE_SEQUENCES || c.kind == SPW_CHANGE_SPLIT;
    const bool sure = moves ? c.to->surely_fits || *live(c.to) != '\0'
                            : (double)row->footprint.high_bytes <=
                                  ceil(100.0 * c.fraction) / 100.0 * q->job->cluster.hbm_gib.value * GIB;
    const char *would = !sure                ? "may do: its interval reaches over the budget"
                        : *live(row) != '\0' ? "would do by what must be live"
                                             : "would do";
    *out =
        (spw_plan_misfit_advice){.row = (size_t)(row - result->row),
                                 .state_alone = row->footprint.argument_bytes > row->footprint.budget_bytes};
    switch (c.kind) {
    case SPW_CHANGE_EXPANDABLE:
        (void)snprintf(text, size, "--allocator expandable_segments:True may do");
        break;
    case SPW_CHANGE_FRACTION:
        (void)snprintf(text, size, "memory_fraction %.2f %s", ceil(100.0 * c.fraction) / 100.0, would);
        break;
    case SPW_CHANGE_SEQUENCES:
        (void)snprintf(text, size, "%zu sequence%s a GPU %s", c.to->sequences,
                       c.to->sequences == 1 ? "" : "s", would);
        break;
    case SPW_CHANGE_SPLIT:
        (void)snprintf(text, size, "expert %zu x fsdp %zu %s", c.to->expert, c.to->fsdp, would);
        break;
    default: return try_changes(q, row, result->answers.drop_most, out);
    }
    out->gpus = spw_job_gpus(q->job) * spw_job_replicas(q->job);
    return SPW_OK;
}
