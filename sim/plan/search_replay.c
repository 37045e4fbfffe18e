/* One point through a replay, and what it is then. */
#include "base/memory.h"
#include "base/stop.h"
#include "sim/job/job.h"
#include "sim/plan/search_walk.h"
#include "sim/replay/replay.h"
#include "sim/schemes/point.h"

#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-9;                       /* of a bound */
static const size_t MOST_COUNTS_BYTES = (size_t)256 << 20; /* of the places that one replay holds at once */

static spw_point point_at(const spw_search_walk *w, size_t row) {
    const spw_search_group *g = &w->group;
    return spw_search_point_at(w, &g->job[row / g->per_job], row % g->per_job);
}

static bool drops_at_most(const spw_result_drops *drops, double most) {
    return most > 0.0 ? drops->fraction <= most : drops->dropped == 0 && !drops->at_least;
}

/* What a point is, whatever its replay says. */
static spw_search_point identity_of(const spw_search_walk *w, size_t at) {
    const size_t twin = at / w->group.per_job;
    const spw_point point = point_at(w, at);
    spw_search_point p = {.gpus = spw_job_gpus(point.job),
                          .fsdp = point.job->fsdp,
                          .sequences = point.sequences,
                          .scheme = at % w->schemes,
                          .step_tokens = spw_point_step_tokens(&point),
                          .turn_sequences = spw_search_turn_sequences(
                              point.sequences, point.job->micro_batches, point.job->pipeline)};
    const size_t place = spw_search_space_batch(w->q->space, point.sequences);
    p.order = (w->group.index[twin] * w->q->space->base->batches + place) * w->schemes + p.scheme;
    memcpy(p.value, w->group.value[twin], sizeof p.value);
    return p;
}

static spw_search_point point_of(const spw_search_walk *w, size_t at, const spw_result_row *row) {
    spw_search_point p = identity_of(w, at);
    p.kind = row->memory_kind;
    p.verdict = spw_result_verdict(row);
    p.timed = row->timed;
    p.surely_fits = row->surely_fits;
    p.peak_bytes = row->memory.max_bytes;
    p.low_bytes = row->footprint.low_bytes;
    p.high_bytes = row->footprint.high_bytes;
    p.budget_bytes = row->footprint.budget_bytes;
    p.drops = row->drops;
    p.balanced = spw_result_balanced(row);
    p.most_bytes = row->most_bytes;
    p.budget = row->budget;
    if (row->reserved.there) {
        p.reserved_bytes = (double)row->reserved.as_set.reserved.max_bytes;
        p.reserved_low_bytes = spw_reserved_low(&row->reserved);
        p.reserved_high_bytes = spw_reserved_high(&row->reserved);
    }
    if (!row->timed) return p;
    p.step = (spw_step_span){row->time.step_s, row->time.low_s, row->time.high_s};
    p.tokens_per_s_per_gpu = row->time.tokens_per_s_per_gpu;
    p.pace = spw_timeline_pace(&row->time);
    p.tokens_per_s_low = row->tokens_per_s_low;
    p.tokens_per_s_high = row->tokens_per_s_high;
    return p;
}

static spw_status wrong_memory(const spw_search_walk *w, size_t scheme, uint64_t peak_bytes,
                               const spw_search_bound *bound) {
    return spw_fail(
        SPW_EMISMATCH, "a bound is wrong: %s needs %llu bytes, not at least %llu; please report the job",
        w->plan.scheme[scheme].text, (unsigned long long)peak_bytes, (unsigned long long)bound->least_bytes);
}

/* A bound that a replay goes beyond is no bound. */
static spw_status check_bound(const spw_search_walk *w, const spw_search_bound *bound,
                              const spw_search_point *p) {
    const char *scheme = w->plan.scheme[p->scheme].text;
    if (p->peak_bytes < bound->least_bytes || p->kind != bound->kind)
        return wrong_memory(w, p->scheme, p->peak_bytes, bound);
    if (p->tokens_per_s_per_gpu > bound->tokens_per_s_most * (1.0 + ROUNDING))
        return spw_fail(
            SPW_EMISMATCH,
            "a bound is wrong: %s makes %.17g tokens/s of a GPU, not at most %.17g; please report "
            "the job",
            scheme, p->tokens_per_s_per_gpu, bound->tokens_per_s_most);
    return SPW_OK;
}

