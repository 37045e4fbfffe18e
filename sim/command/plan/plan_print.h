/* A plan as a person reads it in one screen, as JSON (the result of replay with a `plan` object) or CSV (a line a point). */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_PRINT_H
#define SPW_SIM_COMMAND_PLAN_PLAN_PRINT_H

#include "sim/command/plan/plan_view.h"
#include "sim/print/table.h"

#include <stdio.h>

SPW_MUST_CHECK spw_status spw_plan_print(const spw_plan_view *view, spw_format format, FILE *out);

/* Which point of a plan is fastest, what it costs, and what each of the others would need to be in its place. */
void spw_plan_print_answers(const spw_plan_view *view, FILE *out);

#endif
