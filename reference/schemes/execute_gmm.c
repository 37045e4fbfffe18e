/* MaxText sparse_matmul with a grouped GEMM (docs/schemes.md, sections 2 and 3.2). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/execute_ragged_exchange.h"

spw_status spw_execute_gmm(spw_execution *run) {
    spw_ragged *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(spw_ragged_create(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(spw_ragged_dispatch(run, g, "dispatch"));
    SPW_TRY(spw_experts_forward(run, &g->experts, false));
    SPW_TRY(spw_ragged_combine(run, g, "combine"));
    spw_ragged_output(run, g);
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(spw_ragged_dispatch(run, g, "dispatch again"));
    SPW_TRY(spw_experts_forward(run, &g->experts, true));
    SPW_TRY(spw_ragged_combine(run, g, "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(spw_ragged_combine_gradient(run, g));
    SPW_TRY(spw_experts_backward(run, &g->experts));
    SPW_TRY(spw_ragged_dispatch_gradient(run, g));
cleanup:
    spw_ragged_destroy(run, g);
    return status;
}
