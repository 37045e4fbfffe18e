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

/* As spw_gemm_launcher. */
#ifdef __cplusplus
extern "C" {
#endif
typedef int spw_gemm_float8_launcher(spw_gemm_float8_problem p, gpu_stream stream);
spw_gemm_float8_launcher spw_launch_gemm_float8_naive, spw_launch_gemm_float8_mfma,
    spw_launch_gemm_float8_wgmma;
#ifdef __cplusplus
}
#endif
#endif
