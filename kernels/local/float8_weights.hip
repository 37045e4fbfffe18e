/* Weights to codes with a scale a tile of 128 x 128, and transposed ones. A work-group has one tile, in shared memory as codes, four in a word;
 * blocks of four by four of them are transposed in registers. */
#include "kernels/local/float8_launch.h"
#include "kernels/local/float8_math.h"

enum {
    THREADS = 256,
    WORDS = FLOAT8_BLOCK / 4, /* of a row of codes */
    ROW_WORDS = WORDS + 1,
    SHARES = FLOAT8_BLOCK * WORDS / THREADS
};

/* A tile: which expert's, and where its corner is, in numbers and in tiles. */
struct weights_tile {
    long expert;
    int row, column, down, across;
};

GPU_DEVICE int tiles(int count) { return (count + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK; }

GPU_DEVICE weights_tile tile_of(const spw_float8_weights_gpu &q) {
    const int down = tiles(q.rows), across = tiles(q.columns), within = gpu_block() % (down * across);
    return {gpu_block() / (down * across), within / across * FLOAT8_BLOCK, within % across * FLOAT8_BLOCK,
            down, across};
}

GPU_DEVICE unsigned byte_of(unsigned word, int i) { return word >> 8 * i & 0xff; }

/* From shared memory to the transposed arrays. */
GPU_DEVICE void store_turned(const spw_float8_weights_gpu &q, const weights_tile &t, const unsigned *codes,
                             float scale) {
    unsigned char *to = q.turned_code + t.expert * q.rows * q.columns;
#pragma unroll
    for (int i = 0; i < WORDS * WORDS / THREADS; i++) {
        const int down = gpu_thread() % WORDS, across = gpu_thread() / WORDS + i * (THREADS / WORDS);
        const int row = t.row + down * 4, column = t.column + across * 4;
        unsigned word[4];
#pragma unroll
        for (int r = 0; r < 4; r++) word[r] = codes[(down * 4 + r) * ROW_WORDS + across];
        if (row >= q.rows || column >= q.columns) continue;
#pragma unroll
        for (int c = 0; c < 4; c++)
            *(unsigned *)(to + (long)(column + c) * q.rows + row) =
                byte_of(word[0], c) | byte_of(word[1], c) << 8 | byte_of(word[2], c) << 16 |
                byte_of(word[3], c) << 24;
    }
    if (gpu_thread() == 0)
        q.turned_scale[(t.expert * t.across + t.column / FLOAT8_BLOCK) * t.down + t.row / FLOAT8_BLOCK] =
            scale;
}

GPU_DEVICE float *scale_of(const spw_float8_weights_gpu &q, const weights_tile &t) {
    return q.scale + (t.expert * t.down + t.row / FLOAT8_BLOCK) * t.across + t.column / FLOAT8_BLOCK;
}

GPU_KERNEL(THREADS) float8_turn(spw_float8_weights_gpu q) {
    __shared__ unsigned codes[FLOAT8_BLOCK * ROW_WORDS];
    const weights_tile t = tile_of(q);
    const unsigned char *from = q.code + t.expert * q.rows * q.columns;
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int r = gpu_thread() / WORDS + i * (THREADS / WORDS), c = gpu_thread() % WORDS;
        const bool there = t.row + r < q.rows && t.column + c * 4 < q.columns;
        codes[r * ROW_WORDS + c] =
            there ? *(const unsigned *)(from + (long)(t.row + r) * q.columns + t.column + c * 4) : 0;
    }
    gpu_barrier();
    store_turned(q, t, codes, *scale_of(q, t));
}

/* The largest of a work-group. */
GPU_DEVICE unsigned largest_of(unsigned largest) {
    __shared__ unsigned of_wave[THREADS / GPU_WAVE];
    largest = gpu_wave_max(largest);
    if (gpu_lane() == 0) of_wave[gpu_thread() / GPU_WAVE] = largest;
    gpu_barrier();
    for (int i = 0; i < THREADS / GPU_WAVE; i++) largest = of_wave[i] > largest ? of_wave[i] : largest;
    return largest;
}

GPU_KERNEL(THREADS) float8_weights(spw_float8_weights_gpu q, const spw_bf16 *w) {
    __shared__ unsigned codes[FLOAT8_BLOCK * ROW_WORDS];
    const weights_tile t = tile_of(q);
    const long corner = t.expert * q.rows * q.columns;
    unsigned first[SHARES], second[SHARES], largest = 0;
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int row = t.row + gpu_thread() / WORDS + i * (THREADS / WORDS);
        const int column = t.column + gpu_thread() % WORDS * 4;
        const unsigned *from = (const unsigned *)(w + corner + (long)row * q.columns + column);
        const bool there = row < q.rows && column < q.columns;
        first[i] = there ? from[0] : 0, second[i] = there ? from[1] : 0;
        largest = float8_largest(first[i], float8_largest(second[i], largest));
    }
    const float scale = float8_scale(largest_of(largest));
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int r = gpu_thread() / WORDS + i * (THREADS / WORDS), c = gpu_thread() % WORDS;
        const unsigned four = float8_codes(first[i], second[i], scale);
        codes[r * ROW_WORDS + c] = four;
        if (q.code != nullptr && t.row + r < q.rows && t.column + c * 4 < q.columns)
            *(unsigned *)(q.code + corner + (long)(t.row + r) * q.columns + t.column + c * 4) = four;
    }
    if (q.code != nullptr && gpu_thread() == 0) *scale_of(q, t) = scale;
    if (q.turned_code == nullptr) return;
    gpu_barrier();
    store_turned(q, t, codes, scale);
}

#if GPU_HOST
static unsigned tiles_of(spw_float8_weights_gpu q) {
    return (unsigned)((q.rows + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK *
                      ((q.columns + FLOAT8_BLOCK - 1) / FLOAT8_BLOCK) * q.experts);
}

int spw_launch_float8_weights(spw_float8_weights_gpu q, const spw_bf16 *w, gpu_stream stream) {
    if (tiles_of(q) > 0) float8_weights<<<tiles_of(q), THREADS, 0, stream>>>(q, w);
    return (int)cudaGetLastError();
}

int spw_launch_float8_turn(spw_float8_weights_gpu q, gpu_stream stream) {
    if (tiles_of(q) > 0) float8_turn<<<tiles_of(q), THREADS, 0, stream>>>(q);
    return (int)cudaGetLastError();
}
#endif
