/* What becomes of a warp's sums on Hopper: 16 rows x 64 columns at a time, a block of grouped_gemm_place.h. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_EPILOGUE_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_EPILOGUE_H

#include "kernels/gemm/grouped_gemm_curve.h"
#include "kernels/gemm/grouped_gemm_place.h"
#include "kernels/gemm/grouped_gemm_wgmma.h"

/* Where a warp's 16 rows are: of the group's matrix, and how many of them are there. */
struct gemm_rows {
    int first, count;
};

/* 16 rows of 128 bytes, whose pieces of 16 are at piece ^ row % 8, to rows of `to`; past the cache if STREAMS. */
template <bool STREAMS = false>
GPU_DEVICE void store_buffer(const unsigned char *buffer, spw_bf16 *to, long stride, int rows, int columns) {
    const int lane = gpu_lane(), piece = lane & 7;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = i * 4 + (lane >> 3);
        const uint4 moved = *(const uint4 *)(buffer + r * 128 + ((piece ^ (r & 7)) * 16));
        uint4 *at = (uint4 *)(to + r * stride + piece * 8);
        if (r < rows && piece * 8 < columns) STREAMS ? __stcs(at, moved) : (void)(*at = moved);
    }
    __syncwarp();
}

/* To rows of `to`, which begins at the block's corner. */
template <class KIND>
GPU_DEVICE void store_sums(const float *block, unsigned char *buffer, spw_bf16 *to, long stride, int rows,
                           int columns) {
    place_sums<typename KIND::element>(block, buffer);
    store_buffer<KIND::EPILOGUE == GEMM_STREAM>(buffer, to, stride, rows, columns);
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
            spw_bf16 *h = f.h + first * f.h_row + column;
            store_sums<KIND>(gate, buffer, h, f.h_row, rows.count, columns);
            store_sums<KIND>(up, buffer, h + width, f.h_row, rows.count, columns);
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const swiglu_point point = swiglu_at(0, 0, gate[i], up[i]);
            gate[i] = point.gate * point.sigmoid * point.up;
        }
        store_sums<KIND>(gate, buffer, f.p.c + first * f.p.c_row + column, f.p.c_row, rows.count, columns);
    }
}

/* The same of other activations, and with a bias. Columns of h go block by block: of gate, of up, of both in turn, or of the one matrix. */
template <class KIND>
GPU_DEVICE void store_activated(const spw_gemm_fused_problem &f, const gemm_tile &t, gemm_rows rows,
                                float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    constexpr bool RELU2 = KIND::BETWEEN == SPW_GEMM_RELU2, PAIRS = KIND::BETWEEN == SPW_GEMM_PAIRS;
    constexpr int BLOCKS = KIND::TILE_N / 64, ACTS = KIND::COLUMNS / 64; /* of 64 columns of h, of act */
    const long width = f.p.columns, first = t.first + rows.first, wide = RELU2 ? width : 2 * width;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const bool up = KIND::HALVES && b >= ACTS;
        const int column = (PAIRS ? 2 : 1) * t.n0 + (up ? b - ACTS : b) * 64;
        const int columns = (int)(PAIRS ? wide : width) - column;
        if (f.curve.bias != nullptr && t.terms > 0)
            add_bias<KIND>(sum + b * 32, f.curve.bias + t.expert * wide + (up ? width : 0) + column, columns);
        if (f.h != nullptr)
            store_sums<KIND>(sum + b * 32, buffer, f.h + first * f.h_row + (up ? width : 0) + column, f.h_row,
                             rows.count, columns);
    }
#pragma unroll
    for (int b = 0; b < ACTS; b++) {
        const int column = t.n0 + b * 64;
        spw_bf16 *act = f.p.c + first * f.p.c_row + column;
        float *from = sum + (PAIRS ? 2 * b : b) * 32;
        if constexpr (PAIRS) {
            activate_pairs<KIND>(f.curve, from, buffer);
            store_buffer(buffer, act, f.p.c_row, rows.count, (int)width - column);
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++)
                from[i] =
                    RELU2 ? relu_squared(from[i]) : curve_act(f.curve, from[i], from[KIND::TILE_N / 4 + i]);
            store_sums<KIND>(from, buffer, act, f.p.c_row, rows.count, (int)width - column);
        }
    }
}

