/* The experts' feed-forward networks over rows sorted by expert: two GEMMs, SwiGLU, one GEMM. A shared expert
 * is the case of one expert that owns every token. Source: DeepSeek-V3 (2024), eq. 12 to 15. */
#ifndef SPW_REFERENCE_EXPERT_FFN_H
#define SPW_REFERENCE_EXPERT_FFN_H

#include "base/status.h"
#include "reference/swiglu.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_expert_shape {
    size_t experts, rows, hidden, ffn;
    spw_swiglu activation;
} spw_expert_shape;

/* All borrowed. w0: gate, w1: up, wo: down. */
typedef struct spw_expert_weights {
    const float *w0, *w1; /* [experts][hidden][ffn] */
    const float *wo;      /* [experts][ffn][hidden] */
} spw_expert_weights;

/* What the backward pass needs; the caller's arrays. */
typedef struct spw_expert_state {
    float *gate, *up, *act; /* [rows][ffn] */
} spw_expert_state;

typedef struct spw_expert_gradients {
    float *w0, *w1; /* [experts][hidden][ffn] overwritten */
    float *wo;      /* [experts][ffn][hidden] overwritten */
} spw_expert_gradients;

/* gate = x w0[e], up = x w1[e], act = swiglu(gate, up), y = act wo[e]; each stage rounded to fp32.
 *   x       [rows][hidden]
 *   offset  [experts + 1]    as in grouped_gemm.h; rows beyond offset[experts] give 0
 *   state   overwritten
 *   y       [rows][hidden]   overwritten */
SPW_MUST_CHECK spw_status spw_ref_expert_ffn(spw_expert_shape shape, const float *x,
                                             spw_expert_weights weights, const size_t *offset,
                                             spw_expert_state state, float *y);

/* d_act = dy wo^T; (d_gate, d_up) = swiglu gradient; d_wo = act^T dy; d_w0 = x^T d_gate; d_w1 = x^T d_up;
 * dx = d_gate w0^T + d_up w1^T (two rounded products, their sum rounded once more).
 *   dy      [rows][hidden]
 *   state   from the forward pass; gate is overwritten by d_gate and act by d_up
 *   dx      [rows][hidden]   overwritten
 * SPW_ENOMEM: scratch of [rows][ffn] and [rows][hidden]. */
typedef struct spw_expert_inputs {
    const float *x, *dy;
} spw_expert_inputs;
SPW_MUST_CHECK spw_status spw_ref_expert_ffn_gradient(spw_expert_shape shape, spw_expert_inputs in,
                                                      spw_expert_weights weights, const size_t *offset,
                                                      spw_expert_state state, float *dx,
                                                      spw_expert_gradients out);

/* Y = X of one dense expert: the shared expert. x, y [tokens][hidden]; shape.experts must be 1. */
SPW_MUST_CHECK spw_status spw_ref_shared_expert(spw_expert_shape shape, const float *x,
                                                spw_expert_weights weights, spw_expert_state state, float *y);
SPW_MUST_CHECK spw_status spw_ref_shared_expert_gradient(spw_expert_shape shape, const float *x,
                                                         const float *dy, spw_expert_weights weights,
                                                         spw_expert_state state, float *dx,
                                                         spw_expert_gradients out);

#ifdef __cplusplus
}
#endif
#endif
