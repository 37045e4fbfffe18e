/* Grouped GEMM on Hopper's tensor cores in tiles of 128 x 192, two of them in turns. What it adds: stores behind the next
 * tile's products, and fewer empty columns where 192 divides them and 256 does not, like gpt-oss' 2880. */
#include "kernels/gemm/grouped_gemm_consume.h"

template <spw_gemm_element ELEMENT>
static int launch(spw_gemm_form form, const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (form == SPW_GEMM_WEIGHTS)
        return gemm_launch<gemm_kind<ELEMENT, SPW_GEMM_WEIGHTS, true, 192>>(f, stream);
    if (f.p.inner_contiguous) return gemm_launch<gemm_kind<ELEMENT, SPW_GEMM_ROWS, false, 192>>(f, stream);
    return gemm_launch<gemm_kind<ELEMENT, SPW_GEMM_ROWS, true, 192>>(f, stream);
}

int spw_launch_gemm_pingpong(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                             gpu_stream stream) {
    spw_gemm_fused_problem f = {};
    f.p = p;
    if (element == SPW_GEMM_FP16) return launch<SPW_GEMM_FP16>(form, f, stream);
    return launch<SPW_GEMM_BF16>(form, f, stream);
}
