/* Rows back from other ranks: a wave fetches a part of all copies of an item from where they lie and adds them in
 * fp32. Another GPU's memory is far: a lane asks for all of its pieces of two copies before it adds the first. */
#include "kernels/exchange/exchange_reduce.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE };
enum {
    PIECES = 2,
    PIECES_OF_FEW = 7,
    FEW = 80
}; /* as in exchange_send.hip; about 2 MB are under way at best */

/* What a wave knows of the copies in its lanes. */
struct reduce_copies {
    exchange_copy copy;
    float weight;
    unsigned long long left; /* those whose rows are added */
};

/* Adds a part of the rows, in order: UNROLL pieces of TOGETHER copies are asked for before the first is added. */
template <int UNROLL, int TOGETHER>
GPU_DEVICE void reduce_rows(const spw_reduce_gpu &a, reduce_copies c, int at, int pieces,
                            float sum[UNROLL][8]) {
    while (c.left != 0) {
        gpu_bytes16 x[TOGETHER][UNROLL];
        float by[TOGETHER];
        bool there[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            there[t] = c.left != 0;
            if (!there[t]) continue;
            const int from = gpu_lowest(c.left);
            const int rank = (int)gpu_shuffle((unsigned)c.copy.rank, from);
            const long row = (int)gpu_shuffle((unsigned)c.copy.row, from);
            const gpu_bytes16 *data = (const gpu_bytes16 *)a.window[rank] + row * pieces;
            by[t] = gpu_shuffle_float(c.weight, from);
            c.left &= c.left - 1;
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                x[t][u] = data[at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : 0];
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            if (!there[t]) continue;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum[u][i] = __builtin_fmaf(by[t], gpu_bf16_of(x[t][u], i), sum[u][i]);
            }
        }
    }
}

template <int UNROLL, int TOGETHER> GPU_DEVICE void reduce(const spw_reduce_gpu &a, const spw_peers &p) {
    __shared__ exchange_block block;
    enum { PART = UNROLL * GPU_WAVE };
    const int pieces = a.width / 8,
              of_rows = (pieces + PART - 1) / PART; /* numbers beside a row are a part, too */
    const int parts = of_rows + (a.side > 0 || of_rows == 0 ? 1 : 0);
    const int count = exchange_turns(a) * parts, step = a.blocks * WAVES;
    const int begin = gpu_block() * WAVES + gpu_thread() / GPU_WAVE;
    exchange_given_bases(p, &block, a.base, THREADS);
    exchange_copy next = exchange_copy_of(a, p, &block, exchange_item(a, begin / parts), gpu_lane());
    exchange_enter(p, THREADS);
    unsigned asked = 0;
    for (int n = begin, behind = begin + step; n < count;
         n = behind, behind = exchange_told(p, asked, n, step)) {
        const long item = exchange_item(a, n / parts);
        asked = exchange_ask(p);
        const int at = n % parts * PART + gpu_lane();
        float sum[UNROLL][8] = {};
        for (int first = 0; first < a.copies; first += GPU_WAVE) {
            const int f = first + gpu_lane();
            const exchange_copy copy = first == 0 ? next : exchange_copy_of(a, p, &block, item, f);
            const float weight = a.weight == nullptr || copy.row < 0 ? 1 : a.weight[item * a.copies + f];
            const bool counts = n % parts == 0 && copy.row >= 0;
            const int source =
                counts ? exchange_source_of(a, copy, item) : (int)item; /* asked for with the rows */
            const unsigned long long added = gpu_ballot(copy.row >= 0 && n % parts < of_rows);
            if (first == 0)
                next = exchange_copy_of(a, p, &block, exchange_item(a, behind / parts), gpu_lane());
            reduce_rows<UNROLL, TOGETHER>(a, {copy, weight, added}, at, pieces, sum);
            if (!counts) continue;
            gpu_add(&block.rows[copy.rank], 1);
            if (source != (int)item) p.control[p.rank]->stale = 1 + (int)item;
        }
        if (item >= a.items) continue;
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (at + u * GPU_WAVE < pieces) exchange_store(a.y, item * pieces + at + u * GPU_WAVE, sum[u]);
        if (n % parts == of_rows) exchange_reduce_side(a, p, &block, item);
    }
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