/* The gradient of SwiGLU, or of another activation, of a warp's 16 rows: c = act * weight, d_h = gradients of gate and up, row_sum = sum over
 * columns of sum * act, which is the gradient of the row's weight. It goes 32 columns at a time. Gate and up of the
 * next 32 are on their way to shared memory meanwhile, and of the first two steps while the products are under way. */
template <class KIND> struct swiglu_gradient {
    using element = typename KIND::element;
    enum {
        STEP = 32,
        STEPS = KIND::TILE_N / STEP,
        PART = 16 * STEP * 2,
        SUMMED = SPW_GEMM_ROW_SUM_TILE / STEP
    };
    static constexpr bool RELU2 = KIND::BETWEEN == SPW_GEMM_RELU2, PAIRS = KIND::BETWEEN == SPW_GEMM_PAIRS;
    static constexpr int PARTS =
        RELU2 ? 1 : 2; /* gate and up, or the first and the second 32 of 64 columns in turn */
    const spw_gemm_fused_problem &f;
    unsigned char *const buffer; /* [2][gate, up][16][STEP] */
    long first;                  /* row of the arrays */
    int n0, rows, there;         /* rows that are there, and those that have an h */
    float weight[2], dot[2];

    GPU_MEMBER swiglu_gradient(const spw_gemm_fused_problem &f, unsigned char *buffer)
        : f(f), buffer(buffer) {}

    GPU_MEMBER static int place(int row, int piece) { return row * 64 + ((piece ^ (row >> 1 & 3)) * 16); }
    GPU_MEMBER unsigned char *of(int step) const { return buffer + (step & 1) * 2 * PART; }

    /* Of h and d_h: where a thread's piece of a part of a step is in a row, and whether it is there. */
    GPU_MEMBER int column_of(int step, int part) const {
        return (PAIRS ? 2 : 1) * (n0 + step * STEP) + (PAIRS ? part * 32 : 0) + gpu_lane() % 4 * 8;
    }
    GPU_MEMBER bool has(int column) const { return column < (PAIRS ? 2 : 1) * f.p.columns; }
    GPU_MEMBER int beside(int part) const { return PAIRS ? 0 : part * f.p.columns; }

    GPU_MEMBER void fetch(int step) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = i * 8 + gpu_lane() / 4;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int column = column_of(step, part);
                const bool good = row < there && has(column);
                const spw_bf16 *from = f.h + (good ? (first + row) * f.h_row + beside(part) + column : 0);
                copy_piece(shared_address(of(step)) + part * PART + place(row, gpu_lane() % 4), from, good);
            }
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
    /* A buffer's 16 rows to rows of `to`, whose row is `stride`, from `column` on where that is there. */
    GPU_MEMBER void store(const unsigned char *from, spw_bf16 *to, long stride, int column, bool good) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = i * 8 + gpu_lane() / 4;
            const uint4 moved = *(const uint4 *)(from + place(row, gpu_lane() % 4));
            if (row < rows && good) *(uint4 *)(to + (first + row) * stride + column) = moved;
        }
    }
    /* Where a thread's two columns of row lane / 4 + 8 (i % 2) are in a part; of columns in turn their four. */
    GPU_MEMBER static int at(int i) {
        const int row = gpu_lane() / 4 + i % 2 * 8, column = i / 2, q = gpu_lane() % 4;
        if (PAIRS) return column / 2 * PART + place(row, column % 2 * 2 + q / 2) + q % 2 * 8;
        return place(row, column) + q * 4;
    }
    /* Two of gate in a word, and two of up. */
    GPU_MEMBER static uint2 load_words(const unsigned char *buffer, int i) {
        if constexpr (PAIRS) {
            const uint2 w = *(const uint2 *)(buffer + at(i));
            return make_uint2((w.x & 0xffffu) | w.y << 16, w.x >> 16 | (w.y & 0xffff0000u));
        } else {
            return make_uint2(*(const uint32_t *)(buffer + at(i)),
                              RELU2 ? 0 : *(const uint32_t *)(buffer + PART + at(i)));
        }
    }
    GPU_MEMBER static void save_words(unsigned char *buffer, int i, uint32_t gate, uint32_t up) {
        if constexpr (PAIRS) {
            *(uint2 *)(buffer + at(i)) =
                make_uint2((gate & 0xffffu) | up << 16, gate >> 16 | (up & 0xffff0000u));
        } else {
            *(uint32_t *)(buffer + at(i)) = gate;
            if (!RELU2) *(uint32_t *)(buffer + PART + at(i)) = up;
        }
    }
    GPU_MEMBER void take(int step, const float *sum) {
        unsigned char *data = of(step);
        uint2 h[8];
        copies_wait<1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) h[i] = load_words(data, i);
        uint32_t act[8];
