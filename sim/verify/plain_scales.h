/* Yardsticks of a layer's rounding errors: the layer computed with magnitudes, term by term, from the products of the
 * first GEMMs on. They bound what two orders of the same multiplications may differ by. */
#ifndef SPW_SIM_VERIFY_PLAIN_SCALES_H
#define SPW_SIM_VERIFY_PLAIN_SCALES_H

#include "base/status.h"
#include "reference/expert_ffn.h"
#include "reference/plan.h"
#include "sim/schemes/scheme.h"

/* With gate g, up u, their activation a of a row, its router weight p, and D_f = sum over h of |dy_h||wo_fh|,
 * G_f = p D_f |u| s (1 + |g| (1 - s)), U_f = p D_f |g| s, s = sigmoid(g):
 *   y         [tokens][hidden]         sum over rows of the token, f of p |a_f||wo_fh|
 *   dx        [tokens][hidden]         sum over rows of the token, f of G_f |w0_hf| + U_f |w1_hf|
 *   d_weight  [tokens][slots]          sum over f of D_f |a_f|
 *   w0, w1    [experts][hidden][ffn]   sum over rows of |x_h| G_f, |x_h| U_f
 *   wo        [experts][ffn][hidden]   sum over rows of p |a_f||dy_h|  */
typedef struct spw_plain_scales {
    float *y, *dx, *d_weight, *w0, *w1, *wo;
} spw_plain_scales;

typedef struct spw_plain_inputs {
    size_t slots;                 /* of a token */
    const float *x, *dy, *weight; /* [tokens][hidden], [tokens][hidden], [tokens][slots] */
    spw_expert_weights weights;
    spw_expert_state state; /* of the rows of the plan, after the forward pass */
} spw_plain_inputs;

/* SPW_ENOMEM; *out is to be destroyed in any case. */
SPW_MUST_CHECK spw_status spw_plain_scales_create(const spw_layer_shape *shape, const spw_plan *plan,
                                                  const spw_plain_inputs *in, spw_plain_scales *out);
void spw_plain_scales_destroy(spw_plain_scales *scales); /* zeroed scales are fine */

#endif
