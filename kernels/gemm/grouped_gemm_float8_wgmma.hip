/* Grouped GEMM of fp8 on Hopper's tensor cores, by the ring of grouped_gemm_float8_ring.h. Two codes count as one number, so that a stage
 * of 64 numbers is a block of 128 codes, which has one scale a row of a and one a tile of b. A second warp copies these scales beside the
 * stage. The tensor cores sum a block; a warpgroup then adds it, scaled, to its sum in fp32, half of the columns at a time, while the
 * other warpgroup multiplies. All that stands between two products of a warpgroup delays them, so it is done while a product runs.
 * Both warpgroups run the same instructions, of which the cache holds the loop, and the copy engine stores. */
#include "kernels/gemm/grouped_gemm_float8_ring.h"
#include "kernels/gpu/tensor_map.h"

enum {
    SCALES = TILE_M + 2,  /* of a stage: rows, then halves of the columns */
    BOX_BYTES = 16 * 128, /* of a warp: 16 rows x 64 columns */
    WARP_BOXES = STORE_BYTES / (CONSUMERS * 4 * BOX_BYTES),
    SCALES_AT = SHARED_BYTES,
    FLOAT8_SHARED_BYTES = SCALES_AT + STAGES * SCALES * 4,
    FULL_ARRIVALS = 1 + 32 /* of the producer, and of every lane of the scales' warp */
};
static_assert(2 * TILE_K == (int)SPW_GEMM_FLOAT8_BLOCK && (int)HALF == (int)SPW_GEMM_FLOAT8_BLOCK,
              "a stage has one scale a row and two for its columns");
static_assert(FLOAT8_SHARED_BYTES <= 227 * 1024, "a block's shared memory");

