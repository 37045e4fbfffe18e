/* What the grouped GEMMs of fp8 on AMD's matrix cores share, for the .hip files that give them names and launch them:
 * grouped_gemm_mfma.h with pairs of codes as its numbers. Two steps are a block of 128 terms, whose products are summed apart, then
 * scaled and added. LDS holds one block, a step in each half.
 *
 * gfx950 has e4m3fn; its products of 128 terms at once, at twice the rate, are not used here. gfx942 has e4m3fnuz, where
 * the same bits are half as large and NaN is 0x80 alone: codes are translated on their way to LDS, and the factor of 4
 * that a product lacks goes into the scale. gfx90a has no fp8 product: codes are converted to bf16, which holds them
 * exactly. Layouts: AMD, matrix instruction calculator, 16x16x32 fp8_fp8. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_MFMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_MFMA_H

#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_mfma.h"

typedef short bits4 __attribute__((ext_vector_type(4)));

enum { STEP_BYTES = A_BYTES + TILE_N * ROW_BYTES };

/* What a product of two codes as the matrix cores read them lacks. */
#if defined(__gfx942__)
#define FLOAT8_MISSING 4.0f
#else
#define FLOAT8_MISSING 1.0f
#endif

#if defined(__gfx942__)
/* Four codes of e4m3fn as e4m3fnuz of half their value: of -0 the sign goes, and a NaN, whose other bits are all set, is
 * one more, with a sign. */
GPU_DEVICE unsigned to_fnuz(unsigned codes) {
    const unsigned high = 0x80808080u, magnitude = codes & ~high;
    const unsigned nonzero = magnitude + ~high, nan = (magnitude + 0x01010101u) & high;
    return (magnitude + (nan >> 7)) | (codes & nonzero & high);
}
#endif

template <int COUNT> GPU_DEVICE void prepare(words4 (&v)[COUNT]) {
#if defined(__gfx942__)
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) v[i][j] = to_fnuz(v[i][j]);
#endif
    (void)v;
}

#if defined(__gfx90a__)
/* The four codes of a word, as bf16. */
GPU_DEVICE bits4 to_bf16(unsigned codes) {
    bits4 to;
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = (short)(gpu_float_bits(gpu_from_float8(codes >> 8 * i & 0xff)) >> 16);
    return to;
}
#endif

/* A lane's codes of a row, or a column, of a block: the pieces of its two steps. */
struct float8_piece {
    words4 step[2];
};

#if !defined(__gfx90a__)
/* A quarter of them, as fp8 products take them. */
GPU_DEVICE long eight_codes(const float8_piece &piece, int i) {
    const words4 step = piece.step[i / 2];
    return (long)((unsigned long)step[i % 2 * 2 + 1] << 32 | step[i % 2 * 2]);
}
#endif

/* Part i of four of the 16 x 16 products of 128 terms, 8 a lane. Both operands are permuted alike, so every order of the
 * terms is right. */
GPU_DEVICE sums4 multiply_add(const float8_piece &a, const float8_piece &b, int i, sums4 sum) {
#if defined(__gfx90a__)
#pragma unroll
    for (int j = 2 * i; j < 2 * i + 2; j++)
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(to_bf16(a.step[j / 4][j % 4]),
                                                        to_bf16(b.step[j / 4][j % 4]), sum, 0, 0, 0);
#elif defined(__AMDGCN__)
    sum = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(eight_codes(a, i), eight_codes(b, i), sum, 0, 0, 0);
#endif
    (void)a, (void)b, (void)i;
    return sum;
}

/* A wave's part of one block: rows of a and columns of b, read from LDS, which holds a step in each half. */
struct float8_fragments {
    float8_piece a[DOWN], b[ACROSS];
};

template <int FROM, int TO>
GPU_DEVICE void read_rows(float8_piece (&to)[DOWN], const unsigned char (*lds)[STEP_BYTES], int a_at) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            to[i].step[half] = *(const words4 *)(lds[half] + a_at + i * 16 * ROW_BYTES);
}

