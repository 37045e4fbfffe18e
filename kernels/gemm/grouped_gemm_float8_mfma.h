/* What the grouped GEMMs of fp8 on AMD's matrix cores share, for the .hip files that give them names and launch them:
 * grouped_gemm_mfma.h with pairs of codes as its numbers. Two steps are a block of 128 terms, whose products are summed apart, then
 * scaled and added. LDS holds one block, a step in each half.
 *
 * gfx950 has e4m3fn, and multiplies the 128 terms at once, at twice the rate. gfx942 has e4m3fnuz, where
 * the same bits are half as large and NaN is 0x80 alone: codes are translated on their way to LDS, and the factor of 4
 * that a product lacks goes into the scale. gfx90a has no fp8 product: codes are converted to bf16, which holds them
 * exactly. Layouts: AMD, matrix instruction calculator, 16x16x32 fp8_fp8 and 16x16x128 f8f6f4. */
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
static constexpr bool TRANSLATES = true;
#else
static constexpr bool TRANSLATES = false;
#endif

/* Sixteen codes of e4m3fn of a row as e4m3fnuz of half their value: of -0 the sign goes. Where one of them is NaN, all of whose bits but the
 * sign are set, four become -0, which is e4m3fnuz's NaN: any of a row's makes all sums of that row NaN. */
GPU_DEVICE void translate(words4 &v) {
    const unsigned high = 0x80808080u;
    unsigned seen = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned magnitude = v[j] & ~high;
#if defined(__AMDGCN__)
        asm("" : "+v"(magnitude)); /* else the sum below takes an instruction more */
#endif
        const unsigned nonzero = magnitude + ~high;
        v[j] = (v[j] & nonzero) | magnitude;
        seen |= magnitude + 0x01010101u;
    }
    if ((seen & high) != 0) v[0] = high;
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

#if defined(__gfx950__)
static constexpr int PARTS = 1; /* matrix instructions of a product of 16 x 16 by 128, or pairs of them */
typedef int words8 __attribute__((ext_vector_type(8)));
GPU_DEVICE words8 all_codes(const float8_piece &piece) { return __builtin_bit_cast(words8, piece); }
#elif !defined(__gfx90a__)
/* A quarter of them, as fp8 products take them. */
GPU_DEVICE long eight_codes(const float8_piece &piece, int i) {
    const words4 step = piece.step[i / 2];
    return (long)((unsigned long)step[i % 2 * 2 + 1] << 32 | step[i % 2 * 2]);
}
#endif

#if !defined(__gfx950__)
static constexpr int PARTS = 4;
#endif
/* Part i of PARTS of the 16 x 16 products of 128 terms. Both operands are permuted alike, so every order of the
 * terms is right. */