GPU_DEVICE void produce_codes(const spw_gemm_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                              ring ring) {
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 1; /* of a ring that nobody has filled yet: the first round does not wait */
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        for (int k = 0; k < t.terms; k += TILE_K) {
            const uint32_t a = shared_address(ring.stages) + stage * STAGE_BYTES;
            barrier_wait(ring.empty + stage * 8, parity);
            barrier_expect(ring.full + stage * 8, STAGE_BYTES);
            tensor_load(map_a, a, ring.full + stage * 8, k, t.first + t.m0);
            tensor_load(map_b, a + A_BYTES, ring.full + stage * 8, k, t.n0, t.expert);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* Rows and columns that are not stored take the scales of their neighbours. */
GPU_DEVICE void produce_scales(const spw_gemm_float8_problem &problem, ring ring) {
    const spw_gemm_problem &p = problem.pairs;
    const int lane = gpu_lane();
    const unsigned blocks = (unsigned)problem.blocks;
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 1;
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        unsigned row[TILE_M / 32];
#pragma unroll
        for (int i = 0; i < TILE_M / 32; i++) {
            const int m = t.m0 + i * 32 + lane;
            row[i] = (unsigned)(t.first + (m < t.height ? m : t.height - 1)) * blocks;
        }
        const int tile = t.n0 / HALF + (lane & 1);
        const unsigned half =
            (unsigned)(t.expert * problem.across + (tile < problem.across ? tile : problem.across - 1)) *
            blocks;
        const unsigned count = t.terms == 0 ? 0 : blocks;
        for (unsigned block = 0; block < count; block++) {
            float *to = (float *)(ring.stages + SCALES_AT) + stage * SCALES;
            barrier_wait(ring.empty + stage * 8, parity);
#pragma unroll
            for (int i = 0; i < TILE_M / 32; i++)
                copy_number(to + i * 32 + lane, problem.a_scale + row[i] + block);
            if (lane < 2) copy_number(to + TILE_M + lane, problem.b_scale + half + block);
            barrier_arrive_with_copies(ring.full + stage * 8);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* sum += part * scales: of four numbers, two belong to each of a thread's rows. */
GPU_DEVICE void add_scaled(float *sum, const float (&part)[64], float row0, float row1) {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        sum[i] += part[i] * row0, sum[i + 1] += part[i + 1] * row0;
        sum[i + 2] += part[i + 2] * row1, sum[i + 3] += part[i + 3] * row1;
    }
}

/* A warp's 16 rows from `row0` of the tile on, on their way when this returns. */
GPU_DEVICE void send_rows(const CUtensorMap *map, const gemm_tile &t, int row0, const float (&sum)[128],
                          unsigned char *buffer) {
    const bool sender = gpu_lane() == 0;
#pragma unroll
    for (int box = 0; box < TILE_N / CHUNK; box++) {
        unsigned char *from = buffer + box % WARP_BOXES * BOX_BYTES;
        if (box % WARP_BOXES == 0) {
            if (sender) stores_read();
            __syncwarp();
        }
        place_sums<gemm_element<SPW_GEMM_BF16>>(sum + box * 32, from);
        fence_async_proxy();
        __syncwarp();
        if (!sender) continue;
        tensor_store_ragged(map, from, t.n0 + box * CHUNK, t.first + t.height, t.height - t.m0 - row0);
        stores_commit();
    }
}

/* What a thread sums up, and where it is in the ring. */
struct consumer {
    const int group, row0; /* the warpgroup; the warp's first row in a tile */
    ring_stage<SCALES * 4> at;
    const uint32_t row_scale, half_scale; /* of the first stage */
    float sum[128], part[64];

    GPU_MEMBER consumer(const ring &ring, int group, int row0)
        : group(group), row0(row0), at(ring), row_scale(at.base + SCALES_AT + (row0 + gpu_lane() / 4) * 4),
          half_scale(at.base + SCALES_AT + TILE_M * 4) {}
    /* The sums of a tile. */
    GPU_MEMBER void sum_up(int blocks) {
#pragma unroll
        for (int i = 0; i < 128; i++) sum[i] = 0;
        if (blocks == 0) return;
        barrier_wait(at.full, at.parity);
        for (int block = 0; block < blocks; block++) {
            const uint32_t a = at.a(group), b = at.b(), empty = at.empty();
            multiply_half(part, a, b);
            const float row[2] = {shared_number(row_scale + at.scales),
                                  shared_number(row_scale + at.scales + 8 * 4)};
            const float half[2] = {shared_number(half_scale + at.scales),
                                   shared_number(half_scale + at.scales + 4)};
            wgmma_wait<0>();
            add_scaled(sum, part, row[0] * half[0], row[1] * half[0]);
            multiply_half(part, a, b + NEXT_HALF);
            at.step();
            if (block + 1 < blocks) barrier_wait(at.full, at.parity);
            wgmma_wait<0>();
            if (gpu_thread() % 128 == 0) barrier_arrive(empty);
            add_scaled(sum + 64, part, row[0] * half[1], row[1] * half[1]);
        }
    }
};

GPU_DEVICE void consume_float8(const spw_gemm_float8_problem &problem, ring ring, const CUtensorMap *map_c) {
    const spw_gemm_problem &p = problem.pairs;
    const int group = gpu_uniform(gpu_thread() / 128 - 1), warp = gpu_thread() / 32 - 4;
    unsigned char *buffer = ring.stages + STAGES * STAGE_BYTES + warp * WARP_BOXES * BOX_BYTES;
    consumer c(ring, group, group * 64 + warp % 4 * 16);
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        c.sum_up(gpu_uniform(t.terms == 0 ? 0 : problem.blocks));
        send_rows(map_c, t, c.row0, c.sum, buffer);
    }
    if (gpu_lane() == 0) stores_read();
}

GPU_DEVICE int blocks_for_rows(const spw_gemm_problem &p) {
    int tiles = 0;
    for (int e = gpu_lane(); e <= p.experts; e += 32)
        tiles += ((e < p.experts ? p.offset[e + 1] : p.rows) - p.offset[e] + TILE_M - 1) / TILE_M;
    tiles = __reduce_add_sync(~0u, tiles) * ((p.columns + TILE_N - 1) / TILE_N);
    return blocks_needed(tiles, p.blocks);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_float8_wgmma(const __grid_constant__ spw_gemm_float8_problem all,
                      const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                      const __grid_constant__ CUtensorMap map_c) {
    spw_gemm_float8_problem problem = all;
    problem.pairs.blocks = blocks_for_rows(all.pairs);
    if (gpu_block() >= problem.pairs.blocks) return;
    const ring ring = ring_create(FULL_ARRIVALS, CONSUMERS);
    if (threadIdx.x < 128) {
        registers_lower<40>();
        if (threadIdx.x == 0) produce_codes(problem.pairs, &map_a, &map_b, ring);
        if (threadIdx.x / 32 == 1) produce_scales(problem, ring);
    } else {
        registers_raise<232>();
        consume_float8(problem, ring, &map_c);
    }
}

int spw_launch_gemm_float8_wgmma(spw_gemm_float8_problem problem, gpu_stream stream) {
    const spw_gemm_problem &p = problem.pairs;
    CUtensorMap a, b, c;
    int error = spw_tensor_map_2d(&a, {p.a, p.inner, p.a_row}, p.rows, TILE_K, TILE_M);
    if (error == 0)
        error =
            spw_tensor_map_3d(&b, {p.b, p.inner, p.b_row}, p.columns, {p.experts, p.expert}, TILE_K, TILE_N);
    if (error == 0) error = spw_tensor_map_ragged(&c, {p.c, p.columns, p.c_row}, CHUNK, 16);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)gemm_float8_wgmma,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, FLOAT8_SHARED_BYTES);
    if (error != 0) return error;
    gemm_float8_wgmma<<<p.blocks, THREADS, FLOAT8_SHARED_BYTES, stream>>>(problem, a, b, c);
    return (int)cudaGetLastError();
}
