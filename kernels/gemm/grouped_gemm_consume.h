/* The consumers of grouped_gemm_wgmma.h, and the kernel as a whole. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_CONSUME_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_CONSUME_H

#include "kernels/gemm/grouped_gemm_epilogue.h"
#include "kernels/gpu/tensor_map.h"

template <class KIND> struct consumer {
    static constexpr int REPEATS = KIND::REPEATS, SUMS = KIND::TILE_N / 2;
    static constexpr int SHARING = KIND::PINGPONG ? 128 : CONSUMERS * 128; /* threads that consume a stage */
    /* Descriptors' units from one step of 16 along the sum to the next. */
    static constexpr int A_STEP = (KIND::A_OUTER ? 16 * 128 : 32) >> 4,
                         B_STEP = (KIND::B_OUTER ? 16 * 128 : 32) >> 4;
    static constexpr bool EARLY =
        (KIND::EPILOGUE == GEMM_STORE || KIND::EPILOGUE == GEMM_STREAM) && !KIND::PINGPONG;
    const spw_gemm_fused_problem &f;
    const gemm_ring<KIND> &ring;
    const CUtensorMap *const map_c;
    const int group;
    gemm_place<KIND> at;
    gemm_queue<KIND> tiles;
    gemm_tile next;
    int skipped = 0; /* stages of the other consumer's tile in front of `next` */
    bool there;
    float sum[REPEATS][SUMS];

    GPU_MEMBER consumer(const spw_gemm_fused_problem &f, const gemm_ring<KIND> &r, const CUtensorMap *c)
        : f(f), ring(r), map_c(c), group(gpu_uniform(gpu_thread() / 128 - 1)), at(0) {}

    /* Slices `from` up to `to`, of 16 terms each, of the stage; does not wait. */
    GPU_MEMBER void multiply(int from, int to, bool keep) {
        const uint32_t data = ring.stage(at.stage);
        const uint32_t a = operand_at(data + (KIND::PINGPONG ? 0 : group * CHUNK_BYTES), 0);
        const uint32_t b = operand_at(data + A_BYTES, CHUNK_BYTES);
#pragma unroll
        for (int i = from; i < to; i++)
#pragma unroll
            for (int n = 0; n < REPEATS; n++)
                wgmma_product<KIND::ELEMENT, KIND::A_OUTER, KIND::B_OUTER>(
                    sum[n], a + i * A_STEP + n * (CHUNK_BYTES >> 4), b + i * B_STEP, keep || i != 0);
    }
    GPU_MEMBER void wait_full() {
        barrier_wait(ring.full(at.stage), at.parity);
        if (KIND::GATHERS) fence_async_proxy(); /* of the producer's copies */
    }
    /* Rows [from, to) of every chunk of the stage become 0. */
    GPU_MEMBER void clear_rows(int from, int to) {
        unsigned char *stage = ring.memory + at.stage * KIND::STAGE_BYTES;
        const int pieces = (to - from) * 8; /* of 16 bytes in a chunk */
        for (int i = gpu_thread() & (SHARING - 1); i < pieces * (KIND::STAGE_BYTES / CHUNK_BYTES);
             i += SHARING)
            *(uint4 *)(stage + i / pieces * CHUNK_BYTES + from * 128 + i % pieces * 16) =
                make_uint4(0, 0, 0, 0);
        fence_async_proxy();
        if (KIND::PINGPONG && group != 0)
            named_barrier(2, SHARING);
        else
            named_barrier(1, SHARING);
    }
    /* The first slices of the stage. */
    template <int SLICES> GPU_MEMBER void multiply_slices(bool keep) {
        wgmma_fence();
        multiply(0, SLICES, keep);
        wgmma_commit();
    }
    /* The last `left` terms of a group, fewer than a stage has; does not wait for the products. */
    GPU_MEMBER void multiply_rest(int left, bool keep) {
        if constexpr (KIND::CLEANS)
            barrier_wait(ring.clean(at.stage), at.parity);
        else
            wait_full();
        if (!KIND::CLEANS && left % 16 != 0) clear_rows(left, (left + 15) & ~15);
        const int slices = (left + 15) / 16;
        if (slices == 1)
            multiply_slices<1>(keep);
        else if (slices == 2)
            multiply_slices<2>(keep);
        else if (slices == 3)
            multiply_slices<3>(keep);
        else
            multiply_slices<4>(keep);
    }
    /* All of a tile; waits for it. */
    GPU_MEMBER void sum_up(const gemm_tile &t) {
        uint32_t before = 0; /* barrier of the stage whose products are still under way */
        const int whole = KIND::FORM == SPW_GEMM_WEIGHTS ? t.terms / TILE_K * TILE_K : t.terms;
        for (int k = 0; k < whole; k += TILE_K) {
            wait_full();
            wgmma_fence();
            multiply(0, TILE_K / 16, k != 0);
            wgmma_commit();
            before = step(before, t, k + TILE_K >= t.terms);
        }
        if (KIND::FORM == SPW_GEMM_WEIGHTS && whole < t.terms) {
            multiply_rest(t.terms - whole, whole != 0);
            before = step(before, t, true);
        }
        if (t.terms == 0) pass_turn(t);
        if (EARLY) look_ahead();
        wgmma_wait<0>();
        if (before != 0) release<KIND>(before, gpu_thread() & 127);
        if (t.terms == 0) clear_sums();
    }
    /* A stage's products are under way: those of the stage `before` are waited for. Returns what is before the next. */
    GPU_MEMBER uint32_t step(uint32_t before, const gemm_tile &t, bool last) {
        const uint32_t empty = ring.empty(at.stage);
        if (last) pass_turn(t);
        wgmma_wait<1>();
        if (before != 0) release<KIND>(before, gpu_thread() & 127);
        at.step();
        return empty;
    }
    /* By instructions that the compiler cannot turn into a choice between 0 and each sum, made for every tile. */
    GPU_MEMBER void clear_sums() {
#pragma unroll
        for (int n = 0; n < REPEATS; n++)
#pragma unroll
            for (int i = 0; i < SUMS; i++) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sum[n][i]));
    }
    /* Whoever waits for a phase by its parity must see it end before the next one does: all warps have taken this turn before the
     * other consumer gets its own. Products of three stages see to it, as those of the first are waited for; fewer do not: tiles of
     * dead experts have none. */
    GPU_MEMBER void pass_turn(const gemm_tile &t) {
        if (!KIND::PINGPONG) return;
        if (t.terms <= 2 * TILE_K) named_barrier(1 + group, 128);
        if ((gpu_thread() & 127) == 0) barrier_arrive(ring.turn(group ^ 1));
    }

    /* The warp's part of a tile, whose first row is `row0` of the tile. */
    GPU_MEMBER void make_rows(const gemm_tile &t, unsigned char *buffer) {
        const int row0 = (KIND::PINGPONG ? 0 : group * 64) + gpu_thread() / 32 % 4 * 16;
        if constexpr (KIND::EPILOGUE == GEMM_SWIGLU_GRADIENT) {
            swiglu_gradient<KIND> rows(f, buffer);
            rows.start(t, row0);
            sum_up(t);
#pragma unroll
            for (int n = 0; n < REPEATS; n++) {
                if (n != 0) rows.start(t, row0 + n * 64);
#pragma unroll 1
                for (int step = 0; step < rows.STEPS; step += 2) { /* unrolled: more than the cache holds */
                    rows.take(step, sum[n]), rows.take(step + 1, sum[n] + 16);
#pragma unroll
                    for (int i = 0; i < SUMS - 32; i++) sum[n][i] = sum[n][i + 32];
                    if ((step + 2) % rows.SUMMED == 0) rows.finish(step + 2 - rows.SUMMED);
                }
            }
        } else {
            sum_up(t);
#pragma unroll
            for (int n = 0; n < REPEATS; n++) {
                if constexpr (KIND::TRANSPOSES)
                    send_columns<KIND>(map_c, t, group, sum[n],
                                       ring.memory + ring.STORE + group * 4 * KIND::WARP_BYTES);
                else if constexpr (KIND::SENDS)
                    send_tile<KIND>(map_c, t, row0 + n * 64, sum[n], buffer);
                else
                    store_tile<KIND>(f, t, row0 + n * 64, sum[n], buffer);
            }
        }
    }

    /* The next tile of this consumer. It reads the groups' offsets from memory, which takes as long as several products: the last
     * ones of a tile are under way meanwhile, or the other consumer's, or an epilogue needs the registers. */
    GPU_MEMBER void look_ahead(bool passes = KIND::PINGPONG) {
        if (KIND::PINGPONG && passes) { /* the other consumer's */
            int terms;
            there = tiles.pass(f.p, terms);
            skipped = gpu_uniform((terms + TILE_K - 1) / TILE_K);
            if (!there) return;
        }
        there = tiles.next(f.p, next);
    }

    GPU_MEMBER void run() {
        unsigned char *buffer = ring.memory + ring.STORE + (gpu_thread() / 32 - 4) * KIND::WARP_BYTES;
        uint32_t turn = group == 0; /* the first consumer need not wait for its first turn */
        tiles.start(f.p);
        look_ahead(KIND::PINGPONG && group != 0);
        while (there) {
            next.terms = gpu_uniform(next.terms);
            const gemm_tile t = next;
            at.skip(skipped);
            if (KIND::PINGPONG) barrier_wait(ring.turn(group), turn), turn ^= 1;
            make_rows(t, buffer);
            if (!EARLY) look_ahead();
        }
        if (KIND::SENDS && gpu_lane() == 0) stores_read();
    }
};

