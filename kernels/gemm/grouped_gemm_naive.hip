/* The first rung: one thread an element of c, straight from device memory. What it adds: nothing; it is the
 * oracle of the other variants at sizes where the reference would take hours. */
#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_tiles.h"

enum { TILE = 16 };

template <spw_gemm_form FORM, spw_gemm_element ELEMENT = SPW_GEMM_BF16>
GPU_DEVICE void gemm_naive(const spw_gemm_problem &p) {
    using element = gemm_element<ELEMENT>;
    gemm_walk<FORM, TILE, TILE, 16> walk;
    gemm_tile t;
    walk.start(p);
    if (!walk.seek(p, gpu_block(), t)) return;
    const int m = t.m0 + gpu_thread() / TILE, n = t.n0 + gpu_thread() % TILE;
    if (m >= t.height || n >= p.columns) return;
    const gemm_operands o = gemm_operands_of<FORM>(p, t);
    float sum = 0;
    for (int k = 0; k < t.terms; k++)
        sum += element::from(o.a[m * o.a_m + k * o.a_k]) * element::from(o.b[k * o.b_k + n * o.b_n]);
    o.c[(long)m * p.c_row + n] = element::to(sum);
}

GPU_KERNEL(TILE *TILE) gemm_naive_rows(spw_gemm_problem p) { gemm_naive<SPW_GEMM_ROWS>(p); }
GPU_KERNEL(TILE *TILE) gemm_naive_weights(spw_gemm_problem p) { gemm_naive<SPW_GEMM_WEIGHTS>(p); }
GPU_KERNEL(TILE *TILE) gemm_naive_rows_fp16(spw_gemm_problem p) {
    gemm_naive<SPW_GEMM_ROWS, SPW_GEMM_FP16>(p);
}
GPU_KERNEL(TILE *TILE) gemm_naive_weights_fp16(spw_gemm_problem p) {
    gemm_naive<SPW_GEMM_WEIGHTS, SPW_GEMM_FP16>(p);
}

#if GPU_HOST
int spw_launch_gemm_naive(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    const unsigned tiles = (unsigned)gemm_tiles_limit(&p, form, TILE, TILE);
    if (form == SPW_GEMM_ROWS && element == SPW_GEMM_FP16)
        gemm_naive_rows_fp16<<<tiles, TILE * TILE, 0, stream>>>(p);
    else if (form == SPW_GEMM_ROWS)
        gemm_naive_rows<<<tiles, TILE * TILE, 0, stream>>>(p);
    else if (element == SPW_GEMM_FP16)
        gemm_naive_weights_fp16<<<tiles, TILE * TILE, 0, stream>>>(p);
    else
        gemm_naive_weights<<<tiles, TILE * TILE, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
