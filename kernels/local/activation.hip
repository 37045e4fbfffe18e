/* act of gate and up, and their gradients, in eights: the activations that swiglu.hip and swiglu_gradient.hip do not have. */
#include "kernels/local/activation_math.h"

enum { THREADS = 256 };

/* As one store: of a structure that several forms end with the compiler makes several, none of them aligned. */
GPU_DEVICE void store_eight(gpu_bf16x8 *to, const gpu_bf16x8 &x) {
    gpu_bytes16 words;
    words.x = x.v[0] | (unsigned)x.v[1] << 16, words.y = x.v[2] | (unsigned)x.v[3] << 16;
    words.z = x.v[4] | (unsigned)x.v[5] << 16, words.w = x.v[6] | (unsigned)x.v[7] << 16;
    *(gpu_bytes16 *)to = words;
}

template <int FORM> GPU_DEVICE void act_of(const spw_swiglu_gpu &s, long row, int piece, gpu_bf16x8 *act) {
    store_eight(act + row * (s.ffn / 8) + piece, act_eight<FORM>(s, row, piece));
}

/* d_gate, d_up: as gate and up. */
template <int FORM>
GPU_DEVICE void store_slopes(const spw_swiglu_gpu &s, long row, int piece, const spw_bf16 *d_act,
                             gpu_bf16x8 *d_gate, gpu_bf16x8 *d_up) {
    const eight<FORM> of(s, row, piece);
    float d[8];
    load_eight(d_act, row * (s.ffn / 8) + piece, 1, d);
    const slopes_eight slopes = slopes_of(s, of, d);
    store_eight(d_gate + of.at, slopes.first);
    if (of.PAIRS) store_eight(d_gate + of.at + 1, slopes.second);
    if (!of.ONE && !of.PAIRS) store_eight(d_up + of.at, slopes.second);
}

GPU_KERNEL(THREADS) activation(spw_swiglu_gpu s, spw_bf16 *act) {
    const int pieces = s.ffn / 8;
    const long i = (long)gpu_block() * THREADS + gpu_thread(), row = i / pieces;
    const int piece = (int)(i % pieces);
    if (row >= s.rows) return;
#define CALL(form) act_of<form>(s, row, piece, (gpu_bf16x8 *)act)
    OF_FORM(CALL)
#undef CALL
}

GPU_KERNEL(THREADS)
activation_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up) {
    const int pieces = s.ffn / 8;
    const long i = (long)gpu_block() * THREADS + gpu_thread(), row = i / pieces;
    const int piece = (int)(i % pieces);
    if (row >= s.rows) return;
#define CALL(form) store_slopes<form>(s, row, piece, d_act, (gpu_bf16x8 *)d_gate, (gpu_bf16x8 *)d_up)
    OF_FORM(CALL)
#undef CALL
}

#if GPU_HOST
static unsigned blocks_of(spw_swiglu_gpu s) {
    return (unsigned)(((long)s.rows * (s.ffn / 8) + THREADS - 1) / THREADS);
}

int spw_launch_activation(spw_swiglu_gpu s, spw_bf16 *act, gpu_stream stream) {
    if (s.form == SPW_FORM_SWIGLU) return spw_launch_swiglu(s, act, stream);
    if (blocks_of(s) > 0) activation<<<blocks_of(s), THREADS, 0, stream>>>(s, act);
    return (int)cudaGetLastError();
}

int spw_launch_activation_gradient(spw_swiglu_gpu s, const spw_bf16 *d_act, spw_bf16 *d_gate, spw_bf16 *d_up,
                                   gpu_stream stream) {
    if (s.form == SPW_FORM_SWIGLU) return spw_launch_swiglu_gradient(s, d_act, d_gate, d_up, stream);
    if (blocks_of(s) > 0) activation_gradient<<<blocks_of(s), THREADS, 0, stream>>>(s, d_act, d_gate, d_up);
    return (int)cudaGetLastError();
}
#endif
