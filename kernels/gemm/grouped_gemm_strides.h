/* Row strides of a grouped GEMM's arrays: what a shape says of them, checked, and as kernels need them, packed or not. No GPU is needed. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_STRIDES_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_STRIDES_H

#include "base/status.h"
#include "kernels/gemm/grouped_gemm_problem.h"
#include "reference/grouped_gemm.h"

/* An array: its name in messages, where it is, how wide its rows are, and from one to the next; 0: as wide. In elements of 16 bits. */
typedef struct spw_gemm_array {
    const char *name;
    const void *data;
    size_t width, stride;
} spw_gemm_array;

/* *out: the stride, or the width for 0. SPW_EARG: less than the width, no multiple of 8, 2^30 or more; data no multiple of 16 bytes. */
SPW_MUST_CHECK spw_status spw_gemm_row_stride(spw_gemm_array array, int *out);

/* Whether matrices of `height` rows, `width` wide and `row` apart, can be `stride` apart: each begins behind the one before, or all rows of one
 * number lie side by side. */
static inline bool spw_gemm_experts_fit(size_t experts, size_t height, size_t width, size_t row,
                                        size_t stride) {
    const bool behind = stride >= (height - 1) * row + width;
    return experts < 2 || behind ||
           (stride >= width && row >= width && (row - width) / stride >= experts - 1);
}

/* p's strides from what `shape` says; p's sizes and arrays are there. b_columns: of b, which with gate and up are more than c's. In
 * SPW_GEMM_WEIGHTS of a transposed shape the left operand is b. SPW_EARG: as above; matrices of experts that do not fit, or no multiple of 8
 * elements apart. */
SPW_MUST_CHECK spw_status spw_gemm_fill_strides(const spw_gemm_shape *shape, spw_gemm_form form,
                                                int b_columns, spw_gemm_problem *p);

/* The same of SPW_GEMM_WEIGHTS, whose result, or the fp32 array `main` that grows by it, is p->c; either may be NULL. */
SPW_MUST_CHECK spw_status spw_gemm_fill_gradient_strides(const spw_gemm_shape *shape, const float *main,
                                                         spw_gemm_problem *p);

/* Of SPW_GEMM_WEIGHTS: nothing lies between rows and experts of c. */
bool spw_gemm_writes_packed(const spw_gemm_problem *p);

/* SPW_EARG where a stride is said of an array that cannot have one. */
SPW_MUST_CHECK spw_status spw_gemm_refuse_strides(const char *what, spw_gemm_strides said);

#endif