GPU_DEVICE sums4 multiply_add(const float8_piece &a, const float8_piece &b, int i, sums4 sum) {
#if defined(__gfx90a__)
#pragma unroll
    for (int j = 2 * i; j < 2 * i + 2; j++)
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(to_bf16(a.step[j / 4][j % 4]),
                                                        to_bf16(b.step[j / 4][j % 4]), sum, 0, 0, 0);
#elif defined(__gfx950__)
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(all_codes(a), all_codes(b), sum, 0, 0, 0, 0, 0, 0);
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
 * Products of row I of fragments. What the row before it has summed is scaled and added beside them: `waiting`, of the block before where
 * that is the last row. Four sums grow in turns: a product waits for none. */
template <int I, typename FACTORS>
GPU_DEVICE void add_row(const float8_fragments &f, const FACTORS &factors, sums4 (&waiting)[ACROSS],
                        sums4 (&total)[DOWN][ACROSS]) {
    constexpr int LAST = (I + DOWN - 1) % DOWN;
    sums4 block[ACROSS];
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
            block[j] = multiply_add(f.b[j], f.a[I], part, part == 0 ? sums4{} : block[j]);
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
        total[LAST][j] += waiting[j] * factors(LAST, j);
        waiting[j] = block[j];
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
    template <int HALF> GPU_MEMBER void load(int left) {
        a[HALF].load(left - HALF * TILE_K), b[HALF].load(left - HALF * TILE_K);
        a[HALF].offset += a[HALF].step, b[HALF].offset += b[HALF].step;
    }
    template <int HALF> GPU_MEMBER void store(unsigned char (*lds)[STEP_BYTES]) {
        b[HALF].store(lds[HALF] + A_BYTES), a[HALF].store(lds[HALF]);
    }
    /* Pieces of b, then of a, before they are stored. */
    template <int HALF, int FROM, int TO> GPU_MEMBER void prepare() {
        if (!TRANSLATES) return;
#pragma unroll
        for (int i = FROM; i < TO; i++) translate(i < 2 ? b[HALF].v[i] : a[HALF].v[i - 2]);
    }
};

/* What a tile's sum needs from block to block. */
template <typename SCALES> struct float8_state {
    typedef typename SCALES::factors factors;
    float8_shares shares;
    float8_fragments f;
    factors before, now;
    typename SCALES::loaded coming;
    sums4 waiting[ACROSS];
};

/* How many vector instructions that scale and add sums stand behind a product: before LDS is written, beside stores to it, loads of
 * scales, loads of codes, and reads of LDS. */
struct float8_plan {
    int first, stores, scales, loads, reads;
};

/* Asks the scheduler for COUNT groups: a product, ITEMS instructions of `KIND`, VECTORS that scale and add sums: packed ones, which the
 * compiler takes apart where they stand right behind a product. */
template <int COUNT, int KIND, int ITEMS, int VECTORS> GPU_DEVICE void spread() {
#if defined(__AMDGCN__)
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        __builtin_amdgcn_sched_group_barrier(8, PARTS, 0);
        __builtin_amdgcn_sched_group_barrier(KIND, ITEMS, 0);
        __builtin_amdgcn_sched_group_barrier(VECTOR, VECTORS, 0);
    }
#endif
}

/* One block, whose fragments are in `f`; those of the next block go from registers to LDS and, once all waves have
 * written, from there to `f`; those of the one after that, from which on the sum has `left` numbers, are loaded. Nothing is moved from row
 * to row of fragments: so nothing waits for a product that has just begun. */
template <typename SCALES>
GPU_DEVICE void whole_block(float8_state<SCALES> &s, SCALES &scales, int left,
                            unsigned char (*lds)[STEP_BYTES], int a_at, int b_at,
                            sums4 (&total)[DOWN][ACROSS]) {
    constexpr float8_plan PLAN = SCALES::PLAN;
    s.now = scales.finished(s.coming);
    add_row<0>(s.f, s.before, s.waiting, total);
    interleave<ACROSS, VECTOR, 0, PARTS, PLAN.first>();
    gpu_barrier(); /* all waves have read the block before */
    fence_schedule();
    s.shares.template store<0>(lds);
    add_row<1>(s.f, s.now, s.waiting, total);
    spread<3, LDS_WRITE, 2, PLAN.stores>();
    fence_schedule();
    s.shares.template store<1>(lds);
    scales.next(s.coming, left + 2 * TILE_K);
    add_row<2>(s.f, s.now, s.waiting, total);
    spread<2, LDS_WRITE, 3, PLAN.stores>();
    spread<2, MEMORY_READ, 3, PLAN.scales>();
    fence_schedule();
    s.shares.template load<0>(left);
    add_row<3>(s.f, s.now, s.waiting, total);
    interleave<4, MEMORY_READ, PLAN.loads, PARTS>();
    fence_schedule();
    s.shares.template load<1>(left);
    add_row<4>(s.f, s.now, s.waiting, total);
    interleave<4, MEMORY_READ, PLAN.loads, PARTS>();
    gpu_barrier();
    fence_schedule();
    float8_piece next[ACROSS];
    read_columns(next, lds, b_at);
    add_row<5>(s.f, s.now, s.waiting, total);
    spread<4, LDS_READ, 2, PLAN.reads>();
    fence_schedule();
    read_rows<0, 4>(s.f.a, lds, a_at);
    add_row<6>(s.f, s.now, s.waiting, total);
    spread<4, LDS_READ, 2, PLAN.reads>();
    fence_schedule();
    read_rows<4, 7>(s.f.a, lds, a_at);
    add_row<7>(s.f, s.now, s.waiting, total);
    read_rows<7, 8>(s.f.a, lds, a_at);
    spread<3, LDS_READ, 2, PLAN.reads>();
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) s.f.b[j] = next[j];
    s.before = s.now;
}