#pragma unroll
        for (int i = 0; i < 8; i++) { /* two columns of one row */
            const float by = weight[i % 2], x = sum[2 * i], y = sum[2 * i + 1];
            const curve_slopes low =
                curve_slopes_at<KIND::BETWEEN>(f.curve, x, by, element::low(h[i].x), element::low(h[i].y));
            const curve_slopes high =
                curve_slopes_at<KIND::BETWEEN>(f.curve, y, by, element::high(h[i].x), element::high(h[i].y));
            dot[i % 2] += x * low.act + y * high.act;
            save_words(data, i, element::pack(low.gate, high.gate), element::pack(low.up, high.up));
            act[i] = element::pack(low.act * by, high.act * by);
        }
        __syncwarp();
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            store(data + part * PART, f.d_h + beside(part), f.d_h_row, column_of(step, part),
                  has(column_of(step, part)));
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++)
            *(uint32_t *)(data + place(gpu_lane() / 4 + i % 2 * 8, i / 2) + gpu_lane() % 4 * 4) = act[i];
        __syncwarp();
        const int column = n0 + step * STEP + gpu_lane() % 4 * 8;
        store(data, f.p.c, f.p.c_row, column, column < f.p.columns);
        __syncwarp();
        if (step + 2 < STEPS)
            fetch(step + 2);
        else
            copies_commit(); /* of nothing: the wait counts */
    }
    /* Of SUMMED steps. */
    GPU_MEMBER void finish(int step) {
        const int row = gpu_lane() / 4, column = n0 + step * STEP;
#pragma unroll
        for (int below = 0; below < 2; below++) {
            dot[below] += gpu_shuffle_float(dot[below], gpu_lane() ^ 1);
            dot[below] += gpu_shuffle_float(dot[below], gpu_lane() ^ 2);
            if (gpu_lane() % 4 == 0 && row + 8 * below < rows && column < f.p.columns)
                f.row_sum[(long)(column / SPW_GEMM_ROW_SUM_TILE) * f.p.rows + first + row + 8 * below] =
                    dot[below];
            dot[below] = 0;
        }
    }
};

/* sum: of the warp's 16 rows, which begin at `row0` of the tile. */
template <class KIND>
GPU_DEVICE void store_tile(const spw_gemm_fused_problem &f, const gemm_tile &t, int row0,
                           float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    const int first = t.m0 + row0;
    const gemm_rows rows = {first, t.height - first};
    const long width = f.p.columns, stride = f.p.c_row,
               corner = KIND::FORM == SPW_GEMM_ROWS ? t.first * stride : t.expert * f.p.expert;
    if (rows.count <= 0) return;
    if constexpr (KIND::EPILOGUE == GEMM_SWIGLU && KIND::BETWEEN == SPW_GEMM_SILU) {
        store_swiglu<KIND>(f, t, rows, sum, buffer);
    } else if constexpr (KIND::EPILOGUE == GEMM_SWIGLU) {
        store_activated<KIND>(f, t, rows, sum, buffer);
    } else {
#pragma unroll
        for (int b = 0; b < KIND::TILE_N / 64; b++) {
            const int column = t.n0 + b * 64, columns = (int)width - column;
            store_sums<KIND>(sum + b * 32, buffer, f.p.c + corner + first * stride + column, stride,
                             rows.count, columns);
        }
    }
}

