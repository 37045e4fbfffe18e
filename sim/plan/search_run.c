#include "sim/plan/search_run.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/stop.h"
#include "sim/job/job.h"
#include "sim/job/replicas.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/plan/search_bound.h"
#include "sim/replay/replay.h"
#include "sim/schemes/point.h"

#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-9; /* of a bound */
static const size_t MOST_JOBS = (size_t)1 << 32;
static const size_t MOST_COUNTS_BYTES = (size_t)256 << 20; /* of the places that one replay holds at once */

/* What the bounds say of a point, once they were asked. */
typedef struct known_facts {
    bool there;
    spw_status status;
    spw_search_point_facts facts;
} known_facts;
enum { KNOWN_FACTS = 1 << 16 };

/* A search under way: the twins are jobs of one expert-parallel size that one replay takes together. */
typedef struct search {
    const spw_search_request *q;
    spw_plan_request plan; /* with the trace of the GPUs under way */
    spw_search_facts facts;
    spw_megatron_coefficients *megatron;
    spw_token_store *store;                  /* of that trace */
    size_t twins, batches, schemes, per_job; /* batches of the jobs under way, and points of each */
    spw_job *job;                            /* [twins] */
    size_t (*value)[SPW_SEARCH_DIMENSIONS];  /* [twins] */
    size_t *index;                           /* [twins] of the space */
    spw_search_bound *bound;                 /* [twins][batches][schemes], as the replay has them */
    known_facts *known;                      /* [KNOWN_FACTS] of the first points of the GPUs under way */
    size_t first;                            /* job of those GPUs */
    size_t fits[SPW_JOB_MAX_SCHEMES];        /* 1 + the last job whose state fits, whatever the batch */
    bool *skip;                              /* the same */
    bool timed;                              /* points with a time are looked at, or those without */
    bool counts;                             /* what becomes of the points under way is counted */
    spw_search_outcome *out;
    spw_progress
        *progress; /* of the phase under way, drawn anew at every point that is replayed; NULL: none */
    size_t done;   /* units of it */
    char less[SPW_SEARCH_LESS_TEXT];
} search;

static void proceed(search *s, spw_progress *progress, size_t done) {
    s->progress = progress;
    s->done = done;
    if (progress != NULL) spw_progress_update(progress, done);
}

static void destroy(search *s) {
    spw_free(s->megatron), spw_free(s->job), spw_free(s->value);
    spw_free(s->index), spw_free(s->bound), spw_free(s->skip);
    spw_free(s->known);
    spw_token_store_destroy(s->store);
}

static spw_status create(const spw_search_request *q, spw_search_outcome *out, search *s) {
    spw_status status = SPW_OK;
    *s = (search){.q = q,
                  .plan = *q->plan,
                  .twins = spw_search_space_twins(q->space),
                  .batches = q->plan->job->batches,
                  .schemes = q->plan->schemes,
                  .out = out};
    if (spw_search_space_jobs(q->space) > MOST_JOBS / (s->batches * s->schemes))
        return spw_fail(SPW_EARG, "a search of more than %zu points; leave some out with --over", MOST_JOBS);
    s->plan.splits = 0;
    SPW_TRY(SPW_ALLOC(1, &s->megatron));
    SPW_TRY(spw_token_store_create(&s->store));
    SPW_TRY(SPW_ALLOC(KNOWN_FACTS, &s->known));
    s->plan.store = s->store;
    SPW_TRY(SPW_ALLOC(s->twins, &s->job));
    SPW_TRY(SPW_ALLOC(s->twins, &s->value));
    SPW_TRY(SPW_ALLOC(s->twins, &s->index));
    SPW_TRY(SPW_ALLOC(s->twins * s->batches * s->schemes, &s->bound));
    SPW_TRY(SPW_ALLOC(s->twins * s->batches * s->schemes, &s->skip));

cleanup:
    return status;
}

/* --- Bounds --- */

static size_t all_gpus(const search *s, size_t gpus) { return gpus * spw_job_replicas(s->plan.job); }
static bool is_too_large(const search *s, const spw_point *point) {
    return s->q->most_step_tokens > 0 && spw_point_step_tokens(point) > s->q->most_step_tokens;
}

