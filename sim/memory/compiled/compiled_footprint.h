/* The memory of a compiled program as a footprint: what XLA's arena holds, by the coefficients of a stack, in place of
 * what must be live. */
#ifndef SPW_SIM_MEMORY_COMPILED_COMPILED_FOOTPRINT_H
#define SPW_SIM_MEMORY_COMPILED_COMPILED_FOOTPRINT_H

#include "sim/memory/compiled/compiled_memory.h"

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

typedef struct spw_stack spw_stack;

/* Does the stack's model speak of this scheme and job? (It is a compiled program, without pipeline or tensor split, with a
 * remat policy.) */
bool spw_compiled_footprint_covers(const spw_job *job, const spw_scheme *scheme);

/* Fills the bytes of `out` that the verdict is of: the budget, the peak and its parts and interval. */
void spw_compiled_footprint_bytes(double budget_bytes, const spw_compiled_memory *memory, spw_footprint *out);

/* memory_fraction is the default, which is not JAX's own: a sentence that says so. false: the job says another. */
enum { SPW_SHARE_TEXT = 240 };
bool spw_compiled_share_note(const spw_stack *stack, const spw_job *job, char out[SPW_SHARE_TEXT]);

/* SPW_ECONFIG where spw_compiled_footprint_covers() is false. `outside` [SPW_OUTSIDE_TEXT]: why the fit does not cover it; "" when it
 * does. */
SPW_MUST_CHECK spw_status spw_compiled_footprint_compute(const spw_stack *stack, const spw_job *job,
                                                         const spw_scheme *scheme, size_t sequences,
                                                         spw_footprint *out, char outside[SPW_OUTSIDE_TEXT]);

#endif
