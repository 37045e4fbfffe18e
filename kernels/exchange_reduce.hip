/* Rows back from other ranks: a wave fetches all copies of an item from where they lie and adds them in fp32. */
#include "kernels/exchange_reduce.h"

enum { THREADS = 256, UNROLL = 8 };

GPU_KERNEL(THREADS) exchange_reduce(GPU_ARGUMENT spw_reduce_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    __shared__ unsigned long long row[THREADS / GPU_WAVE][SPW_WORLD_RANKS]; /* addresses */
    __shared__ float by[THREADS / GPU_WAVE][SPW_WORLD_RANKS];
    const int pieces = a.width / 8, waves = THREADS / GPU_WAVE, wave = gpu_thread() / GPU_WAVE;
    exchange_enter(p, THREADS);
    exchange_given_bases(p, &block, a.base, THREADS);
    for (long item = (long)gpu_block() * waves + wave; item < a.items; item += (long)a.blocks * waves) {
        int copies = 0;
        for (int first = 0; first < a.copies; first += GPU_WAVE) {
            const int f = first + gpu_lane();
            const exchange_copy copy = exchange_copy_of(a, p, &block, item, f);
            const unsigned long long mask = gpu_ballot(copy.row >= 0);
            const int slot = copies + gpu_bits(mask & ((1ull << gpu_lane()) - 1));
            if (copy.row >= 0) {
                gpu_add(&block.rows[copy.rank], 1);
                row[wave][slot] =
                    (unsigned long long)((const gpu_bytes16 *)a.window[copy.rank] + (long)copy.row * pieces);
                by[wave][slot] = a.weight == nullptr ? 1 : a.weight[item * a.copies + f];
                if (exchange_source_of(a, copy, item) != (int)item) p.control[p.rank]->stale = 1 + (int)item;
            }
            copies += gpu_bits(mask);
        }
        gpu_wave_order();
        for (int piece = gpu_lane(); piece < pieces; piece += GPU_WAVE) {
            float sum[8] = {};
            for (int first = 0; first < copies; first += UNROLL) {
                gpu_bytes16 x[UNROLL];
#pragma unroll
                for (int c = 0; c < UNROLL; c++)
                    if (first + c < copies)
                        x[c] = ((const GPU_GLOBAL gpu_bytes16 *)row[wave][first + c])[piece];
#pragma unroll
                for (int c = 0; c < UNROLL; c++) {
                    if (first + c >= copies) continue;
                    const float w = by[wave][first + c];
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[i] = __builtin_fmaf(w, gpu_bf16_of(x[c], i), sum[i]);
                }
            }
            exchange_store(a.y, item * pieces + piece, sum);
        }
        exchange_reduce_side(a, p, &block, item);
        gpu_wave_order();
    }
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_reduce_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

#if GPU_HOST
int spw_launch_exchange_reduce(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream) {
    exchange_reduce<<<(unsigned)reduce->blocks, THREADS, 0, stream>>>(*reduce, *peers);
    return (int)cudaGetLastError();
}
#endif
