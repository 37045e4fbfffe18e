/* The JSON of a plan: the result as replay prints it, and `plan`: {front: [row], fastest, fastest_dropless: row or null,
 * tokens, break_even_capacity_factor, drops_too_much: [{point, factor}], does_not_fit: [{point, advice}], ...}. Rows and
 * points are positions in `rows`. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_JSON_H
#define SPW_SIM_COMMAND_PLAN_PLAN_JSON_H

#include "sim/command/plan/plan_view.h"
#include "sim/print/json_values.h"

#include <stdio.h>

/* As one object, which the caller owns; what could not be made is noted in `json`. */
json_t *spw_plan_json(spw_json *json, const spw_plan_view *view);
SPW_MUST_CHECK spw_status spw_plan_print_json(const spw_plan_view *view, FILE *out);

#endif
