/* What the printers of an --until look at. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_UNTIL_VIEW_H
#define SPW_SIM_COMMAND_PLAN_PLAN_UNTIL_VIEW_H

#include "sim/plan/plan_points.h"
#include "sim/plan/until.h"
#include "sim/print/table.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum spw_until_family {
    SPW_UNTIL_STATED,    /* one GPU of every group gets so many times the mean */
    SPW_UNTIL_GENERATED, /* a named distribution */
    SPW_UNTIL_RECORDED   /* a trace, tempered */
} spw_until_family;

/* Loads over the mean, of the worst step and layer; NAN: cannot be said. */
typedef struct spw_until_skew {
    double gpu, expert; /* the fullest GPU of a group; the fullest expert, which is MaxVio + 1 */
} spw_until_skew;

/* One question asked of one point. */
typedef struct spw_until_line {
    char scheme[SPW_SCHEME_TEXT], question[32];
    size_t expert, sequences;
    double factor; /* of the question; 0: memory */
    bool once;     /* planned at the low end alone, where it is out */
    bool live;     /* by what must be live alone */
    bool measured; /* what an allocator adds is what it added at most in what was measured */
    spw_until_answer answer;
    spw_until_skew good, bad, today; /* today: the routing as it is given */
} spw_until_line;

/* A point that cannot be. */
typedef struct spw_until_refusal {
    char scheme[SPW_SCHEME_TEXT], reason[SPW_REFUSAL_TEXT];
    size_t expert, sequences; /* 0: whatever the batch */
} spw_until_refusal;

typedef struct spw_until_view {
    const spw_plan_request *plan;
    spw_until_family family;
    char routing[640]; /* where it comes from, for a person */
    char key[32];      /* what is varied */
    double low, high;  /* between which values, over all points */
    double today;      /* its value as given; NAN: none was */
    bool traced;
    size_t plans;
    bool once;            /* at the low end alone, of every size: all points are out there */
    spw_until_line *line; /* [lines] question by question, then point by point */
    size_t lines, questions;
    spw_until_refusal *refusal; /* [refusals] */
    size_t refusals;
    spw_outside_fit outside; /* of the first point */
} spw_until_view;

SPW_MUST_CHECK spw_status spw_plan_until_print(const spw_until_view *view, spw_format format, FILE *out);

#endif
