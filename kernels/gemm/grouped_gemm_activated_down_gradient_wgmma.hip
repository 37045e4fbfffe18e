/* The second product's input gradient in a layer whose activation is not SwiGLU as it is, on Hopper's tensor cores. What it
 * adds: clamped SwiGLU, GeGLU, squared ReLU, gate and up in turn, biases. */
#include "kernels/gemm/grouped_gemm_consume.h"

int spw_launch_gemm_activated_down_gradient_wgmma(spw_gemm_fused_problem f, gpu_stream stream) {
    return gemm_launch_activated<GEMM_SWIGLU_GRADIENT>(f, stream);
}
