/* The first rung of fp8: one thread an element of c. The products of a block of 128 are summed in fp32, then
 * scaled and added to the sum of the blocks: the order that the matrix cores' variants keep, too. */
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_tiles.h"

enum { TILE = 16 };

GPU_KERNEL(TILE *TILE) gemm_float8_naive(spw_gemm_float8_problem problem) {
    const spw_gemm_problem &p = problem.pairs;
    gemm_walk<SPW_GEMM_ROWS, TILE, TILE, 16> walk;
    gemm_tile t;
    walk.start(p);
    if (!walk.seek(p, gpu_block(), t)) return;
    const int m = t.m0 + gpu_thread() / TILE, n = t.n0 + gpu_thread() % TILE;
    if (m >= t.height || n >= p.columns) return;
    const gemm_operands o = gemm_operands_of<SPW_GEMM_ROWS>(p, t);
    const unsigned char *a = (const unsigned char *)(o.a + m * o.a_m);
    const unsigned char *b = (const unsigned char *)(o.b + n * o.b_n);
    const int terms = 2 * t.terms;
    const float *a_scale = problem.a_scale + (long)(t.first + m) * problem.blocks;
    const float *b_scale =
        problem.b_scale + ((long)t.expert * problem.across + n / SPW_GEMM_FLOAT8_BLOCK) * problem.blocks;
    float sum = 0;
    for (int k0 = 0, block = 0; k0 < terms; k0 += SPW_GEMM_FLOAT8_BLOCK, block++) {
        const int end = terms - k0 < SPW_GEMM_FLOAT8_BLOCK ? terms : k0 + SPW_GEMM_FLOAT8_BLOCK;
        float part = 0;
        for (int k = k0; k < end; k++) part += gpu_from_float8(a[k]) * gpu_from_float8(b[k]);
        sum += part * (a_scale[block] * b_scale[block]);
    }
    o.c[(long)m * p.c_row + n] = gpu_to_bf16(sum);
}

/* The gradient of weights: rows of one expert are blocks of 128 codes that follow one another. */
GPU_KERNEL(TILE *TILE) gemm_float8_weights_naive(spw_gemm_float8_weights_problem problem) {
    const spw_gemm_problem &p = problem.p;
    gemm_walk<SPW_GEMM_WEIGHTS, TILE, TILE, 16> walk;
    gemm_tile t;
    walk.start(p);
    if (!walk.seek(p, gpu_block(), t)) return;
    const int m = t.m0 + gpu_thread() / TILE, n = t.n0 + gpu_thread() % TILE;
    if (m >= t.height || n >= p.columns) return;
    const long first = t.first / SPW_GEMM_FLOAT8_BLOCK + t.expert,
               stride = (long)problem.blocks * SPW_GEMM_FLOAT8_BLOCK;
    const unsigned char *a = (const unsigned char *)p.a + m * stride + first * SPW_GEMM_FLOAT8_BLOCK;
    const unsigned char *b = (const unsigned char *)p.b + n * stride + first * SPW_GEMM_FLOAT8_BLOCK;
    float sum = 0;
    for (int k0 = 0; k0 < t.terms; k0 += SPW_GEMM_FLOAT8_BLOCK) {
        const long block = first + k0 / SPW_GEMM_FLOAT8_BLOCK;
        const int end = t.terms - k0 < SPW_GEMM_FLOAT8_BLOCK ? t.terms : k0 + SPW_GEMM_FLOAT8_BLOCK;
        float part = 0;
        for (int k = k0; k < end; k++) part += gpu_from_float8(a[k]) * gpu_from_float8(b[k]);
        sum += part * (problem.a_scale[block * p.inner + m] * problem.b_scale[block * p.columns + n]);
    }
    const long at = t.expert * p.expert + (long)m * p.c_row + n;
    if (!problem.adds)
        p.c[at] = gpu_to_bf16(sum);
    else if (t.terms > 0)
        problem.main[at] += sum;
}

#if GPU_HOST
int spw_launch_gemm_float8_naive(spw_gemm_float8_problem p, gpu_stream stream) {
    const unsigned tiles = (unsigned)gemm_tiles_limit(&p.pairs, SPW_GEMM_ROWS, TILE, TILE);
    gemm_float8_naive<<<tiles, TILE * TILE, 0, stream>>>(p);
    return (int)cudaGetLastError();
}

int spw_launch_gemm_float8_weights_naive(spw_gemm_float8_weights_problem p, gpu_stream stream) {
    const unsigned tiles = (unsigned)gemm_tiles_limit(&p.p, SPW_GEMM_WEIGHTS, TILE, TILE);
    gemm_float8_weights_naive<<<tiles, TILE * TILE, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
