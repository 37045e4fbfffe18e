/* How long a step takes at least, whatever the routing: what a search may leave out without a replay rests on it. */
#ifndef SPW_SIM_TIME_TIME_BOUND_H
#define SPW_SIM_TIME_TIME_BOUND_H

#include "sim/schemes/point.h"

#include <stdbool.h>

typedef struct spw_megatron_coefficients spw_megatron_coefficients;
typedef struct spw_time_stack spw_time_stack; /* sim/machine/time_stack.h */

/* Tokens/s of a GPU in a step with no exchange of rows, and with the rows that the fullest rank cannot be without: those of its slots
 * where a scheme fixes them, else the mean over the ranks where `whole` (every token has all its choices, and none is dropped), else
 * none. A step of compiled programs does not get shorter when a rank has more rows or sends more of them; a stage of Megatron-Core
 * takes at least its counted work, and the busiest stage at least the mean of all. INFINITY where there is no time of it, and with tensor or context
 * parallelism, of which there is no bound. megatron:
 * scaled to the job's cluster. Either may be NULL. */
double spw_tokens_per_s_most(const spw_point *point, const spw_time_stack *stack,
                             const spw_megatron_coefficients *megatron, bool whole);

#endif
