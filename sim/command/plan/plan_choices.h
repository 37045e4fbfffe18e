/* Which point of a plan is fastest, what it costs, and what each of the others would need to be in its place. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_CHOICES_H
#define SPW_SIM_COMMAND_PLAN_PLAN_CHOICES_H

#include "sim/command/plan/plan_view.h"

#include <stdio.h>

void spw_plan_print_answers(const spw_plan_view *view, FILE *out);

#endif
