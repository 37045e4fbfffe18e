/* What a later release of the software says of the points of a plan that named no stack. Memory and times of a plan come from one stack,
 * the newest with times; memory of later releases is known sooner. A stack that takes its times from the assumed one is such a release. */
#ifndef SPW_SIM_PLAN_PLAN_LATER_H
#define SPW_SIM_PLAN_PLAN_LATER_H

#include "sim/memory/compiled/newest_arena.h"
#include "sim/plan/plan_points.h"

typedef struct spw_plan_later {
    spw_newest_arena arena; /* of the point; there: false where no point differs by more than its interval */
    size_t row;    /* of the plan: the one that it answers with, if that differs, else the first that does */
    size_t points; /* that differ */
} spw_plan_later;

/* Nothing where the stack was named. SPW_ENOMEM, SPW_ECONFIG. */
SPW_MUST_CHECK spw_status spw_plan_later_find(const spw_plan_request *request, const spw_result *result,
                                              spw_plan_later *out);

#endif
