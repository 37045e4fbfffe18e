/* The weighted sum that brings expert outputs back to tokens. Source: Shazeer et al. 2017, eq. 2; MaxText
 * moe.py unpermute() (fp32 weighted sum), Primus-Turbo moe_combine with weights applied by the caller. */
#ifndef SPW_REFERENCE_COMBINE_H
#define SPW_REFERENCE_COMBINE_H

#include "reference/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[t] = sum over k of weight[t][k] * rows[row[t][k]], k ascending, fp64, rounded once; slots without a row
 * give 0, and the other weights are not renormalised.
 *   rows    [plan->rows][width]
 *   weight  [tokens][top_k] or NULL   NULL: all weights are 1
 *   y       [tokens][width]           overwritten
 *   scale   [tokens][width] or NULL   sum of magnitudes; top_k terms
 * One thread owns one token. */
void spw_ref_combine(const spw_plan *plan, size_t width, const float *rows, const float *weight, float *y,
                     float *scale);

/* d_rows[r]      = weight[assignment[r]] * dy[t(r)]                        one product, rounded once
 * d_weight[t][k] = sum over h of dy[t][h] * rows[row[t][k]][h]             h ascending, fp64; 0 without a row
 *   dy            [tokens][width]
 *   rows, weight  as in the forward pass
 *   d_rows        [plan->rows][width] or NULL
 *   d_weight      [tokens][top_k] or NULL
 *   weight_scale  [tokens][top_k] or NULL   sum over h of |dy||rows|; width terms */
typedef struct spw_combine_gradients {
    float *d_rows, *d_weight, *weight_scale;
} spw_combine_gradients;
void spw_ref_combine_gradient(const spw_plan *plan, size_t width, const float *dy, const float *rows,
                              const float *weight, spw_combine_gradients out);

#ifdef __cplusplus
}
#endif
#endif
