/* Rows to other ranks by Hopper's bulk copies: a warp keeps a ring of pieces in shared memory, each loaded once and stored from there
 * to all its places by as many lanes. Few warps keep a link busy, and no register holds a row. */
#include "kernels/bulk_copy.h"
#include "kernels/exchange_send.h"

enum { THREADS = 256, WARPS = THREADS / 32, STAGES = 8, BEHIND = 4, ROOM = 224 * 1024 };

GPU_KERNEL(THREADS)
exchange_send_bulk(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p, int piece_bytes) {
    extern __shared__ __align__(128) unsigned char room[];
    __shared__ exchange_block block;
    __shared__ uint64_t full[WARPS][STAGES];
    const int warp = gpu_thread() / 32, lane = gpu_lane();
    const int pieces = (a.row_bytes + piece_bytes - 1) / piece_bytes; /* of an item */
    const long count = (long)a.items * pieces, step = (long)a.blocks * WARPS;
    const long begin = (long)gpu_block() * WARPS + warp;
    unsigned char *ring = room + (long)warp * STAGES * piece_bytes;
    if (lane == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[warp][s], 1);
        barrier_init_fence();
    }
    auto bytes_of = [&](long n) {
        const int rest = a.row_bytes - (int)(n % pieces) * piece_bytes;
        return rest < piece_bytes ? rest : piece_bytes;
    };
    auto load = [&](long n, int stage) {
        if (lane != 0 || n >= count) return;
        barrier_expect(&full[warp][stage], (unsigned)bytes_of(n));
        bulk_load(ring + (long)stage * piece_bytes,
                  a.payload + n / pieces * a.row_bytes + n % pieces * piece_bytes, bytes_of(n),
                  &full[warp][stage]);
    };
    /* Own rows do not depend on other ranks: they are on their way while the block waits. */
    for (int s = 0; s < STAGES - BEHIND; s++) load(begin + s * step, s);
    exchange_send_enter(a, p, &block, THREADS);
    exchange_copy next = exchange_copy_of(a, p, &block, begin / pieces, lane);
    long turn = 0;
    for (long n = begin; n < count; n += step, turn++) {
        const int stage = (int)(turn % STAGES), ahead = (int)((turn + STAGES - BEHIND) % STAGES);
        const long item = n / pieces;
        const exchange_copy copy = next;
        next = exchange_copy_of(a, p, &block, (n + step) / pieces, lane);
        if (n % pieces == 0) {
            if (copy.row >= 0) gpu_add(&block.rows[copy.rank], 1);
            exchange_send_words(a, item, copy, gpu_ballot(copy.row >= 0));
        }
        barrier_wait(&full[warp][stage], (unsigned)(turn / STAGES % 2));
        if (copy.row >= 0)
            bulk_store(a.window[copy.rank] + (long)copy.row * a.row_bytes + n % pieces * piece_bytes,
                       ring + (long)stage * piece_bytes, bytes_of(n));
        bulk_close_group();
        bulk_wait_read<BEHIND>();
        __syncwarp();
        load(n + (STAGES - BEHIND) * step, ahead);
    }
    bulk_wait_written();
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_send_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

#if GPU_HOST
int spw_launch_exchange_send_bulk(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    const int most = ROOM / (WARPS * STAGES) / 128 * 128; /* bytes of a piece */
    if (send->copies > 32) return spw_launch_exchange_send(send, peers, stream);
    const int pieces = (send->row_bytes + most - 1) / most;
    const int piece_bytes = ((send->row_bytes + pieces - 1) / pieces + 15) / 16 * 16;
    const int bytes = WARPS * STAGES * piece_bytes;
    const cudaError_t error = cudaFuncSetAttribute((const void *)exchange_send_bulk,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return (int)error;
    exchange_send_bulk<<<(unsigned)send->blocks, THREADS, (unsigned)bytes, stream>>>(*send, *peers,
                                                                                     piece_bytes);
    return (int)cudaGetLastError();
}
#endif
