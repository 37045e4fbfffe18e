/* Biases and columns in turn in epilogues on Hopper. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_CURVE_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_CURVE_H

#include "kernels/gemm/grouped_gemm_slopes.h"
#include "kernels/gemm/grouped_gemm_wgmma.h"

/* bias: of a block's 64 columns. */
template <class KIND> GPU_DEVICE void add_bias(float *block, const spw_bf16 *bias, int columns) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int column = j * 8 + gpu_lane() % 4 * 2;
        if (column >= columns) continue;
        const uint32_t two = __ldg((const uint32_t *)(bias + column));
        const float low = KIND::element::low(two), high = KIND::element::high(two);
        block[4 * j] += low, block[4 * j + 2] += low;
        block[4 * j + 1] += high, block[4 * j + 3] += high;
    }
}

/* Two blocks of gate and up in turn to 64 columns of act in the buffer, as store_buffer takes them. A thread has one column of
 * every four. */
template <class KIND>
GPU_DEVICE void activate_pairs(const spw_gemm_curve &c, const float *sum, unsigned char *buffer) {
    const int row = gpu_lane() / 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int column = i * 4 + gpu_lane() % 4;
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const int r = row + 8 * below, piece = (column / 8) ^ (r & 7);
            const float act = curve_act(c, sum[4 * i + 2 * below], sum[4 * i + 2 * below + 1]);
            *(uint16_t *)(buffer + r * 128 + piece * 16 + column % 8 * 2) =
                (uint16_t)KIND::element::pack(act, 0);
        }
    }
}

#endif
