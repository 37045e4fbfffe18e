#include "sim/plan/search_run.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/stop.h"
#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/plan/search_walk.h"

#include <string.h>

static const size_t MOST_JOBS = (size_t)1 << 32;

static void destroy(spw_search_walk *w) {
    spw_free(w->megatron), spw_free(w->candidate);
    spw_search_group_destroy(&w->group);
    spw_search_log_destroy(&w->log);
    spw_token_store_destroy(w->store);
}

static spw_status create(const spw_search_request *q, spw_search_outcome *out, spw_search_walk *w) {
    const size_t batches = q->plan->job->batches;
    spw_status status = SPW_OK;
    *w = (spw_search_walk){.q = q,
                           .plan = *q->plan,
                           .schemes = q->plan->schemes,
                           .log = {.checkpoint = q->checkpoint},
                           .out = out};
    if (spw_search_space_jobs(q->space) > MOST_JOBS / (batches * w->schemes))
        return spw_fail(SPW_EARG, "a search of more than %zu points; leave some out with --over", MOST_JOBS);
    w->plan.splits = 0;
    SPW_TRY(SPW_ALLOC(1, &w->megatron));
    SPW_TRY(spw_token_store_create(&w->store));
    w->plan.store = w->store;
    SPW_TRY(spw_search_group_create(q, &w->group));
    SPW_TRY(SPW_ALLOC(SPW_SEARCH_ROUND + batches * w->schemes, &w->candidate));

cleanup:
    return status;
}

/* --- One number of GPUs: the jobs from `first` on that have it --- */

static spw_status run_gpus(spw_search_walk *w, size_t first, size_t last) {
    spw_status status = SPW_OK;
    spw_job *of = &w->group.job[0];
    *of = *w->q->space->base;
    spw_search_space_values(w->q->space, first, w->group.value[0]);
    SPW_TRY(spw_cluster_resize(&of->cluster, w->group.value[0][SPW_SEARCH_GPUS]));
    SPW_TRY(w->q->open_trace(w->q->state, of, &w->plan.trace));
    spw_token_store_forget(w->store);
    w->facts = (spw_search_facts){.plan = &w->plan, .generated = w->q->generated};
    if (w->plan.megatron != NULL) {
        SPW_TRY(spw_megatron_coefficients_scale(w->plan.megatron, &of->cluster, w->megatron));
        w->facts.megatron = w->megatron;
    }
    w->out->proof.bounded = false;
    while (first < last && !spw_stop_is_asked()) {
        const double begin = spw_clock_s();
        SPW_TRY(spw_search_look(w, first, last, &first));
        w->out->effort.bounds_s += spw_clock_s() - begin;
        w->out->effort.candidates += w->candidates;
        w->out->proof.bounded = first == last;
        SPW_TRY(spw_search_round(w));
    }

cleanup:
    return status;
}

/* Points with a time, or without one. */
static spw_status run_all(spw_search_walk *w) {
    const size_t jobs = spw_search_space_jobs(w->q->space),
                 each = jobs / w->q->space->values[SPW_SEARCH_GPUS];
    spw_progress progress = spw_progress_begin("bounds", "jobs", jobs);
    spw_search_outcome *out = w->out;
    spw_status status = SPW_OK;
    size_t first = 0;
    memset(out->fate, 0, sizeof out->fate);
    memset(out->beaten, 0, sizeof out->beaten);
    memset(out->left_out, 0, sizeof out->left_out);
    memset(out->left_out_fit, 0, sizeof out->left_out_fit);
    memset(out->fails, 0, sizeof out->fails);
    out->proof = (spw_search_proof){.beaten_most = 0.0};
    w->progress = &progress;
    for (; first < jobs && status == SPW_OK && !spw_stop_is_asked(); first += each)
        status = run_gpus(w, first, first + each);
    out->proof.bounded = out->proof.bounded && first == jobs;
    spw_search_proceed(w, NULL, 0);
    spw_progress_end(&progress);
    return status;
}

/* Reasons in the order in which the front's points have them, whatever the order of the replays. */
static void order_reasons(spw_search_outcome *out, spw_search_reasons *room) {
    spw_search_front *f = &out->front;
    spw_search_point *const alone[] = {&f->best, &f->best_sure, &f->fastest};
    *room = out->reasons;
    out->reasons.count = 0;
    for (size_t i = 0; i < f->points; i++) spw_search_reasons_move(room, &out->reasons, &f->point[i].outside);
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        spw_search_reasons_move(room, &out->reasons, &alone[i]->outside);
}

spw_status spw_search_run(const spw_search_request *q, spw_search_outcome *out) {
    spw_status status = SPW_OK;
    spw_search_walk w;
    spw_search_reasons *room = NULL;
    *out = (spw_search_outcome){.front.fewest_gpus = q->tokens_per_day > 0.0};
    SPW_TRY(create(q, out, &w));
    out->points = spw_search_space_jobs(q->space) * spw_search_space_batches(q->space) * w.schemes;
    w.timed = q->plan->time_stack != NULL || q->plan->megatron != NULL || q->plan->listed;
    SPW_TRY(run_all(&w));
    out->untimed = !w.timed;
    if (!spw_stop_is_asked() && w.timed && !out->front.found && !(q->tokens_per_day > 0.0) &&
        out->fate[SPW_SEARCH_UNTIMED] > 0) {
        w.timed = false;
        SPW_TRY(run_all(&w));
        out->untimed = out->front.found;
    }
    out->stopped = spw_stop_is_asked();
    out->effort.points = spw_search_looked_at(out);
    spw_search_front_settle(&out->front);
    SPW_TRY(SPW_ALLOC(1, &room));
    order_reasons(out, room);

cleanup:
    destroy(&w);
    spw_free(room);
    return status;
}

/* --- Fates, by name --- */
#define FATE_KEY(name, key, text) key,

#define FATE_TEXT(name, key, text) text,

const char *spw_search_fate_key(spw_search_fate fate) {
    static const char *const keys[SPW_SEARCH_FATES] = {SPW_SEARCH_FATE_LIST(FATE_KEY)};
    return keys[fate];
}

const char *spw_search_fate_text(spw_search_fate fate) {
    static const char *const texts[SPW_SEARCH_FATES] = {SPW_SEARCH_FATE_LIST(FATE_TEXT)};
    return texts[fate];
}

bool spw_search_fate_is_replayed(spw_search_fate fate) { return fate >= SPW_SEARCH_OUT_OF_MEMORY; }

size_t spw_search_looked_at(const spw_search_outcome *outcome) {
    size_t points = 0;
    for (int f = 0; f < SPW_SEARCH_FATES; f++) points += outcome->fate[f];
    return outcome->stopped ? points : outcome->points;
}

bool spw_search_none_can_be(const spw_search_outcome *outcome) {
    const size_t *fate = outcome->fate;
    return !outcome->stopped && fate[SPW_SEARCH_IMPOSSIBLE] > 0 &&
           fate[SPW_SEARCH_IMPOSSIBLE] + fate[SPW_SEARCH_GLOBAL_BATCH] == outcome->points;
}
