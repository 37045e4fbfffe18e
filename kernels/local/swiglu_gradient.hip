/* Gradients of SwiGLU to gate and up, in eights. */
#include "kernels/local/local_launch.h"
#include "kernels/local/swiglu_math.h"

enum { THREADS = 256 };

GPU_KERNEL(THREADS)
swiglu_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up) {
    const int pieces = s.ffn / 8;
    const long i = (long)gpu_block() * THREADS + gpu_thread(), row = i / pieces,
               from = row * (s.stride / 8) + i % pieces;
    if (row >= s.rows) return;
    const gpu_bf16x8 gate = ((const gpu_bf16x8 *)s.gate)[from], up = ((const gpu_bf16x8 *)s.up)[from];
    const gpu_bf16x8 d = ((const gpu_bf16x8 *)d_act)[i];
    gpu_bf16x8 to_gate, to_up;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const swiglu_point p = swiglu_at(s.limit, s.alpha, gpu_from_bf16(gate.v[j]), gpu_from_bf16(up.v[j]));
        const float dv = gpu_from_bf16(d.v[j]), slope = 1 + p.gate * p.alpha * p.rest;
        to_gate.v[j] = gpu_to_bf16(p.gate_cut ? 0 : dv * p.up * p.sigmoid * slope);
        to_up.v[j] = gpu_to_bf16(p.up_cut ? 0 : dv * p.gate * p.sigmoid);
    }
    ((gpu_bf16x8 *)d_gate)[from] = to_gate;
    ((gpu_bf16x8 *)d_up)[from] = to_up;
}

#if GPU_HOST
int spw_launch_swiglu_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up,
                               gpu_stream stream) {
    const long pieces = (long)s.rows * (s.ffn / 8);
    if (pieces > 0)
        swiglu_gradient<<<(unsigned)((pieces + THREADS - 1) / THREADS), THREADS, 0, stream>>>(s, d_act,
                                                                                              d_gate, d_up);
    return (int)cudaGetLastError();
}
#endif
