/* Grouped GEMM on Hopper, for the .hip files that give its kernels a name and launch them: tiles, ring and producer. One
 * block a multiprocessor stays there and walks over the tiles; one warpgroup feeds a ring of stages in shared memory, two
 * consume them (grouped_gemm_consume.h).
 *   ping-pong     a tile of 128 x 192 a consumer: one stores its tile, by the copy engine, while the other multiplies, so
 *                 that the tensor cores do not wait for stores
 *   cooperative   both consumers make half of a tile of 128 x 256, which reads fewer bytes a product
 * Rows of one operand may be gathered: then all 128 threads of the producer copy them in pieces of 16 bytes to where a
 * bulk tensor copy would have put them.
 * Groups' ends. SPW_GEMM_ROWS: one tensor map spans all rows; a tile may run over its group's end and is masked when
 * stored. SPW_GEMM_WEIGHTS: the sum runs over rows; behind the group's end the last stage holds a neighbour's rows. Whole
 * slices of 16 of them are left out, the others set to 0 in shared memory before they are multiplied (a mask by 0 * x
 * would let a neighbour's inf through), by a warp of its own, so that the consumers do not wait for one another. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_WGMMA_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_WGMMA_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_tiles.h"
#include "kernels/gemm/wgmma.h"

#include <type_traits>

enum {
    TILE_M = 128,
    TILE_K = 64,
    BAND = 16,
    CHUNK = 64,
    CHUNK_BYTES =
        CHUNK * TILE_K * 2, /* 64 outer elements of a stage: the widest box of the 128-byte swizzle */
    A_BYTES = TILE_M * TILE_K * 2,
    CONSUMERS = 2,
    THREADS = (1 + CONSUMERS) * 128,
    THREAD_REGISTERS = 168 /* that a block of so many threads begins with */
};

typedef enum gemm_epilogue {
    GEMM_STORE,           /* c = sum */
    GEMM_STREAM,          /* the same, past the cache */
    GEMM_ADD,             /* main += sum */
    GEMM_SWIGLU,          /* c = act of gate and up, which are stored too where h is not NULL */
    GEMM_SWIGLU_GRADIENT, /* swiglu_gradient of grouped_gemm_epilogue.h */
} gemm_epilogue;

/* All that is known when a kernel is compiled. */
template <spw_gemm_element ELEMENT_, spw_gemm_form FORM_, bool B_OUTER_, int TILE_N_,
          spw_gemm_gather GATHER_ = SPW_GEMM_GATHER_NONE, gemm_epilogue EPILOGUE_ = GEMM_STORE,
          spw_gemm_between BETWEEN_ = SPW_GEMM_SILU, bool TRANSPOSES_ = false, bool PAIRED_ = false>
