/* ragged_dot behind DeepEP in JAX (docs/schemes.md, section 3.4). */
#include "reference/schemes/deepep/execute_deepep_jax.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/maxtext/ragged_dot.h"

spw_status spw_execute_ragged_deepep(spw_execution *run) {
    return spw_deepep_jax_execute(run, spw_ragged_dot_forward, spw_ragged_dot_backward);
}
