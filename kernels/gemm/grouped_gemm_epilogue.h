/* What becomes of a warp's sums on Hopper: 16 rows x 64 columns at a time. A thread holds, of eight neighbouring
 * columns, two of row lane / 4 and two of the row eight below: block[4 j + n] is column 8 j + 2 (lane % 4) + n % 2 of row
 * lane / 4 + 8 (n / 2). */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_EPILOGUE_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_EPILOGUE_H

#include "kernels/gemm/grouped_gemm_pingpong.h"
#include "kernels/local/swiglu_math.h"

/* Where a warp's 16 rows are: of the group's matrix, and how many of them are there. */
struct gemm_rows {
    int first, count;
};

/* Sixteen words of two bf16 a thread, in the order of the sums, to rows of `to`, which begins at the block's corner. */
GPU_DEVICE void store_words(const uint32_t (&word)[16], unsigned char *buffer, spw_bf16 *to, long stride,
                            int rows, int columns) {
    const int lane = gpu_lane(), to_row = lane & 15, to_piece = lane >> 4;
    const uint32_t base = shared_address(buffer) + to_row * 128;
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        store_matrices(base + ((j + to_piece) ^ (to_row & 7)) * 16, word[2 * j], word[2 * j + 1],
                       word[2 * j + 2], word[2 * j + 3]);
    __syncwarp();
    const int piece = lane & 7;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = i * 4 + (lane >> 3);
        const uint4 moved = *(const uint4 *)(buffer + r * 128 + ((piece ^ (r & 7)) * 16));
        if (r < rows && piece * 8 < columns) *(uint4 *)(to + r * stride + piece * 8) = moved;
    }
    __syncwarp();
}

GPU_DEVICE void store_sums(const float *block, unsigned char *buffer, spw_bf16 *to, long stride, int rows,
                           int columns) {
    uint32_t word[16];
#pragma unroll
    for (int i = 0; i < 16; i++) word[i] = pack_bf16(block[2 * i], block[2 * i + 1]);
    store_words(word, buffer, to, stride, rows, columns);
}

/* to, in fp32, grows by the block. */
GPU_DEVICE void add_sums(const float *block, float *to, long stride, int rows, int columns) {
    const int row = gpu_lane() / 4, column = gpu_lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float *at = to + row * stride + j * 8 + column;
        if (j * 8 + column >= columns) continue;
        if (row < rows) add_pair(at, block[4 * j], block[4 * j + 1]);
        if (row + 8 < rows) add_pair(at + 8 * stride, block[4 * j + 2], block[4 * j + 3]);
    }
}

/* sum: gate in the first half of a tile's columns, up in the second. */
template <class KIND>
GPU_DEVICE void store_swiglu(const spw_gemm_fused_problem &f, const gemm_tile &t, gemm_rows rows,
                             float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    constexpr int BLOCKS = KIND::COLUMNS / 64;
    const long width = f.p.columns, first = t.first + rows.first;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        float *gate = sum + b * 32;
        const float *up = sum + (BLOCKS + b) * 32;
        const int column = t.n0 + b * 64, columns = (int)width - column;
        if (f.h != nullptr) {
            spw_bf16 *h = f.h + first * 2 * width + column;
            store_sums(gate, buffer, h, 2 * width, rows.count, columns);
            store_sums(up, buffer, h + width, 2 * width, rows.count, columns);
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const swiglu_point point = swiglu_at(0, 0, gate[i], up[i]);
            gate[i] = point.gate * point.sigmoid * point.up;
        }
        store_sums(gate, buffer, f.p.c + first * width + column, width, rows.count, columns);
    }
}

/* One number: `sum` of d act before the weight. act, and the gradients of gate and up. */
struct swiglu_slopes {
    float act, gate, up;
};
GPU_DEVICE swiglu_slopes swiglu_slopes_at(float sum, float weight, float gate, float up) {
    const swiglu_point p = swiglu_at(0, 0, gate, up);
    const float d = sum * weight, through = p.gate * p.sigmoid;
    return {through * p.up, d * p.up * p.sigmoid * (1 + p.gate * p.rest), d * through};
}

/* The gradient of SwiGLU of a warp's 16 rows: c = act * weight, d_h = gradients of gate and up, row_sum = sum over
 * columns of sum * act, which is the gradient of the row's weight. It goes 32 columns at a time. Gate and up of the
 * next 32 are on their way to shared memory meanwhile, and of the first two steps while the products are under way. */
