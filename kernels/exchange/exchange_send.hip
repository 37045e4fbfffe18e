/* Rows to other ranks: a wave reads a part of an item once and writes it to all its places. A part is what a wave
 * holds in registers: a small one where many multiprocessors send, so that all end together, a large one where few do, so
 * that enough is under way. */
#include "kernels/exchange/exchange_send.h"

enum { THREADS = 512, WAVES = THREADS / GPU_WAVE };
/* Of a part, a lane; blocks that are few: measured on two H200 (docs/validation_exchange.md). AMD's would spill with more. */
enum { PIECES = 2, PIECES_OF_FEW = GPU_WAVE == 32 ? 7 : PIECES, FEW = 48 };

GPU_DEVICE int parts_of(int pieces, int unroll) {
    return (pieces + unroll * GPU_WAVE - 1) / (unroll * GPU_WAVE);
}

/* The lane's pieces of an item from `at` on; those behind its end are its first. */
template <int UNROLL>
GPU_DEVICE void part_of(const spw_send_gpu &a, long item, int at, int pieces, gpu_bytes16 moved[UNROLL]) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int piece = at + u * GPU_WAVE < pieces ? at + u * GPU_WAVE : 0;
        moved[u] = ((const gpu_bytes16 *)a.payload)[item * pieces + piece];
    }
}

template <int UNROLL> GPU_DEVICE void send(const spw_send_gpu &a, const spw_peers &p) {
    __shared__ exchange_block block;
    enum { PART = UNROLL * GPU_WAVE };
    const int pieces = a.row_bytes / 16, parts = parts_of(pieces, UNROLL);
    const int count = exchange_turns(a) * parts, step = a.blocks * WAVES;
    const int begin = gpu_block() * WAVES + gpu_thread() / GPU_WAVE;
    gpu_bytes16 moved[UNROLL];
    /* What is waited for there is a notice of every rank, this one too: its layout is there with it. */
    if (!p.wait || !(a.parts & SPW_SEND_NOTICED)) gpu_wait_for_previous();
    if (begin < count && exchange_item(a, begin / parts) < a.items)
        part_of<UNROLL>(a, exchange_item(a, begin / parts), begin % parts * PART + gpu_lane(), pieces, moved);
    exchange_send_enter(a, p, &block, THREADS);
    if (begin == 0 && a.parts & SPW_SEND_NOTICED) exchange_offsets(p, a.handle, a.local);
    unsigned asked = 0;
    for (int n = begin, behind = begin + step; n < count;
         n = behind, behind = exchange_told(p, asked, n, step)) {
        const long item = exchange_item(a, n / parts);
        asked = exchange_ask(p, 0);
        if (item >= a.items) continue;
        const int at = n % parts * PART + gpu_lane();
        if (n != begin) part_of<UNROLL>(a, item, at, pieces, moved);
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
            if (n % parts != parts - 1) continue; /* the last part is the shortest */
            if (copy.row >= 0) gpu_add(&block.rows[copy.rank], 1);
            exchange_send_words(a, item, copy, mask);
        }
    }
    gpu_barrier();
    exchange_count(p, &block, a.counter, exchange_send_bytes(a), THREADS);
    gpu_wait_for_previous(); /* so that this kernel does not end before the layout */
    exchange_leave(p, THREADS, a.blocks);
}

GPU_KERNEL(THREADS) exchange_send(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p) {
    send<PIECES>(a, p);
}
GPU_KERNEL(THREADS) exchange_send_few(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p) {
    send<PIECES_OF_FEW>(a, p);
}

/* One block that sends nothing. */
GPU_KERNEL(THREADS) exchange_notices(GPU_ARGUMENT spw_send_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ exchange_block block;
    exchange_bases(p, &block, a.handle, THREADS);
    if (gpu_thread() < GPU_WAVE) exchange_offsets(p, a.handle, a.local);
}

#if GPU_HOST
int spw_launch_exchange_send(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    const bool few = send->blocks < FEW;
    if (!exchange_fits(*send, (send->row_bytes / 16 + GPU_WAVE - 1) / GPU_WAVE))
        return (int)cudaErrorInvalidValue;
#if defined(__CUDACC__)
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3((unsigned)send->blocks), how.blockDim = dim3(THREADS), how.stream = stream;
    how.attrs = &early, how.numAttrs = 1;
    return (int)cudaLaunchKernelEx(&how, few ? exchange_send_few : exchange_send, *send, *peers);
#else
    (few ? exchange_send_few : exchange_send)<<<(unsigned)send->blocks, THREADS, 0, stream>>>(*send, *peers);
    return (int)cudaGetLastError();
#endif
}

int spw_launch_exchange_notices(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream) {
    exchange_notices<<<1, THREADS, 0, stream>>>(*send, *peers);
    return (int)cudaGetLastError();
}
#endif
