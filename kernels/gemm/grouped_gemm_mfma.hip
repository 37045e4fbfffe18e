/* Grouped GEMM on AMD's matrix cores (CDNA 2, 3, 4). One work-group of four waves a compute unit stays there
 * and walks over the tiles; a wave makes 128 x 64 of a 256 x 128 tile out of 16 x 16 products. Three steps of
 * 32 along the sum are under way: one is multiplied out of registers, the next goes through LDS, which holds
 * two steps, to the waves that multiply it, and the one after that is loaded from memory.
 *
 * LDS holds both operands with the sum's dimension contiguous: 64 bytes a row, in four pieces of 16 bytes,
 * placed so that neither the reads of 16 rows nor the transposing writes meet in a bank. An operand whose
 * other dimension is contiguous in memory is transposed in registers on its way: pairs of 16-bit numbers by
 * one v_perm each.
 *
 * Operand and result layouts: AMD, matrix instruction calculator; 16x16x16 bf16_1k and, on gfx950, 16x16x32
 * bf16. With eight numbers a lane the two differ only in which products meet in which instruction, since both
 * operands are permuted alike.
 *
 * With SWIGLU, b holds gate and up side by side and a tile takes 64 columns of each, 16 of gate and the same 16
 * of up in turns: a lane then holds the two sums of an element of act, and neither is written to memory. */
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/mfma.h"
#include "kernels/local/swiglu_math.h"

enum { TILE_M = 256, TILE_N = 128, TILE_K = 32, BAND = 8, THREADS = 256, WAVE_M = 128, WAVE_N = 64 };
enum { DOWN = WAVE_M / 16, ACROSS = WAVE_N / 16, ROW_BYTES = TILE_K * 2, A_BYTES = TILE_M * ROW_BYTES };

typedef short bits4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef short bits8 __attribute__((ext_vector_type(8)));

GPU_DEVICE sums4 multiply_add(words4 a, words4 b, sums4 sum) {
#if defined(__gfx950__)
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8, a),
                                                   __builtin_bit_cast(bf16x8, b), sum, 0, 0, 0);
#elif defined(__AMDGCN__)
    const bits8 a8 = __builtin_bit_cast(bits8, a), b8 = __builtin_bit_cast(bits8, b);
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a8.lo, b8.lo, sum, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a8.hi, b8.hi, sum, 0, 0, 0);
#else
    return sum;
#endif
}

/* Where piece `piece` (eight numbers along the sum) of a row lies in LDS. */
GPU_DEVICE int place(int row, int piece) {
    return (row ^ (row >> 3 & 1)) * ROW_BYTES + (piece ^ (row >> 1 & 3)) * 16;
}

/* One thread's share of one operand of one step: LOADS times 16 bytes on the way from memory to LDS.
 * INNER: the sum's dimension is contiguous; the thread holds one piece of LOADS rows, 64 apart.
 * Otherwise the thread holds a block of LOADS along the sum by eight rows.
 * Loads are buffer loads: what lies behind the operand's end reads as 0, which is how the end of a group is
 * masked. */