template <class KIND>
GPU_DEVICE void gemm_block(const spw_gemm_fused_problem &f, const CUtensorMap *map_a,
                           const CUtensorMap *map_b, const CUtensorMap *map_c) {
    const gemm_ring<KIND> ring = gemm_ring_create<KIND>();
    if (threadIdx.x < 128) {
        registers_lower<KIND::PRODUCER_REGISTERS>();
        if (KIND::GATHERS || threadIdx.x == 0) produce<KIND>(f, map_a, map_b, ring);
        if (KIND::CLEANS && threadIdx.x / 32 == 1) clean<KIND>(f.p, ring);
    } else {
        registers_raise<KIND::CONSUMER_REGISTERS>();
        consumer<KIND> consumer(f, ring, map_c);
        consumer.run();
    }
    if constexpr (KIND::BLOCKS > 1) cluster_barrier(); /* the other block still writes to this one's memory */
}

template <class KIND>
static __global__ void __launch_bounds__(THREADS, 1)
    gemm_kernel(const __grid_constant__ spw_gemm_fused_problem f, const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c) {
    gemm_block<KIND>(f, &map_a, &map_b, &map_c);
}

/* The maps of what is not gathered, which b never is. */
template <class KIND> static int gemm_maps(const spw_gemm_problem &p, CUtensorMap *a, CUtensorMap *b) {
    const long wide = KIND::GATES ? 2L * p.columns : p.columns;
    int error = 0;
    if (!KIND::GATHERS)
        error = KIND::A_OUTER ? spw_tensor_map_2d(a, {p.a, p.inner, p.a_row}, p.rows, CHUNK, TILE_K)
                              : spw_tensor_map_2d(a, {p.a, p.inner, p.a_row}, p.rows, TILE_K, TILE_M);
    if (error != 0) return error;
    constexpr int DEEP = TILE_K / KIND::BLOCKS;
    if (KIND::FORM == SPW_GEMM_WEIGHTS)
        return spw_tensor_map_2d(b, {p.b, p.columns, p.b_row}, p.rows, CHUNK, DEEP);
    if (KIND::B_OUTER)
        return spw_tensor_map_3d(b, {p.b, wide, p.b_row}, p.inner, {p.experts, p.expert}, CHUNK, DEEP);
    return spw_tensor_map_3d(b, {p.b, p.inner, p.b_row}, wide, {p.experts, p.expert}, TILE_K,
                             (KIND::HALVES ? KIND::COLUMNS : KIND::TILE_N) / KIND::BLOCKS);
}

