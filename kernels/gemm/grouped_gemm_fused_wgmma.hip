/* The products of an expert layer with what stands around them, on Hopper's tensor cores. What it adds: permuted copies of
 * tokens, gate and up, and their gradients are not written and read again between kernels. */
#include "kernels/gemm/grouped_gemm_consume.h"
#include "kernels/gemm/grouped_gemm_launch.h"

template <spw_gemm_element ELEMENT, spw_gemm_gather GATHER, gemm_epilogue EPILOGUE, bool TRANSPOSES = false>
static int launch_kind(const spw_gemm_fused_problem &f, gpu_stream stream) {
    return gemm_launch<
        gemm_kind<ELEMENT, SPW_GEMM_WEIGHTS, true, 256, GATHER, EPILOGUE, SPW_GEMM_SILU, TRANSPOSES>>(f,
                                                                                                      stream);
}

/* A gathered operand is a, of which a tile has half as many columns as of b, and c is stored by columns where that was b: gathered bytes cost
 * more than those of tensor copies. */
template <spw_gemm_element ELEMENT, gemm_epilogue EPILOGUE>
static int launch_weights(spw_gemm_gather gather, spw_gemm_fused_problem f, gpu_stream stream) {
    if (gather == SPW_GEMM_GATHER_NONE)
        return launch_kind<ELEMENT, SPW_GEMM_GATHER_NONE, EPILOGUE>(f, stream);
    if (gather == SPW_GEMM_GATHER_A) return launch_kind<ELEMENT, SPW_GEMM_GATHER_A, EPILOGUE>(f, stream);
    const spw_gemm_problem p = f.p;
    f.p.a = p.b, f.p.inner = p.columns, f.p.a_row = p.b_row;
    f.p.b = p.a, f.p.columns = p.inner, f.p.b_row = p.a_row;
    return launch_kind<ELEMENT, SPW_GEMM_GATHER_A, EPILOGUE, true>(f, stream);
}

template <spw_gemm_element ELEMENT>
static int launch_added(spw_gemm_gather gather, const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.add) return launch_weights<ELEMENT, GEMM_ADD>(gather, f, stream);
    return launch_weights<ELEMENT, GEMM_STORE>(gather, f, stream);
}

template <gemm_epilogue EPILOGUE>
static int launch_rows(spw_gemm_element element, const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (element == SPW_GEMM_FP16) return gemm_launch_rows<SPW_GEMM_FP16, EPILOGUE>(f, stream);
    return gemm_launch_rows<SPW_GEMM_BF16, EPILOGUE>(f, stream);
}

/* act alone. */
int spw_launch_gemm_swiglu_wgmma(spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    spw_gemm_fused_problem f = {};
    f.p = p;
    return launch_rows<GEMM_SWIGLU>(element, f, stream);
}

int spw_launch_gemm_up_wgmma(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream) {
    return launch_rows<GEMM_SWIGLU>(element, f, stream);
}

int spw_launch_gemm_down_gradient_wgmma(spw_gemm_element element, spw_gemm_fused_problem f,
                                        gpu_stream stream) {
    return launch_rows<GEMM_SWIGLU_GRADIENT>(element, f, stream);
}

int spw_launch_gemm_weights_wgmma(spw_gemm_gather gather, spw_gemm_element element, spw_gemm_fused_problem f,
                                  gpu_stream stream) {
    if (f.add && gather == SPW_GEMM_GATHER_NONE && spw_gemm_takes_turns(SPW_GEMM_WEIGHTS, &f.p))
        return spw_launch_gemm_added_pingpong(element, f, stream);
    if (element == SPW_GEMM_FP16) return launch_added<SPW_GEMM_FP16>(gather, f, stream);
    return launch_added<SPW_GEMM_BF16>(gather, f, stream);
}
