/* What the grouped GEMMs on AMD's matrix cores (CDNA 2, 3, 4) share, for the .hip files that give them names and launch
 * them. One work-group of four waves a compute unit stays there and walks over the tiles; a wave makes 128 x 64 of a
 * 256 x 128 tile out of 16 x 16 products. Three steps of 32 numbers along the sum are under way: one is multiplied out of
 * registers, the next goes through LDS to the waves that multiply it, and the one after that is loaded from memory. A
 * number is 16 bits: a bf16, an fp16, or two codes of fp8 that are neighbours along the sum.
 *
 * LDS holds both operands with the sum's dimension contiguous: 64 bytes a row, in four pieces of 16 bytes, placed so that
 * neither the reads of 16 rows nor the transposing writes meet in a bank. An operand whose other dimension is contiguous
 * in memory is transposed in registers on its way: pairs of 16-bit numbers by one v_perm each. gfx950 transposes when it reads
 * LDS, where such an operand then lies as in memory (turned_place). */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_MFMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_MFMA_H

#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/mfma.h"

enum { TILE_M = 256, TILE_N = 128, TILE_K = 32, BAND = 8, THREADS = 256, WAVE_M = 128, WAVE_N = 64 };
enum { DOWN = WAVE_M / 16, ACROSS = WAVE_N / 16, ROW_BYTES = TILE_K * 2, A_BYTES = TILE_M * ROW_BYTES };

#if defined(__gfx950__)
static constexpr bool LDS_TURNS = true;
#else
static constexpr bool LDS_TURNS = false;
#endif

/* Where piece `piece` (eight numbers along the sum) of a row lies in LDS. */
GPU_DEVICE int place(int row, int piece) {
    return (row ^ (row >> 3 & 1)) * ROW_BYTES + (piece ^ (row >> 1 & 3)) * 16;
}

/* Where term `term` of an operand of `rows` rows lies in LDS that turns: its rows' numbers side by side. Terms begin 32 bytes further on in
 * the 64 banks than those before them, and every eighth 160: half a wave reads four terms, and four that lie eight behind them, of 16 rows. */
GPU_DEVICE constexpr int turned_place(int term, int rows) { return term * (rows * 2 + 32) + term / 8 * 128; }
/* An operand's room in LDS, in either way. */
GPU_DEVICE constexpr int room_of(int rows) { return turned_place(TILE_K - 1, rows) + rows * 2; }
enum { B_AT = room_of(TILE_M), STEP_ROOM = B_AT + room_of(TILE_N) };

/* One thread's share of one operand of one step: LOADS times 16 bytes on the way from memory to LDS.
 * INNER: the sum's dimension is contiguous; the thread holds one piece of LOADS rows, 64 apart.
 * Otherwise the thread holds a block of LOADS along the sum by eight rows.
 * Loads are buffer loads: what lies behind the operand's end reads as 0, which is how the end of a group is
 * masked. */
