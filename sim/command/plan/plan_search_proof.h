/* What proves the answer of a search, in words and in JSON. */
#ifndef SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_PROOF_H
#define SPW_SIM_COMMAND_PLAN_PLAN_SEARCH_PROOF_H

#include "sim/plan/search_run.h"
#include "sim/print/json_values.h"

#include <stdio.h>

enum { SPW_SEARCH_PROOF_TEXT = 640 };

/* "3233 points left out for memory need 74.0 GiB or more; ...". Returns `out`. */
const char *spw_search_proof_text(const spw_search_outcome *outcome, char out[SPW_SEARCH_PROOF_TEXT]);
json_t *spw_search_proof_json(spw_json *json, const spw_search_outcome *of);

#endif
