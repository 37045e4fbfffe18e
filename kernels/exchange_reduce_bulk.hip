/* Rows back from other ranks by Hopper's bulk copies: a warp fetches the pieces of all copies of an item into a stage of its ring, and
 * adds them from there while the next ones are under way. */
#include "kernels/bulk_copy.h"
#include "kernels/exchange_reduce.h"

enum { THREADS = 256, WARPS = THREADS / 32, STAGES_MAX = 8, ROOM = 220 * 1024 };

template <int COPIES>
GPU_DEVICE void add_pieces(const unsigned char *stage, int piece_bytes, int copies, int at, float sum[8]) {
    gpu_bytes16 x[COPIES];
#pragma unroll
    for (int c = 0; c < COPIES; c++)
        if (c < copies) x[c] = ((const gpu_bytes16 *)(stage + (long)c * piece_bytes))[at];
#pragma unroll
    for (int c = 0; c < COPIES; c++) {
        if (c >= copies) continue;
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += gpu_bf16_of(x[c], i);
    }
}

GPU_KERNEL(THREADS)
exchange_reduce_bulk(GPU_ARGUMENT spw_reduce_gpu a, GPU_ARGUMENT spw_peers p, int piece_bytes, int stages) {
    extern __shared__ __align__(128) unsigned char room[];
    __shared__ exchange_block block;
    __shared__ uint64_t full[WARPS][STAGES_MAX];
    __shared__ int fetched[WARPS][STAGES_MAX]; /* copies in a stage */
    const int warp = gpu_thread() / 32, lane = gpu_lane(), row_bytes = 2 * a.width;
    const int pieces = (row_bytes + piece_bytes - 1) / piece_bytes, stage_bytes = a.copies * piece_bytes;
    const long count = (long)a.items * pieces, step = (long)a.blocks * WARPS;
    const long begin = (long)gpu_block() * WARPS + warp;
    unsigned char *ring = room + (long)warp * stages * stage_bytes;
    if (lane == 0) {
        for (int s = 0; s < stages; s++) barrier_init(&full[warp][s], 1);
        barrier_init_fence();
    }
    exchange_enter(p, THREADS);
    exchange_given_bases(p, &block, a.base, THREADS);
    bulk_order();
    auto bytes_of = [&](long n) {
        const int rest = row_bytes - (int)(n % pieces) * piece_bytes;
        return rest < piece_bytes ? rest : piece_bytes;
    };
    int claimed = 0, claimed_by = 0; /* the last source that was looked up, and the item it must be */
    auto fetch = [&](long n, const exchange_copy &copy, int stage) {
        if (n >= count) return;
        const unsigned mask = (unsigned)gpu_ballot(copy.row >= 0);
        const int slot = gpu_bits(mask & ((1u << lane) - 1)), bytes = bytes_of(n);
        if (lane == 0) {
            fetched[warp][stage] = gpu_bits(mask);
            barrier_expect(&full[warp][stage], (unsigned)(gpu_bits(mask) * bytes));
        }
        __syncwarp();
        if (copy.row < 0) return;
        bulk_load(ring + (long)stage * stage_bytes + (long)slot * piece_bytes,
                  a.window[copy.rank] + (long)copy.row * row_bytes + n % pieces * piece_bytes, bytes,
                  &full[warp][stage]);
        if (n % pieces != 0) return;
        gpu_add(&block.rows[copy.rank], 1);
        if (claimed != claimed_by) p.control[p.rank]->stale = 1 + claimed_by;
        claimed_by = (int)(n / pieces);
        claimed =
            exchange_source_of(a, copy, claimed_by); /* looked at next time: the fetch is not waited for */
    };
    exchange_copy next = exchange_copy_of(a, p, &block, begin / pieces, lane);
    long ahead = begin;
    for (int s = 0; s < stages; s++, ahead += step) {
        const exchange_copy copy = next;
        next = exchange_copy_of(a, p, &block, (ahead + step) / pieces, lane);
        fetch(ahead, copy, s);
    }
    int stage = 0;
    unsigned parity = 0;
    for (long n = begin; n < count; n += step) {
        const int vectors = bytes_of(n) / 16;
        barrier_wait(&full[warp][stage], parity);
        const int copies = fetched[warp][stage];
        const unsigned char *from = ring + (long)stage * stage_bytes;
        const long to = (n / pieces * row_bytes + n % pieces * piece_bytes) / 16;
        for (int at = lane; at < vectors; at += 32) {
            float sum[8] = {};
            for (int first = 0; first < copies; first += 8)
                add_pieces<8>(from + (long)first * piece_bytes, piece_bytes, copies - first, at, sum);
            exchange_store(a.y, to + at, sum);
        }
        if (a.side > 0 && n % pieces == 0) exchange_reduce_side(a, p, &block, n / pieces);
        __syncwarp();
        const exchange_copy copy = next;
        next = exchange_copy_of(a, p, &block, (ahead + step) / pieces, lane);
        fetch(ahead, copy, stage);
        ahead += step;
        if (++stage == stages) stage = 0, parity ^= 1;
    }
    if (claimed != claimed_by) p.control[p.rank]->stale = 1 + claimed_by;
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_reduce_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

#if GPU_HOST
int spw_launch_exchange_reduce_bulk(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    if (reduce->copies > 32 || reduce->weight != nullptr)
        return spw_launch_exchange_reduce(reduce, peers, stream);
    const int row_bytes = 2 * reduce->width, room = ROOM / WARPS;
    int pieces = 1, piece_bytes = row_bytes;
    while (4 * reduce->copies * piece_bytes > room && piece_bytes > 512)
        pieces++, piece_bytes = ((row_bytes + pieces - 1) / pieces + 15) / 16 * 16;
    int stages = room / (reduce->copies * piece_bytes);
    if (stages > STAGES_MAX) stages = STAGES_MAX;
    if (stages < 2) return spw_launch_exchange_reduce(reduce, peers, stream);
    const int bytes = WARPS * stages * reduce->copies * piece_bytes;
    const cudaError_t error = cudaFuncSetAttribute((const void *)exchange_reduce_bulk,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return (int)error;
    exchange_reduce_bulk<<<(unsigned)reduce->blocks, THREADS, (unsigned)bytes, stream>>>(*reduce, *peers,
                                                                                         piece_bytes, stages);
    return (int)cudaGetLastError();
}
#endif
