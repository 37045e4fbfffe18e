/* Descriptions of tensors for Hopper's bulk tensor copies: elements of 16 bits, or of 32 where a name says fp32, 128-byte swizzle, outside
 * elements read as 0. */
#ifndef SPW_KERNELS_GPU_TENSOR_MAP_H
#define SPW_KERNELS_GPU_TENSOR_MAP_H

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of `inner` elements in device memory, `stride` elements from one to the next; groups of them. Addresses and strides are multiples of
 * 16 bytes (grouped_gemm_strides.h says so of what is not). */
typedef struct spw_tensor_rows {
    const void *base;
    long inner, stride;
} spw_tensor_rows;
typedef struct spw_tensor_groups {
    long count, stride;
} spw_tensor_groups;

/* An array [outer][inner], or [groups][outer][inner], and the box of one copy: box_outer x box_inner elements. Returns a cudaError_t. */
int spw_tensor_map_2d(CUtensorMap *map, spw_tensor_rows rows, long outer, int box_inner, int box_outer);
int spw_tensor_map_3d(CUtensorMap *map, spw_tensor_rows rows, long outer, spw_tensor_groups groups,
                      int box_inner, int box_outer);
int spw_tensor_map_3d_fp32(CUtensorMap *map, spw_tensor_rows rows, long outer, spw_tensor_groups groups,
                           int box_inner, int box_outer);

/* Rows [first, first + count) of an array [..][inner]: a box at (column, 2^30 - left, first + count, 2^30) begins `left` rows before the
 * end of them, and what is behind it is outside. Addresses are counted modulo 2^64. */
int spw_tensor_map_ragged(CUtensorMap *map, spw_tensor_rows rows, int box_inner, int box_outer);

#ifdef __cplusplus
}
#endif
#endif
