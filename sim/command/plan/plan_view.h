/* What the printers of a plan look at. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_VIEW_H
#define SPW_SIM_COMMAND_PLAN_PLAN_VIEW_H

#include "sim/command/plan/plan_others.h"
#include "sim/plan/plan_points.h"
#include "sim/plan/plan_tries.h"
#include "sim/replay/result.h"

#include <stdbool.h>

typedef struct spw_plan_view {
    const spw_result *result;
    const spw_plan_request *request;
    const spw_plan_tries *tries;
    const spw_plan_others *others; /* NULL: not asked */
    const spw_run_settings *settings;
    const char *routing;   /* where the routing comes from, for a person */
    char *const *argument; /* [arguments] words of the command line behind `plan` */
    size_t arguments;
    bool given;          /* a trace was named, of whatever kind */
    bool traced;         /* the routing is a trace that was recorded, not made */
    bool even;           /* it is as even as chance leaves it */
    bool allocator;      /* its settings were asked for */
    bool all;            /* every point, not the front alone */
    bool details;        /* what the answer rests on, intervals, other answers, points that nothing beats */
    bool schemes_unsaid; /* nobody named a scheme */
    bool split_unsaid;   /* nobody said the expert-parallel size */
    bool batch_unsaid;   /* nobody said how many sequences a GPU has */
} spw_plan_view;

#endif
