/* `plan --flags NAME`: a point as a framework's configuration, in place of the plan's tables. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_FLAGS_H
#define SPW_SIM_COMMAND_PLAN_PLAN_FLAGS_H

#include "sim/command/plan/plan_view.h"
#include "sim/frameworks/framework.h"

#include <stdio.h>

/* Lines are no longer broken then. SPW_EARG for a name that nothing is printed for. */
SPW_MUST_CHECK spw_status spw_plan_flags_find(const char *name, const spw_framework **out);

/* Of the fastest point; where none has a time, of the best that fits; where none fits, of the first. What is doubtful of it stands above
 * it as comments; what a plan says in brief goes to the notes. SPW_ECONFIG where no point can be. */
SPW_MUST_CHECK spw_status spw_plan_flags_print(const spw_framework *framework, const spw_plan_view *view,
                                               FILE *out);

#endif
