/* MaxText's ring of experts with jax.lax.ragged_dot (docs/schemes.md, section 2.7). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/maxtext/execute_ring.h"
#include "reference/schemes/maxtext/ragged_dot.h"

spw_status spw_execute_ragged_ring(spw_execution *run) {
    return spw_ring_execute(run, spw_ragged_dot_forward, spw_ragged_dot_backward);
}
