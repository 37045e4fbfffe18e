/* Grouped GEMM of fp8 on AMD's matrix cores: grouped_gemm_float8_mfma.h, with a scale for a row and one for all columns of a tile. */
#include "kernels/gemm/grouped_gemm_float8_mfma.h"

/* The scales of a lane's rows of a, and that of the tile's columns of b. */
struct tile_scales {
    struct factors {
        float row[DOWN8];
        GPU_MEMBER float operator()(int i, int) const { return row[i]; }
    };
    struct loaded {
        float row[DOWN8], column;
    };
    const float *a, *b;
    int at[DOWN8], block = -4, bytes; /* in bytes: a lane's rows, and the next block */

    GPU_MEMBER void start(const spw_gemm_float8_problem &problem, const gemm_tile &t, int wave_m) {
        const int blocks = problem.blocks;
        a = problem.a_scale + (long)t.first * blocks;
        b = problem.b_scale + ((long)t.expert * problem.across + t.n0 / SPW_GEMM_FLOAT8_BLOCK) * blocks;
#pragma unroll
        for (int i = 0; i < DOWN8; i++) { /* a row behind the group's last is not stored */
            const int row = t.m0 + wave_m + i * SIDE + lane_row();
            at[i] = (row < t.height ? row : t.height - 1) * blocks * 4;
        }
    }
    GPU_MEMBER void next(int left) { bytes = gpu_first(-left >> 31), block += 4; }
    template <int SLOT> GPU_MEMBER void load(loaded &to) const {
#pragma unroll
        for (int i = SLOT; i < DOWN8; i += SLOTS) to.row[i] = load_scales<float>(a, at[i], bytes, block);
        if (SLOT == 0) to.column = load_scales<float>(b, 0, bytes, block);
    }
    template <int SLOT> GPU_MEMBER void load_late(factors &) const {}
    GPU_MEMBER factors finished(const loaded &from) const {
        factors to;
#pragma unroll
        for (int i = 0; i < DOWN8; i++) to.row[i] = from.row[i] * (from.column * FLOAT8_MISSING);
        return to;
    }
};

ONE_WAVE_KERNEL gemm_float8_mfma(spw_gemm_float8_problem problem) {
    const spw_gemm_problem &p = problem.pairs;
    alignas(16) __shared__ unsigned char lds[2][STEP_BYTES];
    const int wave = gpu_thread() / 64, wave_m = wave % 2 * WAVE_M, wave_n = wave / 2 * WAVE_N;
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(to_walk(p), index, t);
         index += read_again(problem).pairs.blocks) {
        tile_sums total = {};
        if (t.terms > 0) {
            const spw_gemm_float8_problem again = read_again(problem);
            const gemm_operands o = gemm_operands_of<SPW_GEMM_ROWS>(again.pairs, t);
            const float8_sides sides = {o.a, o.b, (int)o.a_m, (int)o.b_n, again.pairs.columns, t.terms};
            float8_state<tile_scales> s(wave_m, wave_n, lds);
            s.scales.start(again, t, wave_m);
            sum_blocks(sides, t, s, total);
        }
        const spw_gemm_problem again = read_again(problem).pairs;
        store_tile<QUADS, SPW_GEMM_BF16, SIDE>(t, again.columns,
                                               {gemm_operands_of<SPW_GEMM_ROWS>(again, t).c, again.c_row},
                                               t.m0 + wave_m, t.n0 + wave_n, total);
    }
}

#if GPU_HOST
int spw_launch_gemm_float8_mfma(spw_gemm_float8_problem p, gpu_stream stream) {
    if (gemm_mfma_too_large(p.pairs, SPW_GEMM_ROWS, (unsigned)p.pairs.columns)) return cudaErrorInvalidValue;
    gemm_float8_mfma<<<p.pairs.blocks, THREADS, 0, stream>>>(p);
    return (int)cudaGetLastError();
}
#endif
