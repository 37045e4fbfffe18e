/* Which tokens go to which rank. A block owns a destination: it finds places of tokens in order, tells every rank how
 * many there are, which is what rows wait for, and then counts the choices of the rank's experts. Nothing is exchanged but
 * these numbers. */
#include "kernels/exchange/exchange_peer.h"

enum { THREADS = 1024, WAVES = THREADS / GPU_WAVE, TOKENS = 4, CHOICES = 8 };

GPU_DEVICE int wave_total(int value) {
#if defined(__CUDA_ARCH__)
    return __reduce_add_sync(~0u, value);
#else
    for (int step = GPU_WAVE / 2; step > 0; step /= 2)
        value += (int)gpu_shuffle((unsigned)value, gpu_lane() ^ step);
    return value;
#endif
}

/* Choices k to k + CHOICES of tokens first + j * THREADS + thread; -1: there is none. All loads go out before the first is
 * used, and are of 16 bytes where they can be. */
GPU_DEVICE void choices_of(const spw_layout_gpu &a, int first, int k, int x[TOKENS][CHOICES]) {
    const bool whole = a.top_k % 4 == 0 && (unsigned long long)a.expert % 16 == 0;
#pragma unroll
    for (int j = 0; j < TOKENS; j++) {
        const long token = first + j * THREADS + gpu_thread();
        const int *from = a.expert + token * a.top_k + k;
        const int left = token < a.tokens ? a.top_k - k : 0;
#pragma unroll
        for (int c = 0; c < CHOICES; c += 4) {
            if (whole) {
                const gpu_bytes16 four = c < left ? *(const gpu_bytes16 *)(from + c) : gpu_zeros16();
                x[j][c] = c < left ? (int)four.x : -1, x[j][c + 1] = c < left ? (int)four.y : -1;
                x[j][c + 2] = c < left ? (int)four.z : -1, x[j][c + 3] = c < left ? (int)four.w : -1;
            } else {
#pragma unroll
                for (int i = c; i < c + 4; i++) x[j][i] = i < left ? from[i] : -1;
            }
        }
    }
}

/* place[token][rank] of all tokens; returns how many go there. own: the rank's first expert. */
GPU_DEVICE int places_of(const spw_layout_gpu &a, int ranks, int rank, int own, int local) {
    __shared__ int in_wave[2][TOKENS][WAVES];
    const int wave = gpu_thread() / GPU_WAVE;
    int seen = 0;
    for (int first = 0, turn = 0; first < a.tokens; first += THREADS * TOKENS, turn ^= 1) {
        unsigned long long mask[TOKENS];
        bool wanted[TOKENS] = {};
        for (int k = 0; k < a.top_k; k += CHOICES) {
            int x[TOKENS][CHOICES];
            choices_of(a, first, k, x);
#pragma unroll
            for (int j = 0; j < TOKENS; j++) {
#pragma unroll
                for (int c = 0; c < CHOICES; c++) wanted[j] |= x[j][c] >= own && x[j][c] - own < local;
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
            if (token < a.tokens) a.place[(long)token * ranks + rank] = wanted[j] ? before : -1;
        }
    }
    return seen;
}

GPU_KERNEL(THREADS) exchange_layout(GPU_ARGUMENT spw_layout_gpu a, GPU_ARGUMENT spw_peers p) {
    __shared__ int choices[SPW_WORLD_EXPERTS];
    const int rank = gpu_block(), local = a.experts / p.ranks, own = rank * local;
    gpu_let_next_start();
    const int seen = places_of(a, p.ranks, rank, own, local);
    for (int r = gpu_thread(); r < p.ranks; r += THREADS) {
        const unsigned long long notice = (unsigned long long)p.epoch << 32 | (unsigned)seen;
        gpu_release_earlier(&p.control[r]->notice[p.rank][rank], notice);
    }
    if (gpu_thread() == 0) a.rank_tokens[rank] = seen;
    for (int x = gpu_thread(); x < local; x += THREADS) choices[x] = 0;
    gpu_settle();
    gpu_barrier();
    if (p.wait && gpu_thread() == THREADS - 1) gpu_release(&p.control[p.rank]->placed[rank], p.epoch);
    for (int first = 0; first < a.tokens; first += THREADS * TOKENS) {
        for (int k = 0; k < a.top_k; k += CHOICES) {
            int x[TOKENS][CHOICES];
            choices_of(a, first, k, x);
#pragma unroll
            for (int j = 0; j < TOKENS; j++) {
#pragma unroll
                for (int c = 0; c < CHOICES; c++)
                    if (x[j][c] >= own && x[j][c] - own < local) gpu_add(&choices[x[j][c] - own], 1);
            }
        }
    }
    gpu_barrier();
    for (int x = gpu_thread(); x < local; x += THREADS) {
        a.expert_tokens[own + x] = choices[x];
        p.control[rank]->expert_count[p.rank][x] = choices[x];
    }
    gpu_settle();
    gpu_barrier();
    if (p.wait && gpu_thread() == THREADS - 1) gpu_release_system(&p.control[rank]->counted[p.rank], p.epoch);
}

#if GPU_HOST
int spw_launch_exchange_layout(spw_layout_gpu layout, spw_peers peers, gpu_stream stream) {
    exchange_layout<<<(unsigned)peers.ranks, THREADS, 0, stream>>>(layout, peers);
    return (int)cudaGetLastError();
}
#endif