struct gemm_kind {
    static constexpr spw_gemm_element ELEMENT = ELEMENT_;
    using element = gemm_element<ELEMENT>;
    static constexpr spw_gemm_form FORM = FORM_;
    static constexpr spw_gemm_gather GATHER = GATHER_;
    static constexpr gemm_epilogue EPILOGUE = EPILOGUE_;
    /* Two blocks of a cluster have tiles one below the other, and each fetches one half of b for both. */
    static constexpr int BLOCKS = PAIRED_ ? 2 : 1;
    static constexpr bool GATHERS = GATHER != SPW_GEMM_GATHER_NONE, /* rows of a */
        TRANSPOSES = TRANSPOSES_;                                   /* c is [experts][columns][inner] */
    static constexpr bool A_OUTER = FORM == SPW_GEMM_WEIGHTS, B_OUTER = B_OUTER_;
    static constexpr spw_gemm_between BETWEEN = BETWEEN_;
    static constexpr bool PINGPONG = TILE_N_ < 256,
                          GATES = EPILOGUE == GEMM_SWIGLU && BETWEEN != SPW_GEMM_RELU2;
    static constexpr bool HALVES = GATES && BETWEEN != SPW_GEMM_PAIRS; /* of a tile's columns of b */
    static constexpr int TILE_N = TILE_N_, REPEATS = PINGPONG ? 2 : 1, B_BYTES = TILE_N * TILE_K * 2;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    /* Of b in a stage, and columns of one. */
    static constexpr int B_BOXES = B_OUTER ? TILE_N / CHUNK : 1 + HALVES, B_WIDE = TILE_N / B_BOXES;
    /* Each of the producer's warps asks for one: one that asks for all copies its rows late. */
    static constexpr bool SHARES_BOXES = GATHERS && FORM == SPW_GEMM_WEIGHTS;
    static constexpr int STAGES = PINGPONG && FORM == SPW_GEMM_WEIGHTS ? 5 : 4; /* five are slower by rows */
    /* c is stored by the copy engine, or added to; a wide weight gradient is no faster so. */
    static constexpr bool SENDS =
        PINGPONG || TRANSPOSES || EPILOGUE == GEMM_ADD || (EPILOGUE == GEMM_STORE && FORM == SPW_GEMM_ROWS);
    /* A warp stores 16 rows x 64 columns at a time, two of them in tiles of 128 x 256 by rows; a gradient has two buffers of gate and up
     * of 32 columns. */
    static constexpr int WARP_BOXES =
        EPILOGUE == GEMM_SWIGLU_GRADIENT || (SENDS && !PINGPONG && FORM == SPW_GEMM_ROWS) ? 2 : 1;
    static constexpr int WARP_BYTES = 16 * 128 * WARP_BOXES;
    static constexpr int STORE_BYTES = CONSUMERS * 4 * WARP_BYTES;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + STORE_BYTES + (3 * STAGES + 2) * 8;
    /* A warp of the producer, which is free where nothing is gathered, clears what lies behind groups' ends. */
    static constexpr bool CLEANS = FORM == SPW_GEMM_WEIGHTS && !GATHERS;
    static constexpr int RELEASES = BLOCKS * ((PINGPONG ? 1 : CONSUMERS) + CLEANS);
    static constexpr int FULL_ARRIVALS = GATHERS ? 1 + 128 : 1;
    static constexpr int COLUMNS = GATES ? TILE_N / 2 : TILE_N; /* of c in a tile */
    /* Of a thread. More than there are would be waited for without end. */
    static constexpr int PRODUCER_REGISTERS = GATHERS ? 56 : 40, CONSUMER_REGISTERS = GATHERS ? 224 : 232;
    static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <= (1 + CONSUMERS) * THREAD_REGISTERS,
                  "a block's registers");
    static_assert(SHARED_BYTES <= 227 * 1024, "a block's shared memory");
    static_assert(!PINGPONG || EPILOGUE == GEMM_STORE || EPILOGUE == GEMM_ADD, "who has a tensor map of c");
    static_assert(GATHER != SPW_GEMM_GATHER_B, "the operand with fewer columns of a tile is gathered");
    static_assert(!TRANSPOSES || (FORM == SPW_GEMM_WEIGHTS && !PINGPONG), "who stores by columns");
};

/* The block's tiles, one after the other. */
template <class KIND> struct gemm_queue {
    gemm_walk<KIND::FORM, TILE_M * KIND::BLOCKS, KIND::COLUMNS, BAND / KIND::BLOCKS> walk;
    int index;

    GPU_MEMBER void start(const spw_gemm_problem &p) { walk.start(p), index = gpu_block() / KIND::BLOCKS; }
    GPU_MEMBER bool next(const spw_gemm_problem &p, gemm_tile &t) {
        const bool there = walk.seek(p, index, t);
        index += p.blocks / KIND::BLOCKS;
        t.m0 += gpu_block() % KIND::BLOCKS * TILE_M;
        return there;
    }
    /* The same without the tile: the length of its sum. */
    GPU_MEMBER bool pass(const spw_gemm_problem &p, int &terms) {
        const bool there = walk.reach(p, index);
        index += p.blocks / KIND::BLOCKS, terms = walk.terms(p);
        return there;
    }
};

