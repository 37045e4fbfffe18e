/* The gradient of weights in fp8 on Hopper's tensor cores: the ring of grouped_gemm_float8_ring.h, a stage of which is a block of 128
 * rows of one expert, and the order of work of grouped_gemm_float8_wgmma.hip. Both operands have a scale a column and block: a warp
 * copies 128 + 256 of them beside a stage, and a thread multiplies each sum of a block by those of its row and of its column. They are
 * read from shared memory while they are used, so a thread gives a stage back when its sums are added. */
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_float8_ring.h"
#include "kernels/gemm/tensor_map.h"

enum {
    HALF = TILE_N / 2,
    PIECE = 64, /* columns that a warp stores at a time */
    WARP_PIECE_BYTES = 16 * PIECE * 2,
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

/* Half of the columns of a block; does not wait. */
GPU_DEVICE void multiply_half(float (&part)[64], uint32_t a, uint32_t b) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SPW_GEMM_FLOAT8_BLOCK / 32; i++)
        wgmma_64x128x32_float8(part, a + i * 2, b + i * 2, i != 0);
    wgmma_commit();
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

/* A warp's 16 rows x 64 columns, sum[0 ... 31], to shared memory and from there in pieces of 128 bytes to rows of `to`, which begins at their corner. */
GPU_DEVICE void store_piece(const float *sum, unsigned char *buffer, spw_bf16 *to, long stride, int rows,
                            int columns) {
    const int lane = gpu_lane(), to_row = lane & 15, to_piece = lane >> 4, piece = lane & 7;
    const uint32_t row = shared_address(buffer) + to_row * 128;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const float *s = sum + j * 4;
        store_matrices(
            row + ((j + to_piece) ^ (to_row & 7)) * 16, gemm_element<SPW_GEMM_BF16>::pack(s[0], s[1]),
            gemm_element<SPW_GEMM_BF16>::pack(s[2], s[3]), gemm_element<SPW_GEMM_BF16>::pack(s[4], s[5]),
            gemm_element<SPW_GEMM_BF16>::pack(s[6], s[7]));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = i * 4 + (lane >> 3);
        const uint4 moved = *(const uint4 *)(buffer + r * 128 + (piece ^ (r & 7)) * 16);
        if (r < rows && piece * 8 < columns) *(uint4 *)(to + r * stride + piece * 8) = moved;
    }
    __syncwarp();
}

/* The same to fp32, which grows by them. */
GPU_DEVICE void add_piece(const float *sum, float *to, long stride, int rows, int columns) {
    const int row = gpu_lane() / 4, column = gpu_lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float *at = to + row * stride + j * 8 + column;
        if (j * 8 + column >= columns) continue;
        if (row < rows) add_pair(at, sum[4 * j], sum[4 * j + 1]);
        if (row + 8 < rows) add_pair(at + 8 * stride, sum[4 * j + 2], sum[4 * j + 3]);
    }
}

template <bool ADDS>
GPU_DEVICE void finish_tile(const spw_gemm_float8_weights_problem &problem, const gemm_tile &t, int row0,
                            const float (&sum)[128], unsigned char *buffer) {
    const spw_gemm_problem &p = problem.p;
    const int m = t.m0 + row0, rows = t.height - m;
    const long corner = t.expert * p.expert + (long)m * p.c_row;
    if (rows <= 0 || (ADDS && t.terms == 0)) return;
#pragma unroll
    for (int i = 0; i < TILE_N / PIECE; i++) {
        const int n = t.n0 + i * PIECE;
        if (ADDS)
            add_piece(sum + i * 32, problem.main + corner + n, p.c_row, rows, p.columns - n);
        else
            store_piece(sum + i * 32, buffer, p.c + corner + n, p.c_row, rows, p.columns - n);
    }
}

/* Where a thread finds a stage: addresses in shared memory, that of the operands divided by 16. */
struct stage_at {
    uint32_t operands, full, row_scale, column_scale;

    __device__ void step() {
        operands += STAGE_BYTES >> 4, full += 8, row_scale += SCALES * 4, column_scale += SCALES * 4;
    }
};

