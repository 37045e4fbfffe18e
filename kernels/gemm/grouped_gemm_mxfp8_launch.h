/* Private to kernels/: grouped GEMM of MXFP8, as its kernel sees it (OCP microscaling formats, version 1.0). Device
 * pointers; C and C++.
 *
 *   c[r][n] = sum over k of a[r][k] b[e][n][k], each times its scale, where offset[e] <= r < offset[e + 1]; rows from
 *   offset[experts] on become 0.
 *
 * Codes are OCP's e4m3 (reference/float8.h). The sum's dimension is contiguous in both operands, so the input gradient
 * is the same product with weights that were scaled and stored the other way. A scale is a byte of E8M0, 2^(byte -
 * 127), for 32 numbers along the sum; four of them are a word, the first in the lowest byte. Bytes of a row's last word
 * behind the end of the sum may be anything but 255, which is NaN. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_MXFP8_LAUNCH_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_MXFP8_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_gemm_mxfp8_problem {
    int experts, rows, inner, columns; /* inner is a multiple of 32, columns of 8 */
    int blocks;                        /* of the persistent kernel: the number of multiprocessors */
    const unsigned char *a;            /* [rows][inner] */
    const unsigned char *b;            /* [experts][columns][inner] */
    const unsigned *a_scale;           /* [rows][ceil(inner / 128)] */
    const unsigned *b_scale;           /* [experts][columns][ceil(inner / 128)] */
    const int *offset;                 /* [experts + 1] */
    spw_bf16 *c;                       /* [rows][columns] */
} spw_gemm_mxfp8_problem;

/* Returns the runtime's error code, 0 for none. MI350 and MI355X only: elsewhere the kernel is not in the code object,
 * and the runtime says so. */
int spw_launch_gemm_mxfp8_mfma(spw_gemm_mxfp8_problem p, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
