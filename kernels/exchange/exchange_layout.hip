/* Which tokens go to which rank. A block owns a destination: it counts tokens and choices of the rank's experts in
 * order, and tells every rank. Nothing is exchanged but these numbers. */
#include "kernels/exchange/exchange_peer.h"

enum { THREADS = 1024, WAVES = THREADS / GPU_WAVE, TOKENS = 4, CHOICES = 8 };

GPU_DEVICE int wave_total(int value) {
    for (int step = GPU_WAVE / 2; step > 0; step /= 2)
        value += (int)gpu_shuffle((unsigned)value, gpu_lane() ^ step);
    return value;
}

GPU_KERNEL(THREADS) exchange_layout(GPU_ARGUMENT spw_layout_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ int choices[SPW_WORLD_EXPERTS], in_wave[2][TOKENS][WAVES];
    const int rank = gpu_block(), local = a.experts / p.ranks, behind = (rank + 1) * local;
    const int wave = gpu_thread() / GPU_WAVE;
    int seen = 0;
    gpu_let_next_start();
    for (int x = gpu_thread(); x < local; x += THREADS) choices[x] = 0;
    gpu_barrier();
    for (int first = 0, turn = 0; first < a.tokens; first += THREADS * TOKENS, turn ^= 1) {
        unsigned long long mask[TOKENS];
        bool wanted[TOKENS] = {};
        for (int k = 0; k < a.top_k; k += CHOICES) { /* all loads of a turn go out before the first is used */
            int x[TOKENS][CHOICES];
#pragma unroll
            for (int j = 0; j < TOKENS; j++) {
                const long token = first + j * THREADS + gpu_thread();
#pragma unroll
                for (int c = 0; c < CHOICES; c++)
                    x[j][c] = token < a.tokens && k + c < a.top_k ? a.expert[token * a.top_k + k + c] : -1;
            }
#pragma unroll
            for (int j = 0; j < TOKENS; j++) {
#pragma unroll
                for (int c = 0; c < CHOICES; c++) {
                    const int own = x[j][c] - (behind - local);
                    if (own < 0 || own >= local) continue;
                    gpu_add(&choices[own], 1);
                    wanted[j] = true;
                }
            }
        }
#pragma unroll
        for (int j = 0; j < TOKENS; j++) {
            mask[j] = gpu_ballot(wanted[j]);
            if (gpu_lane() == 0) in_wave[turn][j][wave] = gpu_bits(mask[j]);
        }
        gpu_barrier(); /* once a turn: the next one writes the other half */
#pragma unroll
        for (int j = 0; j < TOKENS; j++) {
            const int token = first + j * THREADS + gpu_thread();
            const int of_wave = gpu_lane() < WAVES ? in_wave[turn][j][gpu_lane()] : 0;
            const int before = seen + wave_total(gpu_lane() < wave ? of_wave : 0) +
                               gpu_bits(mask[j] & ((1ull << gpu_lane()) - 1));
            seen += wave_total(of_wave);
            if (token < a.tokens) a.place[(long)token * p.ranks + rank] = wanted[j] ? before : -1;
        }
    }
    gpu_barrier();
    for (int x = gpu_thread(); x < local; x += THREADS) {
        a.expert_tokens[behind - local + x] = choices[x];
        p.control[rank]->expert_count[p.rank][x] = choices[x];
    }
    if (gpu_thread() == 0) a.rank_tokens[rank] = seen;
    gpu_settle();
    gpu_barrier();
    for (int r = gpu_thread(); r < p.ranks; r += THREADS) {
        const unsigned long long notice = (unsigned long long)p.epoch << 32 | (unsigned)seen;
        unsigned long long *to = &p.control[r]->notice[p.rank][rank];
        if (p.wait) {
            gpu_release_system(to, notice); /* and all that the block wrote before the barrier */
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
