/* What both kernels of fp8 on Hopper share: tiles of 128 x 256, a ring of stages in shared memory that one warp feeds by bulk
 * tensor copies, two warpgroups that multiply 64 x 256 each, and how a warp stores. Two codes count as one number. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_RING_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_RING_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/wgmma.h"

enum {
    TILE_M = 128,
    TILE_N = 256,
    TILE_K = 64,
    BAND = 16,
    STAGES = 4,
    CONSUMERS = 2,
    CHUNK = 64,
    CHUNK_BYTES =
        CHUNK * TILE_K * 2, /* 64 outer elements of one stage: the widest box of the 128-byte swizzle */
    A_BYTES = TILE_M * TILE_K * 2,
    B_BYTES = TILE_N * TILE_K * 2,
    STAGE_BYTES = A_BYTES + B_BYTES,
    WARP_STORE_BYTES = 16 * 128 * 2, /* 16 rows x half of the columns */
    STORE_BYTES = CONSUMERS * 4 * WARP_STORE_BYTES,
    SHARED_BYTES = STAGES * STAGE_BYTES + STORE_BYTES + 2 * STAGES * 8,
    THREADS = (1 + CONSUMERS) * 128
};

/* Barriers by their addresses in shared memory, 8 bytes each. */
struct ring {
    unsigned char *stages;
    uint32_t full, empty;
};

/* One warp's 16 rows x 128 columns, sum[0 ... 63]: to shared memory, then to rows of c in pieces of 256 bytes. */
GPU_DEVICE void store_half(const spw_gemm_problem &p, const gemm_tile &t, spw_bf16 *c, const float *sum,
                           unsigned char *buffer, int row0, int column0) {
    const int lane = gpu_lane();
    const int to_row = lane & 15, to_piece = lane >> 4;
    using element = gemm_element<SPW_GEMM_BF16>;
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
        const float *s = sum + j * 4;
        const uint32_t row = shared_address(buffer) + to_row * 256 + ((j + to_piece) ^ (to_row & 7)) * 16;
        store_matrices(row, element::pack(s[0], s[1]), element::pack(s[2], s[3]), element::pack(s[4], s[5]),
                       element::pack(s[6], s[7]));
    }
    __syncwarp();
    const int column = column0 + (lane & 15) * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = i * 2 + (lane >> 4), m = t.m0 + row0 + r;
        const uint4 piece = *(const uint4 *)(buffer + r * 256 + ((lane & 15) ^ (r & 7)) * 16);
        uint4 *to = (uint4 *)(c + (long)m * p.c_row + column);
        if (m < t.height && column < p.columns) *to = piece;
    }
    __syncwarp();
}

/* The block's shared memory: the stages, buffers to store from, and the barriers of the stages, which are full after
 * `arrivals` and empty after `releases`. */
GPU_DEVICE ring ring_create(int arrivals, int releases) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t barriers = shared_address(shared) + STAGES * STAGE_BYTES + STORE_BYTES;
    const ring ring = {shared, barriers, barriers + STAGES * 8};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(ring.full + i * 8, arrivals), barrier_init(ring.empty + i * 8, releases);
        barrier_init_fence();
    }
    __syncthreads();
    return ring;
}

#endif
