/* `explain` as it is without options: every component of what must be live, and what a rank receives on a trace. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_LIVE_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_LIVE_H

#include "base/status.h"
#include "sim/command/job_options.h"

/* trace_path NULL: without a trace; then rank says nothing. */
SPW_MUST_CHECK spw_status spw_explain_live(const spw_job_options *options, const char *trace_path,
                                           size_t rank);

#endif
