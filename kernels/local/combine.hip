/* Rows back to their tokens: a weighted sum in fp32, gathered, one block a token. Without weights it is the gradient of fan-out. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 128, UNROLL = 8 };

template <bool FP16>
GPU_DEVICE void combine_rows(int width, int top_k, const int *row, const float *weight, const spw_bf16 *rows,
                             spw_bf16 *y) {
    __shared__ int from[SPW_GPU_TOP_K_MAX];
    __shared__ float by[SPW_GPU_TOP_K_MAX];
    const int pieces = width / 8;
    const long token = gpu_block();
    if (gpu_thread() < SPW_GPU_TOP_K_MAX) {
        const bool used = gpu_thread() < top_k;
        const int r = used ? row[token * top_k + gpu_thread()] : -1;
        from[gpu_thread()] = r;
        by[gpu_thread()] = r < 0 ? 0 : weight == nullptr ? 1 : weight[token * top_k + gpu_thread()];
    }
    gpu_barrier();
    int used_row =
        -1; /* of the token: what is read in place of a row that is not there, so that all reads go out at once */
    for (int k = 0; k < top_k && used_row < 0; k++) used_row = from[k];
    if (used_row < 0) {
        for (int piece = gpu_thread(); piece < pieces; piece += THREADS)
            ((gpu_bytes16 *)y)[token * pieces + piece] = gpu_zeros16();
        return;
    }
    for (int piece = gpu_thread(); piece < pieces; piece += THREADS) {
        float sum[8] = {};
        for (int first = 0; first < top_k; first += UNROLL) {
            gpu_bytes16 x[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const int r = from[first + k];
                x[k] = ((const gpu_bytes16 *)rows)[(long)(r < 0 ? used_row : r) * pieces + piece];
            }
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                const float w = by[first + k];
                const bool there = from[first + k] >= 0; /* 0 * x would let an inf of another row through */
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float value = there ? (FP16 ? gpu_fp16_of(x[k], i) : gpu_bf16_of(x[k], i)) : 0;
                    sum[i] = __builtin_fmaf(w, value, sum[i]);
                }
            }
        }
        gpu_bf16x8 out;
#pragma unroll
        for (int i = 0; i < 8; i++) out.v[i] = FP16 ? gpu_to_fp16(sum[i]) : gpu_to_bf16(sum[i]);
        ((gpu_bf16x8 *)y)[token * pieces + piece] = out;
    }
}

GPU_KERNEL(THREADS)
combine(int width, int top_k, const int *row, const float *weight, const spw_bf16 *rows, spw_bf16 *y) {
    combine_rows<false>(width, top_k, row, weight, rows, y);
}
GPU_KERNEL(THREADS)
combine_fp16(int width, int top_k, const int *row, const float *weight, const spw_bf16 *rows, spw_bf16 *y) {
    combine_rows<true>(width, top_k, row, weight, rows, y);
}

#if GPU_HOST
int spw_launch_combine(spw_combine_gpu c, gpu_stream stream) {
    if (c.tokens > 0)
        (c.fp16 ? combine_fp16 : combine)<<<(unsigned)c.tokens, THREADS, 0, stream>>>(c.width, c.top_k, c.row,
                                                                                      c.weight, c.rows, c.y);
    return (int)cudaGetLastError();
}
#endif
