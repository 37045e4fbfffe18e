/* What to do about a job's memory, in a sentence, from what its allocator did. */
#ifndef SPW_SIM_MEMORY_ADVICE_H
#define SPW_SIM_MEMORY_ADVICE_H

#include "sim/memory/footprint.h"
#include "sim/memory/reserved_memory.h"

enum { SPW_ADVICE_TEXT = 320 };

/* "oom": a step ran out of memory. "tight": a step had to give segments back to go on, or the live tensors leave less
 * than 5 % of the budget free. Else "fits": reserved memory may fill the budget, the cache is of use. */
spw_verdict spw_reserved_verdict(const spw_reserved_summary *summary);

/* Empty when there is nothing to say. */
void spw_advice(const spw_reserved_summary *summary, char out[SPW_ADVICE_TEXT]);

#endif
