/* What came nearest to each budget, told where no point keeps to all of them. */
#ifndef SPW_SIM_PLAN_SEARCH_NEAREST_H
#define SPW_SIM_PLAN_SEARCH_NEAREST_H

#include "sim/plan/search_front.h"

#include <stddef.h>
#include <stdint.h>

enum { SPW_SEARCH_REFUSED = 384 };

typedef struct spw_search_need {
    uint64_t bytes, budget_bytes;
} spw_search_need;

typedef struct spw_search_nearest {
    /* The smallest of a scheme's points by memory, of those that do not fit; bytes 0: none. Its bytes are a lower bound where they
     * follow the routing. */
    struct {
        spw_search_need need;
        size_t value[SPW_SEARCH_DIMENSIONS], sequences;
    } least[SPW_JOB_MAX_SCHEMES];
    /* The most that one of the points makes that do not reach the tokens a day, by a bound or a replay; 0: there is none. On so many
     * GPUs. */
    double slow_day_most;
    size_t slow_gpus;
    spw_search_point
        drops; /* of those that drop more than they may, the one that drops the least; gpus 0: there is none */
    char refused[SPW_SEARCH_REFUSED]; /* why the first point that cannot be cannot; "": there is none */
    char no_job[SPW_SEARCH_REFUSED];  /* the same of the first values that no job has, whatever the scheme */
    bool no_job_divides;
} spw_search_nearest;

void spw_search_nearest_memory(spw_search_nearest *nearest, size_t scheme,
                               const size_t value[SPW_SEARCH_DIMENSIONS], size_t sequences,
                               spw_search_need need);
/* May a point of this scheme that needs at least so many bytes come nearer to its budget than those so far? */
bool spw_search_nearest_may_be(const spw_search_nearest *nearest, size_t scheme, uint64_t least_bytes);
double spw_search_day(double tokens_per_s, size_t gpus); /* tokens, of so many a second on each GPU */
/* A point that makes so many tokens a second on each of its GPUs. */
void spw_search_nearest_speed(spw_search_nearest *nearest, double tokens_per_s, size_t gpus);
void spw_search_nearest_drops(spw_search_nearest *nearest, const spw_search_point *point);
/* By the last error: of a point, and of values that no job has. divides: they divide the GPUs, which comes nearer than others. */
void spw_search_nearest_refused(spw_search_nearest *nearest);
void spw_search_nearest_no_job(spw_search_nearest *nearest, bool divides);

#endif
