/* A tile's sums of products of bf16 or fp16 on AMD's matrix cores, which the kernels with and without fused operations make. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_PRODUCTS_MFMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_PRODUCTS_MFMA_H

#include "kernels/gemm/grouped_gemm_mfma.h"

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

/* Both operands of a step in LDS. */
typedef unsigned char step_bytes[STEP_ROOM];

/* All `terms` of a tile's sums, by all waves together. */
template <spw_gemm_element ELEMENT, typename A, typename B>
GPU_DEVICE void sum_up(A &a, B &b, int terms, step_bytes (&lds)[2], int wave, sums4 (&sum)[DOWN][ACROSS]) {
    const int a_at = fragments_at<A::TURNED, TILE_M>(wave % 2 * WAVE_M);
    const int b_at = fragments_at<B::TURNED, TILE_N>(wave / 2 * WAVE_N) + B_AT;
    a.template aim<0>(terms), b.template aim<0>(terms);
    a.template aim<1>(terms), b.template aim<1>(terms);
    a.load(terms), b.load(terms);
    gpu_barrier(); /* the tile before has been read */
    a.store(lds[0]), b.store(lds[0] + B_AT);
    a.template aim<0>(terms - TILE_K), b.template aim<0>(terms - TILE_K);
    a.template aim<1>(terms - TILE_K), b.template aim<1>(terms - TILE_K);
    a.load(terms - TILE_K), b.load(terms - TILE_K);
    gpu_barrier();
    fragments f;
    read_columns<B>(f.b, lds[0], b_at);
    read_rows<A, 0, DOWN>(f.a, lds[0], a_at);
    /* Two steps a round: behind the end of the sum a step multiplies zeros. */
#pragma clang loop unroll(disable)
    for (int left = terms; left > 0; left -= 2 * TILE_K) {
        whole_step(a, b, left - 2 * TILE_K, lds[1], a_at, b_at, f, element_products<ELEMENT>{sum});
        whole_step(a, b, left - 3 * TILE_K, lds[0], a_at, b_at, f, element_products<ELEMENT>{sum});
    }
}

#endif
