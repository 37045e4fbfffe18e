/* act = gate * sigmoid(gate) * up, in eights. */
#include "kernels/local/local_launch.h"
#include "kernels/local/swiglu_math.h"

enum { THREADS = 256 };

GPU_KERNEL(THREADS) swiglu(spw_swiglu_gpu s, spw_bf16 *act) {
    const int pieces = s.ffn / 8;
    const long i = (long)gpu_block() * THREADS + gpu_thread(), row = i / pieces,
               from = row * (s.stride / 8) + i % pieces;
    if (row >= s.rows) return;
    const gpu_bf16x8 gate = ((const gpu_bf16x8 *)s.gate)[from], up = ((const gpu_bf16x8 *)s.up)[from];
    gpu_bf16x8 out;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const swiglu_point p = swiglu_at(s.limit, s.alpha, gpu_from_bf16(gate.v[j]), gpu_from_bf16(up.v[j]));
        out.v[j] = gpu_to_bf16(p.gate * p.sigmoid * p.up);
    }
    ((gpu_bf16x8 *)act)[i] = out;
}

#if GPU_HOST
int spw_launch_swiglu(spw_swiglu_gpu s, spw_bf16 *act, gpu_stream stream) {
    const long pieces = (long)s.rows * (s.ffn / 8);
    if (pieces > 0) swiglu<<<(unsigned)((pieces + THREADS - 1) / THREADS), THREADS, 0, stream>>>(s, act);
    return (int)cudaGetLastError();
}
#endif
