/* What can be said of a point without replaying it: what it needs at least, and how fast it is at most. */
#ifndef SPW_SIM_PLAN_SEARCH_BOUND_H
#define SPW_SIM_PLAN_SEARCH_BOUND_H

#include "base/status.h"
#include "sim/plan/plan_points.h"
#include "sim/plan/search_front.h"
#include "sim/plan/search_means.h"

#include <stdbool.h>

/* Weights and optimizer of a rank, which no batch and no recomputation changes: noted once for all points that differ in these. */
enum { SPW_SEARCH_STATES = 4096 };
typedef struct spw_search_states {
    struct {
        size_t key;
        uint64_t bytes;
    } state[SPW_SEARCH_STATES];
} spw_search_states;

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
} spw_search_point_facts;

/* What is asked of a point. */
typedef struct spw_search_asked {
    spw_search_states *states; /* of the caller alone; NULL: nothing is noted */
    size_t key;                /* above 0; points of one key have one state */
    uint64_t enough;           /* a bound over the budget that is no less is not worked out further */
} spw_search_asked;

/* Memory is exact where it does not follow the routing: XLA's arena, and buffers of a fixed size. Else it is a rank's with the rows
 * that the fullest rank cannot be without: the mean where nothing is dropped, by the pigeonhole; in one layer, or what all layers
 * keep together, whichever needs more. Of a pipeline with an allocator's replay only the first and the last of the stages that hold the
 * same are looked at. SPW_ECONFIG where the point cannot be. */
SPW_MUST_CHECK spw_status spw_search_bound_of(const spw_search_facts *facts, const spw_point *point,
                                              const spw_search_asked *asked, spw_search_point_facts *out);

/* Raises the bounds of a point to what its own routing says: `means` of it, or of a point that has the same. */
SPW_MUST_CHECK spw_status spw_search_bound_sharpen(const spw_search_facts *facts, const spw_point *point,
                                                   const spw_search_means *means,
                                                   spw_search_point_facts *known);

#endif
