/* MaxText sparse_matmul with jax.lax.ragged_dot (docs/schemes.md, section 2.5). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/maxtext/execute_ragged_exchange.h"
#include "reference/schemes/maxtext/ragged_dot.h"

spw_status spw_execute_ragged(spw_execution *run) {
    return spw_ragged_execute(run, spw_ragged_dot_forward, spw_ragged_dot_backward);
}