/* The block's shared memory: stages, buffers to store from, barriers, all but the buffers by their address there. */
template <class KIND> struct gemm_ring {
    static constexpr int STORE = KIND::STAGES * KIND::STAGE_BYTES, BARRIERS = STORE + KIND::STORE_BYTES;
    unsigned char *memory;
    uint32_t base;

    GPU_MEMBER uint32_t stage(int i) const { return base + i * KIND::STAGE_BYTES; }
    GPU_MEMBER uint32_t full(int i) const { return base + BARRIERS + i * 8; }
    GPU_MEMBER uint32_t empty(int i) const { return full(KIND::STAGES + i); }
    GPU_MEMBER uint32_t clean(int i) const { /* full, and what lies behind a group's end is 0 */
        return full(2 * KIND::STAGES + i);
    }
    GPU_MEMBER uint32_t turn(int group) const { /* whose products are next, of ping-pong */
        return full(3 * KIND::STAGES + group);
    }
};

/* Where the next stage of the ring is. */
template <class KIND> struct gemm_place {
    int stage = 0;
    uint32_t parity;

    GPU_MEMBER explicit gemm_place(uint32_t first) : parity(first) {}
    GPU_MEMBER void step() {
        if (++stage == KIND::STAGES) stage = 0, parity ^= 1;
    }
    GPU_MEMBER void skip(int steps) {
        const int to = stage + steps;
        parity ^= to / KIND::STAGES & 1, stage = to % KIND::STAGES;
    }
};

/* A box of b, ROWS of 128 bytes, or the block's one of PARTS of it, which both get: these follow one another by `outer` and in shared memory. */
template <int PARTS, int ROWS, class... GROUP>
GPU_DEVICE void load_box(const CUtensorMap *map, uint32_t to, uint32_t full, int inner, int outer,
                         GROUP... group) {
    const int first = gpu_block() % PARTS * (ROWS / PARTS);
    to += first * 128, outer += first;
    if constexpr (PARTS == 1)
        tensor_load(map, to, full, inner, outer, group...);
    else
        tensor_load_to_both(map, to, full, inner, outer, group...);
}

/* One stage's boxes of a. */
template <class KIND>
GPU_DEVICE void load_a(const gemm_tile &t, int k, const CUtensorMap *map, uint32_t a, uint32_t full) {
    if constexpr (!KIND::A_OUTER) {
        tensor_load(map, a, full, k, t.first + t.m0);
    } else {
#pragma unroll
        for (int i = 0; i < TILE_M / CHUNK; i++)
            tensor_load(map, a + i * CHUNK_BYTES, full, t.m0 + i * CHUNK, t.first + k);
    }
}

/* One of a stage's boxes of b. Of gate and up side by side the second half of the tile comes from the columns of up. */
template <class KIND>
GPU_DEVICE void load_b(const spw_gemm_problem &p, const gemm_tile &t, int k, const CUtensorMap *map,
                       uint32_t b, uint32_t full, int box) {
    constexpr int HALF = KIND::TILE_N / 2, WIDE = KIND::B_WIDE, ROWS = KIND::B_BYTES / KIND::B_BOXES / 128;
    const int column0 = KIND::GATES && !KIND::HALVES ? 2 * t.n0 : t.n0,
              column = column0 + box * WIDE + (KIND::HALVES && box * WIDE >= HALF ? p.columns - HALF : 0);
    if constexpr (KIND::FORM == SPW_GEMM_WEIGHTS)
        load_box<KIND::BLOCKS, ROWS>(map, b + box * ROWS * 128, full, column, t.first + k);
    else
        load_box<KIND::BLOCKS, ROWS>(map, b + box * ROWS * 128, full, KIND::B_OUTER ? column : k,
                                     KIND::B_OUTER ? k : column, t.expert);
}

/* Row of the array of an assignment. */
GPU_DEVICE int token_of(const spw_gemm_fused_problem &f, int assignment) {
    return (int)(__umulhi(2u * (unsigned)assignment, f.by_top_k.multiplier) >> f.by_top_k.shift);
}

/* One thread's share of the gathered operand where its rows are those of c: in each group of 16 rows of 128 bytes one row's piece of
 * 16 bytes. */