/* Of what the copy engine stores, or adds to. */
template <class KIND> static int gemm_result_map(const spw_gemm_fused_problem &f, CUtensorMap *c) {
    constexpr bool ADDS = KIND::EPILOGUE == GEMM_ADD;
    const spw_gemm_problem &p = f.p;
    if (KIND::FORM == SPW_GEMM_ROWS) return spw_tensor_map_ragged(c, {p.c, p.columns, p.c_row}, CHUNK, 16);
    const int wide = KIND::TRANSPOSES ? p.inner : p.columns, high = KIND::TRANSPOSES ? p.columns : p.inner;
    const spw_tensor_groups experts = {p.experts, p.expert};
    if (ADDS)
        return spw_tensor_map_3d_fp32(c, {f.main, wide, p.c_row}, high, experts, 32,
                                      KIND::TRANSPOSES ? 32 : 16);
    return spw_tensor_map_3d(c, {p.c, wide, p.c_row}, high, experts, CHUNK, KIND::TRANSPOSES ? CHUNK : 16);
}

template <class KIND> static int gemm_launch(spw_gemm_fused_problem f, gpu_stream stream) {
    void (*kernel)(spw_gemm_fused_problem, CUtensorMap, CUtensorMap, CUtensorMap) = gemm_kernel<KIND>;
    CUtensorMap a = {}, b = {}, c = {};
    if (KIND::GATHERS) f.by_top_k = spw_gemm_divisor_of((unsigned)f.top_k);
    int error = gemm_maps<KIND>(f.p, &a, &b);
    if (error == 0 && KIND::SENDS) error = gemm_result_map<KIND>(f, &c);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          KIND::SHARED_BYTES);
    if (error != 0) return error;
    f.p.blocks -= f.p.blocks % KIND::BLOCKS;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = KIND::BLOCKS, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3((unsigned)f.p.blocks), how.blockDim = dim3(THREADS);
    how.dynamicSmemBytes = KIND::SHARED_BYTES, how.stream = stream;
    /* Clusters of one block, said so, are put elsewhere and are slower: docs/validation_gpu.md. */
    how.attrs = &cluster, how.numAttrs = KIND::BLOCKS > 1;
    return (int)cudaLaunchKernelEx(&how, kernel, f, a, b, c);
}

