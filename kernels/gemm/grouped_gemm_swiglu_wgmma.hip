/* The gate and up GEMM with SwiGLU in its epilogue, on Hopper's tensor cores: grouped_gemm_wgmma.h with SWIGLU. What it adds: gate
 * and up are never written to memory, nor read again. */
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_wgmma.h"
#include "kernels/gemm/tensor_map.h"

#define KERNEL(name, b_outer, element) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        name(const __grid_constant__ spw_gemm_problem p, const __grid_constant__ CUtensorMap map_a, \
             const __grid_constant__ CUtensorMap map_b) { \
        gemm_wgmma<SPW_GEMM_ROWS, b_outer, true, false, element>(p, &map_a, &map_b); \
    }
KERNEL(gemm_swiglu_wgmma_inner, false, SPW_GEMM_BF16)
KERNEL(gemm_swiglu_wgmma_outer, true, SPW_GEMM_BF16)
KERNEL(gemm_swiglu_wgmma_inner_fp16, false, SPW_GEMM_FP16)
KERNEL(gemm_swiglu_wgmma_outer_fp16, true, SPW_GEMM_FP16)

int spw_launch_gemm_swiglu_wgmma(spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    CUtensorMap a, b;
    static void (*const kernels[][2])(spw_gemm_problem, CUtensorMap, CUtensorMap) = {
        {gemm_swiglu_wgmma_outer, gemm_swiglu_wgmma_inner},
        {gemm_swiglu_wgmma_outer_fp16, gemm_swiglu_wgmma_inner_fp16}};
    const auto kernel = kernels[element][p.inner_contiguous ? 1 : 0];
    int error = spw_tensor_map_2d(&a, p.a, p.inner, p.rows, TILE_K, TILE_M);
    if (error == 0 && p.inner_contiguous)
        error = spw_tensor_map_3d(&b, p.b, p.inner, 2 * (long)p.columns, p.experts, TILE_K, TILE_N / 2);
    if (error == 0 && !p.inner_contiguous)
        error = spw_tensor_map_3d(&b, p.b, 2 * (long)p.columns, p.inner, p.experts, CHUNK, TILE_K);
    if (error != 0) return error;
    error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      SHARED_BYTES);
    if (error != 0) return error;
    kernel<<<p.blocks, THREADS, SHARED_BYTES, stream>>>(p, a, b);
    return (int)cudaGetLastError();
}
