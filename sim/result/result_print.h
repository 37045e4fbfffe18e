/* A result for a person to read, as CSV, or as JSON. */
#ifndef SPW_SIM_RESULT_RESULT_PRINT_H
#define SPW_SIM_RESULT_RESULT_PRINT_H

#include "base/status.h"
#include "sim/print/table.h"
#include "sim/replay/result.h"

#include <stdio.h>

SPW_MUST_CHECK spw_status spw_result_print(const spw_result *result, const spw_run_settings *settings,
                                           spw_format format, FILE *out);

/* Where the newest stack of the cluster says less than what must be live: a line a scheme and batch, under a heading. */
void spw_result_print_newest(const spw_result *result, FILE *out);

/* The number formats of the job, a hint where they are less than what mixed precision keeps as usual, and which of them are
 * assumed. */
void spw_result_print_precision(const spw_job *job, FILE *out);
/* What is assumed of the split: a line or none. */
void spw_result_print_split(const spw_job *job, FILE *out);

/* What the allocator did, in words. */
void spw_result_print_reserved(const spw_result_row *row, FILE *out);

/* fastest: of the rows that fit and have a time; left out where none has one. fits: how many rows do, how many of them surely,
 * and the most that any row drops. */
void spw_result_print_brief(const spw_result *result, const spw_run_settings *settings, FILE *out);

#endif
