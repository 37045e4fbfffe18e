/* Plans of the points that a search found best, so that a report shows them without a second run. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_PLANS_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_PLANS_H

#include "sim/command/plan/plan_search.h"
#include "sim/print/json_values.h"

enum { SPW_SEARCH_PLANS = 4 };

/* A list of plans as `plan --format json` prints them, each of one point: the best, the best that surely fits, and the next of the
 * front. The caller owns it; empty where nothing keeps to the budgets. */
SPW_MUST_CHECK spw_status spw_search_plans(spw_json *json, const spw_search_view *view, json_t **out);

#endif
