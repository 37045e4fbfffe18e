/* What a plan recommends beyond its own points is tried: each is a replay on the plan's routing. */
#ifndef SPW_SIM_PLAN_PLAN_TRIES_H
#define SPW_SIM_PLAN_PLAN_TRIES_H

#include "sim/plan/plan_advice.h"
#include "sim/plan/plan_answers.h"
#include "sim/plan/plan_later.h"
#include "sim/plan/plan_points.h"

#include <stdbool.h>

/* A scheme that is tempting and drops more than the plan allows: what it would need. */
typedef struct spw_plan_need {
    size_t row;         /* of the plan: the scheme's fastest point that fits */
    const char *option; /* capacity_factor or buffer_factor; NULL: the scheme has neither */
    double factor;      /* the smallest that stays within the limit at that split and batch; 0: none does */
    double fraction;    /* dropped with it */
    bool fits, timed;   /* with it */
    double tokens_per_s_per_gpu, tokens_per_s_low, tokens_per_s_high;
    uint64_t bytes;
} spw_plan_need;

/* The memory of the point that the plan answers with, had the job the other set of formats that people use. */
typedef struct spw_plan_other_precision {
    const char *name; /* as behind --precision; NULL: there is none */
    size_t row;       /* of the plan */
    spw_verdict verdict;
    uint64_t bytes, low_bytes, high_bytes;
    bool live_alone;
} spw_plan_other_precision;

typedef struct spw_plan_tries {
    spw_plan_other_precision other;
    spw_plan_later later;
    spw_plan_need need[SPW_JOB_MAX_SCHEMES];
    spw_plan_misfit_advice misfit[SPW_JOB_MAX_SCHEMES];
    size_t needs, misfits;
    double break_even_factor;   /* spw_plan_break_even_factor of the fastest point without drops; NAN: none */
    double break_even_fraction; /* what dense drops with it */
} spw_plan_tries;

/* A store of the request's routing where it is generated and a factor limits a scheme's rows: what the plan draws need not be drawn again
 * to try others. NULL: none is of use. */
SPW_MUST_CHECK spw_status spw_plan_share_routing(const spw_plan_request *request, spw_token_store **out);

/* The result has its answers: a recommended point drops no more than they allow. */
SPW_MUST_CHECK spw_status spw_plan_try(const spw_plan_request *request, const spw_result *result,
                                       spw_plan_tries *out);

#endif
