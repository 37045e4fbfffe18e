/* `plan --until oom,step=1.1`: how uneven routing may get. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_UNTIL_H
#define SPW_SIM_COMMAND_PLAN_PLAN_UNTIL_H

#include "sim/command/plan/plan_routing.h"
#include "sim/plan/plan_points.h"
#include "sim/print/table.h"

#include <stdio.h>

/* As written on the command line. */
typedef struct spw_until_options {
    const char *until;   /* questions between commas: "oom", "step=1.1" */
    const char *routing; /* the family; NULL: of `trace_path`, or where that is NULL too, one hot GPU */
    spw_routing_extent extent;
    const char *trace_path; /* its own routing, made more uneven */
} spw_until_options;

/* `plan` lacks its trace alone. */
SPW_MUST_CHECK spw_status spw_plan_until(const spw_until_options *options, const spw_plan_request *plan,
                                         spw_format format, FILE *out);

#endif