template <class KIND> struct gathered_rows {
    static constexpr int EACH = TILE_M / 16; /* rows of a thread */
    int token[EACH];

    /* A row behind the group's end takes the last one's. */
    GPU_MEMBER void start(const spw_gemm_fused_problem &f, const gemm_tile &t) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int r = t.m0 + i * 16 + gpu_thread() / 8;
            token[i] = token_of(f, __ldg(f.assignment + t.first + (r < t.rows ? r : t.rows - 1)));
        }
    }
    GPU_MEMBER void step(const spw_gemm_fused_problem &, const gemm_tile &, int) {}
    /* k: of the stage, along the sum. What lies behind the array's width becomes 0. */
    GPU_MEMBER void copy(const spw_gemm_problem &p, const gemm_tile &, int k, uint32_t stage) const {
        const int row0 = gpu_thread() / 8, piece = gpu_thread() % 8, column = k + piece * 8;
        const uint32_t to = stage + row0 * 128 + ((piece ^ (row0 & 7)) * 16);
        const bool there = column < p.inner;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            copy_piece(to + i * 2048, p.a + (long)token[i] * p.a_row + (there ? column : 0), there);
    }
};

/* The same along the sum: a warp copies 16 rows of a stage, two at a time, its lanes side by side on 256 bytes of each. Its lanes keep the
 * tokens of AHEAD stages, while assignments of as many behind them are on their way: behind a multiprocessor's copies a load takes longer
 * than a stage. */
template <class KIND> struct gathered_terms {
    static constexpr int PIECES = TILE_M / 8; /* of a row, 16 bytes each */
    static constexpr int ROWS = TILE_K / 4;   /* of a warp in a stage */
    static constexpr int AHEAD = 64 / ROWS;   /* stages: two rows a lane */
    int token[2], next[2];                    /* next: assignments */
    int stage;                                /* of AHEAD */

    GPU_MEMBER static int row0() { return gpu_thread() / 32 * ROWS; } /* the warp's, in the stage */
    GPU_MEMBER void find(const spw_gemm_fused_problem &f, const gemm_tile &t, int k) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int mine = half * 32 + gpu_lane(), r = k + mine / ROWS * TILE_K + row0() + mine % ROWS;
            next[half] = __ldg(f.assignment + t.first + (r < t.rows ? r : t.rows - 1));
        }
    }
    /* The stages from row k on. */
    GPU_MEMBER void take(const spw_gemm_fused_problem &f, const gemm_tile &t, int k) {
#pragma unroll
        for (int half = 0; half < 2; half++) token[half] = token_of(f, next[half]);
        find(f, t, k + AHEAD * TILE_K);
        stage = 0;
    }
    GPU_MEMBER void start(const spw_gemm_fused_problem &f, const gemm_tile &t) {
        find(f, t, 0);
        take(f, t, 0);
    }
    /* The next stage begins, at row k. */
    GPU_MEMBER void step(const spw_gemm_fused_problem &f, const gemm_tile &t, int k) {
        if (++stage == AHEAD) take(f, t, k);
    }
    /* k: of the stage at `to`. What lies behind the sum's end, or behind the array's width, becomes 0. */
    GPU_MEMBER void copy(const spw_gemm_problem &p, const gemm_tile &t, int k, uint32_t to) const {
        const int piece = gpu_lane() % PIECES, first = gpu_lane() / PIECES, column = t.m0 + piece * 8;
        const bool inside = column < p.inner;
        const spw_bf16 *from = p.a + (inside ? column : 0);
        const int left =
            inside ? t.rows - k - row0() - first : 0; /* rows, of those that this lane copies from */
        const uint32_t swizzled = (piece % 8 ^ first) * 16;
        const unsigned tokens = (unsigned)(stage < AHEAD / 2 ? token[0] : token[1]);
        to += piece / 8 * CHUNK_BYTES + (row0() + first) * 128;
#pragma unroll
        for (int r = 0; r < ROWS; r += 2) {
            const int row = (int)gpu_shuffle(tokens, stage * ROWS % 32 + r + first);
            copy_piece(to + r * 128 + (swizzled ^ (r % 8 * 16)), from + (long)row * p.a_row, r < left);
        }
    }
};

