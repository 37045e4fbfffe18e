/* Grouped GEMM of fp8 on Hopper's tensor cores. The ring and the way to store: grouped_gemm_float8_ring.h. Two
 * codes count as one number, so that a stage of 64 numbers is a block of 128 codes, which has one
 * scale a row of a and one a tile of b. A second warp copies these scales beside the stage. The tensor cores sum a block; a
 * warpgroup then adds it, scaled, to its sum in fp32, half of the columns at a time, while the other warpgroup multiplies. All
 * that stands between two products of a warpgroup delays them, so it is done while a product runs, and addresses are numbers that
 * are counted on. */
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_float8_ring.h"
#include "kernels/gemm/tensor_map.h"

enum {
    HALF = TILE_N / 2,
    SCALES = TILE_M + 2, /* of a stage: rows, then halves of the columns */
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

/* Where a thread finds a stage: addresses in shared memory, that of the operands divided by 16. */
struct stage_at {
    uint32_t operands, full, row_scale, half_scale;

    __device__ void step() {
        operands += STAGE_BYTES >> 4, full += 8, row_scale += SCALES * 4, half_scale += SCALES * 4;
    }
};

/* Half of the columns of a block; does not wait. */
GPU_DEVICE void multiply_half(float (&part)[64], uint32_t a, uint32_t b) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SPW_GEMM_FLOAT8_BLOCK / 32; i++)
        wgmma_64x128x32_float8(part, a + i * 2, b + i * 2, i != 0);
    wgmma_commit();
}

/* sum += part * scales: of four numbers, two belong to each of a thread's rows. */
GPU_DEVICE void add_scaled(float *sum, const float (&part)[64], float row0, float row1) {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        sum[i] += part[i] * row0, sum[i + 1] += part[i + 1] * row0;
        sum[i + 2] += part[i + 2] * row1, sum[i + 3] += part[i + 3] * row1;
    }
}

template <int GROUP> GPU_DEVICE void consume_float8(const spw_gemm_float8_problem &problem, ring ring) {
    const spw_gemm_problem &p = problem.pairs;
    const int warp = gpu_thread() / 32 - 4, row0 = GROUP * 64 + (warp & 3) * 16;
    uint32_t base = shared_address(ring.stages);
    asm("" : "+r"(base)); /* else it is worked out anew in the loop */
    const stage_at start = {base >> 4, base + STAGES * STAGE_BYTES + STORE_BYTES,
                            base + SCALES_AT + (row0 + gpu_lane() / 4) * 4, base + SCALES_AT + TILE_M * 4};
    stage_at at = start;
    gemm_walk<SPW_GEMM_ROWS, TILE_M, TILE_N, BAND> walk;
    gemm_tile t;
    walk.start(p);
    uint32_t parity = 0;
    float sum[128], part[64];
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
#pragma unroll
        for (int i = 0; i < 128; i++) sum[i] = 0;
        const int count = t.terms == 0 ? 0 : problem.blocks;
        if (count != 0) barrier_wait(at.full, parity);
        for (int block = 0; block < count; block++) {
            const uint32_t a = at.operands + (GROUP * CHUNK_BYTES >> 4), b = at.operands + (A_BYTES >> 4);
            multiply_half(part, a, b);
            const float row[2] = {shared_number(at.row_scale), shared_number(at.row_scale + 8 * 4)};
            const float half[2] = {shared_number(at.half_scale), shared_number(at.half_scale + 4)};
            wgmma_wait<0>();
            add_scaled(sum, part, row[0] * half[0], row[1] * half[0]);
            multiply_half(part, a, b + (B_BYTES / 2 >> 4));
            const uint32_t empty = at.full + STAGES * 8;
            at.step();
            if (at.full == start.full + STAGES * 8) at = start, parity ^= 1;
            if (block + 1 < count) barrier_wait(at.full, parity);
            wgmma_wait<0>();
            if ((gpu_thread() & 127) == 0) barrier_arrive(empty);
            add_scaled(sum + 64, part, row[0] * half[1], row[1] * half[1]);
        }
        spw_bf16 *c = gemm_operands_of<SPW_GEMM_ROWS>(p, t).c;
        unsigned char *buffer = ring.stages + STAGES * STAGE_BYTES + warp * WARP_STORE_BYTES;
        store_half(p, t, c, sum, buffer, row0, t.n0);
        store_half(p, t, c, sum + 64, buffer, row0, t.n0 + HALF);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_float8_wgmma(const __grid_constant__ spw_gemm_float8_problem problem,
                      const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b) {
    const ring ring = ring_create(FULL_ARRIVALS, CONSUMERS);
    if (threadIdx.x < 128) {
        registers_lower<40>();
        if (threadIdx.x == 0) produce_codes(problem.pairs, &map_a, &map_b, ring);
        if (threadIdx.x / 32 == 1) produce_scales(problem, ring);
    } else {
        registers_raise<232>();
        if (threadIdx.x < 256)
            consume_float8<0>(problem, ring);
        else
            consume_float8<1>(problem, ring);
    }
}

int spw_launch_gemm_float8_wgmma(spw_gemm_float8_problem problem, gpu_stream stream) {
    const spw_gemm_problem &p = problem.pairs;
    CUtensorMap a, b;
    int error = spw_tensor_map_2d(&a, {p.a, p.inner, p.a_row}, p.rows, TILE_K, TILE_M);
    if (error == 0)
        error =
            spw_tensor_map_3d(&b, {p.b, p.inner, p.b_row}, p.columns, {p.experts, p.expert}, TILE_K, TILE_N);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)gemm_float8_wgmma,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, FLOAT8_SHARED_BYTES);
    if (error != 0) return error;
    gemm_float8_wgmma<<<p.blocks, THREADS, FLOAT8_SHARED_BYTES, stream>>>(problem, a, b);
    return (int)cudaGetLastError();
}
