/* A plan as a person reads it in one screen, as JSON (the result of replay with a `plan` object) or CSV (a line a point). */
#ifndef SPW_SIM_COMMAND_PLAN_PRINT_H
#define SPW_SIM_COMMAND_PLAN_PRINT_H

#include "sim/replay/plan_points.h"
#include "sim/replay/table.h"

#include <stdio.h>

typedef struct spw_plan_view {
    const spw_result *result;
    const spw_plan_request *request;
    const spw_run_settings *settings;
    const char *routing; /* where the routing comes from, for a person */
    double tokens;       /* budget of the training; 0 = not asked for */
    bool traced;         /* the routing is a trace, not made */
    bool all;            /* every point, not the front alone */
} spw_plan_view;

SPW_MUST_CHECK spw_status spw_plan_print(const spw_plan_view *view, spw_format format, FILE *out);

#endif
