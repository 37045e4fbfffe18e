/* The ring of experts beside its exchanges: choices as arrays over all experts, and back. One block a token. */
#include "kernels/exchange/ring_launch.h"
#include "kernels/gpu/gpu.h"

enum { THREADS = 128 };

GPU_KERNEL(THREADS)
ring_words(int top_k, int experts, const int *expert, const float *weight, float *words) {
    const long token = gpu_block();
    float *mine = words + token * 2 * experts;
    for (int i = gpu_thread(); i < 2 * experts; i += THREADS) mine[i] = 0;
    gpu_barrier();
    for (int k = gpu_thread(); k < top_k; k += THREADS) {
        const int x = expert[token * top_k + k];
        if (x < 0) continue;
        mine[x] = (float)(k + 1);
        mine[experts + x] = weight[token * top_k + k];
    }
}

GPU_KERNEL(THREADS)
ring_choices(int top_k, int experts, int first, int local, const float *words, int *expert, float *weight) {
    const long token = gpu_block();
    const float *mine = words + token * 2 * experts + first;
    for (int k = gpu_thread(); k < top_k; k += THREADS)
        expert[token * top_k + k] = -1, weight[token * top_k + k] = 0;
    gpu_barrier();
    for (int x = gpu_thread(); x < local; x += THREADS) {
        const int slot = (int)mine[x];
        if (slot < 1 || slot > top_k) continue;
        expert[token * top_k + slot - 1] = x;
        weight[token * top_k + slot - 1] = mine[experts + x];
    }
}

GPU_KERNEL(THREADS) ring_truncate(int choices, int local, int rows, int *row, int *offset) {
    const int i = gpu_block() * THREADS + gpu_thread();
    if (i < choices && row[i] >= rows) row[i] = -1;
    if (i <= local && offset[i] > rows) offset[i] = rows;
}

GPU_KERNEL(THREADS)
ring_side(int top_k, int experts, int first, const int *expert, const float *d_weight, float *side) {
    const long token = gpu_block();
    float *mine = side + token * experts;
    for (int x = gpu_thread(); x < experts; x += THREADS) mine[x] = 0;
    gpu_barrier();
    for (int k = gpu_thread(); k < top_k; k += THREADS) {
        const int x = expert[token * top_k + k];
        if (x >= 0) mine[first + x] = d_weight[token * top_k + k];
    }
}

GPU_KERNEL(THREADS)
ring_pick(int choices, int top_k, int experts, const int *expert, const float *side, float *d_weight) {
    const int i = gpu_block() * THREADS + gpu_thread();
    if (i >= choices) return;
    const int x = expert[i];
    d_weight[i] = x < 0 ? 0 : side[(long)(i / top_k) * experts + x];
}

#if GPU_HOST
static unsigned blocks_of(int threads) { return (unsigned)((threads + THREADS - 1) / THREADS); }

int spw_launch_ring_words(int tokens, int top_k, int experts, const int *expert, const float *weight,
                          float *words, gpu_stream stream) {
    if (tokens > 0)
        ring_words<<<(unsigned)tokens, THREADS, 0, stream>>>(top_k, experts, expert, weight, words);
    return (int)cudaGetLastError();
}

int spw_launch_ring_choices(int tokens, int top_k, int experts, int first, int local, const float *words,
                            int *expert, float *weight, gpu_stream stream) {
    if (tokens > 0)
        ring_choices<<<(unsigned)tokens, THREADS, 0, stream>>>(top_k, experts, first, local, words, expert,
                                                               weight);
    return (int)cudaGetLastError();
}

int spw_launch_ring_truncate(int choices, int local, int rows, int *row, int *offset, gpu_stream stream) {
    const int most = choices > local + 1 ? choices : local + 1;
    ring_truncate<<<blocks_of(most), THREADS, 0, stream>>>(choices, local, rows, row, offset);
    return (int)cudaGetLastError();
}

int spw_launch_ring_side(int tokens, int top_k, int experts, int first, const int *expert,
                         const float *d_weight, float *side, gpu_stream stream) {
    if (tokens > 0)
        ring_side<<<(unsigned)tokens, THREADS, 0, stream>>>(top_k, experts, first, expert, d_weight, side);
    return (int)cudaGetLastError();
}

int spw_launch_ring_pick(int tokens, int top_k, int experts, const int *expert, const float *side,
                         float *d_weight, gpu_stream stream) {
    if (tokens > 0)
        ring_pick<<<blocks_of(tokens * top_k), THREADS, 0, stream>>>(tokens * top_k, top_k, experts, expert,
                                                                     side, d_weight);
    return (int)cudaGetLastError();
}
#endif
