/* The same point with balanced routing, every expert chosen alike: what stands beside the answers of a plan and of a search. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_BALANCED_H
#define SPW_SIM_COMMAND_PLAN_PLAN_BALANCED_H

#include "sim/time/step_span.h"

#include <stdbool.h>
#include <stdio.h>

/* Is the routing as even as chance leaves it, so that nothing needs to stand beside? `routing` as in --routing. */
bool spw_plan_routing_is_even(const char *routing);

/* A line behind `indent` spaces: tokens/s of a GPU where there is a time, step, memory and drops. */
void spw_plan_print_balanced(const spw_balanced_figures *b, int indent, FILE *out);

#endif