static spw_search_fate fate_of(const spw_search_walk *w, const spw_search_point *p) {
    if (p->verdict == SPW_VERDICT_OOM) return SPW_SEARCH_OUT_OF_MEMORY;
    if (!drops_at_most(&p->drops, w->q->drop_most)) return SPW_SEARCH_DROPS;
    if (spw_search_day(p->tokens_per_s_per_gpu, spw_search_all_gpus(w, p->gpus)) < w->q->tokens_per_day)
        return SPW_SEARCH_TOO_SLOW;
    return SPW_SEARCH_GOOD;
}

/* Of a candidate whose routing is known, as `fate` says. */
static void decide(spw_search_walk *w, spw_search_candidate *c, const spw_replay_prospect *p,
                   spw_search_fate fate) {
    const size_t scheme = p->row % w->schemes;
    if (fate == SPW_SEARCH_OUT_OF_MEMORY)
        spw_search_nearest_memory(&w->out->nearest, scheme, w->group.value[p->row / w->group.per_job],
                                  point_at(w, p->row).sequences,
                                  (spw_search_need){p->peak_bytes, p->budget_bytes});
    w->out->fate[fate]++;
    w->out->beaten[scheme] += fate == SPW_SEARCH_BEATEN && drops_at_most(&p->drops, w->q->drop_most);
    c->done = true;
}

/* What a replay knows before it times a point is a better bound, of its memory the last word. A point that promises less than another
 * candidate then has to wait. */
static spw_status wants(void *state, const spw_replay_prospect *p, bool *out) {
    enum { WITH_SPEED = 2 };
    spw_search_walk *w = state;
    spw_search_group *g = &w->group;
    spw_search_candidate *c = g->of[p->row];
    const double most = p->tokens_per_s_most * (1.0 + ROUNDING);
    *out = false;
    spw_search_proceed(w, w->progress, w->done);
    if (spw_stop_is_asked()) return SPW_OK;
    if (p->peak_bytes < c->bound.least_bytes)
        return wrong_memory(w, p->row % w->schemes, p->peak_bytes, &c->bound);
    const spw_search_bound known = {.least_bytes = p->peak_bytes,
                                    .tokens_per_s_most = fmin(c->bound.tokens_per_s_most, most)};
    if (g->asked[p->row] < WITH_SPEED && c->sight == SPW_SEARCH_ROUGH)
        spw_search_learn(&w->lessons, w->q->space, c, &known);
    c->bound.least_bytes = known.least_bytes;
    c->bound.tokens_per_s_most = known.tokens_per_s_most;
    const spw_search_fate fate =
        p->peak_bytes > p->budget_bytes ? SPW_SEARCH_OUT_OF_MEMORY : spw_search_judge_speed(w, &c->bound);
    if (fate != SPW_SEARCH_GOOD) {
        decide(w, c, p, fate);
        return SPW_OK;
    }
    const bool waits =
        ++g->asked[p->row] == WITH_SPEED && !g->whole && w->timed && c->bound.tokens_per_s_most < g->next;
    if (waits) c->sight = SPW_SEARCH_REFINED;
    *out = !waits;
    return SPW_OK;
}

