/* MaxText's ring of experts (docs/schemes.md, section 2.6), for schemes that change its products. */
#ifndef SPW_REFERENCE_SCHEMES_MAXTEXT_EXECUTE_RING_H
#define SPW_REFERENCE_SCHEMES_MAXTEXT_EXECUTE_RING_H

#include "reference/schemes/maxtext/execute_ragged_exchange.h"

/* The whole layer, forward, recompute and backward, around the given products. */
SPW_MUST_CHECK spw_status spw_ring_execute(spw_execution *run, spw_ragged_forward *forward,
                                           spw_ragged_backward *backward);

#endif