template <bool INNER, int LOADS, bool PAIRED = false> struct share {
    enum { ALONG = TILE_K / LOADS }; /* threads along the sum, when not INNER */
    words4 v[LOADS];
    const spw_bf16 *base; /* of the operand, and its size: the same in all threads */
    unsigned bytes;
    unsigned offset, apart,
        step; /* in bytes: of the first of the next loads, from one to the next, from step to step */
    int to;   /* place in LDS of the first row */

    /* The operand's row, from the tile's first on, that is row `row` of the tile. PAIRED: 16 rows of the operand's first half, the same 16 of its
     * second half, and so on. */
    GPU_MEMBER static unsigned row_of(unsigned row, int rows) {
        return PAIRED ? row / 32 * 16 + row % 16 + (row / 16 % 2 != 0 ? (unsigned)rows / 2 : 0) : row;
    }
    /* An operand of `rows` rows and `terms` terms, smaller than 2^32 - 2^28 bytes; the tile starts at row0.
     */
    GPU_MEMBER void start(const spw_bf16 *operand, int stride, int row0, int rows, int terms) {
        keep_here(stride);
        const unsigned thread = (unsigned)gpu_thread(), row_bytes = (unsigned)stride * 2,
                       row = (unsigned)row0;
        base = operand;
        bytes = (unsigned)(INNER ? rows : terms) * row_bytes;
        step = INNER ? ROW_BYTES : TILE_K * row_bytes;
        apart = INNER ? row_of(64, rows) * row_bytes : row_bytes;
        offset = INNER ? (row + row_of(thread / 4, rows)) * row_bytes + thread % 4 * 16
                       : thread % ALONG * LOADS * row_bytes + (row + row_of(thread / ALONG * 8, rows)) * 2;
        const int t = gpu_thread(), k = t % ALONG * LOADS;
        to = INNER ? place(t / 4, t % 4) : place(t / ALONG * 8, k / 8) + k % 8 * 2;
    }
    /* `left`: terms of the sum from this step on; less than TILE_K in the last step, <= 0 behind it. */
    GPU_MEMBER void load(int left) {
        (void)left;
#if defined(__AMDGCN__)
        const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x27000);
        /* Else the next row's numbers: an offset behind any operand, and three times `apart` does not bring it round. */
        const bool inside = !INNER || gpu_thread() % 4 * 8 < left;
        const unsigned from = inside ? offset : 0xf0000000;
#pragma unroll
        for (unsigned i = 0; i < LOADS; i++)
            v[i] = __builtin_amdgcn_raw_buffer_load_b128(buffer, (int)(from + i * apart), 0, 0);
        offset += step;
#endif
    }
    GPU_MEMBER void store(unsigned char *lds) const {
        if (INNER) {
#pragma unroll
            for (int i = 0; i < LOADS; i++) *(words4 *)(lds + to + i * 64 * ROW_BYTES) = v[i];
            return;
        }
#if defined(__AMDGCN__)
#pragma unroll
        for (int j = 0; j < 8; j++) { /* row j of the block: its LOADS numbers along the sum */
            const unsigned pick = j % 2 ? 0x07060302 : 0x05040100;
            unsigned char *row = lds + (to ^ (j * ROW_BYTES | j / 2 * 16));
            const unsigned low = __builtin_amdgcn_perm(v[1][j / 2], v[0][j / 2], pick);
            if (LOADS == 2)
                *(unsigned *)row = low;
            else
                *(words2 *)row =
                    words2{low, __builtin_amdgcn_perm(v[LOADS - 1][j / 2], v[LOADS - 2][j / 2], pick)};
        }
#endif
    }
};

/* Stores 16 COUNT columns. Buffer stores: what lies behind the group's rows is dropped, so is a column that does not exist. */
template <int COUNT>
GPU_DEVICE void store_tile(const gemm_tile &t, int columns, spw_bf16 *c, int m0, int n0,
                           const sums4 (&sum)[DOWN][ACROSS]) {
    keep_here(columns);
    const int row = m0 + gpu_lane() % 16, column = n0 + gpu_lane() / 16 * 4;
    const unsigned row_bytes = (unsigned)columns * 2;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const bool inside = column + j * 16 < columns;
        unsigned offset = (unsigned)row * row_bytes + (unsigned)(column + j * 16) * 2;
#pragma unroll
        for (int i = 0; i < DOWN; i++, offset += 16 * row_bytes) {
            store_rounded(sum[i][j], c, (unsigned)t.height * row_bytes, inside ? offset : ~0u);
        }
    }
}

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

/* Some of a step's products: rows [FROM, TO) of fragments. */
template <int FROM, int TO>
GPU_DEVICE void multiply(const words4 (&a)[DOWN], const words4 (&b)[ACROSS], sums4 (&sum)[DOWN][ACROSS]) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++) sum[i][j] = multiply_add(b[j], a[i], sum[i][j]);
}

/* A wave's part of one step: rows of a and columns of b, read from LDS. */
struct fragments {
    words4 a[DOWN], b[ACROSS];
};

template <int FROM, int TO>
GPU_DEVICE void read_rows(words4 (&to)[DOWN], const unsigned char *lds, int a_at) {
#pragma unroll
    for (int i = FROM; i < TO; i++) to[i] = *(const words4 *)(lds + a_at + i * 16 * ROW_BYTES);
}

GPU_DEVICE void read_columns(words4 (&to)[ACROSS], const unsigned char *lds, int b_at) {
#pragma unroll
    for (int j = 0; j < ACROSS; j++) to[j] = *(const words4 *)(lds + b_at + j * 16 * ROW_BYTES);
}

/* One step, whose fragments are in `f`; those of the next step go from registers to `lds_next` and, once all
 * waves have written, from there to `f`; those of the one after that, from which on the sum has `left` terms,
 * are loaded. The result's rows are b's and its columns a's: a lane then holds four neighbours of a row of c. */
