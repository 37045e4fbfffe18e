/* The activation between the two expert GEMMs. Source: Shazeer 2020, "GLU Variants Improve Transformer", eq.
 * 6; clamped form: openai/gpt-oss gpt_oss/torch/model.py swiglu(). */
#ifndef SPW_REFERENCE_SWIGLU_H
#define SPW_REFERENCE_SWIGLU_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Activations without a gate, of experts of two matrices: `up` is not read and d_up is 0.
 *   RELU2: act = max(g, 0)^2 (So et al. 2021, Primer)
 *   GELU:  act = g Phi(g) = g (1 + erf(g / sqrt 2)) / 2 (Hendrycks, Gimpel 2016) */
typedef enum spw_plain_activation { SPW_GATED, SPW_RELU2, SPW_GELU } spw_plain_activation;

/* Of gated ones, what takes the place of g sigmoid(g):
 *   GELU: g sigmoid(2 c (g + 0.044715 g^3)), c = sqrt(2 / pi), which is GELU by tanh (GeGLU: Shazeer 2020, eq. 6). No limit. */
typedef enum spw_gate { SPW_GATE_SILU, SPW_GATE_GELU } spw_gate;

/* limit = 0: act = g * sigmoid(g) * u.
 * limit > 0 (gpt-oss: limit 7, alpha 1.702): with g' = min(g, limit), u' = clamp(u, -limit, limit):
 *            act = g' * sigmoid(alpha g') * (u' + 1). */
typedef struct spw_swiglu {
    float limit, alpha; /* alpha is read only when limit > 0 */
    spw_plain_activation plain;
    spw_gate gate;
} spw_swiglu;

/* act[i] of gate[i] = x w0 and up[i] = x w1, i < count; fp64, rounded once.
 *   gate, up  [count]
 *   act       [count]           overwritten; may be gate or up
 *   scale     [count] or NULL   |act| (clamped: |g' sigmoid| (|u'| + 1)), the yardstick of an fp32 evaluation */
void spw_ref_swiglu(spw_swiglu kind, size_t count, const float *gate, const float *up, float *act,
                    float *scale);

/* With s = sigmoid(alpha g), alpha = 1 when limit = 0:
 * (GELU: alpha = 2 c (1 + 0.134145 g^2), the slope of sigmoid's argument, where it stands outside of it)
 *   d_gate = d_act * u (+ 1 if clamped) * s * (1 + alpha g (1 - s)), 0 where g was clamped (g > limit)
 *   d_up   = d_act * g s,                                            0 where u was clamped (|u| > limit)
 *   d_gate, d_up  [count]           overwritten; may be d_act, gate or up
 *   gate_scale    [count] or NULL   |d_act| (|u| + 1 if clamped) s (1 + alpha |g| (1 - s)) */
typedef struct spw_swiglu_gradients {
    float *d_gate, *d_up, *gate_scale;
} spw_swiglu_gradients;
void spw_ref_swiglu_gradient(spw_swiglu kind, size_t count, const float *gate, const float *up,
                             const float *d_act, spw_swiglu_gradients out);

#ifdef __cplusplus
}
#endif
#endif
