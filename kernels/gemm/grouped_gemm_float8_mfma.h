/* What the grouped GEMMs of fp8 on AMD's matrix cores share, for the .hip files that give them names and launch them:
 * grouped_gemm_mfma.h with pairs of codes as its numbers. Two steps are a block of 128 terms, whose products are summed apart, then
 * scaled and added. LDS holds one block, a step in each half.
 *
 * gfx950 has e4m3fn, and multiplies the 128 terms at once, at twice the rate. gfx942 has e4m3fnuz, where
 * the same bits are half as large and NaN is 0x80 alone: codes are translated on their way to LDS, and the factor of 4
 * that a product lacks goes into the scale. gfx90a has no fp8 product: codes are converted to bf16, which holds them
 * exactly. Layouts: AMD, matrix instruction calculator, 32x32x16 fp8_fp8, 16x16x16 bf16 and 16x16x128 f8f6f4. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_MFMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_MFMA_H

#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_mfma.h"

typedef short bits4 __attribute__((ext_vector_type(4)));

enum { STEP_BYTES = A_BYTES + TILE_N * ROW_BYTES };

/* A matrix instruction makes SIDE x SIDE sums; what a product of two codes as the matrix cores read them lacks. */
#if defined(__gfx942__)
enum { SIDE = 32 };
#define FLOAT8_MISSING 4.0f
static constexpr bool TRANSLATES = true;
#else
enum { SIDE = 16 };
#define FLOAT8_MISSING 1.0f
static constexpr bool TRANSLATES = false;
#endif

/* A wave's tile in products, and in a lane's numbers: it has sums of DOWN8 rows of c, four neighbours in each of QUADS places. */
enum {
    DOWN8 = WAVE_M / SIDE,
    ACROSS8 = WAVE_N / SIDE,
    QUADS = WAVE_N * SIDE / 256,
    IN_PRODUCT = QUADS / ACROSS8
};
typedef float product_sums __attribute__((ext_vector_type(4 * IN_PRODUCT)));
typedef sums4 tile_sums[DOWN8][QUADS];

/* A lane's first row of a wave's tile, its first column, and how far its quads are apart. */
GPU_DEVICE int lane_row() { return gpu_lane() % SIDE; }
GPU_DEVICE int lane_column() { return gpu_lane() / SIDE * 4; }
enum { QUAD_COLUMNS = WAVE_N / QUADS };

/* Of eight codes of e4m3fn: every bit but the sign, the sign's, and the lowest. All of the first are set in NaN alone. */
static constexpr unsigned long MAGNITUDES = 0x7f7f7f7f7f7f7f7fu, SIGNS = ~MAGNITUDES, LOWEST = SIGNS >> 7;

/* Two words of codes, of which no sum of two magnitudes carries from byte to byte; gfx942 adds both words at once. */
struct float8_words {
    unsigned long magnitude;

    /* Eight codes of e4m3fn as e4m3fnuz of half their value: of -0 the sign goes. */
    GPU_MEMBER void translate(unsigned &low, unsigned &high) {
        magnitude = ((unsigned long)high << 32 | low) & MAGNITUDES;
#if defined(__AMDGCN__)
        asm("" : "+v"(magnitude)); /* else the sums take more instructions */
#endif
        const unsigned long nonzero = magnitude + MAGNITUDES;
        low = (low & (unsigned)nonzero) | (unsigned)magnitude;
        high = (high & (unsigned)(nonzero >> 32)) | (unsigned)(magnitude >> 32);
    }
    /* Bits of a sign are set where one of them is NaN. */
    GPU_MEMBER unsigned nan() const {
        const unsigned long above = magnitude + LOWEST;
        return (unsigned)above | (unsigned)(above >> 32);
    }
};

#if defined(__gfx90a__)
/* The four codes of a word, as bf16. */
GPU_DEVICE bits4 to_bf16(unsigned codes) {
    bits4 to;
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = (short)(gpu_float_bits(gpu_from_float8(codes >> 8 * i & 0xff)) >> 16);
    return to;
}
#endif

/* A lane's codes of a row, or a column, of a block: pieces of its two steps. */
enum { PIECES = SIDE / 16 };
struct float8_piece {
    words4 step[2][PIECES];
};

#if defined(__gfx950__)
static constexpr int PARTS = 1; /* matrix instructions of a product of 16 x 16 by 128, or pairs of them */
typedef int words8 __attribute__((ext_vector_type(8)));
GPU_DEVICE words8 all_codes(const float8_piece &piece) { return __builtin_bit_cast(words8, piece); }
#else
static constexpr int PARTS = 4 * PIECES;
/* One of PARTS of them, as fp8 products take them. */
GPU_DEVICE long eight_codes(const float8_piece &piece, int i) {
    const words4 codes = piece.step[i / 2 / PIECES][i / 2 % PIECES];
    return (long)((unsigned long)codes[i % 2 * 2 + 1] << 32 | codes[i % 2 * 2]);
}
#endif

