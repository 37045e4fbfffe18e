/* Which jobs and schemes a footprint describes together. */
#ifndef SPW_SIM_MEMORY_LIVE_FOOTPRINT_CHECK_H
#define SPW_SIM_MEMORY_LIVE_FOOTPRINT_CHECK_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/schemes/scheme.h"

/* Sets what the job's recipe says of a scheme and nobody wrote: TransformerEngine pads the rows of an expert to the multiples that
 * its products take, so that align is theirs. The scheme's text says it afterwards. SPW_ECONFIG as spw_scheme_parse. */
SPW_MUST_CHECK spw_status spw_scheme_settle(const spw_job *job, spw_scheme *scheme);
/* SPW_ECONFIG: a state that a program cannot keep as the job says (programs of MaxText are sharded), a recipe or a grid
 * that is not described for the scheme. */
SPW_MUST_CHECK spw_status spw_footprint_check(const spw_job *job, const spw_scheme *scheme);
/* What to say where a PyTorch scheme's state is taken as sharded, which is the default and not Megatron's way; else NULL. */
const char *spw_footprint_state_note(const spw_job *job, const spw_scheme *scheme);

#endif
