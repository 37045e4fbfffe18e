/* Descriptions of tensors for Hopper's bulk tensor copies: bf16, 128-byte swizzle, outside elements read as
 * 0. */
#ifndef SPW_KERNELS_GEMM_TENSOR_MAP_H
#define SPW_KERNELS_GEMM_TENSOR_MAP_H

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A row-major array [outer][inner], or [groups][outer][inner], in device memory and the box of one copy:
 * box_outer x box_inner elements. Returns a cudaError_t. */
int spw_tensor_map_2d(CUtensorMap *map, const void *base, long inner, long outer, int box_inner,
                      int box_outer);
int spw_tensor_map_3d(CUtensorMap *map, const void *base, long inner, long outer, long groups, int box_inner,
                      int box_outer);

/* Rows [first, first + count) of a row-major array [..][inner]: a box at (column, 2^30 - left, first + count, 2^30) begins `left` rows before the
 * end of them, and what is behind it is outside. Addresses are counted modulo 2^64. */
int spw_tensor_map_ragged(CUtensorMap *map, const void *base, long inner, int box_inner, int box_outer);

#ifdef __cplusplus
}
#endif
#endif
