/* What the newest stack that is known for a cluster says of a point whose memory is otherwise only what must be live: a lower
 * bound fits more often than the program that XLA compiles. Every command that says "fits" of such a point says this, too. */
#ifndef SPW_SIM_MEMORY_COMPILED_NEWEST_ARENA_H
#define SPW_SIM_MEMORY_COMPILED_NEWEST_ARENA_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/machine/cluster.h"
#include "sim/memory/kept/verdict.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_stack spw_stack;       /* sim/machine/stack.h */
typedef struct spw_software spw_software; /* sim/job/software.h */

typedef struct spw_newest_arena {
    bool there;
    char stack[SPW_STACK_NAME];
    spw_verdict verdict;
    uint64_t peak_bytes, low_bytes, high_bytes, budget_bytes; /* low to high: the interval of the peak */
} spw_newest_arena;

/* The stack that plan takes by itself for the compiled programs among the schemes, read into `software`; *out is NULL where
 * there is no such program. */
SPW_MUST_CHECK spw_status spw_newest_stack_read(const spw_job *job, const spw_scheme *scheme, size_t schemes,
                                                spw_software *software, const spw_stack **out);

/* `there` is false where the stack (NULL: none) says nothing of the scheme and job. */
SPW_MUST_CHECK spw_status spw_newest_arena_of(const spw_stack *stack, const spw_job *job,
                                              const spw_scheme *scheme, size_t sequences,
                                              spw_newest_arena *out);

/* Does it say less of the point than what must be live does: another verdict, or an interval over the budget? */
bool spw_newest_arena_differs(const spw_newest_arena *arena, spw_verdict live);

enum { SPW_NEWEST_TEXT = 128 };
/* "does not fit: 286.1 GiB (260.0 to 315.2) of 267.8". Returns `out`. */
const char *spw_newest_arena_text(const spw_newest_arena *arena, char out[SPW_NEWEST_TEXT]);

#endif
