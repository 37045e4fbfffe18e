/* What the kernels that fetch and add rows have in common. */
#ifndef SPW_KERNELS_EXCHANGE_EXCHANGE_REDUCE_H
#define SPW_KERNELS_EXCHANGE_EXCHANGE_REDUCE_H

#include "kernels/exchange/exchange_peer.h"

/* The item that the row is of. */
GPU_DEVICE int exchange_source_of(const spw_reduce_gpu &a, exchange_copy copy, long item) {
    const int *source = a.source[copy.rank];
    return source == nullptr ? (int)item : source[copy.row];
}

GPU_DEVICE int exchange_reduce_bytes(const spw_reduce_gpu &a) {
    return 2 * a.width + 4 * a.side + (a.source[0] == nullptr ? 0 : 4);
}

GPU_DEVICE void exchange_store(spw_bf16 *y, long piece, const float sum[8]) {
    gpu_bf16x8 out;
#pragma unroll
    for (int i = 0; i < 8; i++) out.v[i] = gpu_to_bf16(sum[i]);
    ((gpu_bf16x8 *)y)[piece] = out;
}

/* side_sum of one item; a lane adds one number. */
GPU_DEVICE void exchange_reduce_side(const spw_reduce_gpu &a, const spw_peers &p, const exchange_block *b,
                                     long item) {
    for (int k = gpu_lane(); k < a.side; k += GPU_WAVE) {
        float sum = 0;
        for (int f = 0; f < a.copies; f++) {
            const exchange_copy copy = exchange_copy_of(a, p, b, item, f);
            if (copy.row < 0) continue;
            const float *side =
                (const float *)(a.window[copy.rank] + (long)a.capacity[copy.rank] * a.width * 2);
            sum += side[(long)copy.row * a.side + k];
        }
        a.side_sum[item * a.side + k] = sum;
    }
}

#endif
