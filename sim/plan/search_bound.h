/* What can be said of a point without replaying it: what it needs at least, and how fast it is at most. */
#ifndef SPW_SIM_PLAN_SEARCH_BOUND_H
#define SPW_SIM_PLAN_SEARCH_BOUND_H

#include "base/status.h"
#include "sim/plan/plan_points.h"
#include "sim/plan/search_front.h"

#include <stdbool.h>

/* What all points of one number of GPUs share. */
typedef struct spw_search_facts {
    const spw_plan_request *plan;
    const spw_megatron_coefficients *megatron; /* of the plan, scaled to this cluster; NULL: none */
    bool generated;                            /* every token of the routing has all its choices */
} spw_search_facts;

typedef struct spw_search_point_facts {
    spw_search_bound bound;
    uint64_t budget_bytes, state_bytes; /* state: weights and optimizer, which no batch changes */
    bool timed;
    bool state_alone; /* it is over the budget, and no more is known: least_bytes is state_bytes */
} spw_search_point_facts;

/* Memory is exact where it does not follow the routing: XLA's arena, and buffers of a fixed size. Else it is a rank's with the rows
 * that the fullest rank cannot be without: the mean where nothing is dropped, by the pigeonhole; in one layer, or what all layers
 * keep together, whichever needs more. complete: also of a point whose weights and optimizer alone are over the budget, which else are
 * all that is asked for. SPW_ECONFIG where the point cannot be. */
SPW_MUST_CHECK spw_status spw_search_bound_of(const spw_search_facts *facts, const spw_point *point,
                                              bool complete, spw_search_point_facts *out);

#endif
