/* `spillway explain --stack`: the memory that XLA needs for the job, part by part, with its interval. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_COMPILED_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_COMPILED_H

#include "sim/command/job_options.h"

/* Every scheme and batch size of the job, with the coefficients of `stack` (a preset or a file), on stdout. */
SPW_MUST_CHECK spw_status spw_explain_compiled(spw_job_options *options, const char *stack);

#endif
