/* Grouped GEMM of MXFP8 on AMD's matrix cores (CDNA 4), whose matrix instruction takes the scales, a byte a lane. One
 * work-group of four waves a compute unit stays there and walks over the tiles; a wave makes 128 x 64 of a 256 x 128
 * tile out of 32 x 32 products. Five steps of 64 along the sum are under way: one is multiplied out of registers while
 * the next is read from LDS, which holds four; the others go from memory to LDS without a register between.
 *
 * Layouts (AMD, "Matrix Core Programming on AMD CDNA 3 and CDNA 4"): of a row's 64 numbers a lane holds 16 from
 * 16 (lane / 32) on and the 16 that lie 32 behind them, but the scale of the 32 from 32 (lane / 32) on. */
#include "kernels/gemm/grouped_gemm_mxfp8_launch.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/mfma.h"

enum { TILE_M = 256, TILE_N = 128, TILE_K = 64, WORD_K = 128, BAND = 8, THREADS = 256, WAVE_M = 128 };
enum { WAVE_N = 64, DOWN = WAVE_M / 32, ACROSS = WAVE_N / 32, PRODUCTS = DOWN * ACROSS };
enum { STEPS = 4 }; /* in LDS */
enum { A_BYTES = TILE_M * TILE_K, CODE_BYTES = A_BYTES + TILE_N * TILE_K, SCALE_BYTES = TILE_M * 4 };
static constexpr unsigned NOWHERE [[maybe_unused]] =
    0xf0000000; /* an offset behind any operand, which a few rows do not bring round */

#if !defined(__HIP_DEVICE_COMPILE__) || defined(__gfx950__) /* other targets cannot multiply MXFP8 */
typedef unsigned words8 __attribute__((ext_vector_type(8)));
typedef int bits8 __attribute__((ext_vector_type(8)));
typedef float sums16 __attribute__((ext_vector_type(16)));

GPU_DEVICE sums16 multiply_add(words8 b, words8 a, sums16 sum, unsigned b_scale, unsigned a_scale) {
#if defined(__gfx950__)
    return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(__builtin_bit_cast(bits8, b),
                                                           __builtin_bit_cast(bits8, a), sum, 0, 0, 0,
                                                           (int)b_scale, 0, (int)a_scale);
#else
    (void)b, (void)a, (void)b_scale, (void)a_scale;
    return sum;
#endif
}

/* Where piece `piece` (16 numbers along the sum) of a row lies in LDS: sixteen rows that are read together meet in none
 * of the 64 banks. */
GPU_DEVICE int place(int row, int piece) { return row * TILE_K + (piece ^ (row >> 2 & 3)) * 16; }

/* Loads BYTES a lane from a buffer to LDS, one lane behind the other from `to` on, which is the same in a wave; 0 from
 * behind the buffer's end, which is how the end of a group is masked. Counts as a load of the wave. */
template <int BYTES>
GPU_DEVICE void load_to_lds(const void *base, unsigned bytes, unsigned offset, unsigned char *to) {
#if defined(__gfx950__)
    typedef __attribute__((address_space(3))) void local;
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x27000);
    if (BYTES == 16)
        __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (local *)to, 16, (int)offset, 0, 0, 0);
    else
        __builtin_amdgcn_raw_ptr_buffer_load_lds(buffer, (local *)to, 4, (int)offset, 0, 0, 0);
#else
    (void)base, (void)bytes, (void)offset, (void)to;
#endif
}

/* One thread's share of one operand of one step: a piece of LOADS rows, 64 apart. */
template <int LOADS> struct code_share {
    const unsigned char *base;
    unsigned bytes, offset, apart;
    int piece;

    /* An operand of `rows` rows, smaller than NOWHERE bytes; the tile starts at row0. */
    GPU_MEMBER void start(const unsigned char *operand, int inner, int row0, int rows) {
        keep_here(inner);
        const int row = gpu_thread() / 4;
        piece = place(row, gpu_thread() % 4) / 16 %
                4; /* the place of this thread's is a row's place of that piece */
        base = operand, bytes = (unsigned)rows * (unsigned)inner, apart = 64 * (unsigned)inner;
        offset = (unsigned)(row0 + row) * (unsigned)inner + (unsigned)piece * 16;
    }
    /* `left`: terms of the sum from this step on; less than TILE_K in the last step, <= 0 behind it. */
    GPU_MEMBER void load(int left, unsigned char *lds) {
        const unsigned from = piece * 16 < left ? offset : NOWHERE;
#pragma unroll
        for (unsigned i = 0; i < LOADS; i++)
            load_to_lds<16>(base, bytes, from + i * apart,
                            lds + gpu_first(gpu_thread() / 64) * 1024 + i * 64 * TILE_K);
        offset += TILE_K;
    }
};

/* One thread's share of one step's scales: of row `thread` of both operands' tiles. Two steps share a word, ODD is the
 * second. */
struct scale_share {
    const unsigned *a, *b;
    unsigned a_bytes, b_bytes, a_at, b_at;

