/* Grouped GEMM on Hopper's tensor cores in tiles of 128 x 192, two of them in turns. What it adds: stores behind the next
 * tile's products, and fewer empty columns where 192 divides them and 256 does not, like gpt-oss' 2880. Weight gradients
 * also in pairs of blocks. */
#include "kernels/gemm/grouped_gemm_consume.h"

template <spw_gemm_element ELEMENT, spw_gemm_form FORM, bool B_OUTER, bool PAIRED = false,
          gemm_epilogue EPILOGUE = GEMM_STORE>
static int launch_kind(const spw_gemm_fused_problem &f, gpu_stream stream) {
    return gemm_launch<
        gemm_kind<ELEMENT, FORM, B_OUTER, 192, SPW_GEMM_GATHER_NONE, EPILOGUE, SPW_GEMM_SILU, false, PAIRED>>(
        f, stream);
}

template <spw_gemm_element ELEMENT>
static int launch(spw_gemm_form form, const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (form == SPW_GEMM_WEIGHTS) return launch_kind<ELEMENT, SPW_GEMM_WEIGHTS, true>(f, stream);
    if (f.p.inner_contiguous) return launch_kind<ELEMENT, SPW_GEMM_ROWS, false>(f, stream);
    return launch_kind<ELEMENT, SPW_GEMM_ROWS, true>(f, stream);
}

int spw_launch_gemm_pingpong(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                             gpu_stream stream) {
    spw_gemm_fused_problem f = {};
    f.p = p;
    if (element == SPW_GEMM_FP16) return launch<SPW_GEMM_FP16>(form, f, stream);
    return launch<SPW_GEMM_BF16>(form, f, stream);
}

int spw_launch_gemm_pairs(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    if (form != SPW_GEMM_WEIGHTS || p.blocks < 2) return spw_launch_gemm_pingpong(form, element, p, stream);
    spw_gemm_fused_problem f = {};
    f.p = p;
    if (element == SPW_GEMM_FP16) return launch_kind<SPW_GEMM_FP16, SPW_GEMM_WEIGHTS, true, true>(f, stream);
    return launch_kind<SPW_GEMM_BF16, SPW_GEMM_WEIGHTS, true, true>(f, stream);
}

int spw_launch_gemm_added_pingpong(spw_gemm_element element, spw_gemm_fused_problem f, gpu_stream stream) {
    if (element == SPW_GEMM_FP16)
        return launch_kind<SPW_GEMM_FP16, SPW_GEMM_WEIGHTS, true, false, GEMM_ADD>(f, stream);
    return launch_kind<SPW_GEMM_BF16, SPW_GEMM_WEIGHTS, true, false, GEMM_ADD>(f, stream);
}
