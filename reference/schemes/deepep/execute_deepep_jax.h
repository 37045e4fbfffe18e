/* DeepEP in JAX, into buffers for the worst case (docs/schemes.md, sections 3.1 and 3.3): the receiver fans a token out to
 * its experts, sums what they say and returns one row. Shared by `gmm-deepep` and `ragged-deepep`. */
#ifndef SPW_REFERENCE_SCHEMES_DEEPEP_EXECUTE_DEEPEP_JAX_H
#define SPW_REFERENCE_SCHEMES_DEEPEP_EXECUTE_DEEPEP_JAX_H

#include "reference/schemes/maxtext/execute_ragged_exchange.h"

/* The whole layer, forward, recompute and backward, around the given products. */
SPW_MUST_CHECK spw_status spw_deepep_jax_execute(spw_execution *run, spw_ragged_forward *forward,
                                                 spw_ragged_backward *backward);

#endif