/* Two pieces of the first half are translated while row I is multiplied. */
template <int PIECE, int I, typename SCALES>
GPU_DEVICE void translate_beside(float8_state<SCALES> &s, sums4 (&total)[DOWN][ACROSS]) {
    s.shares.template prepare<0, PIECE, PIECE + 2>();
    add_row<I>(s.f, s.now, s.waiting, total);
}

/* The same where codes are translated on their way, three instructions behind each product: of the second half before it is stored,
 * of the first while LDS is read for the next block. */
template <typename SCALES>
GPU_DEVICE void translated_block(float8_state<SCALES> &s, SCALES &scales, int left,
                                 unsigned char (*lds)[STEP_BYTES], int a_at, int b_at,
                                 sums4 (&total)[DOWN][ACROSS]) {
    constexpr int PRODUCTS = ACROSS * PARTS;
    s.now = scales.finished(s.coming);
    s.shares.template prepare<1, 0, 1>();
    add_row<0>(s.f, s.before, s.waiting, total);
    interleave<PRODUCTS, VECTOR, 0, 1, 3>();
    gpu_barrier(); /* all waves have read the block before */
    fence_schedule();
    s.shares.template store<0>(lds);
    s.shares.template prepare<1, 1, 2>();
    scales.next(s.coming, left + 2 * TILE_K);
    add_row<1>(s.f, s.now, s.waiting, total);
    interleave<6, LDS_WRITE, 2, 1>();
    interleave<9, MEMORY_READ, 2, 1>();
    fence_schedule();
    s.shares.template prepare<1, 2, 3>();
    s.shares.template load<0>(left);
    add_row<2>(s.f, s.now, s.waiting, total);
    interleave<9, VECTOR, 0, 1, 3>();
    interleave<6, MEMORY_READ, 2, 1>();
    fence_schedule();
    s.shares.template prepare<1, 3, 5>();
    add_row<3>(s.f, s.now, s.waiting, total);
    interleave<PRODUCTS, VECTOR, 0, 1, 3>();
    fence_schedule();
    s.shares.template prepare<1, 5, 6>();
    s.shares.template store<1>(lds), s.shares.template load<1>(left);
    add_row<4>(s.f, s.now, s.waiting, total);
    interleave<6, LDS_WRITE, 2, 1>();
    interleave<6, MEMORY_READ, 2, 1>();
    gpu_barrier();
    fence_schedule();
    float8_piece next[ACROSS];
    read_columns(next, lds, b_at);
    translate_beside<0, 5>(s, total);
    interleave<8, LDS_READ, 2, 1>();
    interleave<8, VECTOR, 0, 1, 3>();
    fence_schedule();
    read_rows<0, 4>(s.f.a, lds, a_at);
    translate_beside<2, 6>(s, total);
    interleave<8, LDS_READ, 2, 1>();
    interleave<8, VECTOR, 0, 1, 3>();
    fence_schedule();
    read_rows<4, 7>(s.f.a, lds, a_at);
    translate_beside<4, 7>(s, total);
    read_rows<7, 8>(s.f.a, lds, a_at);
    interleave<6, LDS_READ, 2, 1>();
    interleave<8, VECTOR, 0, 1, 3>();
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) s.f.b[j] = next[j];
    s.before = s.now;
}

template <typename... ARGUMENTS> GPU_DEVICE void one_block(ARGUMENTS &&...arguments) {
    if constexpr (TRANSLATES)
        translated_block(arguments...);
    else
        whole_block(arguments...);
}