/* GOOD: it may be one of the answers. */
static spw_search_fate judge_speed(const search *s, const spw_search_bound *bound) {
    if (s->q->tokens_per_day > 0.0 &&
        spw_search_day(bound->tokens_per_s_most, all_gpus(s, bound->gpus)) < s->q->tokens_per_day)
        return SPW_SEARCH_SLOW;
    return spw_search_front_beats(&s->out->front, bound, s->timed) ? SPW_SEARCH_BEATEN : SPW_SEARCH_GOOD;
}

/* The bounds of the point at `at` of the jobs under way, which seeds and their search both ask for. */
static spw_status bound_of(search *s, size_t at, const spw_point *point, spw_search_point_facts *out) {
    const size_t all = s->q->space->base->batches * s->schemes,
                 place = (s->index[at / s->per_job] - s->first) * all + at % s->per_job;
    known_facts *known = place < KNOWN_FACTS ? &s->known[place] : NULL;
    if (known != NULL && known->there) {
        *out = known->facts;
        return known->status;
    }
    size_t *fits = &s->fits[at % s->schemes];
    const size_t job = s->index[at / s->per_job] + 1;
    const spw_status status = spw_search_bound_of(&s->facts, point, *fits == job, out);
    if (status == SPW_OK && !out->state_alone) *fits = job;
    if (status == SPW_ECONFIG) spw_search_nearest_refused(&s->out->nearest);
    if (known != NULL) *known = (known_facts){true, status, *out};
    return status;
}

/* What the bounds say of a point: GOOD means that it is to be replayed. */
static spw_status judge(search *s, size_t at, const spw_point *point, spw_search_fate *out) {
    const size_t scheme = at % s->schemes, *value = s->value[at / s->per_job];
    spw_search_bound *bound = &s->bound[at];
    spw_search_point_facts f;
    *out = SPW_SEARCH_BATCH;
    if (is_too_large(s, point)) return SPW_OK;
    *out = SPW_SEARCH_ALONE;
    if (spw_scheme_is_unknown_alone(point->scheme, &point->shape)) return SPW_OK;
    const spw_status status = bound_of(s, at, point, &f);
    *out = SPW_SEARCH_IMPOSSIBLE;
    if (status != SPW_OK) return status == SPW_ECONFIG ? SPW_OK : status;
    if (f.state_alone && spw_search_nearest_may_be(&s->out->nearest, scheme, f.state_bytes)) {
        const spw_status all = spw_search_bound_of(&s->facts, point, true, &f);
        if (all != SPW_OK) return all;
    }
    *bound = f.bound;
    *out = SPW_SEARCH_GOOD;
    if (f.bound.least_bytes > f.budget_bytes) {
        spw_search_nearest_memory(&s->out->nearest, scheme, value, point->sequences,
                                  (spw_search_need){f.bound.least_bytes, f.budget_bytes});
        *out = f.state_bytes > f.budget_bytes ? SPW_SEARCH_STATE : SPW_SEARCH_MEMORY;
    } else if (f.timed != s->timed) {
        *out = SPW_SEARCH_UNTIMED;
    } else {
        *out = judge_speed(s, bound);
        if (*out == SPW_SEARCH_SLOW)
            spw_search_nearest_speed(&s->out->nearest, bound->tokens_per_s_most, all_gpus(s, bound->gpus));
    }
    return SPW_OK;
}

/* --- Replay --- */

static spw_point point_at(const search *s, size_t at) {
    const spw_job *job = &s->job[at / s->per_job];
    return spw_point_of(job, &s->plan.scheme[at % s->schemes],
                        job->sequences_per_gpu[at / s->schemes % s->batches]);
}

static bool drops_at_most(const spw_result_drops *drops, double most) {
    return most > 0.0 ? drops->fraction <= most : drops->dropped == 0 && !drops->at_least;
}

