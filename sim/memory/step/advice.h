/* What to do about a job's memory, in a sentence, from what its allocator did. */
#ifndef SPW_SIM_MEMORY_STEP_ADVICE_H
#define SPW_SIM_MEMORY_STEP_ADVICE_H

#include "sim/memory/kept/verdict.h"
#include "sim/memory/step/reserved_memory.h"

enum { SPW_ADVICE_TEXT = 320 };

/* The ends of the interval of what is reserved, reserved_doubt of sim/stack_defaults/pytorch.yaml around the replay. low: at least what must be live. high: INFINITY where a step ran out, or had to give
 * segments back. */
double spw_reserved_low(const spw_reserved_summary *summary);
double spw_reserved_high(const spw_reserved_summary *summary);

/* "oom": a step ran out of memory. "fits": none had to give segments back to go on, and the high end fits. Else "tight". */
spw_verdict spw_reserved_verdict(const spw_reserved_summary *summary);

/* Empty when there is nothing to say. state_bytes: of them no batch changes any; over the limit, fewer sequences are no advice. */
void spw_advice(const spw_reserved_summary *summary, uint64_t state_bytes, char out[SPW_ADVICE_TEXT]);

#endif
