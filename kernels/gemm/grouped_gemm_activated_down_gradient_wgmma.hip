/* The second product's input gradient in a layer whose activation is not SwiGLU as it is, on Hopper's tensor cores. What it
 * adds: clamped SwiGLU, GeGLU, squared ReLU, gate and up in turn, biases. */
#include "kernels/gemm/grouped_gemm_consume.h"

template <spw_gemm_gather GATHER, gemm_between BETWEEN>
static int launch_rows(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.p.inner_contiguous)
        return gemm_launch<gemm_kind<SPW_GEMM_ROWS, false, 256, GATHER, GEMM_SWIGLU_GRADIENT, BETWEEN>>(f, stream);
    return gemm_launch<gemm_kind<SPW_GEMM_ROWS, true, 256, GATHER, GEMM_SWIGLU_GRADIENT, BETWEEN>>(f, stream);
}

template <spw_gemm_gather GATHER>
static int launch_between(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.curve.between == GEMM_RELU2) return launch_rows<GATHER, GEMM_RELU2>(f, stream);
    if (f.curve.between == GEMM_PAIRS) return launch_rows<GATHER, GEMM_PAIRS>(f, stream);
    return launch_rows<GATHER, GEMM_GATED>(f, stream);
}

int spw_launch_gemm_activated_down_gradient_wgmma(spw_gemm_fused_problem f, gpu_stream stream) {
    if (f.top_k > 0) return launch_between<SPW_GEMM_GATHER_A>(f, stream);
    return launch_between<SPW_GEMM_GATHER_NONE>(f, stream);
}