/* Part i of PARTS of the SIDE x SIDE products of 128 terms. Both operands are permuted alike, so every order of the
 * terms is right. */
GPU_DEVICE product_sums multiply_add(const float8_piece &a, const float8_piece &b, int i, product_sums sum) {
#if defined(__gfx90a__)
    const unsigned long a8 = (unsigned long)eight_codes(a, i), b8 = (unsigned long)eight_codes(b, i);
#pragma unroll
    for (int j = 0; j < 64; j += 32)
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(to_bf16((unsigned)(a8 >> j)),
                                                        to_bf16((unsigned)(b8 >> j)), sum, 0, 0, 0);
#elif defined(__gfx950__)
    sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(all_codes(a), all_codes(b), sum, 0, 0, 0, 0, 0, 0);
#elif defined(__gfx942__)
    sum = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(eight_codes(a, i), eight_codes(b, i), sum, 0, 0, 0);
#endif
    (void)a, (void)b, (void)i;
    return sum;
}

/* A wave's part of one block: rows of a and columns of b, read from LDS, which holds a step in each half. */
struct float8_fragments {
    float8_piece a[DOWN8], b[ACROSS8];
};

/* Where a lane reads the pieces of the first of a wave's rows of an operand, which begins at `operand`. */
struct lane_place {
    int piece[PIECES];

    GPU_MEMBER lane_place(int row, int operand) {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            piece[p] = place(row + lane_row(), gpu_lane() / SIDE + p * 2) + operand;
#if defined(__AMDGCN__)
            asm("" : "+v"(piece[p])); /* else several rows' places take registers */
#endif
        }
    }
};

/* Piece n of 2 PIECES of row, or column, i. */
GPU_DEVICE void read_piece(float8_piece *to, int i, int n, const unsigned char (*lds)[STEP_BYTES],
                           const lane_place &at) {
    const int half = n / PIECES, p = n % PIECES;
    to[i].step[half][p] = *(const words4 *)(lds[half] + at.piece[p] + i * SIDE * ROW_BYTES);
}

/* A block's products are made in TURNS turns of AT_ONCE, which are beside each other. */
enum { TURNS = 8, AT_ONCE = DOWN8 * ACROSS8 / TURNS, SLOTS = AT_ONCE * IN_PRODUCT };

/* Quad q of the sums of turn N. factors(i, q): what a block's of row i and quad q are multiplied by, a number or four. */
template <int N, int Q, typename FACTORS>
GPU_DEVICE void add_waiting(const FACTORS &factors, const product_sums (&waiting)[AT_ONCE],
                            tile_sums &total) {
    constexpr int ROW = N % DOWN8, QUAD = N / DOWN8 * SLOTS + Q, AT = Q % IN_PRODUCT * 4;
    const product_sums &w = waiting[Q / IN_PRODUCT];
    total[ROW][QUAD] += sums4{w[AT], w[AT + 1], w[AT + 2], w[AT + 3]} * factors(ROW, QUAD);
}

/* The operands of a tile's group: rows of codes, two of which count as one number, with the sum's dimension contiguous. */
struct float8_sides {
    const spw_bf16 *a, *b;
    int a_stride, b_stride, columns, terms;
};

/* Both operands' shares of the two steps of a block, on the way from memory to LDS: of a step a thread has two pieces of b, four of a. */
struct float8_shares {
    enum { COUNT = 6 };
    share<true, 4> a[2];
    share<true, 2> b[2];
    float8_words words[2]; /* of a piece that is translated */
    unsigned seen;         /* what float8_words has found */

