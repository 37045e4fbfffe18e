/* Which tile of a grouped GEMM a block works on: read off the offsets on the device, without a table and
 * without the host. Tiles are numbered group by group; inside a group in bands of BAND tiles of rows, column
 * by column, so that the blocks running at the same time share rows of a and columns of b in the cache. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_TILES_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_TILES_H

#include "kernels/gemm/grouped_gemm_problem.h"
#include "kernels/gpu/gpu.h"

struct gemm_tile {
    int expert;      /* == experts: the tail of SPW_GEMM_ROWS, which becomes 0 */
    int first, rows; /* of the group */
    int m0, n0;      /* corner of the tile in the group's matrix */
    int height;      /* rows of the group's matrix */
    int terms;       /* length of the sum */
};

/* Walks forward only: index must not decrease from one seek to the next. */
template <spw_gemm_form FORM, int TILE_M, int TILE_N, int BAND> struct gemm_walk {
    int expert, before, first, rows;

    GPU_MEMBER void start(const spw_gemm_problem &p) {
        expert = 0, before = 0, first = p.offset[0], rows = p.offset[1] - first;
    }

    __device__ static int across(const spw_gemm_problem &p) { return (p.columns + TILE_N - 1) / TILE_N; }
    __device__ int down(const spw_gemm_problem &p) const {
        return ((FORM == SPW_GEMM_ROWS ? rows : p.inner) + TILE_M - 1) / TILE_M;
    }
    __device__ int terms(const spw_gemm_problem &p) const {
        return expert == p.experts ? 0 : FORM == SPW_GEMM_ROWS ? p.inner : rows;
    }

    /* To the tile's group. */
    GPU_MEMBER bool reach(const spw_gemm_problem &p, int index) {
        for (int tiles; index - before >= (tiles = down(p) * across(p));) {
            before += tiles;
            if (++expert > p.experts - (FORM == SPW_GEMM_WEIGHTS)) return false;
            first = p.offset[expert];
            rows = (expert < p.experts ? p.offset[expert + 1] : p.rows) - first;
        }
        return true;
    }

    GPU_MEMBER bool seek(const spw_gemm_problem &p, int index, gemm_tile &tile) {
        if (!reach(p, index)) return false;
        const int band_tiles = BAND * across(p), left = down(p);
        const int band = (index - before) / band_tiles, within = (index - before) % band_tiles;
        const int band_height = left - band * BAND < BAND ? left - band * BAND : BAND;
        tile.expert = expert, tile.first = first, tile.rows = rows;
        tile.m0 = (band * BAND + within % band_height) * TILE_M;
        tile.n0 = within / band_height * TILE_N;
        tile.height = FORM == SPW_GEMM_ROWS ? rows : p.inner;
        tile.terms = terms(p);
        return true;
    }
};

/* An upper bound of the number of tiles that the host can know without the offsets. */
static inline long gemm_tiles_limit(const spw_gemm_problem *p, int form, int tile_m, int tile_n) {
    const long across = (p->columns + tile_n - 1) / tile_n;
    if (form == SPW_GEMM_WEIGHTS) return (p->inner + tile_m - 1) / tile_m * across * p->experts;
    return ((long)p->rows / tile_m + p->experts + 1) * across;
}

/* The group's operands as strided matrices: c(m, n) = sum over k of a[m * a_m + k * a_k] * b[k * b_k + n *
 * b_n]. */
struct gemm_operands {
    const spw_bf16 *a, *b;
    spw_bf16 *c; /* c(m, n) at m * c_row + n */
    long a_m, a_k, b_k, b_n;
};

template <spw_gemm_form FORM>
GPU_DEVICE gemm_operands gemm_operands_of(const spw_gemm_problem &p, const gemm_tile &t) {
    const long first = t.first, e = t.expert;
    if (FORM == SPW_GEMM_WEIGHTS) {
        return {p.a + first * p.a_row, p.b + first * p.b_row, p.c + e * p.expert, 1, p.a_row, p.b_row, 1};
    }
    return {p.a + first * p.a_row,
            p.b + e * p.expert,
            p.c + first * p.c_row,
            p.a_row,
            1,
            p.inner_contiguous ? 1 : p.b_row,
            p.inner_contiguous ? p.b_row : 1};
}

#endif