template <class KIND> struct swiglu_gradient {
    enum { STEP = 32, STEPS = KIND::TILE_N / STEP, PART = 16 * STEP * 2 };
    const spw_gemm_fused_problem &f;
    unsigned char *const buffer; /* [2][gate, up][16][STEP] */
    long first;                  /* row of the arrays */
    int n0, rows, there;         /* rows that are there, and those that have an h */
    float weight[2], dot[2];

    GPU_MEMBER swiglu_gradient(const spw_gemm_fused_problem &f, unsigned char *buffer)
        : f(f), buffer(buffer) {}

    GPU_MEMBER static int place(int row, int piece) { return row * 64 + ((piece ^ (row >> 1 & 3)) * 16); }
    GPU_MEMBER unsigned char *of(int step) const { return buffer + (step & 1) * 2 * PART; }

    GPU_MEMBER void fetch(int step) const {
        const long width = f.p.columns;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = i * 8 + gpu_lane() / 4, piece = gpu_lane() % 4,
                      column = n0 + step * STEP + piece * 8;
            const bool good = row < there && column < width;
            const spw_bf16 *from = f.h + (good ? (first + row) * 2 * width + column : 0);
            const uint32_t to = shared_address(of(step)) + place(row, piece);
            copy_piece(to, from, good), copy_piece(to + PART, from + width, good);
        }
        copies_commit();
    }
    GPU_MEMBER void start(const gemm_tile &t, int row0) {
        const int row = gpu_lane() / 4;
        rows = t.height - t.m0 - row0, there = t.terms > 0 ? rows : 0;
        first = (long)t.first + t.m0 + row0, n0 = t.n0;
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const long r = first + row + 8 * below;
            weight[below] = 1, dot[below] = 0;
            if (f.weight != nullptr && row + 8 * below < there)
                weight[below] = f.weight[f.assignment != nullptr ? f.assignment[r] : r];
        }
        fetch(0), fetch(1);
    }
    /* A buffer's 16 rows to rows of `to`, whose row is `stride`. */
    GPU_MEMBER void store(const unsigned char *from, spw_bf16 *to, long stride, int step) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = i * 8 + gpu_lane() / 4, piece = gpu_lane() % 4,
                      column = n0 + step * STEP + piece * 8;
            const uint4 moved = *(const uint4 *)(from + place(row, piece));
            if (row < rows && column < f.p.columns) *(uint4 *)(to + (first + row) * stride + column) = moved;
        }
    }
    GPU_MEMBER void take(int step, const float *sum) {
        unsigned char *gate_at = of(step), *up_at = gate_at + PART;
        uint32_t gate[8], up[8];
        if (step + 1 < STEPS)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int at = place(gpu_lane() / 4 + i % 2 * 8, i / 2) + gpu_lane() % 4 * 4;
            gate[i] = *(const uint32_t *)(gate_at + at), up[i] = *(const uint32_t *)(up_at + at);
        }
        uint32_t act[8];
#pragma unroll
        for (int i = 0; i < 8; i++) { /* two columns of one row */
            const int at = place(gpu_lane() / 4 + i % 2 * 8, i / 2) + gpu_lane() % 4 * 4;
            const float by = weight[i % 2], x = sum[2 * i], y = sum[2 * i + 1];
            const swiglu_slopes low =
                swiglu_slopes_at(x, by, gpu_bits_float(gate[i] << 16), gpu_bits_float(up[i] << 16));
            const swiglu_slopes high = swiglu_slopes_at(y, by, gpu_bits_float(gate[i] & 0xffff0000u),
                                                        gpu_bits_float(up[i] & 0xffff0000u));
            dot[i % 2] += x * low.act + y * high.act;
            *(uint32_t *)(gate_at + at) = pack_bf16(low.gate, high.gate);
            *(uint32_t *)(up_at + at) = pack_bf16(low.up, high.up);
            act[i] = pack_bf16(low.act * by, high.act * by);
        }
        __syncwarp();
        store(gate_at, f.d_h, 2L * f.p.columns, step);
        store(up_at, f.d_h + f.p.columns, 2L * f.p.columns, step);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++)
            *(uint32_t *)(gate_at + place(gpu_lane() / 4 + i % 2 * 8, i / 2) + gpu_lane() % 4 * 4) = act[i];
        __syncwarp();
        store(gate_at, f.p.c, f.p.columns, step);
        __syncwarp();
        if (step + 2 < STEPS) fetch(step + 2);
    }
    GPU_MEMBER void finish() {
        const int row = gpu_lane() / 4;
#pragma unroll
        for (int below = 0; below < 2; below++) {
            dot[below] += gpu_shuffle_float(dot[below], gpu_lane() ^ 1);
            dot[below] += gpu_shuffle_float(dot[below], gpu_lane() ^ 2);
            if (gpu_lane() % 4 == 0 && row + 8 * below < rows)
                f.row_sum[(long)(n0 / SPW_GEMM_ROW_SUM_TILE) * f.p.rows + first + row + 8 * below] =
                    dot[below];
        }
    }
};

/* sum: of the warp's 16 rows, which begin at `row0` of the tile. */
template <class KIND>
GPU_DEVICE void store_tile(const spw_gemm_fused_problem &f, const gemm_tile &t, int row0,
                           float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    const int first = t.m0 + row0;
    const gemm_rows rows = {first, t.height - first};
    const long width = f.p.columns,
               corner = (long)(KIND::FORM == SPW_GEMM_ROWS ? t.first : (long)t.expert * f.p.inner);
    if (rows.count <= 0) return;
    if constexpr (KIND::EPILOGUE == GEMM_SWIGLU) {
        store_swiglu<KIND>(f, t, rows, sum, buffer);
    } else {
#pragma unroll
        for (int b = 0; b < KIND::TILE_N / 64; b++) {
            const int column = t.n0 + b * 64, columns = (int)width - column;
            const long at = (corner + first) * width + column;
            if constexpr (KIND::EPILOGUE == GEMM_ADD)
                add_sums(sum + b * 32, f.main + at, width, rows.count, columns);
            else
                store_sums(sum + b * 32, buffer, f.p.c + at, width, rows.count, columns);
        }
    }
}

#endif
