/* What the peak of bare Megatron-Core layers is made of, tensor by tensor, from the list that `replay` runs. */
#ifndef SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_BARE_H
#define SPW_SIM_COMMAND_EXPLAIN_EXPLAIN_BARE_H

#include "base/status.h"
#include "sim/memory/live/footprint.h"

/* Puts the kinds of the list that are live at the peak of a step with balanced routing in the place of f's components,
 * where the job is such a stack (sim/memory/kept/megatron_job.h); else does nothing. The step is the second: the dispatchers hold
 * what the first one left. */
SPW_MUST_CHECK spw_status spw_explain_bare(const spw_point *point, spw_footprint *f);

#endif