/* The same by the copy engine, on its way when this returns; or what main grows by. */
template <class KIND>
GPU_DEVICE void send_tile(const CUtensorMap *map, const gemm_tile &t, int row0,
                          const float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    constexpr bool ROWS = KIND::FORM == SPW_GEMM_ROWS, ADDS = KIND::EPILOGUE == GEMM_ADD;
    constexpr int COLUMNS = ADDS ? 32 : 64;
    const bool sender = gpu_lane() == 0;
    if (ADDS && t.terms == 0) return;
#pragma unroll
    for (int b = 0; b < KIND::TILE_N / COLUMNS; b++) {
        const float *block = sum + b * COLUMNS / 2;
        const int column = t.n0 + b * COLUMNS;
        unsigned char *box = buffer + b % KIND::WARP_BOXES * 16 * 128;
        if (b % KIND::WARP_BOXES == 0) {
            if (sender) stores_read();
            __syncwarp();
        }
        if constexpr (ADDS)
            place_floats(block, box);
        else
            place_sums<typename KIND::element>(block, box);
        fence_async_proxy();
        __syncwarp();
        if (!sender) continue;
        if (ROWS)
            tensor_store_ragged(map, box, column, t.first + t.height, t.height - t.m0 - row0);
        else
            (ADDS ? tensor_add : tensor_store)(map, box, column, t.m0 + row0, t.expert);
        stores_commit();
    }
}

/* 64 columns of a warp's 16 rows to a buffer of columns, 128 bytes each of 64 rows. */
template <class KIND> GPU_DEVICE void place_columns(const float *block, int warp, unsigned char *buffer) {
    const int lane = gpu_lane(), to_column = lane >> 4 << 3 | (lane & 7),
              to_piece = warp * 2 + (lane >> 3 & 1);
    const uint32_t base = shared_address(buffer) + to_column * 128 + (to_piece ^ (to_column & 7)) * 16;
    using element = typename KIND::element;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const float *s = block + j * 4;
        store_matrices_by_columns(base + j * 8 * 128, element::pack(s[0], s[1]), element::pack(s[2], s[3]),
                                  element::pack(s[4], s[5]), element::pack(s[6], s[7]));
    }
}

/* A consumer's 64 rows by columns, which are rows of c, or of main that grows by them: its four warps fill one buffer. */
template <class KIND>
GPU_DEVICE void send_columns(const CUtensorMap *map, const gemm_tile &t, int group,
                             const float (&sum)[KIND::TILE_N / 2], unsigned char *buffer) {
    constexpr bool ADDS = KIND::EPILOGUE == GEMM_ADD;
    constexpr int COLUMNS = ADDS ? 32 : 64;
    const int barrier = 2 + group; /* 1 is of both consumers */
    const int warp = gpu_thread() / 32 % 4, row = t.m0 + group * 64;
    const bool sender = gpu_thread() % 128 == 0;
    if (ADDS && t.terms == 0) return;
#pragma unroll
    for (int b = 0; b < KIND::TILE_N / COLUMNS; b++) {
        const float *block = sum + b * COLUMNS / 2;
        const int column = t.n0 + b * COLUMNS;
        if (sender) stores_read();
        named_barrier(barrier, 128);
        if constexpr (ADDS)
            place_float_columns(block, warp, buffer);
        else
            place_columns<KIND>(block, warp, buffer);
        fence_async_proxy();
        named_barrier(barrier, 128);
        if (!sender) continue;
        if (ADDS) {
            tensor_add(map, buffer, row, column, t.expert);
            tensor_add(map, buffer + 32 * 128, row + 32, column, t.expert);
        } else {
            tensor_store(map, buffer, row, column, t.expert);
        }
        stores_commit();
    }
}

#endif
