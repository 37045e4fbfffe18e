/* Grouped GEMM of bf16 and of fp16 on AMD's matrix cores: grouped_gemm_mfma.h with their products.
 *
 * Operand and result layouts: AMD, matrix instruction calculator; 16x16x16 bf16_1k and f16 and, on
 * gfx950, 16x16x32 of both. With eight numbers a lane the two differ only in which products meet in which instruction, since both
 * operands are permuted alike.
 *
 * With SWIGLU, b holds gate and up side by side and a tile takes 64 columns of each, 16 of gate and the same 16
 * of up in turns: a lane then holds the two sums of an element of act, and neither is written to memory. Other
 * activations do the same.
 *
 * fp16 on gfx90a: these instructions take subnormal numbers for 0 there, and not on gfx942 and gfx950 [AMD, CDNA 2 and 3 instruction
 * set architectures, matrix arithmetic instructions]. */
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_mfma.h"
#include "kernels/local/swiglu_math.h"

typedef short bits8 __attribute__((ext_vector_type(8)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 fp16x8 __attribute__((ext_vector_type(8)));

/* Eight terms of a lane's operands. */
template <spw_gemm_element ELEMENT> GPU_DEVICE sums4 multiply_add(words4 a, words4 b, sums4 sum) {
    if constexpr (ELEMENT == SPW_GEMM_FP16) {
        const fp16x8 a8 = __builtin_bit_cast(fp16x8, a), b8 = __builtin_bit_cast(fp16x8, b);
#if defined(__gfx950__)
        return __builtin_amdgcn_mfma_f32_16x16x32_f16(a8, b8, sum, 0, 0, 0);
#elif defined(__AMDGCN__)
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a8.lo, b8.lo, sum, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_16x16x16f16(a8.hi, b8.hi, sum, 0, 0, 0);
#endif
    } else {
#if defined(__gfx950__)
        return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8, a),
                                                       __builtin_bit_cast(bf16x8, b), sum, 0, 0, 0);
#elif defined(__AMDGCN__)
        const bits8 a8 = __builtin_bit_cast(bits8, a), b8 = __builtin_bit_cast(bits8, b);
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a8.lo, b8.lo, sum, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a8.hi, b8.hi, sum, 0, 0, 0);
#endif
    }
    return sum;
}

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

/* Of a step: sum += a times b. */
template <spw_gemm_element ELEMENT> struct element_products {
#if defined(__gfx950__)
    static constexpr int EACH = 1;
#else
    static constexpr int EACH = 2;
#endif
    sums4 (&sum)[DOWN][ACROSS];

    template <int COUNT> GPU_MEMBER static void prepare(words4 (&)[COUNT]) {}
    template <int FROM, int TO> GPU_MEMBER void rows(const fragments &f) {
#pragma unroll
        for (int i = FROM; i < TO; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++) sum[i][j] = multiply_add<ELEMENT>(f.b[j], f.a[i], sum[i][j]);
    }
};

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

template <spw_gemm_form FORM, bool B_INNER, spw_gemm_element ELEMENT, typename ACTIVATION = no_activation>
GPU_DEVICE void gemm_mfma(const spw_gemm_problem &p, ACTIVATION activation = {}) {
    constexpr bool A_INNER = FORM == SPW_GEMM_ROWS, SWIGLU = ACTIVATION::GATED;
    alignas(16) __shared__ unsigned char lds[2][A_BYTES + TILE_N * ROW_BYTES];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    const int a_at = place(wave_m + gpu_lane() % 16, gpu_lane() / 16);
    const int b_at = place(wave_n + gpu_lane() % 16, gpu_lane() / 16) + A_BYTES;
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
            a.load(t.terms), b.load(t.terms);
            gpu_barrier(); /* the tile before has been read */
            a.store(lds[0]), b.store(lds[0] + A_BYTES);
            a.load(t.terms - TILE_K), b.load(t.terms - TILE_K);
            gpu_barrier();
            fragments f;
            read_columns(f.b, lds[0], b_at);
            read_rows<0, DOWN>(f.a, lds[0], a_at);
            /* Two steps a round: behind the end of the sum a step multiplies zeros. */
#pragma clang loop unroll(disable)
            for (int left = t.terms; left > 0; left -= 2 * TILE_K) {
                whole_step(a, b, left - 2 * TILE_K, lds[1], a_at, b_at, f, element_products<ELEMENT>{sum});
                whole_step(a, b, left - 3 * TILE_K, lds[0], a_at, b_at, f, element_products<ELEMENT>{sum});
            }
        }
        activation.activate(sum);
        constexpr int HALF = SWIGLU ? 2 : 1;
        store_tile<ACROSS / HALF, ELEMENT>(t, p.columns, o.c, t.m0 + wave_m, t.n0 + wave_n / HALF, sum);
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
        gemm_mfma<SPW_GEMM_ROWS, true, element>(p, silu_activation{}); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_swiglu_outer##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, false, element>(p, silu_activation{}); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_activated_inner##suffix(spw_gemm_problem p, swiglu_curve curve) { \
        gemm_mfma<SPW_GEMM_ROWS, true, element>(p, curve_activation{{curve}}); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_activated_outer##suffix(spw_gemm_problem p, swiglu_curve curve) { \
        gemm_mfma<SPW_GEMM_ROWS, false, element>(p, curve_activation{{curve}}); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_relu2_inner##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, true, element>(p, relu2_activation{}); \
    } \
    MFMA_KERNEL(THREADS) gemm_mfma_relu2_outer##suffix(spw_gemm_problem p) { \
        gemm_mfma<SPW_GEMM_ROWS, false, element>(p, relu2_activation{}); \
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
    if (gemm_mfma_too_large(p, (unsigned)p.columns)) return cudaErrorInvalidValue;
    return launch(form == SPW_GEMM_WEIGHTS ? weights : rows, element, p, stream);
}

int spw_launch_gemm_swiglu_mfma(spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    static kernel *const swiglu[2][2] = {{gemm_mfma_swiglu_outer, gemm_mfma_swiglu_inner},
                                         {gemm_mfma_swiglu_outer_fp16, gemm_mfma_swiglu_inner_fp16}};
    if (gemm_mfma_too_large(p, 2ull * (unsigned)p.columns)) return cudaErrorInvalidValue;
    return launch(swiglu, element, p, stream);
}

int spw_launch_gemm_activated_mfma(spw_gemm_element element, spw_gemm_problem p, spw_gemm_curve c,
                                   gpu_stream stream) {
    static kernel *const relu2[2][2] = {{gemm_mfma_relu2_outer, gemm_mfma_relu2_inner},
                                        {gemm_mfma_relu2_outer_fp16, gemm_mfma_relu2_inner_fp16}};
    static void (*const gated[2][2])(spw_gemm_problem, swiglu_curve) = {
        {gemm_mfma_activated_outer, gemm_mfma_activated_inner},
        {gemm_mfma_activated_outer_fp16, gemm_mfma_activated_inner_fp16}};
    const swiglu_curve curve = {c.limit, c.alpha, c.cubic, c.shift};
    const bool one = c.between == SPW_GEMM_RELU2;
    if (gemm_mfma_too_large(p, (one ? 1ull : 2ull) * (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (one) return launch(relu2, element, p, stream);
    gated[element][p.inner_contiguous ? 1 : 0]<<<p.blocks, THREADS, 0, stream>>>(p, curve);
    return (int)cudaGetLastError();
}
#endif
