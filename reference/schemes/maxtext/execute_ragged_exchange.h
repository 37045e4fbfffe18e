/* MaxText's ragged all-to-all into one receive buffer, shared by `ragged` and `gmm` (docs/schemes.md, section 2). */
#ifndef SPW_REFERENCE_SCHEMES_MAXTEXT_EXECUTE_RAGGED_EXCHANGE_H
#define SPW_REFERENCE_SCHEMES_MAXTEXT_EXECUTE_RAGGED_EXCHANGE_H

#include "reference/schemes/ranks.h"

/* What the experts do to rows sorted by expert: spw_experts_forward() and spw_experts_backward(), or others of their kind. */
typedef spw_status spw_ragged_forward(spw_execution *run, spw_experts *experts, bool keep);
typedef spw_status spw_ragged_backward(spw_execution *run, spw_experts *experts);

/* The whole layer, forward, recompute and backward, around the given products. */
SPW_MUST_CHECK spw_status spw_ragged_execute(spw_execution *run, spw_ragged_forward *forward,
                                             spw_ragged_backward *backward);

#endif
