/* One grouped GEMM of fp8 as the kernels see it: codes of e4m3fn with an fp32 scale for every 128 numbers of a row
 * of a and for every tile of 128 x 128 of b, both along the sum (reference/float8.h). Device pointers; C and C++. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_H

#include "kernels/gemm/grouped_gemm_problem.h"

enum { SPW_GEMM_FLOAT8_BLOCK = 128 };

typedef struct spw_gemm_float8_problem {
    /* SPW_GEMM_ROWS with inner_contiguous. Two codes that are neighbours along the sum count as one number of a and b,
     * so inner is half of the sum's terms. */
    spw_gemm_problem pairs;
    int blocks, across;   /* tiles of 128: along the sum, and over the columns of b */
    const float *a_scale; /* [rows][blocks] */
    const float *b_scale; /* [experts][across][blocks] */
} spw_gemm_float8_problem;

/* The gradient of weights: both operands by columns (spw_float8_quantize_columns), so the sum runs along what is contiguous and a
 * block of it, the 128 rows of one of `blocks`, has a scale for each row of c and one for each column. */
typedef struct spw_gemm_float8_weights_problem {
    /* SPW_GEMM_WEIGHTS, but a and b are codes: [inner][128 blocks] and [columns][128 blocks]. */
    spw_gemm_problem p;
    int blocks; /* of the arrays, rows / 128 + experts: group e begins at block offset[e] / 128 + e */
    int adds;   /* main grows by the sums, and c is not written */
    const float *a_scale; /* [blocks][inner] */
    const float *b_scale; /* [blocks][columns] */
    float *main;          /* laid out as c */
} spw_gemm_float8_weights_problem;

/* As spw_gemm_launcher. */
#ifdef __cplusplus
extern "C" {
#endif
typedef int spw_gemm_float8_launcher(spw_gemm_float8_problem p, gpu_stream stream);
spw_gemm_float8_launcher spw_launch_gemm_float8_naive, spw_launch_gemm_float8_mfma,
    spw_launch_gemm_float8_wgmma;
typedef int spw_gemm_float8_weights_launcher(spw_gemm_float8_weights_problem p, gpu_stream stream);
spw_gemm_float8_weights_launcher spw_launch_gemm_float8_weights_naive, spw_launch_gemm_float8_weights_mfma,
    spw_launch_gemm_float8_weights_wgmma;
#ifdef __cplusplus
}
#endif
#endif
