/* What a plan says in sentences: its heading, what is outside of the fit, why a point has no time, its answers. */
#ifndef SPW_SIM_COMMAND_PLAN_NOTES_H
#define SPW_SIM_COMMAND_PLAN_NOTES_H

#include "sim/command/plan_view.h"

#include <stdio.h>

bool spw_plan_any_timed(const spw_result *result);
const char *spw_plan_routing_word(const spw_plan_view *view); /* "real", "stated" or "made" */
const char *spw_plan_seconds_format(double seconds);          /* three digits or more that count */

void spw_plan_print_heading(const spw_plan_view *view, FILE *out);
void spw_plan_print_legend(const spw_plan_view *view, FILE *out); /* of the marks in the cells */
void spw_plan_print_answers(const spw_plan_view *view, FILE *out);

#endif
