/* Work and cost of rows as a person reads them: a table of a replay, lines of a plan. */
#ifndef SPW_SIM_RESULT_ROW_COST_PRINT_H
#define SPW_SIM_RESULT_ROW_COST_PRINT_H

#include "sim/print/table.h"
#include "sim/replay/result.h"
#include "sim/result/row_cost.h"

#include <stdio.h>

/* Columns of CSV alone: every figure and its ends. */
void spw_row_cost_add(spw_table *table, const spw_row_cost *cost);

/* Lines of a row that has a time: "MFU 21.3 (20.1 to 22.4) %, 210 TFLOP/s a GPU, 6.8 B (...) tokens a day", and below, where tokens
 * were named, what they take. */
/* The second of them alone; nothing where no tokens were named. */
void spw_row_cost_training(const spw_row_cost *cost, double tokens, int indent, FILE *out);
void spw_row_cost_lines(const spw_row_cost *cost, double tokens, int indent, FILE *out);

/* A table of the rows that have a time; nothing where none has. `steps`, `sequences`: show that column. */
SPW_MUST_CHECK spw_status spw_row_costs_print(const spw_result *result, const spw_run_settings *settings,
                                              bool steps, bool sequences, FILE *out);

#endif
