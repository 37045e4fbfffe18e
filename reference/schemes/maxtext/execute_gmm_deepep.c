/* Grouped GEMM behind DeepEP in JAX (docs/schemes.md, section 3). */
#include "reference/schemes/deepep/execute_deepep_jax.h"
#include "reference/schemes/execute_list.h"

spw_status spw_execute_gmm_deepep(spw_execution *run) {
    return spw_deepep_jax_execute(run, spw_experts_forward, spw_experts_backward);
}