template <bool ADDS, int GROUP>
GPU_DEVICE void consume_blocks(const spw_gemm_float8_weights_problem &problem, ring ring) {
    const spw_gemm_problem &p = problem.p;
    const int warp = gpu_thread() / 32 - 4, row0 = GROUP * 64 + (warp & 3) * 16;
    uint32_t base = shared_address(ring.stages);
    asm("" : "+r"(base)); /* else it is worked out anew in the loop */
    const stage_at start = {base >> 4, base + STORE_AT + STORE_BYTES,
                            base + SCALES_AT + (row0 + gpu_lane() / 4) * 4,
                            base + SCALES_AT + (TILE_M + gpu_lane() % 4 * 2) * 4};
    stage_at at = start;
    weights_walk walk;
    gemm_tile t;
    walk.start(p);
    uint32_t parity = 0;
    float sum[128], part[64];
    for (int index = gpu_block(); walk.seek(p, index, t); index += p.blocks) {
#pragma unroll
        for (int i = 0; i < 128; i++) sum[i] = 0;
        const int count = block_count(t);
        if (count != 0) barrier_wait(at.full, parity);
        for (int block = 0; block < count; block++) {
            const uint32_t a = at.operands + (GROUP * CHUNK_BYTES >> 4), b = at.operands + (A_BYTES >> 4);
            multiply_half(part, a, b);
            const float row[2] = {shared_number(at.row_scale), shared_number(at.row_scale + 8 * 4)};
            wgmma_wait<0>();
            add_scaled(sum, part, row, at.column_scale);
            multiply_half(part, a, b + (B_BYTES / 2 >> 4));
            const uint32_t empty = at.full + STAGES * 8, columns = at.column_scale + HALF * 4;
            at.step();
            if (at.full == start.full + STAGES * 8) at = start, parity ^= 1;
            if (block + 1 < count) barrier_wait(at.full, parity);
            wgmma_wait<0>();
            add_scaled(sum + 64, part, row, columns);
            __syncwarp();
            /* By every thread: by one of a warp is slower, and racecheck does not follow it. */
            barrier_arrive(empty);
        }
        finish_tile<ADDS>(problem, t, row0, sum, ring.stages + STORE_AT + warp * WARP_PIECE_BYTES);
    }
}

template <bool ADDS>
GPU_DEVICE void gemm_float8_weights(const spw_gemm_float8_weights_problem &problem, const CUtensorMap *map_a,
                                    const CUtensorMap *map_b) {
    const ring ring = ring_create(FULL_ARRIVALS, RELEASES);
    if (threadIdx.x < 128) {
        registers_lower<40>();
        if (threadIdx.x == 0) produce_codes(problem.p, map_a, map_b, ring);
        if (threadIdx.x / 32 == 1) produce_scales(problem, ring);
    } else {
        registers_raise<232>();
        if (threadIdx.x < 256)
            consume_blocks<ADDS, 0>(problem, ring);
        else
            consume_blocks<ADDS, 1>(problem, ring);
    }
}

#define KERNEL(name, adds) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        name(const __grid_constant__ spw_gemm_float8_weights_problem problem, \
             const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b) { \
        gemm_float8_weights<adds>(problem, &map_a, &map_b); \
    }
KERNEL(gemm_float8_weights_wgmma, false)
KERNEL(gemm_float8_weights_added_wgmma, true)

int spw_launch_gemm_float8_weights_wgmma(spw_gemm_float8_weights_problem problem, gpu_stream stream) {
    const spw_gemm_problem &p = problem.p;
    const long terms = (long)problem.blocks * TILE_K; /* pairs of codes */
    void (*kernel)(spw_gemm_float8_weights_problem, CUtensorMap, CUtensorMap) =
        problem.adds ? gemm_float8_weights_added_wgmma : gemm_float8_weights_wgmma;
    CUtensorMap a, b;
    int error = spw_tensor_map_2d(&a, {p.a, terms, terms}, p.inner, TILE_K, TILE_M);
    if (error == 0) error = spw_tensor_map_2d(&b, {p.b, terms, terms}, p.columns, TILE_K, TILE_N);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          SHARED_BYTES);
    if (error != 0) return error;
    kernel<<<p.blocks, THREADS, SHARED_BYTES, stream>>>(problem, a, b);
    return (int)cudaGetLastError();
}
