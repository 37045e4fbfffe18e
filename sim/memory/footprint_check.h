/* Which jobs and schemes a footprint describes together. */
#ifndef SPW_SIM_MEMORY_FOOTPRINT_CHECK_H
#define SPW_SIM_MEMORY_FOOTPRINT_CHECK_H

#include "base/status.h"
#include "sim/input/job_words.h"
#include "sim/schemes/scheme.h"

/* SPW_ECONFIG: a state that a program cannot keep as the job says (programs of MaxText are sharded), a recipe or a grid
 * that is not described for the scheme. */
SPW_MUST_CHECK spw_status spw_footprint_check(const spw_job *job, const spw_scheme *scheme);
/* What to say where a PyTorch scheme's state is taken as sharded, which is the default and not Megatron's way; else NULL. */
const char *spw_footprint_state_note(const spw_job *job, const spw_scheme *scheme);

#endif
