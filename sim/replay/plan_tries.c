#include "sim/replay/plan_tries.h"

#include "base/memory.h"
#include "sim/input/job.h"
#include "sim/input/precision.h"
#include "sim/input/remat.h"
#include "sim/memory/muon_packing.h"
#include "sim/replay/replay.h"
#include "sim/replay/smallest_factor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { MOST_TRIED_GPUS = 4096 };

/* --- One point --- */

/* The job of a row: its split and batch alone. */
static void job_of(const spw_plan_request *q, const spw_result_row *row, spw_job *out) {
    *out = *q->job;
    out->expert = row->expert;
    out->fsdp = row->fsdp;
    out->batches = 1;
    out->sequences_per_gpu[0] = row->sequences;
}

/* Replays one point beside the plan; `*there` is false when it cannot be. */
static spw_status replay_point(const spw_plan_request *q, const spw_job *job, const spw_scheme *scheme,
                               bool memory_only, bool one_step, spw_result *out, bool *there) {
    spw_replay_request request = spw_plan_point_request(q, job, scheme);
    if (one_step) request.step_end = request.step_begin + 1;
    if (memory_only) request.time_stack = NULL, request.megatron = NULL;
    const spw_status status = spw_replay_run(&request, out);
    *there = status == SPW_OK && out->rows == 1;
    return status == SPW_ECONFIG ? SPW_OK : status;
}

/* --- Drops --- */

static spw_status try_factor(const spw_plan_request *q, const spw_job *job, const spw_result_row *row,
                             const spw_factor_answer *answer, spw_plan_need *out) {
    spw_result with = {.rows = 0};
    spw_scheme scheme;
    bool has = false, there = false;
    spw_status status = SPW_OK;
    out->option = answer->option;
    out->factor = answer->factor;
    out->fraction = answer->fraction;
    if (!(out->factor > 0.0)) return SPW_OK;
    SPW_TRY(spw_scheme_with_factor(&row->scheme, SPW_FACTOR_ROWS, out->factor, &scheme, &has));
    SPW_TRY(replay_point(q, job, &scheme, false, false, &with, &there));
    if (!there) goto cleanup;
    out->fits = spw_point_fits(&with.row[0]);
    out->timed = with.row[0].timed;
    out->tokens_per_s_per_gpu = with.row[0].time.tokens_per_s_per_gpu;
    out->tokens_per_s_low = with.row[0].tokens_per_s_low;
    out->tokens_per_s_high = with.row[0].tokens_per_s_high;
    out->bytes = with.row[0].memory.max_bytes;

cleanup:
    spw_result_clear(&with);
    return status;
}

static spw_status find_need(const spw_plan_request *q, const spw_result *result, const spw_result_row *row,
                            double most, spw_plan_need *out) {
    spw_result found = {.rows = 0};
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    *out = (spw_plan_need){.row = (size_t)(row - result->row)};
    SPW_TRY(SPW_ALLOC(1, &job));
    job_of(q, row, job);
    const spw_replay_request request = spw_plan_point_request(q, job, &row->scheme);
    SPW_TRY(spw_smallest_factors(&request, most, &found));
    if (found.factors == 1) SPW_TRY(try_factor(q, job, row, &found.factor[0], out));

cleanup:
    spw_result_clear(&found);
    spw_free(job);
    return status;
}

/* Of the schemes that would be the fastest if drops did not count. */
static spw_status find_needs(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const double most = result->answers.drop_most;
    const spw_result_row *fastest = spw_result_row_at(result, result->answers.fastest);
    spw_status status = SPW_OK;
    for (size_t s = 0; s < q->schemes && status == SPW_OK; s++) {
        const spw_result_row *row = spw_result_fastest_of(result, q->scheme[s].text);
        if (row == NULL || row->drops.fraction <= most) continue;
        if (fastest != NULL && row->time.tokens_per_s_per_gpu <= fastest->time.tokens_per_s_per_gpu) continue;
        status = find_need(q, result, row, most, &out->need[out->needs++]);
    }
    return status;
}

static spw_status find_break_even(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const spw_result_row *row = spw_result_row_at(result, result->answers.fastest_dropless);
    spw_result with = {.rows = 0};
    spw_job *job = NULL;
    spw_scheme dense;
    char text[SPW_SCHEME_TEXT];
    bool there = false;
    spw_status status = SPW_OK;
    out->break_even_factor = row != NULL ? spw_plan_break_even_factor(q, row) : NAN;
    out->break_even_fraction = NAN;
    if (row == NULL || !isfinite(out->break_even_factor)) return SPW_OK;
    (void)snprintf(text, sizeof text, "dense:capacity_factor=%.6f", out->break_even_factor);
    SPW_TRY(SPW_ALLOC(1, &job));
    job_of(q, row, job);
    SPW_TRY(spw_scheme_parse(text, &dense));
    SPW_TRY(replay_point(q, job, &dense, false, false, &with, &there));
    if (there) out->break_even_fraction = with.row[0].drops.fraction;

cleanup:
    spw_result_clear(&with);
    spw_free(job);
    return status;
}

