/* The weight gradient of grouped GEMM on Hopper's tensor cores, by pairs of blocks. What it adds: the columns of b that two
 * tiles share are read once for both. */
#include "kernels/gemm/grouped_gemm_consume.h"
#include "kernels/gemm/grouped_gemm_launch.h"

template <int TILE_N, spw_gemm_gather GATHER = SPW_GEMM_GATHER_NONE, gemm_epilogue EPILOGUE = GEMM_STORE>
using pairs = gemm_kind<SPW_GEMM_WEIGHTS, true, TILE_N, GATHER, EPILOGUE, SPW_GEMM_SILU, 2>;

template <spw_gemm_gather GATHER>
static int launch_pairs(const spw_gemm_fused_problem &f, gpu_stream stream) {
    if (f.add) return gemm_launch<pairs<256, GATHER, GEMM_ADD>>(f, stream);
    return gemm_launch<pairs<256, GATHER>>(f, stream);
}

int spw_launch_gemm_weights_pairs(spw_gemm_gather gather, spw_gemm_fused_problem f, gpu_stream stream) {
    if (gather == SPW_GEMM_GATHER_A) return launch_pairs<SPW_GEMM_GATHER_A>(f, stream);
    return launch_pairs<SPW_GEMM_GATHER_NONE>(f, stream);
}

template <int TILE_N> static int launch_plain(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream) {
    spw_gemm_fused_problem f = {};
    f.p = p;
    if (form != SPW_GEMM_WEIGHTS) return (int)cudaErrorNotSupported;
    return gemm_launch<pairs<TILE_N>>(f, stream);
}
int spw_launch_gemm_pairs_192(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream) {
    return launch_plain<192>(form, p, stream);
}
int spw_launch_gemm_pairs_256(spw_gemm_form form, spw_gemm_problem p, gpu_stream stream) {
    return launch_plain<256>(form, p, stream);
}
