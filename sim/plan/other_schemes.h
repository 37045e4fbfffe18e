/* Would another scheme of the same framework be faster at the same split and batch? A framework's file names one, and its users can set
 * another. */
#ifndef SPW_SIM_PLAN_OTHER_SCHEMES_H
#define SPW_SIM_PLAN_OTHER_SCHEMES_H

#include "sim/plan/plan_points.h"

#include <stdbool.h>

enum { SPW_OTHER_SCHEMES = 2 };
/* From this ratio on another scheme is named, whatever the ratio's interval. */
static const double SPW_OTHER_LEAST = 1.1;

typedef struct spw_other_scheme {
    spw_scheme scheme;
    spw_ratio times; /* its tokens/s over the point's, with its interval (spw_pace_ratio_width()) */
    bool sure;       /* the whole interval is above 1 */
    double tokens_per_s_per_gpu;
    bool surely_fits, outside_fit;
} spw_other_scheme;

typedef struct spw_other_schemes {
    spw_other_scheme item[SPW_OTHER_SCHEMES]; /* the fastest first */
    size_t count;
} spw_other_schemes;

/* The point to compare with: `job` has its split and its batch alone. */
typedef struct spw_other_point {
    const spw_job *job;
    const spw_scheme *scheme;
    spw_pace pace;
    double drop_most; /* share of the assignments */
} spw_other_point;

/* The schemes of the point's framework that the plan has not: those of its row that need no options, and those that a plan without a
 * file takes. One is named if it has a time, fits, drops no more than it may, and is either faster by its whole interval or
 * SPW_OTHER_LEAST times as fast. Times come first, without the allocator; the allocator is replayed for what would be named. */
SPW_MUST_CHECK spw_status spw_other_schemes_find(const spw_plan_request *q, const spw_other_point *point,
                                                 spw_other_schemes *out);

#endif
