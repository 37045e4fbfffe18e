/* What the bounds say of every point. */
#include "base/failure.h"
#include "base/memory.h"
#include "base/stop.h"
#include "sim/job/job.h"
#include "sim/plan/search_walk.h"
#include "sim/schemes/point.h"

#include <string.h>

enum { CHUNK_POINTS = 1 << 13, MOST_CHUNK = 1 << 10 };

/* Of one job: it cannot be, or comes to another global batch, or has points. */
typedef enum job_kind { JOB_IMPOSSIBLE, JOB_UNEVEN, JOB_MADE } job_kind;
typedef struct looked_job {
    size_t value[SPW_SEARCH_DIMENSIONS], points;
    job_kind kind;
} looked_job;

typedef struct looked_point {
    spw_search_fate fate; /* GOOD: what its bounds say is to be judged */
    bool refused, lacks;  /* it cannot be; as the scheme lacks something */
    size_t scheme, sequences;
    spw_search_point_facts facts;
} looked_point;

/* What several threads look at, each job by itself: nothing of the walk changes. */
typedef struct chunk {
    const spw_search_walk *walk;
    size_t first, jobs, all; /* all: points of a job at most */
    uint64_t *enough;        /* [schemes] the least that a point needs which does not fit, so far */
    looked_job *job;
    looked_point *point; /* [jobs][all] */
} chunk;

/* --- One job --- */

static bool is_too_large(const spw_search_walk *w, const spw_point *point) {
    return w->q->most_step_tokens > 0 && spw_point_step_tokens(point) > w->q->most_step_tokens;
}

/* Of points that differ in micro-batches, batch and recomputation alone it is the same. Above 0. */
static size_t state_key(const spw_search_space *space, size_t index, size_t schemes, size_t scheme) {
    size_t key = 0, stride = 1;
    for (size_t d = SPW_SEARCH_DIMENSIONS; d-- > 0; index /= space->values[d]) {
        if (d == SPW_SEARCH_REMAT || d == SPW_SEARCH_MICRO_BATCHES) continue;
        key += index % space->values[d] * stride;
        stride *= space->values[d];
    }
    return 1 + key * schemes + scheme;
}

/* A message of what a scheme lacks: it begins with the scheme. */
static bool names_a_lack(const char *message) {
    static const char lacks[] = "scheme '";
    return strncmp(message, lacks, sizeof lacks - 1) == 0;
}

static spw_status look_at_point(const chunk *c, spw_search_states *states, size_t index,
                                const spw_point *point, looked_point *out) {
    const size_t scheme = (size_t)(point->scheme - c->walk->plan.scheme);
    *out = (looked_point){.fate = SPW_SEARCH_BATCH, .scheme = scheme, .sequences = point->sequences};
    if (is_too_large(c->walk, point)) return SPW_OK;
    out->fate = SPW_SEARCH_ALONE;
    if (spw_scheme_is_unknown_alone(point->scheme, &point->shape)) return SPW_OK;
    const spw_search_asked asked = {states, state_key(c->walk->q->space, index, c->walk->schemes, scheme),
                                    c->enough[scheme]};
    const spw_status status = spw_search_bound_of(&c->walk->facts, point, &asked, &out->facts);
    out->fate = SPW_SEARCH_GOOD;
    if (status != SPW_ECONFIG) return status;
    out->fate = SPW_SEARCH_IMPOSSIBLE;
    out->refused = true;
    out->lacks = names_a_lack(spw_last_error());
    return SPW_OK;
}

/* Values that surely make no job are not tried. */
static bool is_hopeless(const size_t value[SPW_SEARCH_DIMENSIONS]) {
    return (value[SPW_SEARCH_EXPERT_TENSOR] > 0 || value[SPW_SEARCH_TENSOR] == 1) &&
           !spw_search_divides(value);
}

static spw_status look_at_job(const chunk *c, spw_job *job, spw_search_states *states, size_t at) {
    const spw_search_walk *w = c->walk;
    looked_job *out = &c->job[at];
    spw_status status = SPW_OK;
    *out = (looked_job){.kind = JOB_UNEVEN};
    spw_search_space_values(w->q->space, c->first + at, out->value);
    if (spw_search_space_is_uneven(w->q->space, out->value)) return SPW_OK;
    out->kind = JOB_IMPOSSIBLE;
    if (is_hopeless(out->value) || spw_search_space_job(w->q->space, out->value, job) != SPW_OK)
        return SPW_OK;
    out->kind = JOB_MADE;
    out->points = job->batches * w->schemes;
    for (size_t p = 0; p < out->points && status == SPW_OK; p++) {
        const spw_point point = spw_search_point_at(w, job, p);
        status = look_at_point(c, states, c->first + at, &point, &c->point[at * c->all + p]);
    }
    return status;
}

/* Every thread has a job and states of its own. */
static spw_status look_at_jobs(const chunk *c) {
    spw_failure failure = SPW_NO_FAILURE;
#pragma omp parallel
    {
        spw_job *job = NULL;
        spw_search_states *states = NULL;
        spw_status made = SPW_ALLOC(1, &job);
        if (made == SPW_OK) made = SPW_ALLOC(1, &states);
#pragma omp for schedule(dynamic, 8)
        for (size_t i = 0; i < c->jobs; i++)
            spw_failure_note(&failure, i, made == SPW_OK ? look_at_job(c, job, states, i) : made);
        spw_free(job), spw_free(states);
    }
    return spw_failure_tell(&failure);
}

