#include "sim/plan/search_walk.h"

#include "sim/job/job.h"
#include "sim/job/replicas.h"

#include <math.h>

size_t spw_search_all_gpus(const spw_search_walk *w, size_t gpus) {
    return gpus * spw_job_replicas(w->plan.job);
}

spw_point spw_search_point_at(const spw_search_walk *w, const spw_job *job, size_t at) {
    return spw_point_of(job, &w->plan.scheme[at % w->schemes], job->sequences_per_gpu[at / w->schemes]);
}

void spw_search_proceed(spw_search_walk *w, spw_progress *progress, size_t done) {
    w->progress = progress;
    w->done = done;
    if (progress != NULL) spw_progress_update(progress, done);
}

spw_search_fate spw_search_judge_speed(spw_search_walk *w, const spw_search_bound *bound) {
    spw_search_proof *proof = &w->out->proof;
    const size_t gpus = spw_search_all_gpus(w, bound->gpus);
    if (w->q->tokens_per_day > 0.0 && spw_search_day(bound->tokens_per_s_most, gpus) < w->q->tokens_per_day) {
        spw_search_nearest_speed(&w->out->nearest, bound->tokens_per_s_most, gpus);
        proof->slow_most = fmax(proof->slow_most, bound->tokens_per_s_most);
        return SPW_SEARCH_SLOW;
    }
    if (!spw_search_front_beats(&w->out->front, bound, w->timed)) return SPW_SEARCH_GOOD;
    proof->beaten_most = fmax(proof->beaten_most, bound->tokens_per_s_most);
    return SPW_SEARCH_BEATEN;
}

void spw_search_leave_out(spw_search_walk *w, size_t scheme, const spw_search_bound *bound) {
    w->out->left_out[scheme]++;
    w->out->left_out_fit[scheme] += bound->kind == SPW_MEMORY_ARENA;
}
