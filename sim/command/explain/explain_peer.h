/* spillway explain --as PLANNER: what another planner's formulas say of the job, beside ours, part by part. With
 * a trace ours follows its routing. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_PEER_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_PEER_H

#include "sim/command/job_options.h"

/* trace_path: NULL without a trace. */
SPW_MUST_CHECK spw_status spw_explain_peer(const spw_job_options *options, const char *name,
                                           const char *trace_path);

#endif