    GPU_MEMBER void start(const float8_sides &s, const gemm_tile &t) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            a[half].start(s.a, s.a_stride, t.m0, t.height, s.terms);
            b[half].start(s.b, s.b_stride, t.n0, s.columns, s.terms);
        }
        seen = 0;
    }
    /* Both halves go on from the same place. `left`: of the sum, from this block on. */
    template <int HALF> GPU_MEMBER void aim(int left) {
        a[HALF].aim_inside(left - HALF * TILE_K), b[HALF].aim_inside(left - HALF * TILE_K);
        go_on<HALF>();
    }
    template <int HALF> GPU_MEMBER void go_on() {
        a[1 - HALF].offset = a[HALF].offset, b[1 - HALF].offset = b[HALF].offset;
    }
    template <int HALF, int N> GPU_MEMBER void load() {
        if constexpr (N < 2)
            b[HALF].load_row(N);
        else
            a[HALF].load_row(N - 2);
    }
    template <int HALF, int N> GPU_MEMBER void store(unsigned char (*lds)[STEP_BYTES]) const {
        if constexpr (N < 2)
            b[HALF].store_row(lds[HALF] + A_BYTES, N);
        else
            a[HALF].store_row(lds[HALF], N - 2);
    }
    template <int HALF> GPU_MEMBER void load(int left) {
        a[HALF].load(left - HALF * TILE_K), b[HALF].load(left - HALF * TILE_K);
        go_on<HALF>();
    }
    template <int HALF> GPU_MEMBER void store(unsigned char (*lds)[STEP_BYTES]) {
        b[HALF].store(lds[HALF] + A_BYTES), a[HALF].store(lds[HALF]);
    }
    GPU_MEMBER words4 &piece(int half, int n) { return n < 2 ? b[half].v[n] : a[half].v[n - 2]; }
    /* Half of a piece, before it is stored, in two steps. */
    GPU_MEMBER void translate(int half, int n, int words_of) {
        words4 &v = piece(half, n);
        unsigned low = v[words_of * 2], high = v[words_of * 2 + 1];
        words[words_of].translate(low, high);
        v[words_of * 2] = low, v[words_of * 2 + 1] = high;
    }
    GPU_MEMBER void look_for_nan(int words_of) { seen |= words[words_of].nan(); }
    GPU_MEMBER void prepare(int half, int n) {
        if (!TRANSLATES) return;
#pragma unroll
        for (int i = 0; i < 2; i++) translate(half, n, i), look_for_nan(i);
    }
};

/* What a tile's sum needs from block to block. */
template <typename SCALES> struct float8_state {
    const lane_place a_at, b_at;
    unsigned char (*lds)[STEP_BYTES];
    SCALES scales;
    float8_shares shares;
    float8_fragments f;
    float8_piece next[ACROSS8]; /* of b, where all are read in every turn */
    typename SCALES::factors before, now;
    typename SCALES::loaded coming;
    product_sums waiting[AT_ONCE]; /* to be scaled and added */

    GPU_MEMBER float8_state(int wave_m, int wave_n, unsigned char (*in)[STEP_BYTES])
        : a_at(wave_m, 0), b_at(wave_n, A_BYTES), lds(in) {}
};

/* When the next block's scales are loaded. */
enum { SCALES_TURN = TRANSLATES ? 6 : 2 };

/* Reads of LDS in slot SLOT of turn N: the next block's fragments, each as soon as the last turn that has this block's has begun. */
template <int N, int SLOT, typename SCALES> GPU_DEVICE void read_beside(float8_state<SCALES> &s) {
    if constexpr (SIDE == 32) {
        if (N == 5) read_piece(s.f.b, 0, SLOT, s.lds, s.b_at);
        if (N >= 5) read_piece(s.f.a, N - 5, SLOT, s.lds, s.a_at);
        if (N == 0) read_piece(s.f.b, 1, SLOT, s.lds, s.b_at), read_piece(s.f.a, 3, SLOT, s.lds, s.a_at);
    } else {
        constexpr int ROW = N * 4 - 24 + SLOT;
        if (N == 5) read_piece(s.next, SLOT, 0, s.lds, s.b_at), read_piece(s.next, SLOT, 1, s.lds, s.b_at);
        if (ROW >= 0 && ROW < 7)
            read_piece(s.f.a, ROW, 0, s.lds, s.a_at), read_piece(s.f.a, ROW, 1, s.lds, s.a_at);
        if (N == 0 && SLOT < 2) read_piece(s.f.a, 7, SLOT, s.lds, s.a_at);
    }
}

template <int N, typename SCALES> GPU_DEVICE void read_turn(float8_state<SCALES> &s) {
    read_beside<N, 0>(s), read_beside<N, 1>(s), read_beside<N, 2>(s), read_beside<N, 3>(s);
}

