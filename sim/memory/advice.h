/* What to do about a job's memory, in a sentence, from what its allocator did. */
#ifndef SPW_SIM_MEMORY_ADVICE_H
#define SPW_SIM_MEMORY_ADVICE_H

#include "sim/memory/footprint.h"
#include "sim/memory/reserved_memory.h"

enum { SPW_ADVICE_TEXT = 320 };

/* How far from what is replayed a process may be: of 58 GPUs under whole models of Megatron-Core on H100 what was reserved was 1.3 %
 * above the replay on the mean, and 5.3 % at most (docs/validation_memory.md). */
#define SPW_RESERVED_DOUBT 0.06

/* The ends of the interval of what is reserved. low: at least what must be live. high: INFINITY where a step ran out, or had to give
 * segments back. */
double spw_reserved_low(const spw_reserved_summary *summary);
double spw_reserved_high(const spw_reserved_summary *summary);

/* "oom": a step ran out of memory. "fits": none had to give segments back to go on, and the high end fits. Else "tight". */
spw_verdict spw_reserved_verdict(const spw_reserved_summary *summary);

/* Empty when there is nothing to say. */
void spw_advice(const spw_reserved_summary *summary, char out[SPW_ADVICE_TEXT]);

#endif