static spw_status take_point(spw_search_walk *w, size_t at, const spw_search_point *point,
                             const spw_outside_fit *outside) {
    spw_search_point p = *point;
    const spw_status status = check_bound(w, &w->group.of[at]->bound, &p);
    if (status != SPW_OK) return status;
    w->group.of[at]->done = true;
    const spw_search_fate fate = fate_of(w, &p);
    w->out->effort.planned++;
    w->out->fate[fate]++;
    if (fate == SPW_SEARCH_TOO_SLOW)
        spw_search_nearest_speed(&w->out->nearest, p.tokens_per_s_per_gpu, spw_search_all_gpus(w, p.gpus));
    if (fate == SPW_SEARCH_DROPS) spw_search_nearest_drops(&w->out->nearest, &p);
    if (fate != SPW_SEARCH_GOOD) w->out->fails[p.scheme]++;
    if (fate != SPW_SEARCH_GOOD) return SPW_OK;
    w->out->fits[p.scheme]++;
    spw_search_reasons_note(&w->out->reasons, outside, &p.outside);
    spw_search_front_take(&w->out->front, &p);
    return SPW_OK;
}

/* --- What a replay says, as it is kept --- */

static spw_status hear_prospect(void *state, const spw_replay_prospect *p, bool *out) {
    spw_search_walk *w = state;
    const spw_search_record record = {.row = p->row, .prospect = *p};
    const spw_status status = spw_search_log_note(&w->log, &record);
    return status == SPW_OK ? wants(w, p, out) : status;
}

static spw_status hear_point(void *state, size_t at, const spw_result_row *row) {
    spw_search_walk *w = state;
    const spw_search_record record = {
        .row = at, .taken = true, .point = point_of(w, at, row), .outside = row->outside_fit};
    const spw_status status = spw_search_log_note(&w->log, &record);
    return status == SPW_OK ? take_point(w, at, &record.point, &row->outside_fit) : status;
}

/* Does its verdict follow from its bytes (spw_result_verdict())? What an allocator failed to reserve, or had to free for, has no high
 * end. */
static bool has_own_verdict(const spw_search_point *p) {
    const double budget = (double)p->budget_bytes;
    const bool sure = spw_verdict_is_sure(p->verdict, p->most_bytes, budget);
    if (p->surely_fits && !sure) return false;
    if (p->reserved_bytes > 0.0 || p->reserved_high_bytes > 0.0)
        return isfinite(p->reserved_high_bytes) ? p->verdict != SPW_VERDICT_OOM
                                                : p->verdict != SPW_VERDICT_FITS;
    return p->verdict == (p->kind == SPW_MEMORY_ARENA
                              ? spw_interval_verdict((double)p->peak_bytes, (double)p->high_bytes, budget)
                              : spw_footprint_verdict(p->peak_bytes, p->budget_bytes));
}

/* Is a point of an earlier run the one that is asked for? */
static bool is_point(const spw_search_walk *w, size_t at, const spw_search_point *p) {
    const spw_search_point own = identity_of(w, at);
    return p->gpus == own.gpus && p->fsdp == own.fsdp && p->sequences == own.sequences &&
           p->scheme == own.scheme && p->order == own.order && p->step_tokens == own.step_tokens &&
           p->budget_bytes == w->group.of[at]->budget_bytes && !(p->turn_sequences < own.turn_sequences) &&
           !(p->turn_sequences > own.turn_sequences) && memcmp(p->value, own.value, sizeof own.value) == 0 &&
           has_own_verdict(p);
}

/* The same of an earlier run. */
static spw_status hear_again(spw_search_walk *w) {
    const size_t rows = w->group.jobs * w->group.per_job;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < w->log.records && status == SPW_OK; i++) {
        const spw_search_record *r = &w->log.record[i];
        bool wanted = false;
        if (r->row >= rows || w->group.of[r->row] == NULL ||
            (r->taken ? !is_point(w, r->row, &r->point) : r->prospect.row != r->row))
            return spw_fail(SPW_EFORMAT,
                            "the checkpoint has a point that the search does not replay; remove it");
        status = r->taken ? take_point(w, r->row, &r->point, &r->outside) : wants(w, &r->prospect, &wanted);
    }
    return status;
}

/* --- Groups --- */

