/* What `spillway explain` prints below its heading: one function a part. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_PARTS_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_PARTS_H

#include "base/status.h"
#include "sim/command/job_options.h"

typedef struct spw_point spw_point;         /* sim/schemes/point.h */
typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

/* Puts the kinds of the list that are live at the peak of a step with balanced routing in the place of f's components,
 * where the job is such a stack (sim/memory/kept/megatron_job.h); else does nothing. The step is the second: the dispatchers hold
 * what the first one left. */
SPW_MUST_CHECK spw_status spw_explain_bare(const spw_point *point, spw_footprint *f);

/* Every scheme and batch size of the job, with the coefficients of `stack` (a preset or a file), on stdout. */
SPW_MUST_CHECK spw_status spw_explain_compiled(spw_job_options *options, const char *stack);

/* trace_path NULL: without a trace; then rank says nothing. */
SPW_MUST_CHECK spw_status spw_explain_live(const spw_job_options *options, const char *trace_path,
                                           size_t rank);

/* trace_path: NULL without a trace. */
SPW_MUST_CHECK spw_status spw_explain_peer(const spw_job_options *options, const char *name,
                                           const char *trace_path);

/* spillway explain --traffic: every collective of a step, one row a tensor, for a person, JSON or CSV. */
SPW_MUST_CHECK spw_status spw_explain_traffic(const spw_job_options *options);

#endif
