/* The result as JSON, the contract other programs read (format "spillway-result"). */
#ifndef SPW_SIM_REPLAY_RESULT_JSON_H
#define SPW_SIM_REPLAY_RESULT_JSON_H

#include "sim/replay/result.h"

#include <jansson.h>

/* Everything as one object, which the caller owns. */
json_t *spw_result_json(const spw_result *result, const spw_run_settings *settings);
SPW_MUST_CHECK spw_status spw_result_print_json(const spw_result *result, const spw_run_settings *settings,
                                                FILE *out);

#endif
