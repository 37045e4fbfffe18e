/* The gradient of weights in fp8 on Hopper's tensor cores: the ring of grouped_gemm_float8_ring.h, a stage of which is a block of 128
 * rows of one expert, and the order of work of grouped_gemm_float8_wgmma.hip. Both operands have a scale a column and block: a warp
 * copies 128 + 256 of them beside a stage, and a thread multiplies each sum of a block by those of its row and of its column. They are
 * read from shared memory while they are used, so a thread gives a stage back when its sums are added. */
#include "kernels/gemm/grouped_gemm_float8_ring.h"
#include "kernels/gpu/tensor_map.h"

enum {
    WARP_PIECE_BYTES = 16 * 128, /* 16 rows x 64 columns, or 32 of fp32 */
    STORE_AT = STAGES *
               STAGE_BYTES, /* buffers to store from, and the scales behind them, in the ring's STORE_BYTES */
    SCALES = TILE_M + TILE_N,
    SCALES_AT = STORE_AT + CONSUMERS * 4 * WARP_PIECE_BYTES,
    FULL_ARRIVALS = 1 + 32, /* of the producer, and of every lane of the scales' warp */
    RELEASES = CONSUMERS * 128
};
static_assert(2 * TILE_K == (int)SPW_GEMM_FLOAT8_BLOCK, "a stage is a block");
static_assert(SCALES_AT + STAGES * SCALES * 4 <= STORE_AT + STORE_BYTES, "behind it are the ring's barriers");

typedef gemm_walk<SPW_GEMM_WEIGHTS, TILE_M, TILE_N, BAND> weights_walk;

/* The blocks of a tile's sum. */
GPU_DEVICE int first_block(const gemm_tile &t) { return t.first / SPW_GEMM_FLOAT8_BLOCK + t.expert; }
GPU_DEVICE int block_count(const gemm_tile &t) {
    return (t.terms + SPW_GEMM_FLOAT8_BLOCK - 1) / SPW_GEMM_FLOAT8_BLOCK;
}