/* --- Changes that make a point fit --- */

/* What an allocator adds is not in the memory of such a point. */
static const char *live(const spw_result_row *row) {
    return spw_point_is_live_alone(row) ? " by what must be live" : "";
}

/* Changes the job; false where the change is none, or cannot be. what: how the change is written. */
typedef bool spw_try_function(size_t amount, spw_job *job, char *what, size_t size);

static size_t parts_of(const spw_job *job) { return job->micro_batches > 0 ? job->micro_batches : 1; }

static bool fewer_sequences(size_t amount, spw_job *job, char *what, size_t size) {
    const size_t parts = parts_of(job), sequences = job->sequences_per_gpu[0] / amount / parts * parts;
    if (sequences == 0 || sequences == job->sequences_per_gpu[0]) return false;
    job->sequences_per_gpu[0] = sequences;
    (void)snprintf(what, size, "%zu sequence%s a GPU", sequences, sequences == 1 ? "" : "s");
    return true;
}

static bool full_remat(size_t amount, spw_job *job, char *what, size_t size) {
    (void)amount;
    if (job->remat == SPW_REMAT_FULL) return false;
    job->remat = SPW_REMAT_FULL;
    (void)snprintf(what, size, "remat full");
    return true;
}

static bool small_optimizer(size_t amount, spw_job *job, char *what, size_t size) {
    if (job->precision.optimizer <= amount) return false;
    job->precision.optimizer = amount;
    (void)snprintf(what, size, "precision.optimizer bf16");
    return true;
}

static bool shared_optimizer(size_t amount, spw_job *job, char *what, size_t size) {
    const spw_optimizer_kind kind = (spw_optimizer_kind)(amount - 1);
    if (job->optimizer <= kind) return false; /* sharded, distributed, replicated: from least to most */
    job->optimizer = kind;
    (void)snprintf(what, size, "optimizer: %s", spw_optimizer_name(kind));
    return true;
}

static bool dealt_muon(size_t amount, spw_job *job, char *what, size_t size) {
    (void)amount;
    if (!spw_muon_packs(job)) return false;
    job->muon_ping_pong = true;
    (void)snprintf(what, size, "muon_layout: ping_pong (--no-use-layer-wise-param-layout)");
    return true;
}

static bool other_split(size_t amount, spw_job *job, char *what, size_t size) {
    size_t split[SPW_PLAN_SPLITS];
    const size_t splits = spw_plan_all_splits(job, split), gpus = job->expert * job->fsdp;
    if (amount >= splits || split[amount] == job->expert) return false;
    job->expert = split[amount];
    job->fsdp = gpus / job->expert;
    (void)snprintf(what, size, "expert %zu x fsdp %zu", job->expert, job->fsdp);
    return true;
}

/* Stages take turns with micro-batches, best with a multiple of their number: the fewest that divide the batch. 0: none does. */
static size_t parts_for_stages(const spw_job *job, size_t stages) {
    const size_t sequences = job->sequences_per_gpu[0];
    for (size_t parts = stages; parts <= sequences; parts += stages)
        if (parts >= parts_of(job) && sequences % parts == 0) return parts;
    return 0;
}

static bool more_stages(size_t amount, spw_job *job, char *what, size_t size) {
    if (job->part != SPW_PART_WHOLE || job->fsdp % amount != 0) return false;
    const size_t stages = job->pipeline * amount, parts = parts_for_stages(job, stages);
    const bool other = parts_of(job) > 1 && parts_of(job) % stages != 0;
    if (other && parts == 0) return false;
    job->fsdp /= amount;
    job->pipeline = stages;
    if (other) job->micro_batches = parts;
    const int used = snprintf(what, size, "pipeline %zu x fsdp %zu", job->pipeline, job->fsdp);
    if (other) (void)snprintf(what + used, size - (size_t)used, " in %zu micro-batches", parts);
    return true;
}

static bool more_gpus(size_t amount, spw_job *job, char *what, size_t size) {
    if (job->part != SPW_PART_WHOLE || spw_job_gpus(job) * amount > MOST_TRIED_GPUS) return false;
    job->cluster.nodes *= amount;
    job->fsdp *= amount;
    (void)snprintf(what, size, "%zu GPUs (expert %zu x fsdp %zu)", spw_job_gpus(job), job->expert, job->fsdp);
    return true;
}

