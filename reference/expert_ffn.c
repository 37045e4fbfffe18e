#include "reference/expert_ffn.h"

#include "base/memory.h"
#include "reference/grouped_gemm.h"

static spw_gemm_shape shape_up(spw_expert_shape s) {
    return (spw_gemm_shape){.experts = s.experts, .rows = s.rows, .in = s.hidden, .out = s.ffn};
}
static spw_gemm_shape shape_down(spw_expert_shape s) {
    return (spw_gemm_shape){.experts = s.experts, .rows = s.rows, .in = s.ffn, .out = s.hidden};
}

spw_status spw_ref_expert_ffn(spw_expert_shape s, const float *x, spw_expert_weights w, const size_t *offset,
                              spw_expert_state state, float *y) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_ref_grouped_gemm(shape_up(s), x, w.w0, offset, state.gate, NULL));
    SPW_TRY(spw_ref_grouped_gemm(shape_up(s), x, w.w1, offset, state.up, NULL));
    spw_ref_swiglu(s.activation, s.rows * s.ffn, state.gate, state.up, state.act, NULL);
    SPW_TRY(spw_ref_grouped_gemm(shape_down(s), state.act, w.wo, offset, y, NULL));
cleanup:
    return status;
}

spw_status spw_ref_expert_ffn_gradient(spw_expert_shape s, spw_expert_inputs in, spw_expert_weights w,
                                       const size_t *offset, spw_expert_state state, float *dx,
                                       spw_expert_gradients out) {
    const float *const x = in.x, *const dy = in.dy;
    float *d_act = NULL, *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s.rows * s.ffn, &d_act));
    SPW_TRY(SPW_ALLOC(s.rows * s.hidden, &part));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(shape_down(s), state.act, dy, offset, out.wo, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(shape_down(s), dy, w.wo, offset, d_act, NULL));
    float *d_gate = state.gate, *d_up = state.act;
    spw_ref_swiglu_gradient(s.activation, s.rows * s.ffn, state.gate, state.up, d_act,
                            (spw_swiglu_gradients){d_gate, d_up, NULL});
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(shape_up(s), x, d_gate, offset, out.w0, NULL));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(shape_up(s), x, d_up, offset, out.w1, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(shape_up(s), d_gate, w.w0, offset, dx, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(shape_up(s), d_up, w.w1, offset, part, NULL));
    for (size_t i = 0; i < s.rows * s.hidden; i++) dx[i] += part[i];
cleanup:
    spw_free(part), spw_free(d_act);
    return status;
}

/* One expert that owns all rows. */
static spw_status check_shared(spw_expert_shape s) {
    if (s.experts == 1) return SPW_OK;
    return spw_fail(SPW_EARG, "a shared expert is 1 expert, not %zu", s.experts);
}

spw_status spw_ref_shared_expert(spw_expert_shape s, const float *x, spw_expert_weights w,
                                 spw_expert_state state, float *y) {
    const size_t all[] = {0, s.rows};
    const spw_status status = check_shared(s);
    return status != SPW_OK ? status : spw_ref_expert_ffn(s, x, w, all, state, y);
}

spw_status spw_ref_shared_expert_gradient(spw_expert_shape s, const float *x, const float *dy,
                                          spw_expert_weights w, spw_expert_state state, float *dx,
                                          spw_expert_gradients out) {
    const size_t all[] = {0, s.rows};
    const spw_status status = check_shared(s);
    return status != SPW_OK
               ? status
               : spw_ref_expert_ffn_gradient(s, (spw_expert_inputs){x, dy}, w, all, state, dx, out);
}
