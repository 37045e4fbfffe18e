/* What a replay says of a scheme's page pool: in words, and as JSON. */
#ifndef SPW_SIM_RESULT_PAGE_PRINT_H
#define SPW_SIM_RESULT_PAGE_PRINT_H

#include "sim/print/json_values.h"
#include "sim/replay/result.h"

/* Nothing for a row without a pool. */
void spw_page_run_print(const spw_result_row *row, FILE *out);
json_t *spw_page_run_json(spw_json *json, const spw_result_row *row);

#endif
