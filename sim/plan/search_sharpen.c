/* Better bounds of candidates, by the mean of their own routing, before one of them is replayed. */
#include "base/failure.h"
#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/plan/search_walk.h"
#include "sim/schemes/point.h"

/* Those of one scheme and batch that share a routing. */
typedef struct sharing {
    spw_search_walk *walk;
    const spw_search_means *means;
    size_t at; /* among the points of their jobs */
    const size_t *index;
    size_t count;
} sharing;

static spw_status job_of(const spw_search_walk *w, const spw_search_candidate *c, spw_job *out) {
    size_t value[SPW_SEARCH_DIMENSIONS];
    spw_search_space_values(w->q->space, c->job, value);
    return spw_search_space_job(w->q->space, value, out);
}

static spw_status sharpen_one(const sharing *s, spw_job *job, const spw_search_candidate *c,
                              spw_search_bound *out) {
    const spw_search_walk *w = s->walk;
    spw_search_point_facts known = {
        .bound = c->bound, .budget_bytes = c->budget_bytes, .state_bytes = c->state_bytes};
    spw_status status = SPW_OK;
    SPW_TRY(job_of(w, c, job));
    const spw_point point = spw_search_point_at(w, job, s->at);
    SPW_TRY(spw_search_bound_sharpen(&w->facts, &point, s->means, &known));

cleanup:
    *out = known.bound;
    return status;
}

/* Several threads look, each at a candidate by itself; out [count]. */
static spw_status sharpen_all(const sharing *s, spw_search_bound *out) {
    const spw_search_candidate *all = s->walk->candidate;
    spw_failure failure = SPW_NO_FAILURE;
#pragma omp parallel
    {
        spw_job *job = NULL;
        const spw_status made = SPW_ALLOC(1, &job);
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < s->count; i++)
            spw_failure_note(&failure, i,
                             made == SPW_OK ? sharpen_one(s, job, &all[s->index[i]], &out[i]) : made);
        spw_free(job);
    }
    return spw_failure_tell(&failure);
}

/* What is left out says whether its scheme fits at all, and which point of it needs least: until a replay has said so, it is
 * replayed. */
static bool is_told(const spw_search_walk *w, size_t scheme) {
    return w->out->fits[scheme] > 0 || w->out->beaten[scheme] > 0;
}

bool spw_search_settle(spw_search_walk *w, spw_search_candidate *c) {
    const size_t scheme = c->at % w->schemes;
    spw_search_fate fate = SPW_SEARCH_OUT_OF_MEMORY;
    if (c->sight == SPW_SEARCH_SHARP && !is_told(w, scheme)) return false;
    if (c->bound.least_bytes <= c->budget_bytes) fate = spw_search_judge_speed(w, &c->bound);
    if (fate == SPW_SEARCH_GOOD) return false;
    if (fate == SPW_SEARCH_BEATEN) spw_search_leave_out(w, scheme, &c->bound);
    w->out->fate[fate]++;
    c->done = true;
    return true;
}

static spw_status make_means(const spw_search_walk *w, size_t at, spw_search_means *out) {
    const spw_search_candidate *c = &w->candidate[at];
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(job_of(w, c, job));
    const spw_point point = spw_search_point_at(w, job, c->at);
    const spw_replay_request request = spw_plan_point_request(&w->plan, job, point.scheme);
    if (w->facts.megatron != NULL)
        SPW_TRY(spw_search_means_create(&request, &point, c->at / w->schemes, w->facts.megatron, out));

cleanup:
    spw_free(job);
    return status;
}

spw_status spw_search_sharpen(spw_search_walk *w, size_t at, size_t first, size_t last) {
    spw_search_means means = {.there = false};
    size_t *index = NULL;
    spw_search_bound *bound = NULL;
    sharing s = {.walk = w, .means = &means, .at = w->candidate[at].at};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(last - first, &index));
    SPW_TRY(SPW_ALLOC(last - first, &bound));
    for (size_t i = first; i < last; i++) {
        const spw_search_candidate *c = &w->candidate[i];
        if (!c->done && c->sight == SPW_SEARCH_ROUGH && c->at == s.at) index[s.count++] = i;
    }
    s.index = index;
    SPW_TRY(make_means(w, at, &means));
    SPW_TRY(sharpen_all(&s, bound));
    for (size_t i = 0; i < s.count; i++) {
        spw_search_candidate *c = &w->candidate[index[i]];
        if (means.there) spw_search_learn(&w->lessons, w->q->space, c, &bound[i]);
        c->bound = bound[i];
        c->sight = SPW_SEARCH_SHARP;
        w->out->effort.sharpened += means.there;
        (void)spw_search_settle(w, c);
    }

cleanup:
    spw_search_means_destroy(&means);
    spw_free(index), spw_free(bound);
    return status;
}
