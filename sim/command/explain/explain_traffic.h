/* spillway explain --traffic: every collective of a step, one row a tensor, for a person, JSON or CSV. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_TRAFFIC_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_TRAFFIC_H

#include "sim/command/job_options.h"

SPW_MUST_CHECK spw_status spw_explain_traffic(const spw_job_options *options);

#endif