template <bool INNER, int LOADS, bool PAIRED = false> struct share {
    static constexpr bool INNER_FIRST = INNER;
    static constexpr bool AIMED = false; /* aim does something */
    static constexpr bool TURNED = !INNER && LDS_TURNS;
    enum { WRITES = INNER || TURNED ? LOADS : 8 };
    enum { ROWS = LOADS * 64, ALONG = TILE_K / LOADS }; /* ALONG: threads along the sum, when not INNER */
    words4 v[LOADS];
    const spw_bf16 *base; /* of the operand, and its size: the same in all threads */
    unsigned bytes;
    unsigned offset, apart,
        step;       /* in bytes: of the first of the next loads, from one to the next, from step to step */
    unsigned begin; /* of the first of the loads under way */
    int to;         /* place in LDS of the first row */

    /* The operand's row, from the tile's first on, that is row `row` of the tile. PAIRED: 16 rows of the operand's first half, the same 16 of its
     * second half, and so on. */
    GPU_MEMBER static unsigned row_of(unsigned row, int rows) {
        return PAIRED ? row / 32 * 16 + row % 16 + (row / 16 % 2 != 0 ? (unsigned)rows / 2 : 0) : row;
    }
    /* An operand of `rows` rows and `terms` terms, smaller than 2^32 - 2^28 bytes; what is contiguous follows by `stride`. The tile starts at
     * row0. */
    GPU_MEMBER void start(const spw_bf16 *operand, int stride, int row0, int rows, int terms) {
        keep_here(stride);
        const unsigned thread = (unsigned)gpu_thread(), row_bytes = (unsigned)stride * 2,
                       row = (unsigned)row0;
        base = operand;
        bytes = INNER ? (unsigned)rows * row_bytes : (unsigned)(terms - 1) * row_bytes + (unsigned)rows * 2;
        step = INNER ? ROW_BYTES : TILE_K * row_bytes;
        apart = INNER ? row_of(64, rows) * row_bytes : row_bytes;
        offset = INNER ? (row + row_of(thread / 4, rows)) * row_bytes + thread % 4 * 16
                       : (unsigned)along() * row_bytes + (row + row_of((unsigned)across(), rows)) * 2;
        to = first_place();
    }
    /* Where the thread's block begins, when not INNER: along the sum, and in the operand's rows. */
    GPU_MEMBER static int along() {
        return (TURNED ? gpu_thread() / (ROWS / 8) : gpu_thread() % ALONG) * LOADS;
    }
    GPU_MEMBER static int across() { return (TURNED ? gpu_thread() % (ROWS / 8) : gpu_thread() / ALONG) * 8; }
    GPU_MEMBER static int first_place() {
        if (INNER) return place(gpu_thread() / 4, gpu_thread() % 4);
        if (TURNED) return turned_place(along(), ROWS) + across() * 2;
        return place(across(), along() / 8) + along() % 8 * 2;
    }
    /* Half 0 or 1 of what can be computed of a load before it; both are called with the load's number. */
    template <int HALF> GPU_MEMBER void aim(int) {}
    /* `left`: terms of the sum from this step on; less than TILE_K in the last step, <= 0 behind it. */
    GPU_MEMBER void load(int left) {
        aim_inside(left);
#pragma unroll
        for (int i = 0; i < LOADS; i++) load_row(i);
    }
    /* What load does, for an operand whose dimension of the sum is contiguous, one row after the other. */
    GPU_MEMBER void aim_inside(int left) {
        /* Else the next row's numbers: an offset behind any operand, and three times `apart` does not bring it round. */
        const bool inside = !INNER || gpu_thread() % 4 * 8 < left;
        begin = inside ? offset : 0xf0000000;
        offset += step;
    }
    GPU_MEMBER void load_row(int i) {
        (void)i;
#if defined(__AMDGCN__)
        const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)base, 0, (int)bytes, 0x27000);
        v[i] = __builtin_amdgcn_raw_buffer_load_b128(buffer, (int)(begin + (unsigned)i * apart), 0, 0);
