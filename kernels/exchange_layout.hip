/* Which tokens go to which rank. A block owns a destination: it counts tokens and choices of the rank's experts in order, and tells
 * every rank. Nothing is exchanged but these numbers. */
#include "kernels/exchange_peer.h"

enum { THREADS = 1024, WAVES = THREADS / GPU_WAVE };

GPU_KERNEL(THREADS) exchange_layout(GPU_ARGUMENT spw_layout_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ int choices[SPW_WORLD_EXPERTS], in_wave[2][WAVES];
    const int rank = gpu_block(), local = a.experts / p.ranks, behind = (rank + 1) * local;
    const int wave = gpu_thread() / GPU_WAVE;
    int seen = 0;
    for (int x = gpu_thread(); x < local; x += THREADS) choices[x] = 0;
    gpu_barrier();
    for (int first = 0, turn = 0; first < a.tokens; first += THREADS, turn ^= 1) {
        const int token = first + gpu_thread();
        bool wanted = false;
        for (int k = 0; k < a.top_k && token < a.tokens; k++) {
            const int x = a.expert[(long)token * a.top_k + k] - (behind - local);
            if (x < 0 || x >= local) continue;
            gpu_add(&choices[x], 1);
            wanted = true;
        }
        const unsigned long long mask = gpu_ballot(wanted);
        if (gpu_lane() == 0) in_wave[turn][wave] = gpu_bits(mask);
        gpu_barrier(); /* once a turn: the next one writes the other half */
        int before = seen + gpu_bits(mask & ((1ull << gpu_lane()) - 1));
        for (int w = 0; w < WAVES; w++) {
            if (w < wave) before += in_wave[turn][w];
            seen += in_wave[turn][w];
        }
        if (token < a.tokens) a.place[(long)token * p.ranks + rank] = wanted ? before : -1;
    }
    gpu_barrier();
    for (int x = gpu_thread(); x < local; x += THREADS) {
        a.expert_tokens[behind - local + x] = choices[x];
        p.control[rank]->expert_count[p.rank][x] = choices[x];
    }
    if (gpu_thread() == 0) a.rank_tokens[rank] = seen;
    if (p.wait) gpu_fence_system();
    gpu_barrier();
    for (int r = gpu_thread(); r < p.ranks; r += THREADS) {
        const unsigned long long notice = (unsigned long long)p.epoch << 32 | (unsigned)seen;
        unsigned long long *to = &p.control[r]->notice[p.rank][rank];
        if (p.wait) {
            gpu_release_system(to, notice);
        } else {
            *to = notice;
        }
    }
}

#if GPU_HOST
int spw_launch_exchange_layout(spw_layout_gpu layout, spw_peers peers, gpu_stream stream) {
    exchange_layout<<<(unsigned)peers.ranks, THREADS, 0, stream>>>(layout, peers);
    return (int)cudaGetLastError();
}
#endif
