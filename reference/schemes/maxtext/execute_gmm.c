/* MaxText sparse_matmul with a grouped GEMM (docs/schemes.md, sections 2 and 3.2). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/maxtext/execute_ragged_exchange.h"

spw_status spw_execute_gmm(spw_execution *run) {
    return spw_ragged_execute(run, spw_experts_forward, spw_experts_backward);
}
