/* One grouped GEMM as the kernels see it. Forward and input gradient are one form, the weight gradient the
 * other, so every variant is two kernels. Device pointers; C and C++. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_PROBLEM_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_PROBLEM_H

#include "kernels/gpu/launch.h"
#include "reference/gemm_element.h"

typedef enum spw_gemm_form {
    /* c[r][n] = sum over k of a[r][k] * b[e](k, n), where offset[e] <= r < offset[e + 1]; rows from
     * offset[experts] on become 0.   a [rows][inner], c [rows][columns] */
    SPW_GEMM_ROWS,
    /* c[e][m][n] = sum over r in [offset[e], offset[e + 1]) of a[r][m] * b[r][n]; 0 for an empty group.
     *   a [rows][inner], b [rows][columns], c [experts][inner][columns] */
    SPW_GEMM_WEIGHTS,
} spw_gemm_form;

typedef struct spw_gemm_problem {
    int experts, rows, inner, columns; /* inner and columns are multiples of 8 */
    int inner_contiguous; /* SPW_GEMM_ROWS: b is [experts][columns][inner], else [experts][inner][columns] */
    int blocks;           /* of a persistent kernel; set by its launcher */
    const spw_bf16 *a, *b;
    const int *offset; /* [experts + 1] */
    spw_bf16 *c;
    int a_row, b_row, c_row; /* elements from one row in memory to the next */
    long expert;             /* and from one expert's matrix to the next, of b or, SPW_GEMM_WEIGHTS, of c */
} spw_gemm_problem;

#endif
