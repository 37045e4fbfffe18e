/* Tokens to the rows of their experts, one block a token: its row is read once and written to all its places. Places are distinct, so
 * there is nothing to be atomic about. A gather by the inverse permutation was tried first: it reads a token's row again for
 * every choice, since rows stand by expert and the tokens do not fit into the cache. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 128 };

GPU_KERNEL(THREADS) fan_out(int width, int top_k, const int *row, const spw_bf16 *x, spw_bf16 *out) {
    __shared__ int to[SPW_GPU_TOP_K_MAX];
    const long token = gpu_block();
    const int pieces = width / 8;
    if (gpu_thread() < top_k) to[gpu_thread()] = row[token * top_k + gpu_thread()];
    gpu_barrier();
    for (int piece = gpu_thread(); piece < pieces; piece += THREADS) {
        const gpu_bytes16 moved = ((const gpu_bytes16 *)x)[token * pieces + piece];
        for (int k = 0; k < top_k; k++)
            if (to[k] >= 0) ((gpu_bytes16 *)out)[(long)to[k] * pieces + piece] = moved;
    }
}

GPU_KERNEL(THREADS) fan_out_clear(int width, const int *assignment, spw_bf16 *out) {
    const long row = gpu_block();
    const int pieces = width / 8;
    if (assignment[row] >= 0) return;
    for (int piece = gpu_thread(); piece < pieces; piece += THREADS)
        ((gpu_bytes16 *)out)[row * pieces + piece] = gpu_zeros16();
}

#if GPU_HOST
int spw_launch_fan_out(int tokens, int width, int top_k, const int *row, const spw_bf16 *x, spw_bf16 *out,
                       gpu_stream stream) {
    if (tokens > 0) fan_out<<<(unsigned)tokens, THREADS, 0, stream>>>(width, top_k, row, x, out);
    return (int)cudaGetLastError();
}

int spw_launch_fan_out_clear(int rows, int width, const int *assignment, spw_bf16 *out, gpu_stream stream) {
    if (rows > 0) fan_out_clear<<<(unsigned)rows, THREADS, 0, stream>>>(width, assignment, out);
    return (int)cudaGetLastError();
}
#endif
