/* What follows from the points of a plan: which of them are worth a look, which is fastest, what an amount of training
 * costs, and what would make a point fit. A point is a row of the result: scheme x split x batch. */
#ifndef SPW_SIM_REPLAY_PLAN_ANSWERS_H
#define SPW_SIM_REPLAY_PLAN_ANSWERS_H

#include "sim/replay/result.h"

#include <stdbool.h>

bool spw_point_fits(const spw_result_row *row); /* tight fits, too */
bool spw_point_surely_fits(
    const spw_result_row
        *row); /* its whole interval does; where the allocator was replayed, no step retried */
bool spw_point_is_live_alone(
    const spw_result_row *row); /* nothing says what comes on top of its live memory */
bool spw_point_drops(const spw_result_row *row);
double spw_point_drop_fraction(const spw_result_row *row);

/* Is the point outside of what the stack was fitted on, in memory or time? */
bool spw_point_outside_fit(const spw_result_row *row);

/* The fastest point that fits and drops at most the share `most` of the assignments, NULL when none does. 0: it drops
 * nothing, for certain; `surely`: of those that surely fit. Equal speed: less memory. */
const spw_result_row *spw_plan_fastest(const spw_result *result, double most, bool surely);
/* The same of one scheme, whatever it drops. */
const spw_result_row *spw_plan_fastest_of(const spw_result *result, const char *scheme);

/* Of a scheme's points that do not fit the one of the smallest batch, at the expert-parallel size `expert` if it is there;
 * NULL when all fit. */
const spw_result_row *spw_plan_misfit(const spw_result *result, const char *scheme, size_t expert);

/* front [result->rows]: true where no other point that fits, its memory of the same kind, is at least as good in memory (peak), speed (tokens/s) and
 * drops, and better in one. Points without a time are compared by memory and drops among themselves. */
void spw_plan_front(const spw_result *result, bool *front);

/* Training of `tokens` tokens at a row's speed on `gpus`. */
typedef struct spw_plan_cost {
    double tokens_per_day, gpu_hours, days; /* NAN without a time */
} spw_plan_cost;
spw_plan_cost spw_plan_cost_of(const spw_result_row *row, double gpus, double tokens);

/* The one smallest change that would make a point fit. */
typedef enum spw_change {
    SPW_CHANGE_NONE,       /* it fits */
    SPW_CHANGE_EXPANDABLE, /* expandable segments, where the allocator was replayed */
    SPW_CHANGE_FRACTION, /* the memory fraction, up to SPW_MOST_FRACTION; not where the allocator was replayed: what it would
                              do on a larger device is not known */
    SPW_CHANGE_SEQUENCES,
    SPW_CHANGE_SPLIT, /* another expert-parallel size at the same batch */
    SPW_CHANGE_IMPOSSIBLE
} spw_change;
typedef struct spw_plan_change {
    spw_change kind;
    double fraction;          /* needed */
    const spw_result_row *to; /* the point that fits: SEQUENCES, SPLIT */
} spw_plan_change;
#define SPW_MOST_FRACTION 0.96 /* what published runs used at most: notebooks_data/published */
spw_plan_change spw_plan_change_of(const spw_result *result, const spw_result_row *row, double hbm_bytes);

#endif
