/* What a plan says of its points beyond the answers of every result: what would make a point fit. A point is a row of the result: scheme x split x batch. */
#ifndef SPW_SIM_PLAN_PLAN_ANSWERS_H
#define SPW_SIM_PLAN_PLAN_ANSWERS_H

#include "sim/replay/result_answers.h"

#include <stdbool.h>

/* Of a scheme's points that do not fit the one of the smallest batch, at the expert-parallel size `expert` if it is there;
 * NULL when all fit. */
const spw_result_row *spw_plan_misfit(const spw_result *result, const char *scheme, size_t expert);

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
