/* Rows back from other ranks: a wave fetches a part of all copies of an item from where they lie and adds them in
 * fp32. Another GPU's memory is far: a lane asks for all of its pieces of two copies before it adds the first. */
#include "kernels/exchange/exchange_reduce.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE };
enum {
    PIECES = 2,
    PIECES_OF_FEW = 7,
    FEW = 80
}; /* as in exchange_send.hip; about 2 MB are under way at best */

/* Rows where they lie. */
struct rows_there {
    const spw_reduce_gpu &a;

    GPU_MEMBER const gpu_bytes16 *row(int rank, long row, int pieces) const {
        return (const gpu_bytes16 *)a.window[rank] + row * pieces;
    }
    GPU_MEMBER const float *side(exchange_copy copy) const {
        return (const float *)(a.window[copy.rank] + (long)a.capacity[copy.rank] * a.width * 2) +
               (long)copy.row * a.side;
    }
    /* Asked for with the rows, where it is looked at. */
    GPU_MEMBER int source(exchange_copy copy, long item, int, bool counts) const {
        const int *source = counts ? a.source[copy.rank] : nullptr;
        return source == nullptr ? (int)item : source[copy.row];
    }
};

template <int UNROLL, int TOGETHER> GPU_DEVICE void reduce(const spw_reduce_gpu &a, const spw_peers &p) {
    __shared__ exchange_block block;
    const int step = a.blocks * WAVES, begin = gpu_block() * WAVES + gpu_thread() / GPU_WAVE;
    exchange_given_bases(p, &block, a.base, THREADS);
    const exchange_copy first = exchange_copy_of(
        a, p, &block, exchange_item(a, begin / exchange_parts<UNROLL>(a.width, a.side)), gpu_lane());
    exchange_enter(p, THREADS);
    exchange_reduce_parts<UNROLL, TOGETHER>(a, p, &block, rows_there{a}, {0, begin, begin + step, step},
                                            first);
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_reduce_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

GPU_KERNEL(THREADS) exchange_reduce(GPU_ARGUMENT spw_reduce_gpu a, GPU_ARGUMENT spw_peers p) {
    reduce<PIECES, 2>(a, p);
}
GPU_KERNEL(THREADS) exchange_reduce_few(GPU_ARGUMENT spw_reduce_gpu a, GPU_ARGUMENT spw_peers p) {
    reduce<PIECES_OF_FEW, 1>(a, p);
}

#if GPU_HOST
int spw_launch_exchange_reduce(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    const int parts = reduce->width / 8 / GPU_WAVE + 2;
    if (!exchange_fits(*reduce, parts)) return (int)cudaErrorInvalidValue;
    (reduce->blocks < FEW
         ? exchange_reduce_few
         : exchange_reduce)<<<(unsigned)reduce->blocks, THREADS, 0, stream>>>(*reduce, *peers);
    return (int)cudaGetLastError();
}
#endif