static spw_search_point point_of(const search *s, size_t at, const spw_result_row *row) {
    const size_t job = at / s->per_job, batch = at / s->schemes % s->batches;
    const spw_point point = point_at(s, at);
    spw_search_point p = {.gpus = spw_job_gpus(&s->job[job]),
                          .fsdp = row->fsdp,
                          .sequences = row->sequences,
                          .scheme = at % s->schemes,
                          .kind = row->memory_kind,
                          .verdict = spw_result_verdict(row),
                          .timed = row->timed,
                          .surely_fits = row->surely_fits,
                          .peak_bytes = row->memory.max_bytes,
                          .low_bytes = row->footprint.low_bytes,
                          .high_bytes = row->footprint.high_bytes,
                          .budget_bytes = row->footprint.budget_bytes,
                          .drops = row->drops,
                          .balanced = spw_result_balanced(row),
                          .most_bytes = row->most_bytes,
                          .budget = row->budget,
                          .step_tokens = spw_point_step_tokens(&point),
                          .turn_sequences = spw_search_turn_sequences(
                              row->sequences, s->job[job].micro_batches, s->job[job].pipeline)};
    if (row->reserved.there) {
        p.reserved_bytes = (double)row->reserved.as_set.reserved.max_bytes;
        p.reserved_low_bytes = spw_reserved_low(&row->reserved);
        p.reserved_high_bytes = spw_reserved_high(&row->reserved);
    }
    const size_t place = spw_search_space_batch(s->q->space, s->job[job].sequences_per_gpu[batch]);
    p.order = (s->index[job] * s->q->space->base->batches + place) * s->schemes + p.scheme;
    memcpy(p.value, s->value[job], sizeof p.value);
    if (!row->timed) return p;
    p.step = (spw_step_span){row->time.step_s, row->time.low_s, row->time.high_s};
    p.tokens_per_s_per_gpu = row->time.tokens_per_s_per_gpu;
    p.pace = spw_timeline_pace(&row->time);
    p.tokens_per_s_low = row->tokens_per_s_low;
    p.tokens_per_s_high = row->tokens_per_s_high;
    return p;
}

static spw_status wrong_memory(const search *s, size_t scheme, uint64_t peak_bytes,
                               const spw_search_bound *bound) {
    return spw_fail(
        SPW_EMISMATCH, "a bound is wrong: %s needs %llu bytes, not at least %llu; please report the job",
        s->plan.scheme[scheme].text, (unsigned long long)peak_bytes, (unsigned long long)bound->least_bytes);
}

/* A bound that a replay goes beyond is no bound. */
static spw_status check_bound(const search *s, const spw_search_bound *bound, const spw_search_point *p) {
    const char *scheme = s->plan.scheme[p->scheme].text;
    if (p->peak_bytes < bound->least_bytes || p->kind != bound->kind)
        return wrong_memory(s, p->scheme, p->peak_bytes, bound);
    if (p->tokens_per_s_per_gpu > bound->tokens_per_s_most * (1.0 + ROUNDING))
        return spw_fail(
            SPW_EMISMATCH,
            "a bound is wrong: %s makes %.17g tokens/s of a GPU, not at most %.17g; please report "
            "the job",
            scheme, p->tokens_per_s_per_gpu, bound->tokens_per_s_most);
    return SPW_OK;
}

static spw_search_fate fate_of(const search *s, const spw_search_point *p, const spw_result_row *row) {
    if (p->verdict == SPW_VERDICT_OOM) return SPW_SEARCH_OUT_OF_MEMORY;
    if (!drops_at_most(&row->drops, s->q->drop_most)) return SPW_SEARCH_DROPS;
    if (spw_search_day(p->tokens_per_s_per_gpu, all_gpus(s, p->gpus)) < s->q->tokens_per_day)
        return SPW_SEARCH_TOO_SLOW;
    return SPW_SEARCH_GOOD;
}

