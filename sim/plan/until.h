/* How uneven may routing get before a point runs out of memory, or takes longer than so many times its balanced step? One
 * number, a severity, by bisection between plain plans of all points, and beside it the severities up to which the answer holds
 * for sure. That more is worse is checked, not assumed: eight intervals are tried first, and every plan that was made is judged.
 * Where the low end is surely bad for every point and question, nothing is left to be found, and it is the only plan.
 * Several questions are asked of the same plans. */
#ifndef SPW_SIM_PLAN_UNTIL_H
#define SPW_SIM_PLAN_UNTIL_H

#include "base/status.h"
#include "sim/replay/result.h"

#include <stdbool.h>

/* Plans all points at a severity into `result`, the same points in the same order each time. */
typedef spw_status spw_until_plan(void *state, double severity, spw_result *result);

enum { SPW_UNTIL_QUESTIONS = 8 };

typedef struct spw_until_request {
    spw_until_plan *plan;
    void *state;
    double low, high;     /* the ends that are tried */
    double today;         /* is planned, too, and may lie outside them; NAN: none */
    const double *factor; /* [questions] of the balanced step; 0: until the point runs out of memory */
    size_t questions;     /* 1 to SPW_UNTIL_QUESTIONS */
} spw_until_request;

typedef enum spw_until_kind {
    SPW_UNTIL_FOUND,
    SPW_UNTIL_NEVER,  /* nothing that was tried does it */
    SPW_UNTIL_ALWAYS, /* so already at the low end */
    SPW_UNTIL_UNTIMED /* the point has no time */
} spw_until_kind;

/* What is asked about, of one point under one routing: bytes of a GPU, or the step over the balanced one. */
typedef struct spw_until_value {
    double value, low, high; /* high: INFINITY where nothing bounds it */
    double budget;           /* bytes, or the factor */
    bool bad;                /* by the figure itself */
} spw_until_value;

/* The GPU that holds most. */
typedef struct spw_until_place {
    size_t stage, stages, rank; /* rank: among those of a stage */
    int32_t layer;              /* id; below 0: none */
    int64_t step;               /* id */
    char death[SPW_DEATH_TEXT]; /* what a replayed allocator is refused first; "": nothing */
} spw_until_place;

/* Of one question and point. */
typedef struct spw_until_answer {
    spw_until_kind kind;
    double good, bad;  /* severities: the last that is still good, the first that is not (FOUND) */
    double sure;       /* the last at which the whole interval is good; NAN: not even at the low end */
    double surely_bad; /* the first at which the whole interval is not; NAN: nowhere that was tried */
    spw_until_value at_low, at_good, at_bad; /* at_good of ALWAYS, at_bad of NEVER: as at_low */
    spw_until_value at_today;                /* NAN where no such severity was asked for */
    double
        drops_good; /* share of the assignments that the point drops at `good`; at the low end where none is good */
    spw_until_place place; /* at `bad`, or at `good` where nothing is bad */
    bool follows;          /* the value changes with the severity at all */
    bool
        monotone; /* no plan that was made is good beyond one that is not, and no value falls by over 1 %, but where
                      an allocation failed */
    double good_again; /* where it is not: a severity beyond `bad` that is good; else 0 */
    struct {
        double from, to, value_from,
            value_to; /* severities and values of the deepest fall by over 1 %; NAN: none */
    } fall;
} spw_until_answer;

typedef struct spw_until_outcome {
    spw_result first;         /* the plan at the low end: which points there are */
    spw_until_value *today;   /* [questions][first.rows] NULL: not asked for */
    spw_until_answer *answer; /* [questions][first.rows] */
    size_t plans;             /* that were made */
    bool once;                /* at the low end alone, as every point is surely bad there */
} spw_until_outcome;

/* factor: as in a request; `row` is judged. Memory is good where the point fits. Its interval is that of the arena; of what must be
 * live, and of PyTorch's allocator, from the live bytes, which nothing goes without, up to the row's most_bytes. A time is good where the step takes at most so many
 * times the balanced one; its interval is that of the ratio (spw_timeline_ratio_width()). NAN without a time. */
spw_until_value spw_until_value_of(const spw_result_row *row, double factor);
/* Fits, or is not longer, by its whole interval. A replayed allocator: no step had to give memory back. */
bool spw_until_is_sure(const spw_until_value *value);

SPW_MUST_CHECK spw_status spw_until_find(const spw_until_request *request, spw_until_outcome *out);
void spw_until_clear(spw_until_outcome *outcome);

#endif