/* --- What they found, in the order of the space --- */

static spw_search_fate take_facts(spw_search_walk *w, const looked_job *job, const looked_point *point) {
    const spw_search_point_facts *f = &point->facts;
    spw_search_proof *proof = &w->out->proof;
    if (f->bound.least_bytes <= f->budget_bytes)
        return f->timed == w->timed ? spw_search_judge_speed(w, &f->bound) : SPW_SEARCH_UNTIMED;
    spw_search_nearest_memory(&w->out->nearest, point->scheme, job->value, point->sequences,
                              (spw_search_need){f->bound.least_bytes, f->budget_bytes});
    if (proof->memory_least.bytes == 0 || f->bound.least_bytes < proof->memory_least.bytes)
        proof->memory_least = (spw_search_need){f->bound.least_bytes, f->budget_bytes};
    return f->state_bytes > f->budget_bytes ? SPW_SEARCH_STATE : SPW_SEARCH_MEMORY;
}

/* A message is that of the thread that met it: it is asked for once more where it is to be told. */
static spw_status tell_refusal(const chunk *c, size_t at, const looked_point *point) {
    const spw_search_walk *w = c->walk;
    spw_search_nearest *nearest = &w->out->nearest;
    const bool better = point->lacks && !names_a_lack(nearest->refused);
    const size_t p = (size_t)(point - c->point) % c->all;
    spw_job *job = NULL;
    looked_point again;
    spw_status status = SPW_OK;
    if (nearest->refused[0] != '\0' && !better) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(spw_search_space_job(w->q->space, c->job[at].value, job));
    const spw_point asked = spw_search_point_at(w, job, p);
    SPW_TRY(look_at_point(c, NULL, c->first + at, &asked, &again));
    spw_search_nearest_refused(nearest);

cleanup:
    spw_free(job);
    return status;
}

/* The same of values that make no job. */
static spw_status tell_no_job(const chunk *c, size_t at) {
    spw_search_nearest *nearest = &c->walk->out->nearest;
    const bool divides = spw_search_divides(c->job[at].value);
    spw_job *job = NULL;
    if (nearest->no_job[0] != '\0' && nearest->no_job_divides >= divides) return SPW_OK;
    const spw_status status = SPW_ALLOC(1, &job);
    if (status != SPW_OK) return status;
    if (spw_search_space_job(c->walk->q->space, c->job[at].value, job) != SPW_OK)
        spw_search_nearest_no_job(nearest, divides);
    spw_free(job);
    return SPW_OK;
}

static spw_status take_point(spw_search_walk *w, const chunk *c, size_t at, size_t p) {
    const looked_point *point = &c->point[at * c->all + p];
    spw_search_fate fate = point->fate;
    if (point->refused) {
        const spw_status status = tell_refusal(c, at, point);
        if (status != SPW_OK) return status;
    }
    if (fate == SPW_SEARCH_GOOD) fate = take_facts(w, &c->job[at], point);
    if (fate == SPW_SEARCH_GOOD) {
        w->candidate[w->candidates++] = (spw_search_candidate){.job = c->first + at,
                                                               .at = p,
                                                               .budget_bytes = point->facts.budget_bytes,
                                                               .state_bytes = point->facts.state_bytes,
                                                               .bound = point->facts.bound};
        return SPW_OK;
    }
    w->out->fate[fate]++;
    if (fate == SPW_SEARCH_BEATEN) spw_search_leave_out(w, point->scheme, &point->facts.bound);
    return SPW_OK;
}

static spw_status take_chunk(spw_search_walk *w, const chunk *c) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < c->jobs; i++) {
        const looked_job *job = &c->job[i];
        w->out->fate[job->kind == JOB_UNEVEN ? SPW_SEARCH_GLOBAL_BATCH : SPW_SEARCH_IMPOSSIBLE] +=
            c->all - job->points;
        if (job->kind == JOB_IMPOSSIBLE) SPW_TRY(tell_no_job(c, i));
        for (size_t p = 0; p < job->points; p++) SPW_TRY(take_point(w, c, i, p));
    }

cleanup:
    return status;
}

spw_status spw_search_look(spw_search_walk *w, size_t first, size_t last, size_t *next) {
    chunk c = {.walk = w, .first = first, .all = spw_search_space_batches(w->q->space) * w->schemes};
    const size_t fit = CHUNK_POINTS / c.all, most = fit < 1 ? 1 : fit < MOST_CHUNK ? fit : MOST_CHUNK;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(w->schemes, &c.enough));
    SPW_TRY(SPW_ALLOC(most, &c.job));
    SPW_TRY(SPW_ALLOC(most * c.all, &c.point));
    for (; c.first < last && !spw_stop_is_asked(); c.first += c.jobs) {
        c.jobs = last - c.first < most ? last - c.first : most;
        if (w->candidates > 0 && w->candidates + c.jobs * c.all > SPW_SEARCH_ROUND) break;
        for (size_t i = 0; i < w->schemes; i++) {
            const uint64_t least = w->out->nearest.least[i].need.bytes;
            c.enough[i] = least > 0 ? least : UINT64_MAX;
        }
        SPW_TRY(look_at_jobs(&c));
        SPW_TRY(take_chunk(w, &c));
        spw_search_proceed(w, w->progress, c.first + c.jobs);
    }
    *next = c.first;

cleanup:
    spw_free(c.enough), spw_free(c.job), spw_free(c.point);
    return status;
}
