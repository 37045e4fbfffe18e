/* Where the numbers of a result come from: part of its JSON. */
#ifndef SPW_SIM_RESULT_RESULT_SOURCES_H
#define SPW_SIM_RESULT_RESULT_SOURCES_H

#include "sim/print/json_values.h"
#include "sim/replay/result.h"

/* {figures: [{what, value, unit, evidence, source}], schemes: [{scheme, section, source}], model: source,
 *  fits: [{what, name, tables}]}: the cluster's figures, those that measured points stand for without a value; each scheme
 * once, with its section of docs/schemes.md; where the model's shapes were read; what the coefficients in use were
 * fitted on. The caller owns it; what could not be made is noted in `json`. */
json_t *spw_result_sources_json(spw_json *json, const spw_result *result, const spw_run_settings *settings);

#endif