#endif
    }
    GPU_MEMBER void store_row(unsigned char *lds, int i) const {
        *(words4 *)(lds + to + i * 64 * ROW_BYTES) = v[i];
    }
    GPU_MEMBER void store(unsigned char *lds) const {
        if (INNER) {
#pragma unroll
            for (int i = 0; i < LOADS; i++) store_row(lds, i);
            return;
        }
        if (TURNED) {
#pragma unroll
            for (int i = 0; i < LOADS; i++) *(words4 *)(lds + to + turned_place(i, ROWS)) = v[i];
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

/* Rows of a group's result. */
template <typename NUMBER> struct result_rows {
    NUMBER *array;
    int stride;
};

/* Stores COUNT times four of each lane's columns, sums of products of SIDE x SIDE. Buffer stores: what lies behind the group's rows is
 * dropped, so is a column that does not exist. */
template <int COUNT, spw_gemm_element ELEMENT = SPW_GEMM_BF16, int SIDE = 16>
GPU_DEVICE void store_tile(const gemm_tile &t, int columns, result_rows<spw_bf16> c, int m0, int n0,
                           const sums4 (&sum)[WAVE_M / SIDE][WAVE_N * SIDE / 256]) {
    constexpr int APART = 256 / SIDE;
    keep_here(columns);
    const int row = m0 + gpu_lane() % SIDE, column = n0 + gpu_lane() / SIDE * 4;
    const unsigned row_bytes = (unsigned)c.stride * 2;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const bool inside = column + j * APART < columns;
        unsigned offset = (unsigned)row * row_bytes + (unsigned)(column + j * APART) * 2;
#pragma unroll
        for (int i = 0; i < WAVE_M / SIDE; i++, offset += SIDE * row_bytes) {
            store_rounded<ELEMENT>(sum[i][j], c.array, (unsigned)t.height * row_bytes, inside ? offset : ~0u);
        }
    }
}

/* A wave's part of one step: rows of a and columns of b, read from LDS. */
struct fragments {
    words4 a[DOWN], b[ACROSS];
};

/* Four 16-bit numbers along the sum of each of 16 rows, in a quarter of a wave: lane j of it names four rows, from 4 (j % 4) on, of term
 * j / 4 of the four, and is given row j [as public kernels of gfx950 lay LDS out; not seen on a GPU]. */
GPU_DEVICE words2 read_turned(const unsigned char *lds) {
#if defined(__gfx950__)
    typedef short numbers4 __attribute__((ext_vector_type(4)));
    typedef __attribute__((address_space(3))) numbers4 local;
    return __builtin_bit_cast(words2, __builtin_amdgcn_ds_read_tr16_b64_v4i16((local *)lds));
#else
    (void)lds;
    return words2{};
#endif
}

/* Where a lane's first fragment is, of an operand whose tile has ROWS rows; the wave's begin at `row`. */
template <bool TURNED, int ROWS> GPU_DEVICE int fragments_at(int row) {
    const int lane = gpu_lane();
    return TURNED ? turned_place(lane / 16 * 8 + lane % 16 / 4, ROWS) + (row + lane % 4 * 4) * 2
                  : place(row + lane % 16, lane / 16);
}

/* Fragment i: eight numbers along the sum of a row. */
template <bool TURNED, int ROWS> GPU_DEVICE words4 read_fragment(const unsigned char *lds, int at, int i) {
    if (!TURNED) return *(const words4 *)(lds + at + i * 16 * ROW_BYTES);
    const words2 low = read_turned(lds + at + i * 32),
                 high = read_turned(lds + at + i * 32 + turned_place(4, ROWS));
    return words4{low[0], low[1], high[0], high[1]};
}

template <typename A, int FROM, int TO>
GPU_DEVICE void read_rows(words4 (&to)[DOWN], const unsigned char *lds, int a_at) {
#pragma unroll
    for (int i = FROM; i < TO; i++) to[i] = read_fragment<A::TURNED, TILE_M>(lds, a_at, i);
}

template <typename B> GPU_DEVICE void read_columns(words4 (&to)[ACROSS], const unsigned char *lds, int b_at) {
#pragma unroll
    for (int j = 0; j < ACROSS; j++) to[j] = read_fragment<B::TURNED, TILE_N>(lds, b_at, j);
}

/* PRODUCTS: EACH, the matrix instructions of a product of 16 x 16 by one piece a lane; rows<FROM, TO>(f), the products of
 * those rows of fragments; prepare(v), what becomes of numbers on their way to LDS.
 * The order of what goes to LDS and comes from memory beside products. Where LDS turns all numbers go there before the next are loaded, so
 * that no wave waits for them at the barrier. */
template <typename PRODUCTS, typename A, typename B> GPU_DEVICE void interleave_stores() {
    constexpr int EACH = PRODUCTS::EACH, B_MOVES = B::INNER_FIRST ? 2 : 0;
    if (A::TURNED || B::TURNED) {
        interleave<A::WRITES + B::WRITES, LDS_WRITE, A::AIMED || B::AIMED ? 2 : 0, EACH>();
        interleave<6, MEMORY_READ, 1, EACH>();
    } else {
        interleave<B::WRITES, LDS_WRITE, 2, EACH>();
        interleave<2, MEMORY_READ, 1, 0>();
        interleave<A::WRITES, LDS_WRITE, B_MOVES, EACH>();
        interleave<4, MEMORY_READ, 1, B_MOVES / 2>();
    }
}

/* One step, whose fragments are in `f`; those of the next step go from registers to `lds_next` and, once all
 * waves have written, from there to `f`; those of the one after that, from which on the sum has `left` terms,
 * are loaded. The result's rows are b's and its columns a's: a lane then holds four neighbours of a row of c. */
template <typename PRODUCTS, typename A, typename B>
GPU_DEVICE void whole_step(A &a, B &b, int left, unsigned char *lds_next, int a_at, int b_at, fragments &f,
                           PRODUCTS products) {
    constexpr bool TURNS = A::TURNED || B::TURNED;
    constexpr int EACH = PRODUCTS::EACH;
    constexpr int FIRST = 1; /* rows of fragments before the numbers of the next step are waited for */
    constexpr int MIDDLE =
        TURNS ? 4 : 6; /* and before all waves have written them: the others cover the reads of the next */
    constexpr int READS = DOWN * (A::TURNED ? 2 : 1) + ACROSS * (B::TURNED ? 2 : 1),
                  BEHIND = (DOWN - MIDDLE) * ACROSS * EACH;
    a.template aim<0>(left), b.template aim<0>(left);
    if (!TURNS) a.template aim<1>(left), b.template aim<1>(left);
    products.template rows<0, FIRST>(f);
    if (A::AIMED || B::AIMED) interleave<FIRST * ACROSS * EACH, VECTOR, 0, 1, 3>();
    fence_schedule();
    if (TURNS) a.template aim<1>(left), b.template aim<1>(left);
    PRODUCTS::prepare(b.v), b.store(lds_next + B_AT), b.load(left);
    PRODUCTS::prepare(a.v), a.store(lds_next), a.load(left);
    products.template rows<FIRST, MIDDLE>(f);
    interleave_stores<PRODUCTS, A, B>();
    gpu_barrier();
    fence_schedule();
    words4 next[ACROSS];
    read_columns<B>(next, lds_next, b_at);
    read_rows<A, 0, MIDDLE>(f.a, lds_next, a_at);
    products.template rows<MIDDLE, DOWN>(f);
    read_rows<A, MIDDLE, DOWN>(f.a, lds_next, a_at);
    if (TURNS)
        interleave<BEHIND, LDS_READ, 0, 1, (READS + BEHIND - 1) / BEHIND>();
    else
        interleave<ACROSS + MIDDLE, LDS_READ, 0, EACH>();
    fence_schedule();
#pragma unroll
    for (int j = 0; j < ACROSS; j++) f.b[j] = next[j];
}

/* Offsets into a group are 32 bits, and so are three times 64 rows; see share. b_columns: of b. */
static inline bool gemm_mfma_too_large(const spw_gemm_problem &p, spw_gemm_form form,
                                       unsigned long long b_columns) {
    const unsigned long long most = 0xf0000000 / 2, rows = (unsigned)p.rows, inner = (unsigned)p.inner,
                             a = (unsigned)p.a_row, b = (unsigned)p.b_row, c = (unsigned)p.c_row,
                             b_rows = form == SPW_GEMM_WEIGHTS ? rows
                                      : p.inner_contiguous     ? b_columns
                                                               : inner,
                             c_rows = form == SPW_GEMM_WEIGHTS ? inner : rows, widest = 1u << 19;
    return rows * a >= most || b_rows * b >= most || c_rows * c >= most || a >= widest || b >= widest;
}

#endif
