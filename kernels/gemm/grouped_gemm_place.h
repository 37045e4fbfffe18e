/* A warp's sums in shared memory, from where they are stored: 16 rows of 128 bytes, whose pieces of 16 are at piece ^ row % 8, as the copy
 * engine reads them. A thread holds, of eight neighbouring columns, two of row lane / 4 and two of the row eight below:
 * block[4 j + n] is column 8 j + 2 (lane % 4) + n % 2 of row lane / 4 + 8 (n / 2). */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_PLACE_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_PLACE_H

#include "kernels/gemm/wgmma.h"

/* 64 columns as sixteen words of two numbers a thread, in the order of the sums. */
GPU_DEVICE void place_words(const uint32_t (&word)[16], unsigned char *buffer) {
    const int lane = gpu_lane(), to_row = lane & 15, to_piece = lane >> 4;
    const uint32_t base = shared_address(buffer) + to_row * 128;
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        store_matrices(base + ((j + to_piece) ^ (to_row & 7)) * 16, word[2 * j], word[2 * j + 1],
                       word[2 * j + 2], word[2 * j + 3]);
}
/* 64 columns, rounded. ELEMENT: a gemm_element. */
template <class ELEMENT> GPU_DEVICE void place_sums(const float *block, unsigned char *buffer) {
    uint32_t word[16];
#pragma unroll
    for (int i = 0; i < 16; i++) word[i] = ELEMENT::pack(block[2 * i], block[2 * i + 1]);
    place_words(word, buffer);
}
/* 32 columns as they are. */
GPU_DEVICE void place_floats(const float *block, unsigned char *buffer) {
    const int row = gpu_lane() / 4, pair = gpu_lane() % 4;
    const uint32_t base = shared_address(buffer) + row * 128 + pair % 2 * 8;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            store_pair(base + half * 8 * 128 + ((j * 2 + pair / 2) ^ row) * 16, block[4 * j + 2 * half],
                       block[4 * j + 2 * half + 1]);
}

/* 32 columns of a warp's 16 rows, of four warps one below the other, to two buffers of columns, 128 bytes each of 32 rows. */
GPU_DEVICE void place_float_columns(const float *block, int warp, unsigned char *buffers) {
    const int row = warp % 2 * 16 + gpu_lane() / 4, pair = gpu_lane() % 4 * 2;
    const uint32_t base = shared_address(buffers) + warp / 2 * 32 * 128 + row % 4 * 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int in_block = pair + n % 2, piece = row / 4 + n / 2 * 2;
            store_number(base + (j * 8 + in_block) * 128 + (piece ^ in_block) * 16, block[4 * j + n]);
        }
}

#endif
