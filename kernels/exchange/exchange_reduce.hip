/* Rows back from other ranks: a wave fetches a part of all copies of an item from where they lie and adds them in
 * fp32. Another GPU's memory is far: a lane asks for all of its pieces of two copies before it adds the first. */
#include "kernels/exchange/exchange_reduce.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE, UNROLL = 4, TOGETHER = 2, PART = GPU_WAVE * UNROLL };

/* Of an item; one where rows have no width and only numbers beside them are added. */
GPU_DEVICE int parts_of(int width) { return width > 0 ? (width / 8 + PART - 1) / PART : 1; }

GPU_KERNEL(THREADS) exchange_reduce(GPU_ARGUMENT spw_reduce_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    const int pieces = a.width / 8, parts = parts_of(a.width);
    const int count = exchange_turns(a) * parts, step = a.blocks * WAVES;
    const int begin = gpu_block() * WAVES + gpu_thread() / GPU_WAVE;
    exchange_enter(p, THREADS);
    exchange_given_bases(p, &block, a.base, THREADS);
    exchange_copy next = exchange_copy_of(a, p, &block, exchange_item(a, begin / parts), gpu_lane());
    for (int n = begin; n < count; n += step) {
        const long item = exchange_item(a, n / parts);
        const int at = n % parts * PART + gpu_lane();
        float sum[UNROLL][8] = {};
        for (int first = 0; first < a.copies; first += GPU_WAVE) {
            const int f = first + gpu_lane();
            const exchange_copy copy = first == 0 ? next : exchange_copy_of(a, p, &block, item, f);
            const float weight = a.weight == nullptr || copy.row < 0 ? 1 : a.weight[item * a.copies + f];
            unsigned long long left = gpu_ballot(copy.row >= 0 && pieces > 0);
            if (first == 0)
                next = exchange_copy_of(a, p, &block, exchange_item(a, (n + step) / parts), gpu_lane());
            while (left != 0) {
                gpu_bytes16 x[TOGETHER][UNROLL];
                float by[TOGETHER];
                bool there[TOGETHER];
#pragma unroll
                for (int c = 0; c < TOGETHER; c++) {
                    there[c] = left != 0;
                    if (!there[c]) continue;
                    const int from = gpu_lowest(left);
                    const int rank = (int)gpu_shuffle((unsigned)copy.rank, from);
                    const long row = (int)gpu_shuffle((unsigned)copy.row, from);
                    const gpu_bytes16 *data = (const gpu_bytes16 *)a.window[rank] + row * pieces;
                    by[c] = gpu_shuffle_float(weight, from);
                    left &= left - 1;
#pragma unroll
                    for (int u = 0; u < UNROLL; u++)
                        x[c][u] = data[at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : 0];
                }
#pragma unroll
                for (int c = 0; c < TOGETHER; c++) {
                    if (!there[c]) continue;
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
                        for (int i = 0; i < 8; i++)
                            sum[u][i] = __builtin_fmaf(by[c], gpu_bf16_of(x[c][u], i), sum[u][i]);
                    }
                }
            }
            if (n % parts != 0 || copy.row < 0) continue;
            gpu_add(&block.rows[copy.rank], 1);
            if (exchange_source_of(a, copy, item) != (int)item) p.control[p.rank]->stale = 1 + (int)item;
        }
        if (item >= a.items) continue;
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (at + u * GPU_WAVE < pieces) exchange_store(a.y, item * pieces + at + u * GPU_WAVE, sum[u]);
        if (n % parts == 0) exchange_reduce_side(a, p, &block, item);
    }
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_reduce_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

#if GPU_HOST
int spw_launch_exchange_reduce(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    const int parts = reduce->width > 0 ? (reduce->width / 8 + PART - 1) / PART : 1;
    if (!exchange_fits(*reduce, parts)) return (int)cudaErrorInvalidValue;
    exchange_reduce<<<(unsigned)reduce->blocks, THREADS, 0, stream>>>(*reduce, *peers);
    return (int)cudaGetLastError();
}
#endif
