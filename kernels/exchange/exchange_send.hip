/* Rows to other ranks: a wave reads a part of an item once and writes it to all its places. A part is what a wave
 * holds in registers, so that few items keep as many waves busy as many. */
#include "kernels/exchange/exchange_send.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE, UNROLL = 4, PART = GPU_WAVE * UNROLL };

GPU_KERNEL(THREADS) exchange_send(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    const int pieces = a.row_bytes / 16, parts = (pieces + PART - 1) / PART;
    const int count = exchange_turns(a) * parts;
    gpu_wait_for_previous();
    exchange_send_enter(a, p, &block, THREADS);
    for (int n = gpu_block() * WAVES + gpu_thread() / GPU_WAVE; n < count; n += a.blocks * WAVES) {
        const long item = exchange_item(a, n / parts);
        if (item >= a.items) continue;
        const int at = n % parts * PART + gpu_lane();
        gpu_bytes16 moved[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int piece = at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : 0;
            moved[u] = ((const gpu_bytes16 *)a.payload)[item * pieces + piece];
        }
        for (int first = 0; first < a.copies; first += GPU_WAVE) {
            const exchange_copy copy = exchange_copy_of(a, p, &block, item, first + gpu_lane());
            const unsigned long long mask = gpu_ballot(copy.row >= 0);
            for (unsigned long long left = mask; left != 0; left &= left - 1) {
                const int from = gpu_lowest(left);
                const int rank = (int)gpu_shuffle((unsigned)copy.rank, from);
                const long row = (int)gpu_shuffle((unsigned)copy.row, from);
                gpu_bytes16 *to = (gpu_bytes16 *)a.window[rank] + row * pieces;
#pragma unroll
                for (int u = 0; u < UNROLL; u++)
                    if (at + u * GPU_WAVE < pieces) to[at + u * GPU_WAVE] = moved[u];
            }
            if (n % parts != 0) continue;
            if (copy.row >= 0) gpu_add(&block.rows[copy.rank], 1);
            exchange_send_words(a, item, copy, mask);
        }
    }
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_send_bytes(a), THREADS);
    exchange_leave(p, THREADS, a.blocks);
}

/* One block that sends nothing. */
GPU_KERNEL(THREADS) exchange_notices(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    exchange_bases(p, &block, a.handle, a.local, THREADS);
}

#if GPU_HOST
int spw_launch_exchange_send(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    if (!exchange_fits(*send, (send->row_bytes / 16 + PART - 1) / PART)) return (int)cudaErrorInvalidValue;
#if defined(__CUDACC__)
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3((unsigned)send->blocks), how.blockDim = dim3(THREADS), how.stream = stream;
    how.attrs = &early, how.numAttrs = 1;
    return (int)cudaLaunchKernelEx(&how, exchange_send, *send, *peers);
#else
    exchange_send<<<(unsigned)send->blocks, THREADS, 0, stream>>>(*send, *peers);
    return (int)cudaGetLastError();
#endif
}

int spw_launch_exchange_notices(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    exchange_notices<<<1, THREADS, 0, stream>>>(*send, *peers);
    return (int)cudaGetLastError();
}
#endif
