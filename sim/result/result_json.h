/* The result as JSON, the contract other programs read (format "spillway-result"; docs/result_format.md). */
#ifndef SPW_SIM_RESULT_RESULT_JSON_H
#define SPW_SIM_RESULT_RESULT_JSON_H

#include "sim/print/json_values.h"
#include "sim/replay/result.h"
#include "sim/result/row_cost.h"

#include <stdio.h>

/* Everything as one object, which the caller owns; what could not be made is noted in `json`. */
/* Points that cannot be, and why. */
json_t *spw_result_refusals_json(spw_json *json, const spw_result *result);
json_t *spw_result_json(spw_json *json, const spw_result *result, const spw_run_settings *settings);
SPW_MUST_CHECK spw_status spw_result_print_json(const spw_result *result, const spw_run_settings *settings,
                                                FILE *out);
/* The figures under their names, each with its interval; null where there is none. */
json_t *spw_row_cost_json(spw_json *json, const spw_row_cost *cost);
/* The causes of a time's interval by name, each as a half width of the step; empty where they have no names. */
json_t *spw_doubts_json(spw_json *json, const spw_timeline *time);
/* The text of the settings alone; the caller frees it with free(). */
SPW_MUST_CHECK spw_status spw_run_settings_text(const spw_run_settings *settings, char **out);

/* {figures: [{what, value, unit, evidence, source}], schemes: [{scheme, section, source}], model: source,
 *  fits: [{what, name, tables}]}: the cluster's figures, those that measured points stand for without a value; each scheme
 * once, with its section of docs/schemes.md; where the model's shapes were read; what the coefficients in use were
 * fitted on. The caller owns it; what could not be made is noted in `json`. */
json_t *spw_result_sources_json(spw_json *json, const spw_result *result, const spw_run_settings *settings);

/* Puts it into the result's object. Not there: where no row answers, and where the peak is that of a recorded job or of bare layers,
 * which the allocator followed tensor by tensor. */
void spw_result_put_timeline(spw_json *json, json_t *object, const spw_result *result,
                             const spw_run_settings *settings);

/* What a run was asked, as JSON. */
json_t *spw_run_settings_json(spw_json *json, const spw_run_settings *settings);
/* Null where there is no trace. */
json_t *spw_run_trace_json(spw_json *json, const spw_run_settings *settings);

#endif
