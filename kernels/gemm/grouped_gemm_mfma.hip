/* Grouped GEMM of bf16 on AMD's matrix cores: grouped_gemm_mfma.h with bf16 products.
 *
 * Operand and result layouts: AMD, matrix instruction calculator; 16x16x16 bf16_1k and, on gfx950, 16x16x32
 * bf16. With eight numbers a lane the two differ only in which products meet in which instruction, since both
 * operands are permuted alike.
 *
 * With SWIGLU, b holds gate and up side by side and a tile takes 64 columns of each, 16 of gate and the same 16
 * of up in turns: a lane then holds the two sums of an element of act, and neither is written to memory. Other
 * activations do the same. */
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_products_mfma.h"
#include "kernels/local/swiglu_math.h"

/* What becomes of sums; GATED: of gate's and up's, which lie beside each other, act in the first half of the columns. */
struct no_activation {
    static constexpr bool GATED = false;
    GPU_MEMBER void activate(sums4 (&)[DOWN][ACROSS]) const {}
};
struct relu2_activation {
    static constexpr bool GATED = false;
    GPU_MEMBER void activate(sums4 (&sum)[DOWN][ACROSS]) const {
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++)
#pragma unroll
                for (int n = 0; n < 4; n++) sum[i][j][n] = relu_squared(sum[i][j][n]);
    }
};
template <typename POINT> struct gated_activation {
    static constexpr bool GATED = true;
    POINT at;
    GPU_MEMBER void activate(sums4 (&sum)[DOWN][ACROSS]) const {
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ACROSS / 2; j++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const swiglu_point point = at(sum[i][2 * j][n], sum[i][2 * j + 1][n]);
                    sum[i][j][n] = point.gate * point.sigmoid * point.up;
                }
    }
};
struct silu_point {
    GPU_MEMBER swiglu_point operator()(float gate, float up) const { return swiglu_at(0, 0, gate, up); }
};
struct curve_point {
    swiglu_curve curve;
    GPU_MEMBER swiglu_point operator()(float gate, float up) const {
        return swiglu_curve_at(curve, gate, up);
    }
};
typedef gated_activation<silu_point> silu_activation;
typedef gated_activation<curve_point> curve_activation;

/* b of a group: gemm_operands_of knows it without SWIGLU. */
template <spw_gemm_form FORM, bool SWIGLU>
GPU_DEVICE gemm_operands operands_of(const spw_gemm_problem &p, const gemm_tile &t) {
    gemm_operands o = gemm_operands_of<FORM>(p, t);
    if (SWIGLU) {
        o.b += (long)t.expert * p.inner * p.columns;
        if (!p.inner_contiguous) o.b_k *= 2;
    }
    return o;
}

template <spw_gemm_form FORM, bool B_INNER, typename ACTIVATION = no_activation>
GPU_DEVICE void gemm_mfma(const spw_gemm_problem &p, ACTIVATION activation = {}) {
    constexpr bool A_INNER = FORM == SPW_GEMM_ROWS, SWIGLU = ACTIVATION::GATED;
    alignas(16) __shared__ step_bytes lds[2];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<FORM, TILE_M, SWIGLU ? TILE_N / 2 : TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        const gemm_operands o = operands_of<FORM, SWIGLU>(p, t);
        sums4 sum[DOWN][ACROSS] = {};
        if (t.terms > 0) {
            share<A_INNER, 4> a;
            share<B_INNER, 2, SWIGLU> b;
            a.start(o.a, (int)(A_INNER ? o.a_m : o.a_k), t.m0, t.height, t.terms);
            b.start(o.b, (int)(B_INNER ? o.b_n : o.b_k), t.n0, SWIGLU ? 2 * p.columns : p.columns, t.terms);
            sum_up(a, b, t.terms, lds, wave, sum);
        }
        activation.activate(sum);
        constexpr int HALF = SWIGLU ? 2 : 1;
        store_tile<ACROSS / HALF>(t, p.columns, o.c, t.m0 + wave_m, t.n0 + wave_n / HALF, sum);
    }
}

MFMA_KERNEL(THREADS) gemm_mfma_rows_inner(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, true>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_rows_outer(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, false>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_weights(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_WEIGHTS, false>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_swiglu_inner(spw_gemm_problem p) {
    gemm_mfma<SPW_GEMM_ROWS, true>(p, silu_activation{});
}
MFMA_KERNEL(THREADS) gemm_mfma_swiglu_outer(spw_gemm_problem p) {
    gemm_mfma<SPW_GEMM_ROWS, false>(p, silu_activation{});
}
MFMA_KERNEL(THREADS) gemm_mfma_activated_inner(spw_gemm_problem p, swiglu_curve curve) {
    gemm_mfma<SPW_GEMM_ROWS, true>(p, curve_activation{{curve}});
}
MFMA_KERNEL(THREADS) gemm_mfma_activated_outer(spw_gemm_problem p, swiglu_curve curve) {
    gemm_mfma<SPW_GEMM_ROWS, false>(p, curve_activation{{curve}});
}
MFMA_KERNEL(THREADS) gemm_mfma_relu2_inner(spw_gemm_problem p) {
    gemm_mfma<SPW_GEMM_ROWS, true>(p, relu2_activation{});
}
MFMA_KERNEL(THREADS) gemm_mfma_relu2_outer(spw_gemm_problem p) {
    gemm_mfma<SPW_GEMM_ROWS, false>(p, relu2_activation{});
}

#if GPU_HOST
int spw_launch_gemm_mfma(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream) {
    if (gemm_mfma_too_large(p, (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (form == SPW_GEMM_WEIGHTS)
        gemm_mfma_weights<<<p.blocks, THREADS, 0, stream>>>(p);
    else if (p.inner_contiguous)
        gemm_mfma_rows_inner<<<p.blocks, THREADS, 0, stream>>>(p);
    else
        gemm_mfma_rows_outer<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}

int spw_launch_gemm_swiglu_mfma(spw_gemm_problem p, gpu_stream stream) {
    if (gemm_mfma_too_large(p, 2ull * (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (p.inner_contiguous)
        gemm_mfma_swiglu_inner<<<p.blocks, THREADS, 0, stream>>>(p);
    else
        gemm_mfma_swiglu_outer<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}

int spw_launch_gemm_activated_mfma(spw_gemm_problem p, spw_gemm_curve c, gpu_stream stream) {
    const swiglu_curve curve = {c.limit, c.alpha, c.cubic, c.shift};
    const bool one = c.between == SPW_GEMM_RELU2;
    if (gemm_mfma_too_large(p, (one ? 1ull : 2ull) * (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (one && p.inner_contiguous)
        gemm_mfma_relu2_inner<<<p.blocks, THREADS, 0, stream>>>(p);
    else if (one)
        gemm_mfma_relu2_outer<<<p.blocks, THREADS, 0, stream>>>(p);
    else if (p.inner_contiguous)
        gemm_mfma_activated_inner<<<p.blocks, THREADS, 0, stream>>>(p, curve);
    else
        gemm_mfma_activated_outer<<<p.blocks, THREADS, 0, stream>>>(p, curve);
    return (int)cudaGetLastError();
}
#endif
