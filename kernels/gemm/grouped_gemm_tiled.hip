/* The second rung: a 64 x 64 tile a block, operands shared through LDS / shared memory, 4 x 4 elements a
 * thread. What it adds: each operand is read from device memory once a tile instead of once an element. No
 * matrix cores. */
#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_tiles.h"

enum { TILE = 64, TILE_K = 16, THREADS = 256, STRIDE = TILE + 4 };

template <spw_gemm_form FORM, spw_gemm_element ELEMENT = SPW_GEMM_BF16>
GPU_DEVICE void gemm_tiled(const spw_gemm_problem &p) {
    using element = gemm_element<ELEMENT>;
    __shared__ float a_tile[TILE_K][STRIDE], b_tile[TILE_K][STRIDE];
    gemm_walk<FORM, TILE, TILE, 16> walk;
    gemm_tile t;
    walk.start(p);
    if (!walk.seek(p, gpu_block(), t)) return;
    const gemm_operands o = gemm_operands_of<FORM>(p, t);
    const int thread = gpu_thread(), row = thread / 16 * 4, column = thread % 16 * 4;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < t.terms; k0 += TILE_K) {
        gpu_barrier();
#pragma unroll 2 /* all four at once: registers for three blocks a multiprocessor in place of four */
        for (int i = thread; i < TILE * TILE_K; i += THREADS) {
            /* Neighbouring threads along whichever dimension is contiguous. */
            const int am = o.a_k == 1 ? i / TILE_K : i % TILE, ak = o.a_k == 1 ? i % TILE_K : i / TILE;
            const int bn = o.b_k == 1 ? i / TILE_K : i % TILE, bk = o.b_k == 1 ? i % TILE_K : i / TILE;
            const bool a_there = t.m0 + am < t.height && k0 + ak < t.terms;
            const bool b_there = t.n0 + bn < p.columns && k0 + bk < t.terms;
            a_tile[ak][am] = a_there ? element::from(o.a[(t.m0 + am) * o.a_m + (k0 + ak) * o.a_k]) : 0;
            b_tile[bk][bn] = b_there ? element::from(o.b[(k0 + bk) * o.b_k + (t.n0 + bn) * o.b_n]) : 0;
        }
        gpu_barrier();
        for (int k = 0; k < TILE_K; k++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += a_tile[k][row + i] * b_tile[k][column + j];
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const int m = t.m0 + row + i, n = t.n0 + column + j;
            if (m < t.height && n < p.columns) o.c[(long)m * p.c_row + n] = element::to(sum[i][j]);
        }
    }
}

GPU_KERNEL(THREADS) gemm_tiled_rows(spw_gemm_problem p) { gemm_tiled<SPW_GEMM_ROWS>(p); }
GPU_KERNEL(THREADS) gemm_tiled_weights(spw_gemm_problem p) { gemm_tiled<SPW_GEMM_WEIGHTS>(p); }
GPU_KERNEL(THREADS) gemm_tiled_rows_fp16(spw_gemm_problem p) { gemm_tiled<SPW_GEMM_ROWS, SPW_GEMM_FP16>(p); }
GPU_KERNEL(THREADS) gemm_tiled_weights_fp16(spw_gemm_problem p) {
    gemm_tiled<SPW_GEMM_WEIGHTS, SPW_GEMM_FP16>(p);
}

#if GPU_HOST
int spw_launch_gemm_tiled(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    const unsigned tiles = (unsigned)gemm_tiles_limit(&p, form, TILE, TILE);
    if (form == SPW_GEMM_ROWS && element == SPW_GEMM_FP16)
        gemm_tiled_rows_fp16<<<tiles, THREADS, 0, stream>>>(p);
    else if (form == SPW_GEMM_ROWS)
        gemm_tiled_rows<<<tiles, THREADS, 0, stream>>>(p);
    else if (element == SPW_GEMM_FP16)
        gemm_tiled_weights_fp16<<<tiles, THREADS, 0, stream>>>(p);
    else
        gemm_tiled_weights<<<tiles, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