/* A product by rows, b either way around. */
template <spw_gemm_element ELEMENT, spw_gemm_gather GATHER, gemm_epilogue EPILOGUE, spw_gemm_between BETWEEN>
static int gemm_launch_layout(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.p.inner_contiguous)
        return gemm_launch<gemm_kind<ELEMENT, SPW_GEMM_ROWS, false, 256, GATHER, EPILOGUE, BETWEEN>>(f,
                                                                                                     stream);
    return gemm_launch<gemm_kind<ELEMENT, SPW_GEMM_ROWS, true, 256, GATHER, EPILOGUE, BETWEEN>>(f, stream);
}

/* The same, gathered or not. */
template <spw_gemm_element ELEMENT, gemm_epilogue EPILOGUE, spw_gemm_between BETWEEN = SPW_GEMM_SILU>
static int gemm_launch_rows(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.top_k > 0) return gemm_launch_layout<ELEMENT, SPW_GEMM_GATHER_A, EPILOGUE, BETWEEN>(f, stream);
    return gemm_launch_layout<ELEMENT, SPW_GEMM_GATHER_NONE, EPILOGUE, BETWEEN>(f, stream);
}

/* With any activation but SwiGLU as it is. */
template <spw_gemm_element ELEMENT, gemm_epilogue EPILOGUE>
static int gemm_launch_activated(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.curve.between == SPW_GEMM_RELU2)
        return gemm_launch_rows<ELEMENT, EPILOGUE, SPW_GEMM_RELU2>(f, stream);
    if (f.curve.between == SPW_GEMM_PAIRS)
        return gemm_launch_rows<ELEMENT, EPILOGUE, SPW_GEMM_PAIRS>(f, stream);
    return gemm_launch_rows<ELEMENT, EPILOGUE, SPW_GEMM_GATED>(f, stream);
}

#endif