spw_status spw_search_group_create(const spw_search_request *q, spw_search_group *g) {
    const size_t twins = spw_search_space_twins(q->space),
                 points = twins * q->plan->job->batches * q->plan->schemes;
    spw_status status = SPW_OK;
    *g = (spw_search_group){.twins = twins};
    SPW_TRY(SPW_ALLOC(twins, &g->job));
    SPW_TRY(SPW_ALLOC(twins, &g->index));
    SPW_TRY(SPW_ALLOC(twins, &g->value));
    SPW_TRY(SPW_ALLOC(points, &g->skip));
    SPW_TRY(SPW_ALLOC(points, &g->of));
    SPW_TRY(SPW_ALLOC(points, &g->asked));

cleanup:
    return status;
}

void spw_search_group_destroy(spw_search_group *g) {
    spw_free(g->job), spw_free(g->index), spw_free(g->value);
    spw_free(g->skip), spw_free(g->of), spw_free(g->asked);
    *g = (spw_search_group){.twins = 0};
}

void spw_search_group_clear(spw_search_group *g) {
    g->jobs = g->bytes = 0;
    g->whole = false;
    g->next = -1.0;
}

/* Bytes of the counts of one job. */
static size_t counts_bytes(const spw_job *job) {
    size_t sequences = 0;
    for (size_t b = 0; b < job->batches; b++) sequences += job->sequences_per_gpu[b] / job->micro_batches;
    return (sequences + 2) * job->expert * job->fsdp * job->model.experts * sizeof(uint32_t);
}

/* The job at `index` of the space, which can be, as the next of the group. */
static spw_status add_job(spw_search_walk *w, size_t index) {
    spw_search_group *g = &w->group;
    const size_t at = g->jobs;
    g->index[at] = index;
    spw_search_space_values(w->q->space, index, g->value[at]);
    const spw_status status = spw_search_space_job(w->q->space, g->value[at], &g->job[at]);
    if (status != SPW_OK) return status;
    g->per_job = g->job[at].batches * w->schemes;
    g->bytes += counts_bytes(&g->job[at]);
    for (size_t i = at * g->per_job; i < (at + 1) * g->per_job; i++) {
        g->skip[i] = true;
        g->of[i] = NULL;
        g->asked[i] = 0;
    }
    g->jobs++;
    return SPW_OK;
}

spw_status spw_search_group_add(spw_search_walk *w, spw_search_candidate *c, bool *taken) {
    spw_search_group *g = &w->group;
    *taken = false;
    if (g->jobs == 0 || g->index[g->jobs - 1] != c->job) {
        if (g->jobs == g->twins || g->bytes >= MOST_COUNTS_BYTES) return SPW_OK;
        const spw_status status = add_job(w, c->job);
        if (status != SPW_OK) return status;
    }
    const size_t row = (g->jobs - 1) * g->per_job + c->at;
    g->skip[row] = false;
    g->of[row] = c;
    c->grouped = true;
    *taken = true;
    return SPW_OK;
}

spw_status spw_search_replay(spw_search_walk *w) {
    spw_search_group *g = &w->group;
    spw_replay_request request = spw_plan_point_request(&w->plan, g->job, w->plan.scheme);
    spw_result result = {.rows = 0};
    const size_t job = g->index[0], gpus = g->value[0][SPW_SEARCH_GPUS];
    bool known = false;
    spw_status status = spw_search_log_begin(&w->log, job, gpus, &known);
    if (status != SPW_OK) return status;
    if (known) return hear_again(w);
    request.splits = g->jobs;
    request.schemes = w->schemes;
    request.skip = g->skip;
    request.judge = (spw_replay_judge){w, hear_prospect, hear_point};
    SPW_TRY(spw_replay_run(&request, &result));
    if (result.refusals > 0)
        SPW_TRY(spw_fail(SPW_EMISMATCH, "a point that can be was refused; please report the job"));
    if (!spw_stop_is_asked()) SPW_TRY(spw_search_log_end(&w->log, job, gpus));

cleanup:
    spw_result_clear(&result);
    return status;
}