/* What a replay knows before it times a point is a better bound, of its memory the last word. */
static spw_status wants(void *state, const spw_replay_prospect *p, bool *out) {
    search *s = state;
    spw_search_bound *bound = &s->bound[p->row];
    const double most = p->tokens_per_s_most * (1.0 + ROUNDING);
    const size_t scheme = p->row % s->schemes;
    proceed(s, s->progress, s->done);
    if (p->peak_bytes < bound->least_bytes) return wrong_memory(s, scheme, p->peak_bytes, bound);
    bound->least_bytes = p->peak_bytes;
    bound->tokens_per_s_most = fmin(bound->tokens_per_s_most, most);
    spw_search_fate fate = judge_speed(s, bound);
    if (p->peak_bytes > p->budget_bytes) {
        const spw_point point = point_at(s, p->row);
        fate = SPW_SEARCH_OUT_OF_MEMORY;
        spw_search_nearest_memory(&s->out->nearest, scheme, s->value[p->row / s->per_job], point.sequences,
                                  (spw_search_need){p->peak_bytes, p->budget_bytes});
    }
    *out = fate == SPW_SEARCH_GOOD && !spw_stop_is_asked();
    if (fate == SPW_SEARCH_GOOD) return SPW_OK;
    if (fate == SPW_SEARCH_SLOW)
        spw_search_nearest_speed(&s->out->nearest, bound->tokens_per_s_most, all_gpus(s, bound->gpus));
    s->out->fate[fate] += s->counts;
    s->out->beaten[scheme] +=
        s->counts && fate == SPW_SEARCH_BEATEN && drops_at_most(&p->drops, s->q->drop_most);
    return SPW_OK;
}

static spw_status take(void *state, size_t at, const spw_result_row *row) {
    search *s = state;
    spw_search_point p = point_of(s, at, row);
    const spw_status status = check_bound(s, &s->bound[at], &p);
    if (status != SPW_OK) return status;
    const spw_search_fate fate = fate_of(s, &p, row);
    s->out->fate[fate] += s->counts;
    if (fate == SPW_SEARCH_TOO_SLOW)
        spw_search_nearest_speed(&s->out->nearest, p.tokens_per_s_per_gpu, all_gpus(s, p.gpus));
    if (fate == SPW_SEARCH_DROPS) spw_search_nearest_drops(&s->out->nearest, &p);
    if (fate != SPW_SEARCH_GOOD) s->out->fails[p.scheme] += s->counts;
    if (fate != SPW_SEARCH_GOOD) return SPW_OK;
    s->out->fits[p.scheme] += s->counts;
    spw_search_reasons_note(&s->out->reasons, &row->outside_fit, &p.outside);
    spw_search_front_take(&s->out->front, &p);
    return SPW_OK;
}

/* The first `jobs` jobs, as s->skip leaves points out. */
static spw_status replay(search *s, size_t jobs) {
    spw_replay_request request = spw_plan_point_request(&s->plan, s->job, s->plan.scheme);
    spw_result result = {.rows = 0};
    size_t left_out = 0;
    const size_t points = jobs * s->per_job;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < points; i++) left_out += s->skip[i];
    if (left_out == points) return SPW_OK;
    request.splits = jobs;
    request.schemes = s->schemes;
    request.skip = s->skip;
    request.judge = (spw_replay_judge){s, wants, take};
    SPW_TRY(spw_replay_run(&request, &result));
    if (result.refusals > 0)
        SPW_TRY(spw_fail(SPW_EMISMATCH, "a point that can be was refused; please report the job"));

cleanup:
    spw_result_clear(&result);
    return status;
}

/* --- Jobs under way --- */

/* Bytes of the counts of one job. */
static size_t counts_bytes(const spw_job *job) {
    size_t sequences = 0;
    for (size_t b = 0; b < job->batches; b++) sequences += job->sequences_per_gpu[b] / job->micro_batches;
    return (sequences + 2) * job->expert * job->fsdp * job->model.experts * sizeof(uint32_t);
}

/* The job of the space at `index`, as the `jobs`-th of those under way; false where it cannot be. Twins have the same batches. */
static bool make_job(search *s, size_t index, size_t jobs) {
    s->index[jobs] = index;
    spw_search_space_values(s->q->space, index, s->value[jobs]);
    if (spw_search_space_job(s->q->space, s->value[jobs], &s->job[jobs]) != SPW_OK) return false;
    s->batches = s->job[jobs].batches;
    s->per_job = s->batches * s->schemes;
    return true;
}

