/* The Hopper kernel of grouped GEMM, for the .hip files that give it a name and launch it. One block a
 * multiprocessor stays there and walks over the tiles. One warp of it feeds a ring of shared-memory stages by bulk
 * tensor copies; two warpgroups of consumers multiply 64 x 256 each.
 *
 * SPW_GEMM_ROWS: one tensor map spans all rows; a tile may run over its group's end and is masked when stored.
 * SPW_GEMM_WEIGHTS: the sum runs over rows; behind the group's end the last stage holds a neighbour's rows. Whole
 * slices of 16 of them are left out, the others set to 0 in shared memory before they are multiplied (a mask by 0
 * * x would let a neighbour's inf through), by a warp of its own, so that the consumers do not wait for one another.
 * SWIGLU: b holds gate and up side by side, 2 columns of b for one of c; a tile takes 128 columns of each, so that a
 * thread holds both numbers of an element, and only their activation is stored.
 */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_WGMMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_WGMMA_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/wgmma.h"
#include "kernels/local/swiglu_math.h"

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
    SHARED_BYTES = STAGES * STAGE_BYTES + STORE_BYTES + 3 * STAGES * 8,
    THREADS = (1 + CONSUMERS) * 128
};

struct ring {
    unsigned char *stages;
    uint64_t *full, *empty, *clean; /* clean: full, and what lies behind a group's end is 0 */
};

