/* Offsets of groups, and rows between XLA's buffers and those that all ranks can reach: a wave copies a row. */
#include "kernels/gpu/gpu_system.h"
#include "kernels/jax/jax_rows_launch.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE, UNROLL = 4, STEP = GPU_WAVE * UNROLL };

GPU_KERNEL(THREADS) jax_offsets(int experts, int rows, const int *size, int *offset) {
    for (int e = gpu_thread(); e <= experts; e += THREADS) {
        long sum = 0;
        for (int i = 0; i < e; i++) sum += size[i] > 0 ? size[i] : 0;
        offset[e] = (int)(sum < rows ? sum : rows);
    }
}

/* All loads of a turn go out before the first is stored. */
GPU_DEVICE void copy_pieces(const gpu_bytes16 *from, gpu_bytes16 *to, int pieces) {
    for (int at = gpu_lane(); at < pieces; at += STEP) {
        gpu_bytes16 moved[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) moved[u] = from[at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : at];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (at + u * GPU_WAVE < pieces) to[at + u * GPU_WAVE] = moved[u];
    }
}

GPU_KERNEL(THREADS) jax_move(GPU_ARGUMENT spw_jax_move a) {
    const int limit = *a.limit;
    for (long row = gpu_block() * WAVES + gpu_thread() / GPU_WAVE; row < a.rows;
         row += (long)a.blocks * WAVES) {
        if (row >= limit && !a.fills) break;
        for (int i = 0; i < a.columns; i++) {
            const spw_jax_column c = a.column[i];
            const unsigned *from = c.from + row * c.words;
            unsigned *to = c.to + row * c.words;
            if (row >= limit) {
                for (int w = gpu_lane(); w < c.words; w += GPU_WAVE) to[w] = c.fill;
            } else if (c.words % 4 == 0) {
                copy_pieces((const gpu_bytes16 *)from, (gpu_bytes16 *)to, c.words / 4);
            } else {
                for (int w = gpu_lane(); w < c.words; w += GPU_WAVE) to[w] = from[w];
            }
        }
    }
}

#if GPU_HOST
int spw_launch_jax_offsets(int experts, int rows, const int *size, int *offset, gpu_stream stream) {
    jax_offsets<<<1, THREADS, 0, stream>>>(experts, rows, size, offset);
    return (int)cudaGetLastError();
}

int spw_launch_jax_move(const spw_jax_move *move, gpu_stream stream) {
    jax_move<<<(unsigned)move->blocks, THREADS, 0, stream>>>(*move);
    return (int)cudaGetLastError();
}
#endif