template <class KIND>
using gathered = std::conditional_t<KIND::FORM == SPW_GEMM_ROWS, gathered_rows<KIND>, gathered_terms<KIND>>;

/* With nothing gathered by one thread, else by 128. */
template <class KIND>
GPU_DEVICE void produce(const spw_gemm_fused_problem &f, const CUtensorMap *map_a, const CUtensorMap *map_b,
                        const gemm_ring<KIND> &ring) {
    constexpr int BYTES = KIND::GATHERS ? KIND::B_BYTES : KIND::STAGE_BYTES;
    const spw_gemm_problem &p = f.p;
    gemm_queue<KIND> tiles;
    gemm_tile t;
    gathered<KIND> rows;
    gemm_place<KIND> at(1); /* of a ring that nobody has filled yet: the first round does not wait */
    for (tiles.start(p); tiles.next(p, t);) {
        if (KIND::GATHERS && t.terms > 0) rows.start(f, t);
        for (int k = 0; k < t.terms; k += TILE_K) {
            const uint32_t stage = ring.stage(at.stage), full = ring.full(at.stage);
            barrier_wait(ring.empty(at.stage), at.parity);
            if (!KIND::GATHERS || gpu_thread() == 0) {
                barrier_expect(full, BYTES);
                if (!KIND::GATHERS) load_a<KIND>(t, k, map_a, stage, full);
                if (!KIND::SHARES_BOXES)
#pragma unroll
                    for (int i = 0; i < KIND::B_BOXES; i++)
                        load_b<KIND>(p, t, k, map_b, stage + A_BYTES, full, i);
            }
            if (KIND::SHARES_BOXES && gpu_lane() == 0)
                load_b<KIND>(p, t, k, map_b, stage + A_BYTES, full, gpu_thread() / 32);
            if (KIND::GATHERS) {
                rows.copy(p, t, k, stage);
                barrier_arrive_with_copies(full);
                rows.step(f, t, k + TILE_K);
            }
            at.step();
        }
    }
}

/* Gives a stage back, also to the block that sends half of it; one thread for each. */
template <class KIND> GPU_DEVICE void release(uint32_t empty, int thread) {
    if (thread >= KIND::BLOCKS) return;
    if constexpr (KIND::BLOCKS == 1)
        barrier_arrive(empty);
    else
        barrier_arrive(empty, thread);
}

/* One warp: rows of the next group that products would read become 0. It gives every stage back, as consumers do. */
template <class KIND> GPU_DEVICE void clean(const spw_gemm_problem &p, const gemm_ring<KIND> &ring) {
    gemm_queue<KIND> tiles;
    gemm_tile t;
    gemm_place<KIND> at(0);
    for (tiles.start(p); tiles.next(p, t);) {
        for (int k = 0; k < t.terms; k += TILE_K) {
            barrier_wait(ring.full(at.stage), at.parity);
            if (t.terms - k < TILE_K)
                clear_behind<KIND::STAGE_BYTES / CHUNK_BYTES>(ring.memory + at.stage * KIND::STAGE_BYTES,
                                                              t.terms - k);
            if (gpu_lane() == 0) barrier_arrive(ring.clean(at.stage));
            release<KIND>(ring.empty(at.stage), gpu_lane());
            at.step();
        }
    }
}

template <class KIND> GPU_DEVICE gemm_ring<KIND> gemm_ring_create() {
    extern __shared__ __align__(1024) unsigned char shared[];
    const gemm_ring<KIND> ring = {shared, shared_address(shared)};
    if (threadIdx.x == 0) {
        for (int i = 0; i < KIND::STAGES; i++) {
            barrier_init(ring.full(i), KIND::FULL_ARRIVALS);
            barrier_init(ring.empty(i), KIND::RELEASES), barrier_init(ring.clean(i), 1);
        }
        for (int i = 0; i < CONSUMERS; i++) barrier_init(ring.turn(i), 1);
        barrier_init_fence();
    }
    if constexpr (KIND::BLOCKS == 1)
        __syncthreads();
    else
        cluster_barrier();
    return ring;
}

#endif
