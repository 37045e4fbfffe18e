/* What a run was asked, as JSON. */
#ifndef SPW_SIM_RESULT_RESULT_SETTINGS_JSON_H
#define SPW_SIM_RESULT_RESULT_SETTINGS_JSON_H

#include "sim/result/result_json.h"

json_t *spw_run_settings_json(spw_json *json, const spw_run_settings *settings);
/* Null where there is no trace. */
json_t *spw_run_trace_json(spw_json *json, const spw_run_settings *settings);

#endif
