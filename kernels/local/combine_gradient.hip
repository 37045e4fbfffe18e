/* Gradients of combine: to the rows (a product each) and to the weights (a dot product each). One wave an assignment; the waves of
 * a token stand side by side, so dy comes from memory once. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 256, UNROLL = 4, WAVES = THREADS / GPU_WAVE };

GPU_KERNEL(THREADS)
combine_gradient(int assignments, int width, int top_k, const int *row, const float *weight,
                 const spw_bf16 *dy, const spw_bf16 *rows, spw_bf16 *d_rows, float *d_weight) {
    const int at = gpu_block() * WAVES + gpu_thread() / GPU_WAVE, pieces = width / 8;
    if (at >= assignments) return;
    const int to = row[at];
    if (to < 0) {
        if (gpu_lane() == 0) d_weight[at] = 0;
        return;
    }
    const float by = weight == nullptr ? 1.0f : weight[at];
    const gpu_bf16x8 *d = (const gpu_bf16x8 *)dy + (long)(at / top_k) * pieces;
    const gpu_bf16x8 *r = (const gpu_bf16x8 *)rows + (long)to * pieces;
    gpu_bf16x8 *out = (gpu_bf16x8 *)d_rows + (long)to * pieces;
    float sum = 0;
    for (int first = gpu_lane(); first < pieces; first += GPU_WAVE * UNROLL) {
        gpu_bf16x8 dv[UNROLL] = {}, rv[UNROLL] = {};
#pragma unroll
        for (int n = 0; n < UNROLL; n++) {
            const int piece = first + n * GPU_WAVE;
            if (piece < pieces) dv[n] = d[piece], rv[n] = r[piece];
        }
#pragma unroll
        for (int n = 0; n < UNROLL; n++) {
            const int piece = first + n * GPU_WAVE;
            gpu_bf16x8 product;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float value = gpu_from_bf16(dv[n].v[i]);
                sum = __builtin_fmaf(value, gpu_from_bf16(rv[n].v[i]), sum);
                product.v[i] = gpu_to_bf16(by * value);
            }
            if (piece < pieces) out[piece] = product;
        }
    }
    sum = gpu_wave_sum(sum);
    if (gpu_lane() == 0) d_weight[at] = sum;
}

#if GPU_HOST
int spw_launch_combine_gradient(int tokens, int width, int top_k, const int *row, const float *weight,
                                const spw_bf16 *dy, const spw_bf16 *rows, spw_bf16 *d_rows, float *d_weight,
                                gpu_stream stream) {
    const int assignments = tokens * top_k;
    if (assignments > 0)
        combine_gradient<<<(unsigned)((assignments + WAVES - 1) / WAVES), THREADS, 0, stream>>>(
            assignments, width, top_k, row, weight, dy, rows, d_rows, d_weight);
    return (int)cudaGetLastError();
}
#endif