/* What else goes between registers and LDS or memory in such a slot. All waves have read LDS behind turn 0, and written it behind turn 4. */
template <int N, int SLOT, typename SCALES> GPU_DEVICE void move_beside(float8_state<SCALES> &s) {
    if constexpr (N == 1) s.shares.template store<0, SLOT>(s.lds);
    if constexpr (N == 2 && SLOT < 2) s.shares.template store<0, SLOT + 4>(s.lds);
    if constexpr (N == 2 && SLOT >= 2) s.shares.template store<1, SLOT - 2>(s.lds);
    if constexpr ((N == 3 || N == 4) && SLOT % 2 == 1)
        s.shares.template store<1, N * 2 - 4 + SLOT / 2>(s.lds);
    if constexpr (N == 3) s.shares.template load<0, SLOT>();
    if constexpr (N == 3 && SLOT >= 2) s.shares.template load<0, SLOT + 2>();
    if constexpr (N == 4) s.shares.template load<1, SLOT>();
    if constexpr (N == 5 && SLOT >= 2) s.shares.template load<1, SLOT + 2>();
    if constexpr (N == SCALES_TURN) s.scales.template load<SLOT>(s.coming);
    if constexpr (N == 2) s.scales.template load_late<SLOT>(s.now);
}

/* A turn's matrix instructions; the slot between them for what is done beside them, or -1 where codes are translated. */
enum { STEPS = PARTS * AT_ONCE };
GPU_DEVICE constexpr int slot_of(int step) {
    return TRANSLATES                    ? (step % 4 < 2 ? -1 : step / 4 * 2 + step % 2)
           : step % (STEPS / SLOTS) == 0 ? step * SLOTS / STEPS
                                         : -1;
}

/* From instruction STEP of turn N on. Turns 7, 0, 1 translate the pieces of the first half that the next turn stores, 2 to 4 the others. */
template <int N, int STEP, typename SCALES>
GPU_DEVICE void take_steps(float8_state<SCALES> &s, const typename SCALES::factors &factors,
                           product_sums (&block)[AT_ONCE], tile_sums &total) {
    constexpr int K = STEP % AT_ONCE, SLOT = slot_of(STEP), PIECE = (N + 1) % TURNS * 2;
    constexpr bool PREPARES = TRANSLATES && PIECE < 12;
    block[K] = multiply_add(s.f.b[N / DOWN8 * AT_ONCE + K], s.f.a[N % DOWN8], STEP / AT_ONCE, block[K]);
#if defined(__gfx942__)
    /* Else they share registers, and products wait for sums. */
    if (STEP == 1) asm("" : "+v"(s.waiting[0]) : "v"(block[0]));
#endif
    fence_schedule();
    if constexpr (PREPARES && SLOT < 0) s.shares.translate(PIECE / 6, PIECE % 6 + STEP / 4, STEP % 2);
    if constexpr (PREPARES && SLOT >= 0) s.shares.look_for_nan(STEP % 2);
    if constexpr (SLOT >= 0) {
        read_beside<N, SLOT>(s);
        move_beside<N, SLOT>(s);
        add_waiting<(N + TURNS - 1) % TURNS, SLOT>(factors, s.waiting, total);
    }
    fence_schedule();
    if constexpr (STEP + 1 < STEPS) take_steps<N, STEP + 1>(s, factors, block, total);
}

/* The products of turn N of a block. What the turn before it has summed is scaled and added beside them, of the block before where that is
 * the last turn, and other work is done; in this order, so that neither pipe waits for the other. */
template <int N, typename SCALES>
GPU_DEVICE void take_turn(float8_state<SCALES> &s, const typename SCALES::factors &factors,
                          tile_sums &total) {
    product_sums block[AT_ONCE] = {};
    take_steps<N, 0>(s, factors, block, total);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) s.waiting[k] = block[k];
}

/* One block, whose fragments are in `f`, but for those that turn 0 reads; codes of the next block go from registers to LDS and, once all
 * waves have written, from there to `f`; those of the one after that, from which on the sum has `left` numbers, are loaded. */
