/* The meaning of grouped GEMM; kernels/ must agree with this file.
 * Source: the operation is jax.lax.ragged_dot and its gradients; MegaBlocks (Gale et al. 2023) and CK call
 * the weight gradient "variable K", because its sum runs over the ragged rows.
 *
 * Every sum is kept in fp64, terms in ascending order, and rounded once. A product of two fp32 numbers is
 * exact in fp64, so a fused multiply-add gives the same bits as a multiply and an add; the blocked version
 * here is therefore bitwise equal to the plain loops of grouped_gemm_plain.h, on any machine and any number
 * of threads. */
#ifndef SPW_REFERENCE_GROUPED_GEMM_H
#define SPW_REFERENCE_GROUPED_GEMM_H

#include "base/status.h"
#include "reference/gemm_element.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of kernels/gemm alone. Elements from one row of an array to the next, and from one expert's matrix of w or dw to the next; 0: as they lie
 * packed (kernels/gemm/grouped_gemm_strides.h). What lies between rows is neither read nor written.
 *   left, right, result   of a product's operands and of what it writes: y, dx, dw, act
 *   h, d_h                of products with an activation */
typedef struct spw_gemm_strides {
    size_t left, right, result, expert, h, d_h;
} spw_gemm_strides;

/* rows: routed tokens, sorted by expert. in, out: the widths of x and y. transposed: w and dw are stored
 * [experts][out][in] (a PyTorch Linear) instead of [experts][in][out] (JAX); the meaning of w[e][i][o] stays. */
typedef struct spw_gemm_shape {
    size_t experts, rows, in, out;
    bool transposed;
    /* Of kernels/gemm alone: here all is fp32, on any number of threads. */
    spw_gemm_element element; /* of operands and results */
    size_t multiprocessors;   /* that kernels which stay on them take at most; 0: all of the GPU's */
    spw_gemm_strides stride;
} spw_gemm_shape;

/* y[r][o] = sum over i of x[r][i] * w[e][i][o], where offset[e] <= r < offset[e + 1].
 *   x       [rows][in]          row-major fp32
 *   w       [experts][in][out]  or [experts][out][in] when shape.transposed
 *   offset  [experts + 1]       0 = offset[0] <= ... <= offset[experts] <= rows
 *   y       [rows][out]         overwritten; rows from offset[experts] on become 0 (the unused tail of a
 * buffer) scale   [rows][out] or NULL sum over i of |x||w|: the yardstick of the rounding error SPW_EARG:
 * offsets that decrease or leave [0, rows]. SPW_ENOMEM: packing buffers. */
SPW_MUST_CHECK spw_status spw_ref_grouped_gemm(spw_gemm_shape shape, const float *x, const float *w,
                                               const size_t *offset, float *y, float *scale);

/* dx[r][i] = sum over o of dy[r][o] * w[e][i][o], where offset[e] <= r < offset[e + 1].
 *   dy      [rows][out]
 *   dx      [rows][in]          overwritten; rows from offset[experts] on become 0
 *   scale   [rows][in] or NULL  sum over o of |dy||w|; the sum has shape.out terms
 * The rest as above. */
SPW_MUST_CHECK spw_status spw_ref_grouped_gemm_input_gradient(spw_gemm_shape shape, const float *dy,
                                                              const float *w, const size_t *offset, float *dx,
                                                              float *scale);

/* dw[e][i][o] = sum over r in [offset[e], offset[e + 1]) of x[r][i] * dy[r][o]; 0 for an expert without rows.
 *   dw      [experts][in][out]  or [experts][out][in] when shape.transposed; overwritten
 *   scale   as dw, or NULL      sum over r of |x||dy|; the sum has offset[e + 1] - offset[e] terms
 * Rows from offset[experts] on take no part. */
SPW_MUST_CHECK spw_status spw_ref_grouped_gemm_weight_gradient(spw_gemm_shape shape, const float *x,
                                                               const float *dy, const size_t *offset,
                                                               float *dw, float *scale);

#ifdef __cplusplus
}
#endif
#endif
