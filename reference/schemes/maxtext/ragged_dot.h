/* The experts by jax.lax.ragged_dot (docs/schemes.md, section 2.5): without a grouped library XLA makes of it a dense
 * product over all local experts, of an operand [local][rows][width] that holds every row once and zeros elsewhere. The
 * operand counts whole and is stored as the rows that are not zero; products with its zeros are left out. */
#ifndef SPW_REFERENCE_SCHEMES_MAXTEXT_RAGGED_DOT_H
#define SPW_REFERENCE_SCHEMES_MAXTEXT_RAGGED_DOT_H

#include "reference/schemes/ranks.h"

/* As spw_experts_forward() and spw_experts_backward(). */
SPW_MUST_CHECK spw_status spw_ragged_dot_forward(spw_execution *run, spw_experts *experts, bool keep);
SPW_MUST_CHECK spw_status spw_ragged_dot_backward(spw_execution *run, spw_experts *experts);

#endif
