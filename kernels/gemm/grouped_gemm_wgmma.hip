/* Grouped GEMM on Hopper's tensor cores: grouped_gemm_wgmma.h launched with its tensor maps. */
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "kernels/gemm/grouped_gemm_wgmma.h"
#include "kernels/gemm/tensor_map.h"

#define KERNEL(name, form, ...) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) \
        name(const __grid_constant__ spw_gemm_problem p, const __grid_constant__ CUtensorMap map_a, \
             const __grid_constant__ CUtensorMap map_b) { \
        gemm_wgmma<form, __VA_ARGS__>(p, &map_a, &map_b); \
    }
KERNEL(gemm_wgmma_rows_inner, SPW_GEMM_ROWS, false, false)
KERNEL(gemm_wgmma_rows_outer, SPW_GEMM_ROWS, true, false)
KERNEL(gemm_wgmma_weights, SPW_GEMM_WEIGHTS, true, false)
KERNEL(gemm_wgmma_weights_streamed, SPW_GEMM_WEIGHTS, true, false, true)
KERNEL(gemm_wgmma_rows_inner_fp16, SPW_GEMM_ROWS, false, false, false, SPW_GEMM_FP16)
KERNEL(gemm_wgmma_rows_outer_fp16, SPW_GEMM_ROWS, true, false, false, SPW_GEMM_FP16)
KERNEL(gemm_wgmma_weights_fp16, SPW_GEMM_WEIGHTS, true, false, false, SPW_GEMM_FP16)
KERNEL(gemm_wgmma_weights_streamed_fp16, SPW_GEMM_WEIGHTS, true, false, true, SPW_GEMM_FP16)

/* Of a group on average: with so few, a weight gradient is bound by its stores, and goes faster past the cache. */
enum { STREAMED_ROWS = 128 };

/* Columns of zeros that tiles of `tile` columns multiply. */
static int wasted(int columns, int tile) { return (columns + tile - 1) / tile * tile - columns; }

/* Of a group on average: a weight gradient of so few is stored for a large part of its time, which tiles in turns hide. */
enum { HIDDEN_ROWS = 1536 };

/* Tiles of 128 x 192 in turns read more bytes a product and are slower where all columns are full, faster where fewer of their
 * columns are empty, and in weight gradients with sums of a few hundred terms where at most one column of 16 is: docs/validation_gpu.md,
 * "Tiles in turns that the copy engine stores". */
static bool takes_pingpong(spw_gemm_form form, spw_gemm_problem p) {
    const long rows = (long)p.rows, experts = p.experts;
    const bool few =
        form == SPW_GEMM_WEIGHTS && rows > STREAMED_ROWS * experts && rows <= HIDDEN_ROWS * experts;
    return wasted(p.columns, 192) < wasted(p.columns, TILE_N) + (few ? p.columns / 16 : 0);
}

typedef void kernel(spw_gemm_problem, CUtensorMap, CUtensorMap);

static kernel *kernel_of(spw_gemm_form form, spw_gemm_element element, const spw_gemm_problem &p) {
    static kernel *const kernels[][4] = {
        {gemm_wgmma_rows_inner, gemm_wgmma_rows_outer, gemm_wgmma_weights, gemm_wgmma_weights_streamed},
        {gemm_wgmma_rows_inner_fp16, gemm_wgmma_rows_outer_fp16, gemm_wgmma_weights_fp16,
         gemm_wgmma_weights_streamed_fp16}};
    if (form == SPW_GEMM_ROWS) return kernels[element][p.inner_contiguous ? 0 : 1];
    return kernels[element][p.rows <= (long)STREAMED_ROWS * p.experts ? 3 : 2];
}

int spw_launch_gemm_wgmma(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    CUtensorMap a, b;
    if (takes_pingpong(form, p)) return spw_launch_gemm_pingpong(form, element, p, stream);
    const bool rows_form = form == SPW_GEMM_ROWS, inner = rows_form && p.inner_contiguous;
    kernel *kernel = kernel_of(form, element, p);
    int error = rows_form ? spw_tensor_map_2d(&a, p.a, p.inner, p.rows, TILE_K, TILE_M)
                          : spw_tensor_map_2d(&a, p.a, p.inner, p.rows, CHUNK, TILE_K);
    if (error == 0 && !rows_form) error = spw_tensor_map_2d(&b, p.b, p.columns, p.rows, CHUNK, TILE_K);
    if (error == 0 && inner)
        error = spw_tensor_map_3d(&b, p.b, p.inner, p.columns, p.experts, TILE_K, TILE_N);
    if (error == 0 && rows_form && !inner)
        error = spw_tensor_map_3d(&b, p.b, p.columns, p.inner, p.experts, CHUNK, TILE_K);
    if (error != 0) return error;
    error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      SHARED_BYTES);
    if (error != 0) return error;
    kernel<<<p.blocks, THREADS, SHARED_BYTES, stream>>>(p, a, b);
    return (int)cudaGetLastError();
}
