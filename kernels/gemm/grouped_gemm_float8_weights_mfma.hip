/* The gradient of weights in fp8 on AMD's matrix cores: grouped_gemm_float8_mfma.h, where a block is 128 rows of one expert, with a scale
 * for each row and each column of a tile. */
#include "kernels/gemm/grouped_gemm_float8_mfma.h"

/* The scales of a lane's rows of c, and of its quads of columns. */
struct column_scales {
    struct factors {
        float row[DOWN8];
        sums4 column[QUADS];
        GPU_MEMBER sums4 operator()(int i, int j) const { return column[j] * row[i]; }
    };
    typedef factors loaded;
    const float *a, *b;
    int row_at, column_at; /* a lane's first row and column, in bytes, and of a block's scales */
    int a_bytes, b_bytes;
    int inner, columns;

    /* Rows and columns that are not there are not stored, whatever their scales. */
    GPU_MEMBER void start(const spw_gemm_float8_weights_problem &problem, long first, int m0, int n0) {
        inner = problem.p.inner, columns = problem.p.columns;
        a = problem.a_scale + (first - 1) * inner, b = problem.b_scale + (first - 1) * columns;
        row_at = (m0 + lane_row()) * 4, column_at = (n0 + lane_column()) * 4;
    }
    GPU_MEMBER void next(int left) {
        a_bytes = -left >> 31 & inner * 4, b_bytes = -left >> 31 & columns * 4;
        a += inner, b += columns;
#if defined(__gfx942__)
        asm("" : "+v"(row_at), "+v"(column_at)); /* else the place of each load takes a register */
#endif
    }
    template <int SLOT> GPU_MEMBER void load(factors &to) const {
        load_row<SLOT>(to);
        if constexpr (SLOT + SLOTS < DOWN8) load_row<SLOT + SLOTS>(to);
        load_column<SLOT>(to);
    }
    template <int SLOT> GPU_MEMBER void load_late(factors &to) const {
        if constexpr (SLOT + SLOTS < QUADS) load_column<SLOT + SLOTS>(to);
    }
    template <int I> GPU_MEMBER void load_row(factors &to) const {
        to.row[I] = load_scales<float>(a, row_at + I * SIDE * 4, a_bytes);
    }
    template <int Q> GPU_MEMBER void load_column(factors &to) const {
        to.column[Q] = load_scales<sums4>(b, column_at + Q * QUAD_COLUMNS * 4, b_bytes);
    }
    GPU_MEMBER factors finished(const loaded &from) const {
        factors to = from;
        if (FLOAT8_MISSING != 1)
#pragma unroll
            for (int i = 0; i < DOWN8; i++) to.row[i] *= FLOAT8_MISSING;
        return to;
    }
};

/* c, in fp32, grows by the tile. */
GPU_DEVICE void add_tile(const gemm_tile &t, int columns, result_rows<float> c, int m0, int n0,
                         const tile_sums &sum) {
    const int row = m0 + lane_row(), column = n0 + lane_column();
#pragma unroll
    for (int i = 0; i < DOWN8; i++) {
        if (row + i * SIDE >= t.height) continue;
        float *to = c.array + (long)(row + i * SIDE) * c.stride + column;
#pragma unroll
        for (int j = 0; j < QUADS; j++)
            if (column + j * QUAD_COLUMNS < columns) *(sums4 *)(to + j * QUAD_COLUMNS) += sum[i][j];
    }
}

template <bool ADDS> GPU_DEVICE void gemm_float8_weights(const spw_gemm_float8_weights_problem &argument) {
    const spw_gemm_problem &p = argument.p;
    alignas(16) __shared__ unsigned char lds[2][STEP_BYTES];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<SPW_GEMM_WEIGHTS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(to_walk(p), index, t); index += read_again(argument).p.blocks) {
        tile_sums total = {};
        if (t.terms > 0) {
            const spw_gemm_float8_weights_problem problem = read_again(argument);
            const long first = t.first / SPW_GEMM_FLOAT8_BLOCK + t.expert;
            const int stride = problem.blocks * 2 * TILE_K,
                      blocks = (t.terms + SPW_GEMM_FLOAT8_BLOCK - 1) / SPW_GEMM_FLOAT8_BLOCK;
            const float8_sides sides = {problem.p.a + first * 2 * TILE_K,
                                        problem.p.b + first * 2 * TILE_K,
                                        stride,
                                        stride,
                                        problem.p.columns,
                                        blocks * 2 * TILE_K};
            float8_state<column_scales> s(wave_m, wave_n, lds);
            s.scales.start(problem, first, t.m0 + wave_m, t.n0 + wave_n);
            sum_blocks(sides, t, s, total);
        }
        const spw_gemm_float8_weights_problem problem = read_again(argument);
        t.height = problem.p.inner;
        const long corner = t.expert * problem.p.expert;
        if (!ADDS)
            store_tile<QUADS, SPW_GEMM_BF16, SIDE>(t, problem.p.columns,
                                                   {problem.p.c + corner, problem.p.c_row}, t.m0 + wave_m,
                                                   t.n0 + wave_n, total);
        else if (t.terms > 0)
            add_tile(t, problem.p.columns, {problem.main + corner, problem.p.c_row}, t.m0 + wave_m,
                     t.n0 + wave_n, total);
    }
}

ONE_WAVE_KERNEL gemm_float8_weights_mfma(spw_gemm_float8_weights_problem problem) {
    gemm_float8_weights<false>(problem);
}
ONE_WAVE_KERNEL gemm_float8_weights_added_mfma(spw_gemm_float8_weights_problem problem) {
    gemm_float8_weights<true>(problem);
}

#if GPU_HOST
/* Offsets into an operand are 32 bits: see share. */
static bool too_large(const spw_gemm_float8_weights_problem &w) {
    const unsigned long long most = 0xf0000000, inner = (unsigned)w.p.inner, columns = (unsigned)w.p.columns;
    const unsigned long long bytes = (unsigned long long)w.blocks * SPW_GEMM_FLOAT8_BLOCK;
    return inner * bytes >= most || columns * bytes >= most || inner * (unsigned)w.p.c_row >= most / 2;
}

int spw_launch_gemm_float8_weights_mfma(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    if (too_large(w)) return cudaErrorInvalidValue;
    if (w.adds)
        gemm_float8_weights_added_mfma<<<w.p.blocks, THREADS, 0, stream>>>(w);
    else
        gemm_float8_weights_mfma<<<w.p.blocks, THREADS, 0, stream>>>(w);
    return (int)cudaGetLastError();
}
#endif
