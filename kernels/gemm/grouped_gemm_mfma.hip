/* Grouped GEMM of bf16 and of fp16 on AMD's matrix cores: grouped_gemm_mfma.h with their products.
 *
 * Operand and result layouts: AMD, matrix instruction calculator; 16x16x16 bf16_1k and f16 and, on
 * gfx950, 16x16x32 of both. With eight numbers a lane the two differ only in which products meet in which instruction, since both
 * operands are permuted alike.
 *
 * With SWIGLU, b holds gate and up side by side and a tile takes 64 columns of each, 16 of gate and the same 16
 * of up in turns: a lane then holds the two sums of an element of act, and neither is written to memory.
 *
 * fp16 on gfx90a: these instructions take subnormal numbers for 0 there, and not on gfx942 and gfx950 [AMD, CDNA 2 and 3 instruction
 * set architectures, matrix arithmetic instructions]. */
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_products_mfma.h"
#include "kernels/local/swiglu_math.h"

/* Gate's and up's sums, which lie beside each other, become act in the first half of the columns. */
GPU_DEVICE void activate(sums4 (&sum)[DOWN][ACROSS]) {
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int j = 0; j < ACROSS / 2; j++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const swiglu_point point = swiglu_at(0, 0, sum[i][2 * j][n], sum[i][2 * j + 1][n]);
                sum[i][j][n] = point.gate * point.sigmoid * point.up;
            }
}

template <spw_gemm_form FORM, bool B_INNER, spw_gemm_element ELEMENT, bool SWIGLU = false>
GPU_DEVICE void gemm_mfma(const spw_gemm_problem &p) {
    constexpr bool A_INNER = FORM == SPW_GEMM_ROWS;
    alignas(16) __shared__ step_bytes lds[2];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<FORM, TILE_M, SWIGLU ? TILE_N / 2 : TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        const gemm_operands o = gemm_operands_of<FORM>(p, t);
        sums4 sum[DOWN][ACROSS] = {};
        if (t.terms > 0) {
            share<A_INNER, 4> a;
            share<B_INNER, 2, SWIGLU> b;
            a.start(o.a, (int)(A_INNER ? o.a_m : o.a_k), t.m0, t.height, t.terms);
            b.start(o.b, (int)(B_INNER ? o.b_n : o.b_k), t.n0, SWIGLU ? 2 * p.columns : p.columns, t.terms);
            sum_up<ELEMENT>(a, b, t.terms, lds, wave, sum);
        }
        if (SWIGLU) activate(sum);
        constexpr int HALF = SWIGLU ? 2 : 1;
        store_tile<ACROSS / HALF, ELEMENT>(t, p.columns, {o.c, p.c_row}, t.m0 + wave_m, t.n0 + wave_n / HALF,
                                           sum);
    }
}

#define KERNELS(suffix, element) \
    MFMA_KERNEL(THREADS) gemm_mfma_rows_inner##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, true, element>(p); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_rows_outer##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, false, element>(p); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_weights##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_WEIGHTS, false, element>(p); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_swiglu_inner##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, true, element, true>(p); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_swiglu_outer##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, false, element, true>(p); \
    }
KERNELS(, SPW_GEMM_BF16)
KERNELS(_fp16, SPW_GEMM_FP16)

#if GPU_HOST
typedef void kernel(spw_gemm_problem);

/* of: by element, those with b's sum outside and inside in turn. */
static int launch(kernel *const (&of)[2][2], spw_gemm_element element, const spw_gemm_problem &p,
                  gpu_stream stream) {
    of[element][p.inner_contiguous ? 1 : 0]<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}

int spw_launch_gemm_mfma(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                         gpu_stream stream) {
    static kernel *const rows[2][2] = {{gemm_mfma_rows_outer, gemm_mfma_rows_inner},
                                       {gemm_mfma_rows_outer_fp16, gemm_mfma_rows_inner_fp16}};
    static kernel *const weights[2][2] = {{gemm_mfma_weights, gemm_mfma_weights},
                                          {gemm_mfma_weights_fp16, gemm_mfma_weights_fp16}};
    if (gemm_mfma_too_large(p, form, (unsigned)p.columns)) return cudaErrorInvalidValue;
    return launch(form == SPW_GEMM_WEIGHTS ? weights : rows, element, p, stream);
}

int spw_launch_gemm_swiglu_mfma(spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    static kernel *const swiglu[2][2] = {{gemm_mfma_swiglu_outer, gemm_mfma_swiglu_inner},
                                         {gemm_mfma_swiglu_outer_fp16, gemm_mfma_swiglu_inner_fp16}};
    if (gemm_mfma_too_large(p, SPW_GEMM_ROWS, 2ull * (unsigned)p.columns)) return cudaErrorInvalidValue;
    return launch(swiglu, element, p, stream);
}
#endif
