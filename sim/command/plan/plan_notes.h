/* What a plan says in sentences: its heading, what is outside of the fit, why a point has no time. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_NOTES_H
#define SPW_SIM_COMMAND_PLAN_PLAN_NOTES_H

#include "sim/command/plan/plan_view.h"

#include <stdio.h>

bool spw_plan_any_timed(const spw_result *result);
bool spw_plan_any_drops(const spw_result *result);
size_t spw_plan_steps(const spw_plan_view *view); /* of the replay */
/* "drops 1.25 %", "drops at least 1.25 %"; "" when the point drops nothing. */
void spw_plan_drops_text(const spw_result_row *row, char *out, size_t size);
const char *spw_plan_routing_word(const spw_plan_view *view); /* "real", "stated" or "generated" */

int spw_plan_digits(double speed); /* behind the point of tokens/s */

void spw_plan_print_heading(const spw_plan_view *view, FILE *out);
/* What was assumed, and what the figures rest on beyond what was fitted. */
void spw_plan_print_doubts(const spw_plan_view *view, FILE *out);
void spw_plan_print_legend(const spw_plan_view *view, FILE *out); /* of the marks in the cells */

bool spw_plan_any_reserved(const spw_result *result); /* was an allocator replayed? */

#endif
