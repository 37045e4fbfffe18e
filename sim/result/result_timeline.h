/* The memory of one GPU within a step, of the row that answers best: `memory_timeline` of a result (docs/result_format.md). */
#ifndef SPW_SIM_RESULT_RESULT_TIMELINE_H
#define SPW_SIM_RESULT_RESULT_TIMELINE_H

#include "sim/print/json_values.h"
#include "sim/replay/result.h"

/* Puts it into the result's object. Not there: where no row answers, and where the peak is that of a recorded job or of bare layers,
 * which the allocator followed tensor by tensor. */
void spw_result_put_timeline(spw_json *json, json_t *object, const spw_result *result,
                             const spw_run_settings *settings);

#endif
