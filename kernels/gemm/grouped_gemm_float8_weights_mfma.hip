/* The gradient of weights in fp8 on AMD's matrix cores: grouped_gemm_float8_mfma.h, where a block is 128 rows of one expert, with a scale
 * for each row and each column of a tile. */
#include "kernels/gemm/grouped_gemm_float8_mfma.h"

/* A lane's products of 16 x 16 have one row of c and four neighbouring columns. */
struct column_scales {
    struct factors {
        float row[DOWN];
        sums4 column[ACROSS];
        GPU_MEMBER sums4 operator()(int i, int j) const { return column[j] * row[i]; }
    };
    static constexpr float8_plan PLAN = {6, 6, 5, 5, 6};
    typedef factors loaded;
    const float *a, *b;
    int row_at[DOWN], column_at[ACROSS]; /* in bytes */
    unsigned inner, columns;

    /* Rows and columns that are not there, and not stored, take the scales of the last ones. */
    GPU_MEMBER void start(const spw_gemm_float8_weights_problem &problem, const gemm_tile &t, long first,
                          int m0, int n0) {
        inner = (unsigned)problem.p.inner, columns = (unsigned)problem.p.columns;
        a = problem.a_scale + first * inner, b = problem.b_scale + first * columns;
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            const int row = m0 + i * 16 + gpu_lane() % 16;
            row_at[i] = (row < t.height ? row : t.height - 1) * 4;
        }
#pragma unroll
        for (int j = 0; j < ACROSS; j++) {
            const int column = n0 + j * 16 + gpu_lane() / 16 * 4;
            column_at[j] = (column < problem.p.columns ? column : problem.p.columns - 4) * 4;
        }
    }
    GPU_MEMBER void next(loaded &to, int left) {
        const int bytes = gpu_first(left > 0 ? -1 : 0);
#pragma unroll
        for (int i = 0; i < DOWN; i++) to.row[i] = load_scales<float>(a, row_at[i], bytes);
#pragma unroll
        for (int j = 0; j < ACROSS; j++) to.column[j] = load_scales<sums4>(b, column_at[j], bytes);
        a += inner, b += columns;
    }
    GPU_MEMBER factors finished(const loaded &from) const {
        factors to = from;
        if (FLOAT8_MISSING != 1)
#pragma unroll
            for (int i = 0; i < DOWN; i++) to.row[i] *= FLOAT8_MISSING;
        return to;
    }
};

/* c, in fp32, grows by the tile. */
GPU_DEVICE void add_tile(const gemm_tile &t, int columns, result_rows<float> c, int m0, int n0,
                         const sums4 (&sum)[DOWN][ACROSS]) {
    const int row = m0 + gpu_lane() % 16, column = n0 + gpu_lane() / 16 * 4;
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
        if (row + i * 16 >= t.height) continue;
        float *to = c.array + (long)(row + i * 16) * c.stride + column;
#pragma unroll
        for (int j = 0; j < ACROSS; j++)
            if (column + j * 16 < columns) *(sums4 *)(to + j * 16) += sum[i][j];
    }
}

template <bool ADDS> GPU_DEVICE void gemm_float8_weights(const spw_gemm_float8_weights_problem &argument) {
    const spw_gemm_problem &p = argument.p;
    alignas(16) __shared__ unsigned char lds[2][STEP_BYTES];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    const int a_at = place(wave_m + gpu_lane() % 16, gpu_lane() / 16);
    const int b_at = place(wave_n + gpu_lane() % 16, gpu_lane() / 16) + A_BYTES;
    gemm_walk<SPW_GEMM_WEIGHTS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(to_walk(p), index, t); index += read_again(argument).p.blocks) {
        sums4 total[DOWN][ACROSS] = {};
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
            column_scales scales;
            scales.start(problem, t, first, t.m0 + wave_m, t.n0 + wave_n);
            sum_blocks(sides, t, scales, a_at, b_at, lds, total);
        }
        const spw_gemm_float8_weights_problem problem = read_again(argument);
        t.height = problem.p.inner;
        const long corner = t.expert * problem.p.expert;
        if (!ADDS)
            store_tile<ACROSS>(t, problem.p.columns, {problem.p.c + corner, problem.p.c_row}, t.m0 + wave_m,
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
