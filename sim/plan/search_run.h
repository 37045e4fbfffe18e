/* The best point of a space of jobs, batches and schemes, and those that no other beats, under budgets of memory, drops, GPUs and
 * tokens a day. What a bound says can be none of them is not replayed; what is replayed is replayed as a plan does, so that the
 * answer is that of a plan of every single point. Memory does not grow with the points. */
#ifndef SPW_SIM_PLAN_SEARCH_RUN_H
#define SPW_SIM_PLAN_SEARCH_RUN_H

#include "base/checkpoint.h"
#include "base/status.h"
#include "sim/plan/plan_points.h"
#include "sim/plan/search_front.h"
#include "sim/plan/search_nearest.h"
#include "sim/plan/search_space.h"

#include <stdbool.h>
#include <stddef.h>

/* What became of the points of a space; every point is one of them. */
#define SPW_SEARCH_FATE_LIST(X) \
    X(IMPOSSIBLE, "cannot_be", "cannot be: sizes that do not divide, or a scheme that does not run there") \
    X(GLOBAL_BATCH, "uneven_global_batch", \
      "do not come to the global batch: their data-parallel ranks and micro-batches do not divide it") \
    X(BATCH, "batch_too_large", "take more tokens a step than are asked for at most") \
    X(ALONE, "unknown_alone", "send by DeepEP, and no run of it in a group of one rank is known") \
    X(STATE, "state_too_large", "weights and optimizer alone are over the budget, whatever the batch") \
    X(MEMORY, "memory_too_large", "need more memory than there is, whatever the routing") \
    X(UNTIMED, "no_time", "have no time, and others have") \
    X(BEATEN, "beaten", "can be no better than a point found before, by a bound of its memory and speed") \
    X(SLOW, "too_slow", "cannot reach the tokens a day that are asked for") \
    X(OUT_OF_MEMORY, "replayed_oom", "replayed: they run out of memory under this routing") \
    X(DROPS, "replayed_drops", "replayed: they drop more than may be dropped") \
    X(TOO_SLOW, "replayed_slow", "replayed: they do not reach the tokens a day that are asked for") \
    X(GOOD, "replayed_good", "replayed: they keep to every budget")
#define SPW_SEARCH_FATE_ENUM(name, key, text) SPW_SEARCH_##name,
typedef enum spw_search_fate { SPW_SEARCH_FATE_LIST(SPW_SEARCH_FATE_ENUM) SPW_SEARCH_FATES } spw_search_fate;
#undef SPW_SEARCH_FATE_ENUM
const char *spw_search_fate_key(spw_search_fate fate);
const char *spw_search_fate_text(spw_search_fate fate);
bool spw_search_fate_is_replayed(spw_search_fate fate);

typedef struct spw_search_request {
    const spw_plan_request
        *plan; /* its schemes, batches and software; its trace and splits are not looked at */
    const spw_search_space *space;
    double drop_most;          /* share of the assignments */
    double cost_tokens;        /* what points are priced for; 0: not asked */
    double tokens_per_day;     /* at least; 0: any. Then the fewest GPUs are best */
    uint64_t most_step_tokens; /* of all GPUs; 0: any number */
    spw_checkpoint
        *checkpoint; /* what an earlier run has left, and where this one keeps what it finds; NULL: nowhere */
    bool generated;  /* every token of the routing has all its choices */
    /* Sets the trace of so many GPUs; it stays the caller's, and the one before may be closed. */
    spw_status (*open_trace)(void *state, const spw_job *job, spw_trace **out);
    void *state;
} spw_search_request;

/* What proves the answer: of the points that no replay has judged, how good they could be. Speeds are tokens/s of a GPU. */
typedef struct spw_search_proof {
    spw_search_need
        memory_least;   /* the least bound of those left out for memory, and its budget; bytes 0: none was */
    double beaten_most; /* the greatest bound of those left out as beaten; 0: none was, or none has a time */
    double slow_most;   /* of those too slow for the tokens a day by their bound; 0: none was */
    bool bounded; /* of every point that was not looked at the bound is known; else the search ended before */
    double unseen_most; /* the greatest of these; 0: none */
} spw_search_proof;

/* What it took, in seconds of the wall clock. No answer rests on it. */
typedef struct spw_search_effort {
    double bounds_s, sharpening_s, plans_s; /* of all points, of candidates, of what was replayed */
    size_t points;                          /* looked at */
    size_t candidates, sharpened,
        planned; /* left by the bounds; of these; wholly, with a time and an allocator's replay */
} spw_search_effort;

typedef struct spw_search_outcome {
    spw_search_front front;
    spw_search_reasons reasons; /* of its points */
    size_t points, fate[SPW_SEARCH_FATES];
    spw_search_proof proof;
    /* Before every point was looked at, as the user asked (base/stop.h): fates, and answers, are of those that were. */
    bool stopped;
    /* Of each scheme: replayed points that keep to every budget, and replayed ones that drop no more than they may and were not
     * timed, as others are better. */
    size_t fits[SPW_JOB_MAX_SCHEMES], beaten[SPW_JOB_MAX_SCHEMES];
    /* Of each scheme: points that were not replayed, as by their bounds they can be no better than another, of these those whose memory
     * is known to fit; and replayed ones that do not keep to a budget. */
    size_t left_out[SPW_JOB_MAX_SCHEMES], left_out_fit[SPW_JOB_MAX_SCHEMES], fails[SPW_JOB_MAX_SCHEMES];
    spw_search_nearest nearest;
    spw_search_effort effort;
    bool untimed; /* no point with a time keeps to the budgets: the answers have none */
} spw_search_outcome;

/* All points, or those before the search was stopped. */
size_t spw_search_looked_at(const spw_search_outcome *outcome);
/* Were all points looked at, and none of them can be, whatever the budgets? */
bool spw_search_none_can_be(const spw_search_outcome *outcome);

/* SPW_EARG for a space that is too large to be counted. An error of the bounds themselves (a replayed point beyond its own) is
 * SPW_EMISMATCH: nothing that rests on a wrong bound is answered. */
SPW_MUST_CHECK spw_status spw_search_run(const spw_search_request *request, spw_search_outcome *out);

#endif