    GPU_MEMBER void start(const spw_gemm_mxfp8_problem &p, const gemm_tile &t) {
        int words = (p.inner + WORD_K - 1) / WORD_K;
        keep_here(words);
        const unsigned row_bytes = (unsigned)words * 4, thread = (unsigned)gpu_thread();
        a = p.a_scale + (long)t.first * words, b = p.b_scale + (long)t.expert * p.columns * words;
        a_bytes = (unsigned)t.height * row_bytes, b_bytes = (unsigned)p.columns * row_bytes;
        a_at = ((unsigned)t.m0 + thread) * row_bytes, b_at = ((unsigned)t.n0 + thread) * row_bytes;
    }
    template <int ODD> GPU_MEMBER void load(int left, unsigned char *lds) {
        unsigned char *to = lds + CODE_BYTES + gpu_first(gpu_thread() / 64) * 256;
        load_to_lds<4>(a, a_bytes, left > 0 ? a_at : NOWHERE, to);
        load_to_lds<4>(b, b_bytes, left > 0 ? b_at : NOWHERE, to + SCALE_BYTES);
        if (ODD) a_at += 4, b_at += 4;
    }
};

/* A wave's part of one step, read from LDS: rows of a, columns of b, and their scales. */
struct fragments {
    words8 a[DOWN], b[ACROSS];
    unsigned a_scale[DOWN], b_scale[ACROSS];
};

/* Where a lane finds its part of a step: pieces of its first row of a and of b, and their scales. */
struct places {
    int a, b, a_scale, b_scale;
};

GPU_DEVICE words8 read_fragment(const unsigned char *lds, int at, int i) {
    const words4 low = *(const words4 *)(lds + at + i * 32 * TILE_K),
                 high = *(const words4 *)(lds + (at ^ 32) + i * 32 * TILE_K);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

template <int ODD> GPU_DEVICE unsigned read_scale(const unsigned char *lds, int at, int i) {
    return lds[at + i * 128 + ODD * 2];
}

template <int ODD, int FROM, int TO>
GPU_DEVICE void read_rows(fragments &f, const unsigned char *lds, const places &at) {
#pragma unroll
    for (int i = FROM; i < TO; i++) {
        f.a[i] = read_fragment(lds, at.a, i);
        f.a_scale[i] = read_scale<ODD>(lds, at.a_scale, i);
    }
}

template <int ODD>
GPU_DEVICE void read_columns(words8 (&b)[ACROSS], unsigned (&b_scale)[ACROSS], const unsigned char *lds,
                             const places &at) {
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
        b[j] = read_fragment(lds, at.b, j);
        b_scale[j] = read_scale<ODD>(lds, at.b_scale, j);
    }
}

/* Products [FROM, TO) of a step: product n is of rows n / ACROSS and columns n % ACROSS. The result's rows are b's and
 * its columns a's: a lane then holds four times four neighbours of a row of c. */
template <int FROM, int TO> GPU_DEVICE void multiply(const fragments &f, sums16 (&sum)[PRODUCTS]) {
#pragma unroll
    for (int n = FROM; n < TO; n++) {
        const int i = n / ACROSS, j = n % ACROSS;
        sum[n] = multiply_add(f.b[j], f.a[i], sum[n], f.b_scale[j], f.a_scale[i]);
    }
}

/* One thread's shares of the step that is on its way. */
struct shares {
    code_share<4> a;
    code_share<2> b;
    scale_share scales;

    enum { LOADS = 8 }; /* of a step */
    template <int ODD> GPU_MEMBER void load(int left, unsigned char *lds) {
        a.load(left, lds), b.load(left, lds + A_BYTES), scales.template load<ODD>(left, lds);
    }
};

/* Until all but the last LATER of each wave's loads have come, and no wave reads LDS any more. Not gpu_barrier, which
 * would wait for all loads. */
template <int LATER> GPU_DEVICE void wait_for_loads() {
#if defined(__AMDGCN__)
    asm volatile("" ::: "memory");
    __builtin_amdgcn_s_waitcnt((LATER & 15) | (LATER >> 4) << 14 | 0x70); /* vmcnt(LATER) lgkmcnt(0) */
    __builtin_amdgcn_s_barrier();
    asm volatile("" ::: "memory");
#endif
}

/* One step, whose fragments are in `f` and have come from `lds`; those of the next step go from `lds_next` to `f`. The
 * step that comes STEPS later, from which on the sum has `left` terms, is loaded to `lds`. */