/* --- The walk --- */

/* Twins from job `first` on: all whose points are to be replayed, as many at a time as there is room for. */
static spw_status run_twins(search *s, size_t first) {
    const size_t all = spw_search_space_batches(s->q->space) * s->schemes;
    size_t jobs = 0, bytes = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < s->twins; i++) {
        size_t good = 0;
        if (!make_job(s, first + i, jobs)) {
            const bool uneven = spw_search_space_is_uneven(s->q->space, s->value[jobs]);
            if (!uneven) spw_search_nearest_no_job(&s->out->nearest, spw_search_divides(s->value[jobs]));
            s->out->fate[uneven ? SPW_SEARCH_GLOBAL_BATCH : SPW_SEARCH_IMPOSSIBLE] += all;
            continue;
        }
        s->out->fate[SPW_SEARCH_IMPOSSIBLE] += all - s->per_job;
        for (size_t at = jobs * s->per_job; at < (jobs + 1) * s->per_job; at++) {
            const spw_point point = point_at(s, at);
            spw_search_fate fate = SPW_SEARCH_GOOD;
            SPW_TRY(judge(s, at, &point, &fate));
            s->skip[at] = fate != SPW_SEARCH_GOOD;
            if (s->skip[at]) s->out->fate[fate]++;
            if (fate == SPW_SEARCH_BEATEN) {
                s->out->left_out[at % s->schemes]++;
                s->out->left_out_fit[at % s->schemes] += s->bound[at].kind == SPW_MEMORY_ARENA;
            }
            good += !s->skip[at];
        }
        if (good == 0) continue;
        bytes += counts_bytes(&s->job[jobs++]);
        if (bytes < MOST_COUNTS_BYTES) continue;
        SPW_TRY(replay(s, jobs));
        jobs = bytes = 0;
    }
    SPW_TRY(replay(s, jobs));

cleanup:
    return status;
}

/* --- Points to begin with --- */

/* Of a scheme and a batch the point that may be the fastest by its bound: replayed first, it leaves the more points out. */
typedef struct seed {
    bool there;
    size_t index;
    double most;
} seed;

static spw_status find_seeds(search *s, size_t first, size_t last, seed *list) {
    spw_progress progress = spw_progress_begin("bounds", "jobs", last - first);
    spw_status status = SPW_OK;
    for (size_t index = first; index < last && !spw_stop_is_asked(); index++) {
        spw_progress_update(&progress, index - first);
        if (!make_job(s, index, 0)) continue;
        for (size_t at = 0; at < s->per_job; at++) {
            const spw_point point = point_at(s, at);
            spw_search_point_facts f;
            if (is_too_large(s, &point) || spw_scheme_is_unknown_alone(point.scheme, &point.shape)) continue;
            status = bound_of(s, at, &point, &f);
            if (status == SPW_ECONFIG) continue;
            SPW_TRY(status);
            if (f.bound.least_bytes > f.budget_bytes || !f.timed) continue;
            const size_t batch = spw_search_space_batch(s->q->space, point.sequences);
            seed *of = &list[batch * s->schemes + at % s->schemes];
            if (!of->there || f.bound.tokens_per_s_most > of->most)
                *of = (seed){true, index, f.bound.tokens_per_s_most};
        }
    }
    status = SPW_OK;

cleanup:
    spw_progress_end(&progress);
    return status;
}

static spw_status replay_seeds(search *s, const seed *list) {
    const spw_job *base = s->q->space->base;
    const size_t seeds = base->batches * s->schemes;
    spw_progress progress = spw_progress_begin("seeds", "points", seeds);
    spw_status status = SPW_OK;
    for (size_t i = 0; i < seeds && !spw_stop_is_asked(); i++) {
        proceed(s, &progress, i);
        if (!list[i].there || !make_job(s, list[i].index, 0)) continue;
        for (size_t at = 0; at < s->per_job; at++) {
            const spw_point point = point_at(s, at);
            spw_search_fate fate = SPW_SEARCH_IMPOSSIBLE;
            s->skip[at] = at % s->schemes != i % s->schemes ||
                          point.sequences != base->sequences_per_gpu[i / s->schemes];
            if (s->skip[at]) continue;
            SPW_TRY(judge(s, at, &point, &fate));
            s->skip[at] = fate != SPW_SEARCH_GOOD;
        }
        SPW_TRY(replay(s, 1));
    }

cleanup:
    proceed(s, NULL, 0);
    spw_progress_end(&progress);
    return status;
}