template <spw_gemm_form FORM, bool B_OUTER, bool SWIGLU>
GPU_DEVICE void produce(const spw_gemm_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                        ring ring) {
    gemm_walk<FORM, TILE_M, SWIGLU ? TILE_N / 2 : TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 1; /* of a ring that nobody has filled yet: the first round does not wait */
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        for (int k = 0; k < t.terms; k += TILE_K) {
            barrier_wait(ring.empty + stage, parity);
            uint64_t *full = ring.full + stage;
            unsigned char *a = ring.stages + stage * STAGE_BYTES, *b = a + A_BYTES;
            barrier_expect(full, STAGE_BYTES);
            if (FORM == SPW_GEMM_WEIGHTS) {
                for (int i = 0; i < TILE_M / CHUNK; i++)
                    tensor_load(map_a, a + i * CHUNK_BYTES, full, t.m0 + i * CHUNK, t.first + k);
                for (int i = 0; i < TILE_N / CHUNK; i++)
                    tensor_load(map_b, b + i * CHUNK_BYTES, full, t.n0 + i * CHUNK, t.first + k);
            } else {
                tensor_load(map_a, a, full, k, t.first + t.m0);
                /* With SWIGLU the second half of the tile comes from the columns of up. */
                const int up = SWIGLU ? p.columns - TILE_N / 2 : 0;
                if (B_OUTER) {
#pragma unroll
                    for (int i = 0; i < TILE_N / CHUNK; i++)
                        tensor_load(map_b, b + i * CHUNK_BYTES, full,
                                    t.n0 + i * CHUNK + (i < TILE_N / CHUNK / 2 ? 0 : up), k, t.expert);
                } else if (SWIGLU) {
                    tensor_load(map_b, b, full, k, t.n0, t.expert);
                    tensor_load(map_b, b + B_BYTES / 2, full, k, p.columns + t.n0, t.expert);
                } else {
                    tensor_load(map_b, b, full, k, t.n0, t.expert);
                }
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* One warp: rows of the next group that products would read become 0. It gives every stage back, as consumers do. */
GPU_DEVICE void clean(const spw_gemm_problem &p, ring ring) {
    gemm_walk<SPW_GEMM_WEIGHTS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 0;
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        for (int k = 0; k < t.terms; k += TILE_K) {
            barrier_wait(ring.full + stage, parity);
            if (t.terms - k < TILE_K)
                clear_behind<STAGE_BYTES / CHUNK_BYTES>(ring.stages + stage * STAGE_BYTES, t.terms - k);
            if (gpu_lane() == 0) barrier_arrive(ring.clean + stage), barrier_arrive(ring.empty + stage);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* One warp's 16 rows x 128 columns, sum[0 ... 63]: to shared memory, then to rows of c in pieces of 256 bytes. STREAMS: the cache
 * need not keep them. */
template <spw_gemm_element ELEMENT = SPW_GEMM_BF16, bool STREAMS = false>
GPU_DEVICE void store_half(const spw_gemm_problem &p, const gemm_tile &t, spw_bf16 *c, const float *sum,
                           unsigned char *buffer, int row0, int column0) {
    const int lane = gpu_lane();
    const int to_row = lane & 15, to_piece = lane >> 4;
    using element = gemm_element<ELEMENT>;
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
        uint4 *to = (uint4 *)(c + (long)m * p.columns + column);
        if (m < t.height && column < p.columns) STREAMS ? __stcs(to, piece) : (void)(*to = piece);
    }
    __syncwarp();
}

template <spw_gemm_form FORM, bool B_OUTER, bool SWIGLU, bool STREAMS, spw_gemm_element ELEMENT>
GPU_DEVICE void consume(const spw_gemm_problem &p, ring ring, unsigned char *store_buffers) {
    constexpr bool A_OUTER = FORM == SPW_GEMM_WEIGHTS;
    /* Bytes from one step of 16 along the sum to the next. */
    constexpr int A_STEP = A_OUTER ? 16 * 128 : 32, B_STEP = B_OUTER ? 16 * 128 : 32;
    const int group = gpu_thread() / 128 - 1, warp = gpu_thread() / 32 - 4;
    gemm_walk<FORM, TILE_M, SWIGLU ? TILE_N / 2 : TILE_N, BAND> walk;
    gemm_tile next;
    walk.start(p);
    int stage = 0, index = gpu_block();
    uint32_t parity = 0;
    float sum[128];
    for (bool there = walk.seek(p, index, next); there;) {
        const gemm_tile t = next;
        if (t.terms == 0) {
#pragma unroll
            for (int i = 0; i < 128; i++) sum[i] = 0;
        }
        uint64_t *release = nullptr; /* the stage whose products are still under way */
        const int whole = FORM == SPW_GEMM_WEIGHTS ? t.terms / TILE_K * TILE_K : t.terms;
        for (int k = 0; k < whole; k += TILE_K) {
            const uint32_t data = shared_address(ring.stages + stage * STAGE_BYTES);
            barrier_wait(ring.full + stage, parity);
            const uint64_t a = operand_descriptor(data + group * CHUNK_BYTES, 0, 1024);
            const uint64_t b = operand_descriptor(data + A_BYTES, CHUNK_BYTES, 1024);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < TILE_K / 16; i++)
                wgmma_64x256x16<ELEMENT, A_OUTER, B_OUTER>(sum, a + i * (A_STEP >> 4), b + i * (B_STEP >> 4),
                                                           k + i != 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (release != nullptr && (gpu_thread() & 127) == 0) barrier_arrive(release);
            release = ring.empty + stage;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        if (FORM == SPW_GEMM_WEIGHTS && whole < t.terms) {
            const uint32_t data = shared_address(ring.stages + stage * STAGE_BYTES);
            const uint64_t a = operand_descriptor(data + group * CHUNK_BYTES, 0, 1024);
            const uint64_t b = operand_descriptor(data + A_BYTES, CHUNK_BYTES, 1024);
            barrier_wait(ring.clean + stage, parity);
            wgmma_slices<ELEMENT, A_OUTER, B_OUTER>(sum, a, b, (t.terms - whole + 15) / 16, whole != 0);
            wgmma_wait<1>();
            if (release != nullptr && (gpu_thread() & 127) == 0) barrier_arrive(release);
            release = ring.empty + stage;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        /* Reads the groups' offsets from memory, which takes as long as several products: the last ones are under way. */
        index += p.blocks, there = walk.seek(p, index, next);
        wgmma_wait<0>();
        if (release != nullptr && (gpu_thread() & 127) == 0) barrier_arrive(release);
        spw_bf16 *c = gemm_operands_of<FORM>(p, t).c;
        unsigned char *buffer = store_buffers + warp * WARP_STORE_BYTES;
        const int row0 = group * 64 + (warp & 3) * 16;
        if (SWIGLU) {
#pragma unroll
            for (int i = 0; i < 64; i++) {
                const swiglu_point point = swiglu_at(0, 0, sum[i], sum[64 + i]);
                sum[i] = point.gate * point.sigmoid * point.up;
            }
            store_half<ELEMENT>(p, t, c, sum, buffer, row0, t.n0);
        } else {
            store_half<ELEMENT, STREAMS>(p, t, c, sum, buffer, row0, t.n0);
            store_half<ELEMENT, STREAMS>(p, t, c, sum + 64, buffer, row0, t.n0 + 128);
        }
    }
}

/* The block's shared memory: the stages, buffers to store from, and the barriers of the stages, which are full after
 * `arrivals` and empty after `releases`. */
GPU_DEVICE ring ring_create(int arrivals, int releases) {
    extern __shared__ __align__(1024) unsigned char shared[];
    uint64_t *barriers = (uint64_t *)(shared + STAGES * STAGE_BYTES + STORE_BYTES);
    const ring ring = {shared, barriers, barriers + STAGES, barriers + 2 * STAGES};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full + i, arrivals), barrier_init(ring.empty + i, releases);
            barrier_init(ring.clean + i, 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    return ring;
}

template <spw_gemm_form FORM, bool B_OUTER, bool SWIGLU, bool STREAMS = false,
          spw_gemm_element ELEMENT = SPW_GEMM_BF16>
GPU_DEVICE void gemm_wgmma(const spw_gemm_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b) {
    constexpr bool CLEANS = FORM == SPW_GEMM_WEIGHTS;
    const ring ring = ring_create(1, CONSUMERS + CLEANS);
    if (threadIdx.x < 128) {
        registers_lower<40>();
        if (threadIdx.x == 0) produce<FORM, B_OUTER, SWIGLU>(p, map_a, map_b, ring);
        if (CLEANS && threadIdx.x / 32 == 1) clean(p, ring);
    } else {
        registers_raise<232>();
        consume<FORM, B_OUTER, SWIGLU, STREAMS, ELEMENT>(p, ring, ring.stages + STAGES * STAGE_BYTES);
    }
}

#endif