GPU_DEVICE void read_columns(float8_piece (&to)[ACROSS], const unsigned char (*lds)[STEP_BYTES], int b_at) {
#pragma unroll
    for (int j = 0; j < ACROSS; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            to[j].step[half] = *(const words4 *)(lds[half] + b_at + j * 16 * ROW_BYTES);
}

/* factors(i, j): what a block's product i, j of 16 x 16 is multiplied by, a number or four of a lane's columns of c.
 * Products of some rows of fragments, scaled and added to the total. Four sums grow in turns: a product waits for none. */
template <int FROM, int TO, typename FACTORS>
GPU_DEVICE void add_rows(const float8_fragments &f, const FACTORS &factors, sums4 (&total)[DOWN][ACROSS]) {
#pragma unroll
    for (int i = FROM; i < TO; i++) {
        sums4 block[ACROSS] = {};
#pragma unroll
        for (int part = 0; part < 4; part++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++) block[j] = multiply_add(f.b[j], f.a[i], part, block[j]);
#pragma unroll
        for (int j = 0; j < ACROSS; j++) total[i][j] += block[j] * factors(i, j);
    }
}

/* The operands of a tile's group: rows of codes, two of which count as one number, with the sum's dimension contiguous. */
struct float8_sides {
    const spw_bf16 *a, *b;
    int a_stride, b_stride, columns, terms;
};

/* Both operands' shares of the two steps of a block, on the way from memory to LDS. */
struct float8_shares {
    share<true, 4> a[2];
    share<true, 2> b[2];

    GPU_MEMBER void start(const float8_sides &s, const gemm_tile &t) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            a[half].start(s.a, s.a_stride, t.m0, t.height, s.terms);
            b[half].start(s.b, s.b_stride, t.n0, s.columns, s.terms);
            a[half].offset += (unsigned)half * a[half].step, b[half].offset += (unsigned)half * b[half].step;
        }
    }
    /* `left`: of the sum, from this block on. */
    GPU_MEMBER void load(int left) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            a[half].load(left - half * TILE_K), b[half].load(left - half * TILE_K);
            a[half].offset += a[half].step, b[half].offset += b[half].step;
        }
    }
    GPU_MEMBER void store(unsigned char (*lds)[STEP_BYTES]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            prepare(b[half].v), b[half].store(lds[half] + A_BYTES);
            prepare(a[half].v), a[half].store(lds[half]);
        }
    }
};

/* One block, whose fragments are in `f`; those of the next block go from registers to LDS and, once all waves have
 * written, from there to `f`; those of the one after that, from which on the sum has `left` numbers, are loaded. */
template <typename FACTORS>
GPU_DEVICE void whole_block(float8_shares &shares, int left, unsigned char (*lds)[STEP_BYTES], int a_at,
                            int b_at, float8_fragments &f, const FACTORS &factors,
                            sums4 (&total)[DOWN][ACROSS]) {
    constexpr int FIRST =
        1; /* rows of fragments before LDS is written: all waves have read the block before */
    constexpr int MIDDLE = 6; /* and before it is read: the others cover the reads */
    add_rows<0, FIRST>(f, factors, total);
    gpu_barrier();
    fence_schedule();
    shares.store(lds), shares.load(left);
    add_rows<FIRST, MIDDLE>(f, factors, total);
    gpu_barrier();
    fence_schedule();
    float8_piece next[ACROSS];
    read_columns(next, lds, b_at);
    read_rows<0, MIDDLE>(f.a, lds, a_at);
    add_rows<MIDDLE, DOWN>(f, factors, total);
    read_rows<MIDDLE, DOWN>(f.a, lds, a_at);
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) f.b[j] = next[j];
}

/* All blocks of a tile. SCALES: FACTORS, and next(to), which gives those of one block after the other. */
template <typename SCALES>
GPU_DEVICE void sum_blocks(const float8_sides &s, const gemm_tile &t, SCALES &scales, int a_at, int b_at,
                           unsigned char (*lds)[STEP_BYTES], sums4 (&total)[DOWN][ACROSS]) {
    float8_shares shares;
    float8_fragments f;
    typename SCALES::factors factors, coming = {};
    shares.start(s, t);
    shares.load(s.terms);
    scales.next(factors);
    gpu_barrier(); /* the tile before has been read */
    shares.store(lds), shares.load(s.terms - 2 * TILE_K);
    gpu_barrier();
    read_columns(f.b, lds, b_at);
    read_rows<0, DOWN>(f.a, lds, a_at);
#pragma clang loop unroll(disable)
    for (int left = s.terms; left > 0; left -= 2 * TILE_K) {
        if (left > 2 * TILE_K) scales.next(coming);
        whole_block(shares, left - 4 * TILE_K, lds, a_at, b_at, f, factors, total);
        factors = coming;
    }
}

#if defined(__AMDGCN__)
#define ONE_WAVE_KERNEL GPU_KERNEL(THREADS) __attribute__((amdgpu_waves_per_eu(1, 1)))
#else
#define ONE_WAVE_KERNEL GPU_KERNEL(THREADS)
#endif

#endif