template <int ODD>
GPU_DEVICE void whole_step(shares &share, int left, unsigned char *lds, const unsigned char *lds_next,
                           const places &at, fragments &f, sums16 (&sum)[PRODUCTS]) {
    constexpr int FIRST =
        2; /* products before the wait; the others cover the next step's way from LDS to f */
    multiply<0, FIRST>(f, sum);
    wait_for_loads<(STEPS - 2) * shares::LOADS>();
    fence_schedule();
    words8 next[ACROSS];
    unsigned next_scale[ACROSS];
    read_columns<1 - ODD>(next, next_scale, lds_next, at);
    read_rows<1 - ODD, 0, FIRST / ACROSS>(f, lds_next, at);
    share.template load<ODD>(left, lds);
    multiply<FIRST, PRODUCTS>(f, sum);
    read_rows<1 - ODD, FIRST / ACROSS, DOWN>(f, lds_next, at);
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) f.b[j] = next[j], f.b_scale[j] = next_scale[j];
}

/* The result's rows are b's and its columns a's: a lane holds four times four neighbours of a row of c. */
GPU_DEVICE void store_tile(const spw_gemm_mxfp8_problem &p, const gemm_tile &t, int m0, int n0,
                           const sums16 (&sum)[PRODUCTS]) {
    int columns = p.columns;
    keep_here(columns);
    const unsigned row_bytes = (unsigned)columns * 2;
    spw_bf16 *c = p.c + (long)t.first * p.columns;
#pragma unroll
    for (int i = 0; i < PRODUCTS * 4; i++) {
        const int row = m0 + i / 8 * 32 + gpu_lane() % 32, column = n0 + i % 8 * 8 + gpu_lane() / 32 * 4;
        const sums16 s = sum[i / 4];
        const int n = i % 4 * 4;
        store_rounded(sums4{s[n], s[n + 1], s[n + 2], s[n + 3]}, c, (unsigned)t.height * row_bytes,
                      column < columns ? (unsigned)row * row_bytes + (unsigned)column * 2 : ~0u);
    }
}

MFMA_KERNEL(THREADS) gemm_mxfp8_mfma(spw_gemm_mxfp8_problem p) {
    constexpr int STEP_BYTES = CODE_BYTES + 2 * SCALE_BYTES;
    /* Arrays of their own: the compiler then knows that a load to one is not read from another. */
    alignas(16) __shared__ unsigned char lds0[STEP_BYTES], lds1[STEP_BYTES], lds2[STEP_BYTES],
        lds3[STEP_BYTES];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    const int row = gpu_lane() % 32, half = gpu_lane() / 32;
    const places at = {place(wave_m + row, half), place(wave_n + row, half) + A_BYTES,
                       CODE_BYTES + (wave_m + row) * 4 + half,
                       CODE_BYTES + SCALE_BYTES + (wave_n + row) * 4 + half};
    const spw_gemm_problem sides = {p.experts, p.rows,   p.inner, p.columns, 1, p.blocks, nullptr,
                                    nullptr,   p.offset, p.c,     0,         0, 0,        0};
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(sides);
    for (int index = gpu_block(); walk.seek(sides, index, t); index += p.blocks) {
        sums16 sum[PRODUCTS] = {};
        if (t.terms > 0) {
            shares share;
            share.a.start(p.a + (long)t.first * p.inner, p.inner, t.m0, t.height);
            share.b.start(p.b + (long)t.expert * p.columns * p.inner, p.inner, t.n0, p.columns);
            share.scales.start(p, t);
            wait_for_loads<0>(); /* the tile before has been read, what was loaded behind its end has come */
            share.template load<0>(t.terms, lds0);
            share.template load<1>(t.terms - TILE_K, lds1);
            share.template load<0>(t.terms - 2 * TILE_K, lds2);
            share.template load<1>(t.terms - 3 * TILE_K, lds3);
            wait_for_loads<(STEPS - 1) * shares::LOADS>();
            fragments f;
            read_columns<0>(f.b, f.b_scale, lds0, at);
            read_rows<0, 0, DOWN>(f, lds0, at);
            /* STEPS steps a round: behind the end of the sum a step multiplies zeros. */
#pragma clang loop unroll(disable)
            for (int left = t.terms - STEPS * TILE_K; left > -STEPS * TILE_K; left -= STEPS * TILE_K) {
                whole_step<0>(share, left, lds0, lds1, at, f, sum);
                whole_step<1>(share, left - TILE_K, lds1, lds2, at, f, sum);
                whole_step<0>(share, left - 2 * TILE_K, lds2, lds3, at, f, sum);
                whole_step<1>(share, left - 3 * TILE_K, lds3, lds0, at, f, sum);
            }
        }
        store_tile(p, t, t.m0 + wave_m, t.n0 + wave_n, sum);
    }
}

#if GPU_HOST
int spw_launch_gemm_mxfp8_mfma(spw_gemm_mxfp8_problem p, gpu_stream stream) {
    const unsigned long long rows = (unsigned)p.rows, inner = (unsigned)p.inner,
                             columns = (unsigned)p.columns;
    /* Offsets into a group are 32 bits; see code_share. */
    if (rows * inner >= NOWHERE || inner * columns >= NOWHERE || 2 * rows * columns >= NOWHERE ||
        inner >= 1 << 20)
        return cudaErrorInvalidValue;
    gemm_mxfp8_mfma<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
#endif