template <typename SCALES> GPU_DEVICE void one_block(float8_state<SCALES> &s, int left, tile_sums &total) {
    s.now = s.scales.finished(s.coming);
    take_turn<0>(s, s.before, total);
    gpu_barrier();
    fence_schedule();
    take_turn<1>(s, s.now, total);
    if (SCALES_TURN == 2) s.scales.next(left + 2 * TILE_K);
    take_turn<2>(s, s.now, total);
    s.shares.template aim<0>(left);
    take_turn<3>(s, s.now, total);
    s.shares.template aim<1>(left);
    take_turn<4>(s, s.now, total);
    gpu_barrier();
    fence_schedule();
    take_turn<5>(s, s.now, total);
    if (SCALES_TURN == 6) s.scales.next(left + 2 * TILE_K);
    take_turn<6>(s, s.now, total);
    take_turn<7>(s, s.now, total);
    if (SIDE == 16)
#pragma unroll
        for (int j = 0; j < ACROSS8; j++) s.f.b[j] = s.next[j];
    s.before = s.now;
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

/* What a work-group knows of NaN: whether a wave has seen any, and of a tile's rows, then columns, 0 or NaN. */
struct alignas(16) float8_nans {
    float of[TILE_M + TILE_N];
    int any[THREADS / 64];
};

/* Makes NaN of the sums of a tile's rows and columns that have one, which are read for again. */
GPU_DEVICE void find_nans(const float8_sides &sides, const gemm_tile &t, float8_nans &nans,
                          tile_sums &total) {
    constexpr int COUNT = float8_shares::COUNT;
    float8_shares shares;
    unsigned seen[COUNT] = {};
    shares.start(sides, t);
    for (int i = gpu_thread(); i < TILE_M + TILE_N; i += THREADS) nans.of[i] = 0;
#pragma clang loop unroll(disable)
    for (int left = sides.terms; left > 0; left -= 2 * TILE_K) {
        shares.template load<0>(left), shares.template load<1>(left);
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            shares.seen = seen[n];
            shares.prepare(0, n), shares.prepare(1, n);
            seen[n] = shares.seen;
        }
    }
    gpu_barrier();
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if ((seen[n] & SIGNS) != 0)
            nans.of[(n < 2 ? TILE_M + n * 64 : (n - 2) * 64) + gpu_thread() / 4] =
                gpu_bits_float(0x7fc00000u);
    gpu_barrier();
    const int wave = gpu_thread() / 64;
    const float *row = nans.of + wave % 2 * WAVE_M + lane_row(),
                *column = nans.of + TILE_M + wave / 2 * WAVE_N + lane_column();
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const sums4 of_columns = *(const sums4 *)(column + q * QUAD_COLUMNS);
#pragma unroll
        for (int i = 0; i < DOWN8; i++) total[i][q] += of_columns + row[i * SIDE];
    }
}

/* All blocks of a tile. SCALES: next(left) goes on to those of the next block, 0 behind the last: `left` is what of the sum the block
 * begins; load<SLOT>(loaded) loads a quarter of them, finished(loaded) makes factors of them; load_late<SLOT>(factors) loads a quarter
 * of what turns from 5 on need alone. */
template <typename SCALES>
GPU_DEVICE void sum_blocks(const float8_sides &sides, const gemm_tile &t, float8_state<SCALES> &s,
                           tile_sums &total) {
    constexpr int BLOCK = 2 * TILE_K;
    __shared__ float8_nans nans;
    s.before = {};
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) s.waiting[k] = product_sums{};
    s.shares.start(sides, t);
    s.shares.template load<0>(sides.terms), s.shares.template load<1>(sides.terms);
    s.scales.next(sides.terms);
    s.scales.template load<0>(s.coming), s.scales.template load<1>(s.coming);
    s.scales.template load<2>(s.coming), s.scales.template load<3>(s.coming);
    gpu_barrier(); /* the tile before has been read */
#pragma unroll
    for (int n = 0; n < float8_shares::COUNT; n++) s.shares.prepare(0, n), s.shares.prepare(1, n);
    s.shares.template store<0>(s.lds), s.shares.template store<1>(s.lds);
    s.shares.template load<0>(sides.terms - BLOCK), s.shares.template load<1>(sides.terms - BLOCK);
    gpu_barrier();
    read_turn<5>(s), read_turn<6>(s), read_turn<7>(s);
    if (SIDE == 16)
#pragma unroll
        for (int j = 0; j < ACROSS8; j++) s.f.b[j] = s.next[j];
    s.shares.prepare(0, 0), s.shares.prepare(0, 1);
    /* Two blocks a round, so that none is copied to where the next one was: behind the end of the sum a block multiplies zeros. */
#pragma clang loop unroll(disable)
    for (int left = sides.terms; left > 0; left -= 2 * BLOCK) {
        one_block(s, left - 2 * BLOCK, total);
        one_block(s, left - 3 * BLOCK, total);
    }
    add_waiting<TURNS - 1, 0>(s.before, s.waiting, total),
        add_waiting<TURNS - 1, 1>(s.before, s.waiting, total);
    add_waiting<TURNS - 1, 2>(s.before, s.waiting, total),
        add_waiting<TURNS - 1, 3>(s.before, s.waiting, total);
    if (!TRANSLATES) return;
    const bool any = gpu_ballot((s.shares.seen & SIGNS) != 0) != 0;
    if (gpu_lane() == 0) nans.any[gpu_thread() / 64] = any;
    gpu_barrier();
    if (gpu_first(nans.any[0] | nans.any[1] | nans.any[2] | nans.any[3]) != 0)
        find_nans(sides, t, nans, total);
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