/* --- One number of GPUs: the jobs from `first` on that have it --- */

static spw_status run_gpus(search *s, size_t first, size_t last, spw_progress *progress) {
    seed *seeds = NULL;
    spw_status status = SPW_OK;
    spw_job *of = &s->job[0];
    *of = *s->q->space->base;
    spw_search_space_values(s->q->space, first, s->value[0]);
    SPW_TRY(SPW_ALLOC(s->q->space->base->batches * s->schemes, &seeds));
    SPW_TRY(spw_cluster_resize(&of->cluster, s->value[0][SPW_SEARCH_GPUS]));
    SPW_TRY(s->q->open_trace(s->q->state, of, &s->plan.trace));
    spw_token_store_forget(s->store);
    memset(s->known, 0, KNOWN_FACTS * sizeof *s->known);
    s->first = first;
    s->facts = (spw_search_facts){.plan = &s->plan, .generated = s->q->generated};
    if (s->plan.megatron != NULL) {
        SPW_TRY(spw_megatron_coefficients_scale(s->plan.megatron, &of->cluster, s->megatron));
        s->facts.megatron = s->megatron;
    }
    s->counts = false;
    if (s->timed) {
        SPW_TRY(find_seeds(s, first, last, seeds));
        SPW_TRY(replay_seeds(s, seeds));
    }
    s->counts = true;
    spw_progress_skip(progress, first); /* the rate is that of the walk alone */
    for (size_t index = first; index < last && !spw_stop_is_asked(); index += s->twins) {
        proceed(s, progress, index);
        SPW_TRY(run_twins(s, index));
    }

cleanup:
    spw_free(seeds);
    return status;
}

/* Points with a time, or without one. */
static spw_status run_all(search *s) {
    const size_t jobs = spw_search_space_jobs(s->q->space),
                 each = jobs / s->q->space->values[SPW_SEARCH_GPUS];
    spw_progress progress = spw_progress_begin("search", "jobs", jobs);
    progress.less = spw_search_space_less(s->q->space, s->less);
    spw_status status = SPW_OK;
    memset(s->out->fate, 0, sizeof s->out->fate);
    memset(s->out->beaten, 0, sizeof s->out->beaten);
    memset(s->out->left_out, 0, sizeof s->out->left_out);
    memset(s->out->left_out_fit, 0, sizeof s->out->left_out_fit);
    memset(s->out->fails, 0, sizeof s->out->fails);
    for (size_t first = 0; first < jobs && status == SPW_OK && !spw_stop_is_asked(); first += each)
        status = run_gpus(s, first, first + each, &progress);
    proceed(s, NULL, 0);
    spw_progress_end(&progress);
    return status;
}

spw_status spw_search_run(const spw_search_request *q, spw_search_outcome *out) {
    spw_status status = SPW_OK;
    search s;
    *out = (spw_search_outcome){.front.fewest_gpus = q->tokens_per_day > 0.0};
    SPW_TRY(create(q, out, &s));
    out->points = spw_search_space_jobs(q->space) * spw_search_space_batches(q->space) * s.schemes;
    s.timed = q->plan->time_stack != NULL || q->plan->megatron != NULL || q->plan->listed;
    SPW_TRY(run_all(&s));
    out->untimed = !s.timed;
    if (!spw_stop_is_asked() && s.timed && !out->front.found && !(q->tokens_per_day > 0.0) &&
        out->fate[SPW_SEARCH_UNTIMED] > 0) {
        s.timed = false;
        SPW_TRY(run_all(&s));
        out->untimed = out->front.found;
    }
    out->stopped = spw_stop_is_asked();
    spw_search_front_settle(&out->front);

cleanup:
    destroy(&s);
    return status;
}