static bool more_gpus_and_experts(size_t amount, spw_job *job, char *what, size_t size) {
    if (job->model.experts % (job->expert * amount) != 0 || !more_gpus(amount, job, what, size)) return false;
    job->expert *= amount;
    job->fsdp /= amount;
    (void)snprintf(what, size, "%zu GPUs (expert %zu x fsdp %zu)", spw_job_gpus(job), job->expert, job->fsdp);
    return true;
}

/* One sequence a micro-batch and remat full; `what` says it. */
static void least_batch(spw_job *job, char *what, size_t size) {
    job->sequences_per_gpu[0] = parts_of(job);
    job->remat = SPW_REMAT_FULL;
    (void)snprintf(what, size, "%zu sequence%s a GPU and remat full on ", job->sequences_per_gpu[0],
                   job->sequences_per_gpu[0] == 1 ? "" : "s");
}

static bool least_of_all(size_t amount, spw_job *job, char *what, size_t size) {
    const bool same = job->remat == SPW_REMAT_FULL && job->sequences_per_gpu[0] == parts_of(job);
    least_batch(job, what, size);
    const size_t used = strlen(what);
    return !same && more_gpus(amount, job, what + used, size - used); /* else more_gpus tries it */
}

/* The same in stages, with experts over as many GPUs of a stage as can be. */
static bool stages_of_all(size_t amount, spw_job *job, char *what, size_t size) {
    size_t split[SPW_PLAN_SPLITS];
    const size_t splits = spw_plan_all_splits(job, split), gpus = job->expert * job->fsdp;
    least_batch(job, what, size);
    const size_t used = strlen(what);
    if (splits == 0 || !more_gpus(amount, job, what + used, size - used)) return false;
    job->expert = split[splits - 1];
    job->fsdp = gpus / job->expert;
    job->pipeline *= amount;
    (void)snprintf(what + used, size - used, "%zu GPUs (expert %zu x fsdp %zu x pipeline %zu)",
                   spw_job_gpus(job), job->expert, job->fsdp, job->pipeline);
    return true;
}

/* From the smallest change to the largest. `state`: it makes the state smaller. */
static const struct {
    const char *name;         /* of the whole row, for what was tried in vain */
    spw_try_function *change; /* NULL: the amount-th scheme of the plan takes the place of the point's */
    bool state;
    size_t amount[5]; /* ended by 0 */
    bool from_zero;   /* the amounts are 0, 1, ... instead */
} tries[] = {
    {"fewer sequences", fewer_sequences, false, {2, 4, 8, 16, 64}, false},
    {"remat full", full_remat, false, {1}, false},
    {"other expert-parallel sizes", other_split, true, {0}, true},
    {"an optimizer that is shared more",
     shared_optimizer,
     true,
     {SPW_OPTIMIZER_DISTRIBUTED + 1}, /* sharded is FSDP, which is no switch of Megatron-Core's */
     false},
    {"muon_layout: ping_pong", dealt_muon, true, {1}, false},
    {"precision.optimizer bf16", small_optimizer, true, {2}, false},
    {"another scheme of the plan", NULL, false, {0}, true},
    {"pipeline stages", more_stages, true, {2, 4, 8}, false},
    {"more GPUs", more_gpus, true, {2, 4, 8, 16}, false},
    {"more GPUs and expert parallelism", more_gpus_and_experts, true, {2, 4, 8, 16}, false},
    {"one sequence, remat full and more GPUs", least_of_all, true, {1, 2, 4, 8, 16}, false},
    {"the same in stages", stages_of_all, true, {1, 2, 4, 8, 16}, false},
};

typedef struct attempt {
    const spw_plan_request *request;
    const spw_result_row *row;
    spw_job *job;
    double drop_most; /* of another scheme */
    bool fits, tried; /* of the row of the table under way */
    spw_plan_misfit_advice *out;
} attempt;

/* Changes a->job, or takes another scheme in the place of *scheme; false where the change is none, or cannot be. */
static bool make_change(attempt *a, size_t t, size_t amount, const spw_scheme **scheme, char what[192]) {
    job_of(a->request, a->row, a->job);
    if (tries[t].change != NULL)
        return tries[t].change(amount, a->job, what, 192) && spw_job_check(a->job) == SPW_OK;
    if (amount >= a->request->schemes || strcmp(a->request->scheme[amount].text, (*scheme)->text) == 0)
        return false;
    *scheme = &a->request->scheme[amount];
    (void)snprintf(what, 192, "%s", (*scheme)->text);
    return true;
}

