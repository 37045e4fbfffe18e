/* What a replay begins with, below trace and job: the fastest row and what uneven routing does to it, and which rows fit. */
#ifndef SPW_SIM_RESULT_RESULT_BRIEF_H
#define SPW_SIM_RESULT_RESULT_BRIEF_H

#include "sim/replay/result.h"

#include <stdio.h>

/* fastest: of the rows that fit and have a time; left out where none has one. fits: how many rows do, how many of them surely,
 * and the most that any row drops. */
void spw_result_print_brief(const spw_result *result, const spw_run_settings *settings, FILE *out);

#endif
