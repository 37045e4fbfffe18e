/* How uneven may routing get before a point runs out of memory, or takes longer than so many times its balanced step? One
 * number, a severity, by bisection between plain plans of all points. That more is worse is checked, not assumed: eight
 * intervals are tried first, and every plan that was made is judged. */
#ifndef SPW_SIM_REPLAY_UNTIL_H
#define SPW_SIM_REPLAY_UNTIL_H

#include "base/status.h"
#include "sim/replay/result.h"

#include <stdbool.h>

/* Plans all points at a severity into `result`, the same points in the same order each time. */
typedef spw_status spw_until_plan(void *state, double severity, spw_result *result);

typedef struct spw_until_request {
    spw_until_plan *plan;
    void *state;
    double low, high; /* the ends that are tried */
    double factor;    /* of the balanced step; 0: until the point runs out of memory */
} spw_until_request;

typedef enum spw_until_kind {
    SPW_UNTIL_FOUND,
    SPW_UNTIL_NEVER,  /* nothing that was tried does it */
    SPW_UNTIL_ALWAYS, /* so already at the low end */
    SPW_UNTIL_UNTIMED /* the point has no time */
} spw_until_kind;

/* Of one point, by its position in the result. */
typedef struct spw_until_answer {
    spw_until_kind kind;
    double good, bad; /* severities: the last that is still good, the first that is not (FOUND) */
    double value_low; /* bytes, or step over balanced, at the low end */
    double value_good, value_bad;
    double drops_good; /* share of the assignments that the point drops at `good` */
    bool follows;      /* the value changes with the severity at all */
    bool
        monotone; /* no plan that was made is good beyond one that is not, and no value falls by over 1 %, but where
                      an allocation failed */
    double good_again; /* where it is not: a severity beyond `bad` that is good; else 0 */
} spw_until_answer;

typedef struct spw_until_outcome {
    spw_result first;         /* the plan at the low end: which points there are */
    spw_until_answer *answer; /* [first.rows] */
    size_t plans;             /* that were made */
} spw_until_outcome;

SPW_MUST_CHECK spw_status spw_until_find(const spw_until_request *request, spw_until_outcome *out);
void spw_until_clear(spw_until_outcome *outcome);

#endif
