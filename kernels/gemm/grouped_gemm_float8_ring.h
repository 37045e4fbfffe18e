/* What both kernels of fp8 on Hopper share: tiles of 128 x 256, a ring of stages in shared memory that one warp feeds by bulk
 * tensor copies, and two warpgroups that multiply 64 x 256 each, half of the columns at a time. Two codes count as one number. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_RING_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_FLOAT8_RING_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_place.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/wgmma.h"

enum {
    TILE_M = 128,
    TILE_N = 256,
    HALF = TILE_N / 2,
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
    STORE_BYTES = 32 * 1024, /* to store from; what is left of it a kernel takes for scales */
    SHARED_BYTES = STAGES * STAGE_BYTES + STORE_BYTES + 2 * STAGES * 8,
    THREADS = (1 + CONSUMERS) * 128
};

/* Barriers by their addresses in shared memory, 8 bytes each. */
struct ring {
    unsigned char *stages;
    uint32_t full, empty;
};

/* As few blocks as take no more rounds over the tiles than all do: the power that the others would take makes these faster. */
static __host__ __device__ inline int blocks_needed(long tiles, int blocks) {
    const long rounds = (tiles + blocks - 1) / blocks;
    return rounds < 2 ? blocks : (int)((tiles + rounds - 1) / rounds);
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

/* A consumer's next stage: operands at `operands` times 16, its scales SCALES_BYTES a stage further than the first one's. All but `index` are
 * counted on, uniform for the compiler: what is worked out anew, or in a register of each thread, delays the products. Both kernels keep it in a
 * struct with the sums: so the compiler has the next stage ready before the products of this one end, else it is 1 to 2 % slower. */
template <int SCALES_BYTES> struct ring_stage {
    uint32_t base, operands, full, scales, parity;
    int index;

    GPU_MEMBER explicit ring_stage(const ring &r) : base(shared_address(r.stages)), parity(0) { begin(); }
    GPU_MEMBER void begin() {
        index = 0, operands = base >> 4, full = base + STAGES * STAGE_BYTES + STORE_BYTES, scales = 0;
    }
    GPU_MEMBER void step() {
        operands += STAGE_BYTES >> 4, full += 8, scales += SCALES_BYTES;
        if (++index == STAGES) begin(), parity ^= 1;
    }
    GPU_MEMBER uint32_t empty() const { return full + STAGES * 8; }
    GPU_MEMBER uint32_t a(int group) const { return operands + group * (CHUNK_BYTES >> 4); }
    GPU_MEMBER uint32_t b() const { return operands + (A_BYTES >> 4); }
};

enum { NEXT_HALF = B_BYTES / 2 >> 4 }; /* of b */

/* Half of the columns of a stage; does not wait. */
GPU_DEVICE void multiply_half(float (&part)[64], uint32_t a, uint32_t b) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SPW_GEMM_FLOAT8_BLOCK / 32; i++)
        wgmma_64x128x32_float8(part, a + i * 2, b + i * 2, i != 0);
    wgmma_commit();
}

#endif