static spw_status try_change(attempt *a, size_t t, size_t amount) {
    spw_result with = {.rows = 0};
    const spw_scheme *scheme = &a->row->scheme;
    char what[192];
    bool there = false;
    if (!make_change(a, t, amount, &scheme, what)) return SPW_OK;
    const bool other = scheme != &a->row->scheme;
    const spw_status status = replay_point(a->request, a->job, scheme, true,
                                           !other && !a->row->footprint.follows_routing, &with, &there);
    const spw_result_row *row = there ? &with.row[0] : NULL;
    there = there && !(other && row->drops.fraction > a->drop_most);
    if (status == SPW_OK && there && row->memory_kind == a->row->memory_kind &&
        row->reserved.there == a->row->reserved.there) {
        a->tried = true;
        a->fits = spw_point_fits(row);
        if (a->fits && (row->surely_fits || *live(row) != '\0'))
            (void)snprintf(a->out->advice, sizeof a->out->advice, "%s would do%s (%.1f GiB)", what, live(row),
                           (double)row->memory.max_bytes / GIB);
        else if (a->fits)
            (void)snprintf(a->out->advice, sizeof a->out->advice, "%s may do (%.1f GiB, up to %.1f)", what,
                           (double)row->memory.max_bytes / GIB, (double)row->footprint.high_bytes / GIB);
    }
    spw_result_clear(&with);
    return status;
}

static spw_status try_row(attempt *a, size_t t) {
    const size_t most =
        tries[t].from_zero ? SPW_JOB_MAX_SCHEMES : sizeof tries[t].amount / sizeof tries[t].amount[0];
    spw_status status = SPW_OK;
    a->tried = false;
    for (size_t i = 0; i < most && status == SPW_OK && !a->fits; i++) {
        if (!tries[t].from_zero && tries[t].amount[i] == 0) break;
        status = try_change(a, t, tries[t].from_zero ? i : tries[t].amount[i]);
    }
    return status;
}

/* The first change of the table that makes the point fit, or what was tried in vain. */
static spw_status try_changes(const spw_plan_request *q, const spw_result_row *row, double drop_most,
                              spw_plan_misfit_advice *out) {
    attempt a = {.request = q, .row = row, .drop_most = drop_most, .out = out};
    char vain[SPW_ADVICE_SENTENCE / 2] = "";
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &a.job));
    for (size_t t = 0; t < sizeof tries / sizeof tries[0] && !a.fits; t++) {
        const size_t used = strlen(vain);
        if (out->state_alone && !tries[t].state) continue;
        SPW_TRY(try_row(&a, t));
        if (a.tried)
            (void)snprintf(vain + used, sizeof vain - used, "%s%s", used > 0 ? ", " : "", tries[t].name);
    }
    if (!a.fits)
        (void)snprintf(out->advice, sizeof out->advice, "%s%s",
                       vain[0] != '\0' ? "nothing that was tried helps: " : "nothing can be tried", vain);

cleanup:
    spw_free(a.job);
    return status;
}

static spw_status advise(const spw_plan_request *q, const spw_result *result, const spw_result_row *row,
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
    case SPW_CHANGE_EXPANDABLE: (void)snprintf(text, size, "expandable_segments:True would do"); break;
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
    return SPW_OK;
}

/* Of the fastest point, or else of the one that needs least. */
static spw_status try_precision(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const spw_result_answers *a = &result->answers;
    const size_t i = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    const spw_result_row *row = spw_result_row_at(result, i);
    spw_result with = {.rows = 0};
    spw_job *job = NULL;
    bool there = false;
    const char *name = NULL;
    spw_status status = SPW_OK;
    if (row == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(2, &job));
    job_of(q, row, job);
    name = spw_precision_other(job, job + 1);
    if (name == NULL || spw_job_check(job + 1) != SPW_OK) goto cleanup;
    SPW_TRY(replay_point(q, job + 1, &row->scheme, true, !row->footprint.follows_routing, &with, &there));
    if (!there) goto cleanup;
    const spw_result_row *other = &with.row[0];
    out->other = (spw_plan_other_precision){.name = name,
                                            .row = i,
                                            .verdict = spw_result_verdict(other),
                                            .bytes = other->memory.max_bytes,
                                            .low_bytes = other->footprint.low_bytes,
                                            .high_bytes = other->footprint.high_bytes,
                                            .live_alone = spw_point_is_live_alone(other)};

cleanup:
    spw_result_clear(&with);
    spw_free(job);
    return status;
}

spw_status spw_plan_try(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    spw_status status = SPW_OK;
    *out = (spw_plan_tries){.needs = 0};
    SPW_TRY(find_needs(q, result, out));
    SPW_TRY(find_break_even(q, result, out));
    SPW_TRY(try_precision(q, result, out));
    SPW_TRY(spw_plan_later_find(q, result, &out->later));
    for (size_t s = 0; s < q->schemes; s++) {
        const spw_result_row *row = spw_plan_misfit(result, q->scheme[s].text, q->job->expert);
        if (row != NULL) SPW_TRY(advise(q, result, row, &out->misfit[out->misfits++]));
    }

cleanup:
    return status;
}
