/* The overload factors of a result: as a table, and as JSON. */
#ifndef SPW_SIM_RESULT_OVERLOAD_PRINT_H
#define SPW_SIM_RESULT_OVERLOAD_PRINT_H

#include "sim/print/json_values.h"
#include "sim/print/table.h"
#include "sim/replay/result.h"

/* Every row's five factors, its step as replayed and its layers: SPW_FORMAT_TABLE with what the columns mean, or SPW_FORMAT_CSV. */
SPW_MUST_CHECK spw_status spw_overload_print(const spw_result *result, spw_format format, FILE *out);

/* One row's. Times and costs are null where there is no time. */
json_t *spw_overload_json(spw_json *json, const spw_result_row *row);

#endif
