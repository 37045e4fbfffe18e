#include "sim/replay/largest_batch.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/replay/result_answers.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"

#include <stdio.h>

typedef struct search {
    spw_replay_request request; /* of one scheme and one batch */
    spw_job *job;
    double at;
    size_t unit;             /* sequences are searched in whole micro-batches */
    spw_batch_answer answer; /* of the largest that is known to fit */
    bool follows_routing;    /* does the memory of the scheme? */
} search;

/* Does it fit when routing is balanced? The state of a compiled program is the same whatever the routing. */
static spw_status fits_balanced(search *s, size_t units, bool *out) {
    spw_footprint footprint;
    const size_t sequences = units * s->unit;
    const size_t before = s->job->sequences_per_gpu[0];
    s->job->sequences_per_gpu[0] = sequences;
    const bool sound = spw_job_check(s->job) == SPW_OK;
    s->job->sequences_per_gpu[0] = before;
    *out = false;
    if (!sound) return SPW_OK;
    const spw_point point = spw_point_of(s->job, s->request.scheme, sequences);
    const spw_status status = spw_footprint_compute(&point, NULL, &footprint);
    s->follows_routing = footprint.follows_routing;
    *out = status == SPW_OK && footprint.peak_bytes <= footprint.budget_bytes;
    return status;
}

static spw_status fits(search *s, size_t units, bool *out) {
    spw_result result = {.rows = 0};
    const size_t sequences = units * s->unit;
    s->job->sequences_per_gpu[0] = sequences;
    spw_status status = spw_replay_run(&s->request, &result);
    if (status == SPW_OK) {
        const spw_result_row *row = &result.row[0];
        *out = row->memory.oom_probability <= 1.0 - s->at;
        if (*out) {
            s->answer.largest = sequences;
            s->answer.steps = row->steps;
            s->answer.oom =
                (spw_probability){row->memory.oom_probability, row->memory.oom_low, row->memory.oom_high};
            s->answer.routed = row->reserved.there;
            s->answer.live = spw_point_is_live_alone(row);
        }
    }
    spw_result_clear(&result);
    return status;
}

static spw_status find(search *s) {
    size_t low = 0, high = SPW_LARGEST_BATCH / s->unit + 1; /* low fits, high does not */
    const bool compiled = s->request.stack != NULL;
    bool fit = false;
    spw_status status = SPW_OK;
    while (status == SPW_OK && high - low > 1 && !compiled) {
        const size_t middle = low + (high - low) / 2;
        status = fits_balanced(s, middle, &fit);
        if (fit) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (status != SPW_OK) return status;
    if (!compiled && !s->follows_routing && low > 0) return fits(s, low, &fit);
    const size_t bound = high;
    high = 1;
    low = 0;
    while (status == SPW_OK && high < bound) { /* doubling: small batches are cheap to replay */
        status = fits(s, high, &fit);
        if (!fit) break;
        low = high;
        high *= 2;
    }
    if (high > bound) high = bound;
    while (status == SPW_OK && high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        status = fits(s, middle, &fit);
        if (fit) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return status;
}

spw_status spw_largest_batches(const spw_replay_request *request, double at, spw_result *result) {
    search s = {.request = *request, .at = at};
    spw_status status = SPW_ALLOC(1, &s.job);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < request->schemes; i++) {
        spw_batch_answer *answer = NULL;
        *s.job = *request->job;
        s.job->batches = 1;
        s.request.job = s.job;
        s.request.scheme = &request->scheme[i];
        s.request.schemes = s.request.splits = 1;
        s.request.skips_lost_tokens = true;
        s.request.time_stack = NULL;
        s.request.newest = NULL;
        s.request.sink = (spw_replay_sink){.state = NULL};
        s.unit = spw_job_micro_batches(s.job);
        s.answer = (spw_batch_answer){.at = at};
        (void)snprintf(s.answer.scheme, sizeof s.answer.scheme, "%s", request->scheme[i].text);
        SPW_TRY(find(&s));
        s.answer.at_least = s.answer.largest / s.unit >= SPW_LARGEST_BATCH / s.unit;
        SPW_TRY(spw_result_append_batch(result, &answer));
        *answer = s.answer;
    }

cleanup:
    spw_free(s.job);
    return status;
}
