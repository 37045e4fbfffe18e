/* The second product's input gradient in a layer whose activation is not SwiGLU as it is, on Hopper's tensor cores. What it
 * adds: clamped SwiGLU, GeGLU, squared ReLU, gate and up in turn, biases. */
#include "kernels/gemm/grouped_gemm_consume.h"

int spw_launch_gemm_activated_down_gradient_wgmma(spw_gemm_element element, spw_gemm_fused_problem f,
                                                  gpu_stream stream) {
    if (element == SPW_GEMM_FP16)
        return gemm_launch_activated<SPW_GEMM_FP16, GEMM_SWIGLU_GRADIENT>(f, stream);
    return gemm_launch_activated<SPW_GEMM_BF16, GEMM_SWIGLU_GRADIENT>(f, stream);
}