GPU_DEVICE void produce_codes(const spw_gemm_problem &p, const CUtensorMap *map_a, const CUtensorMap *map_b,
                              ring ring) {
    weights_walk walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 1;
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        const int first = first_block(t), count = block_count(t);
        for (int block = 0; block < count; block++) {
            const uint32_t a = shared_address(ring.stages) + stage * STAGE_BYTES;
            barrier_wait(ring.empty + stage * 8, parity);
            barrier_expect(ring.full + stage * 8, STAGE_BYTES);
            tensor_load(map_a, a, ring.full + stage * 8, (first + block) * TILE_K, t.m0);
            tensor_load(map_b, a + A_BYTES, ring.full + stage * 8, (first + block) * TILE_K, t.n0);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* Scales of rows and columns that are not there become 0, as their codes do. */
GPU_DEVICE void produce_scales(const spw_gemm_float8_weights_problem &problem, ring ring) {
    const spw_gemm_problem &p = problem.p;
    const int lane = gpu_lane();
    weights_walk walk;
    gemm_tile t;
    walk.start(p);
    int stage = 0;
    uint32_t parity = 1;
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        const long first = first_block(t);
        const int count = block_count(t), m = t.m0 + lane * 4, n = t.n0 + lane * 4;
        const bool there[3] = {m < p.inner, n < p.columns, n + HALF < p.columns};
        const float *from[3] = {problem.a_scale + first * p.inner + (there[0] ? m : 0),
                                problem.b_scale + first * p.columns + (there[1] ? n : 0),
                                problem.b_scale + first * p.columns + (there[2] ? n + HALF : 0)};
        for (int block = 0; block < count; block++) {
            const uint32_t to = shared_address(ring.stages) + SCALES_AT + stage * SCALES * 4 + lane * 16;
            barrier_wait(ring.empty + stage * 8, parity);
#pragma unroll
            for (int i = 0; i < 3; i++) {
                copy_piece(to + i * HALF * 4, from[i], there[i]);
                from[i] += i == 0 ? p.inner : p.columns;
            }
            barrier_arrive_with_copies(ring.full + stage * 8);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

GPU_DEVICE float2 shared_pair(uint32_t address) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
    return pair;
}

/* sum += part * scales: of four numbers, two belong to each of a thread's rows, and they lie in two neighbouring columns, whose scales
 * are at `columns` and every 8 further on. */
GPU_DEVICE void add_scaled(float *sum, const float (&part)[64], const float (&row)[2], uint32_t columns) {
#pragma unroll
    for (int i = 0; i < 64; i += 4) {
        const float2 column = shared_pair(columns + i / 4 * 8 * 4);
        sum[i] += part[i] * (row[0] * column.x), sum[i + 1] += part[i + 1] * (row[0] * column.y);
        sum[i + 2] += part[i + 2] * (row[1] * column.x), sum[i + 3] += part[i + 3] * (row[1] * column.y);
    }
}

/* A warp's 16 rows from `row0` of the tile on, on their way to c, or to what main grows by, when this returns. */
template <bool ADDS>
GPU_DEVICE void send_weights(const CUtensorMap *map, const gemm_tile &t, int row0, const float (&sum)[128],
                             unsigned char *buffer) {
    constexpr int COLUMNS = ADDS ? 32 : 64;
    const bool sender = gpu_lane() == 0;
    if (ADDS && t.terms == 0) return;
#pragma unroll
    for (int i = 0; i < TILE_N / COLUMNS; i++) {
        const float *block = sum + i * COLUMNS / 2;
        if (sender) stores_read();
        __syncwarp();
        if (ADDS)
            place_floats(block, buffer);
        else
            place_sums<gemm_element<SPW_GEMM_BF16>>(block, buffer);
        fence_async_proxy();
        __syncwarp();
        if (!sender) continue;
        (ADDS ? tensor_add : tensor_store)(map, buffer, t.n0 + i * COLUMNS, t.m0 + row0, t.expert);
        stores_commit();
    }
}

/* What a thread sums up, and where it is in the ring. */
struct consumer {
    const int group, row0; /* the warpgroup; the warp's first row in a tile */
    ring_stage<SCALES * 4> at;
    const uint32_t row_scale, column_scale; /* of the first stage */
    float sum[128], part[64];

    GPU_MEMBER consumer(const ring &ring, int group, int row0)
        : group(group), row0(row0), at(ring), row_scale(at.base + SCALES_AT + (row0 + gpu_lane() / 4) * 4),
          column_scale(at.base + SCALES_AT + (TILE_M + gpu_lane() % 4 * 2) * 4) {}
    /* The sums of a tile. */
    GPU_MEMBER void sum_up(int blocks) {
#pragma unroll
        for (int i = 0; i < 128; i++) sum[i] = 0;
        if (blocks == 0) return;
        barrier_wait(at.full, at.parity);
        for (int block = 0; block < blocks; block++) {
            const uint32_t a = at.a(group), b = at.b(), empty = at.empty(),
                           columns = column_scale + at.scales;
            multiply_half(part, a, b);
            const float row[2] = {shared_number(row_scale + at.scales),
                                  shared_number(row_scale + at.scales + 8 * 4)};
            wgmma_wait<0>();
            add_scaled(sum, part, row, columns);
            multiply_half(part, a, b + NEXT_HALF);
            at.step();
            if (block + 1 < blocks) barrier_wait(at.full, at.parity);
            wgmma_wait<0>();
            add_scaled(sum + 64, part, row, columns + HALF * 4);
            __syncwarp();
            /* By every thread: by one of a warp is slower, and racecheck does not follow it. */
            barrier_arrive(empty);
        }
    }
};

template <bool ADDS>
GPU_DEVICE void consume_blocks(const spw_gemm_float8_weights_problem &problem, ring ring,
                               const CUtensorMap *map_c) {
    const spw_gemm_problem &p = problem.p;
    const int group = gpu_uniform(gpu_thread() / 128 - 1), warp = gpu_thread() / 32 - 4;
    unsigned char *buffer = ring.stages + STORE_AT + warp * WARP_PIECE_BYTES;
    consumer c(ring, group, group * 64 + warp % 4 * 16);
    weights_walk walk;
    gemm_tile t;
    walk.start(p);
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
        c.sum_up(gpu_uniform(block_count(t)));
        send_weights<ADDS>(map_c, t, c.row0, c.sum, buffer);
    }
    if (gpu_lane() == 0) stores_read();
}

template <bool ADDS>
GPU_DEVICE void gemm_float8_weights(const spw_gemm_float8_weights_problem &problem, const CUtensorMap *map_a,
                                    const CUtensorMap *map_b, const CUtensorMap *map_c) {
    const ring ring = ring_create(FULL_ARRIVALS, RELEASES);
    if (threadIdx.x < 128) {
        registers_lower<40>();
        if (threadIdx.x == 0) produce_codes(problem.p, map_a, map_b, ring);
        if (threadIdx.x / 32 == 1) produce_scales(problem, ring);
    } else {
        registers_raise<232>();
        consume_blocks<ADDS>(problem, ring, map_c);
    }
}

#define KERNEL(name, adds) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        name(const __grid_constant__ spw_gemm_float8_weights_problem problem, \
             const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, \
             const __grid_constant__ CUtensorMap map_c) { \
        gemm_float8_weights<adds>(problem, &map_a, &map_b, &map_c); \
    }
KERNEL(gemm_float8_weights_wgmma, false)
KERNEL(gemm_float8_weights_added_wgmma, true)

int spw_launch_gemm_float8_weights_wgmma(spw_gemm_float8_weights_problem problem, gpu_stream stream) {
    spw_gemm_problem &p = problem.p;
    const long terms = (long)problem.blocks * TILE_K; /* pairs of codes */
    const spw_tensor_groups experts = {p.experts, p.expert};
    void (*kernel)(spw_gemm_float8_weights_problem, CUtensorMap, CUtensorMap, CUtensorMap) =
        problem.adds ? gemm_float8_weights_added_wgmma : gemm_float8_weights_wgmma;
    CUtensorMap a, b, c;
    int error = spw_tensor_map_2d(&a, {p.a, terms, terms}, p.inner, TILE_K, TILE_M);
    if (error == 0) error = spw_tensor_map_2d(&b, {p.b, terms, terms}, p.columns, TILE_K, TILE_N);
    if (error == 0)
        error = problem.adds
                    ? spw_tensor_map_3d_fp32(&c, {problem.main, p.columns, p.c_row}, p.inner, experts, 32, 16)
                    : spw_tensor_map_3d(&c, {p.c, p.columns, p.c_row}, p.inner, experts, CHUNK, 16);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          SHARED_BYTES);
    if (error != 0) return error;
    p.blocks = blocks_needed(gemm_tiles_limit(&p, SPW_GEMM_WEIGHTS, TILE_M, TILE_N), p.blocks);
    kernel<<<p.blocks, THREADS, SHARED_BYTES, stream>>>(problem, a, b, c);
    return (int)cudaGetLastError();
}