/* The kernel's only argument, read anew: else what is needed between sums alone takes registers during them. */
template <typename PROBLEM> GPU_DEVICE PROBLEM read_again(const PROBLEM &problem) {
#if defined(__AMDGCN__)
    typedef const __attribute__((address_space(4))) PROBLEM argument;
    argument *from = (argument *)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(from));
    PROBLEM again;
    __builtin_memcpy(&again, (const PROBLEM *)from, sizeof again);
    (void)problem;
    return again;
#else
    return problem;
#endif
}

/* What the walk over the tiles needs: what is computed from its sizes is not kept in registers from tile to tile. */
GPU_DEVICE spw_gemm_problem to_walk(spw_gemm_problem p) {
    keep_here(p.inner), keep_here(p.columns);
    return p;
}

/* All blocks of a tile. SCALES: next(loaded, left) loads those of one block after the other, 0 behind the last: `left` is what of the sum
 * the block begins. finished(loaded) makes factors of them. */
template <typename SCALES>
GPU_DEVICE void sum_blocks(const float8_sides &sides, const gemm_tile &t, SCALES &scales, int a_at, int b_at,
                           unsigned char (*lds)[STEP_BYTES], sums4 (&total)[DOWN][ACROSS]) {
    constexpr int BLOCK = 2 * TILE_K;
    float8_state<SCALES> s;
    s.before = {};
#pragma unroll
    for (int j = 0; j < ACROSS; j++) s.waiting[j] = sums4{};
    s.shares.start(sides, t);
    s.shares.template load<0>(sides.terms), s.shares.template load<1>(sides.terms);
    scales.next(s.coming, sides.terms);
    gpu_barrier(); /* the tile before has been read */
    s.shares.template prepare<0, 0, 6>();
    s.shares.template prepare<1, 0, 6>();
    s.shares.template store<0>(lds), s.shares.template store<1>(lds);
    s.shares.template load<0>(sides.terms - BLOCK), s.shares.template load<1>(sides.terms - BLOCK);
    gpu_barrier();
    read_columns(s.f.b, lds, b_at);
    read_rows<0, DOWN>(s.f.a, lds, a_at);
    s.shares.template prepare<0, 0, 6>();
    /* Two blocks a round, so that none is copied to where the next one was: behind the end of the sum a block multiplies zeros. */
#pragma clang loop unroll(disable)
    for (int left = sides.terms; left > 0; left -= 2 * BLOCK) {
        one_block(s, scales, left - 2 * BLOCK, lds, a_at, b_at, total);
        one_block(s, scales, left - 3 * BLOCK, lds, a_at, b_at, total);
    }
#pragma unroll
    for (int j = 0; j < ACROSS; j++) total[DOWN - 1][j] += s.waiting[j] * s.before(DOWN - 1, j);
}

/* Numbers of an array, `lane_offset` bytes and `offset`, which all lanes have in common, behind its beginning; 0 where `bytes` is 0. */
template <typename NUMBERS>
GPU_DEVICE NUMBERS load_scales(const float *array, int lane_offset, int bytes, int offset = 0) {
#if defined(__AMDGCN__)
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)array, 0, bytes, 0x27000);
    if constexpr (sizeof(NUMBERS) == sizeof(float))
        return __builtin_bit_cast(float,
                                  __builtin_amdgcn_raw_buffer_load_b32(buffer, lane_offset, offset, 0));
    else
        return __builtin_bit_cast(sums4,
                                  __builtin_amdgcn_raw_buffer_load_b128(buffer, lane_offset, offset, 0));
#else
    (void)lane_offset, (void)offset;
    return bytes != 0 ? NUMBERS{*array} : NUMBERS{};
#endif
}

#if defined(__AMDGCN__)
#define ONE_WAVE_KERNEL GPU_KERNEL(THREADS) __attribute__((amdgpu_waves_per_eu(1, 1)))
#else
#define ONE_WAVE_KERNEL GPU_KERNEL(THREADS)
#endif

#endif
