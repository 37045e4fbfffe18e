/* The functions of the Python package that ask about a job, with a keyword for every option and every key of a job. */
#ifndef SPW_SIM_MANUAL_PYTHON_H
#define SPW_SIM_MANUAL_PYTHON_H

#include "sim/manual/page.h"

#include <stdio.h>

/* Print the modules python/spillway_moe/questions.py and planning.py, which has what plan answers. A keyword is the name of
 * an option with underscores for dashes; a key without an option is its path with underscores for dots, "parallel_schedule",
 * with "job_" before it where an option has that name already. SPW_EARG where a command that it needs is not in the manual. */
SPW_MUST_CHECK spw_status spw_python_questions(const spw_manual *manual, FILE *out);
SPW_MUST_CHECK spw_status spw_python_planning(const spw_manual *manual, FILE *out);

/* Prints the module python/spillway_moe/keywords.py: the key of every such keyword, and what keywords mean. */
SPW_MUST_CHECK spw_status spw_python_keywords(const spw_manual *manual, FILE *out);

#endif
