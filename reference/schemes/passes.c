#include "reference/schemes/passes.h"

spw_status spw_run_passes(spw_execution *run, const spw_scheme_passes *scheme, void *state,
                          const spw_expert_passes *experts, void *expert_state) {
    spw_status status = SPW_OK;
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(scheme->to_experts(run, state, "dispatch"));
    SPW_TRY(experts->forward(run, expert_state));
    SPW_TRY(scheme->from_experts(run, state, "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(scheme->to_experts(run, state, "dispatch again"));
    SPW_TRY(experts->forward(run, expert_state));
    SPW_TRY(scheme->from_experts(run, state, "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(scheme->to_gradient(run, state));
    SPW_TRY(experts->backward(run, expert_state));
    SPW_TRY(scheme->from_gradient(run, state));
cleanup:
    return status;
}