template <bool A_INNER, bool B_INNER, bool PAIRED>
GPU_DEVICE void whole_step(share<A_INNER, 4> &a, share<B_INNER, 2, PAIRED> &b, int left,
                           unsigned char *lds_next, int a_at, int b_at, fragments &f,
                           sums4 (&sum)[DOWN][ACROSS]) {
#if defined(__gfx950__)
    constexpr int EACH = 1; /* matrix instructions a product of 16 x 16 x 32 */
#else
    constexpr int EACH = 2;
#endif
    constexpr int FIRST = 1; /* rows of fragments before the numbers of the next step are waited for */
    constexpr int MIDDLE =
        6; /* and before all waves have written them: the others cover the reads of the next */
    constexpr int A_WRITES = A_INNER ? 4 : 8, B_WRITES = B_INNER ? 2 : 8;
    multiply<0, FIRST>(f.a, f.b, sum);
    fence_schedule();
    b.store(lds_next + A_BYTES), b.load(left);
    a.store(lds_next), a.load(left);
    multiply<FIRST, MIDDLE>(f.a, f.b, sum);
    interleave<B_WRITES, LDS_WRITE, 2, EACH>();
    interleave<2, MEMORY_READ, 1, 0>();
    interleave<A_WRITES, LDS_WRITE, B_INNER ? 2 : 0, EACH>();
    interleave<4, MEMORY_READ, 1, B_INNER ? 1 : 0>();
    gpu_barrier();
    fence_schedule();
    words4 next[ACROSS];
    read_columns(next, lds_next, b_at);
    read_rows<0, MIDDLE>(f.a, lds_next, a_at);
    multiply<MIDDLE, DOWN>(f.a, f.b, sum);
    read_rows<MIDDLE, DOWN>(f.a, lds_next, a_at);
    interleave<ACROSS + MIDDLE, LDS_READ, 0, EACH>();
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) f.b[j] = next[j];
}

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

template <spw_gemm_form FORM, bool B_INNER, bool SWIGLU = false>
GPU_DEVICE void gemm_mfma(const spw_gemm_problem &p) {
    constexpr bool A_INNER = FORM == SPW_GEMM_ROWS;
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
                whole_step(a, b, left - 2 * TILE_K, lds[1], a_at, b_at, f, sum);
                whole_step(a, b, left - 3 * TILE_K, lds[0], a_at, b_at, f, sum);
            }
        }
        if (SWIGLU) activate(sum);
        constexpr int HALF = SWIGLU ? 2 : 1;
        store_tile<ACROSS / HALF>(t, p.columns, o.c, t.m0 + wave_m, t.n0 + wave_n / HALF, sum);
    }
}

MFMA_KERNEL(THREADS) gemm_mfma_rows_inner(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, true>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_rows_outer(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, false>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_weights(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_WEIGHTS, false>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_swiglu_inner(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, true, true>(p); }
MFMA_KERNEL(THREADS) gemm_mfma_swiglu_outer(spw_gemm_problem p) { gemm_mfma<SPW_GEMM_ROWS, false, true>(p); }

#if GPU_HOST
/* Offsets into a group are 32 bits; see share. */
static bool too_large(const spw_gemm_problem &p, unsigned long long b_columns) {
    const unsigned long long most = 0xf0000000 / 2, rows = (unsigned)p.rows, inner = (unsigned)p.inner;
    return rows * inner >= most || rows * (unsigned)p.columns >= most || inner * b_columns >= most;
}

int spw_launch_gemm_mfma(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream) {
    if (too_large(p, (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (form == SPW_GEMM_WEIGHTS)
        gemm_mfma_weights<<<p.blocks, THREADS, 0, stream>>>(p);
    else if (p.inner_contiguous)
        gemm_mfma_rows_inner<<<p.blocks, THREADS, 0, stream>>>(p);
    else
        gemm_mfma_rows_outer<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}

int spw_launch_gemm_swiglu_mfma(spw_gemm_problem p, gpu_stream stream) {
    if (too_large(p, 2ull * (unsigned)p.columns)) return cudaErrorInvalidValue;
    if (p.inner_contiguous)
        gemm_mfma_swiglu_inner<<<p.blocks, THREADS, 0, stream>>>(p);
    else
        gemm_mfma_swiglu_outer<<<p.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
