#include "kernels/gpu/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

/* The driver's encoder, found through the runtime: no link against the driver library, so a machine without a
 * GPU links. */
static PFN_cuTensorMapEncodeTiled_v12000 encoder(void) {
    static PFN_cuTensorMapEncodeTiled_v12000 found;
    enum cudaDriverEntryPointQueryResult result;
    void *entry = NULL;
    if (found != NULL) return found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    return found = (PFN_cuTensorMapEncodeTiled_v12000)entry;
}

#define NUMBERS CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 /* of 16 bits; copies do not look at them */

static int encode(CUtensorMap *map, CUtensorMapDataType type, const void *base, cuuint32_t rank,
                  const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box) {
    const PFN_cuTensorMapEncodeTiled_v12000 encode_tiled = encoder();
    const cuuint32_t step[4] = {1, 1, 1, 1};
    if (encode_tiled == NULL) return cudaErrorNotSupported;
    const CUresult result = encode_tiled(
        map, type, rank, (void *)base, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int spw_tensor_map_2d(CUtensorMap *map, spw_tensor_rows rows, long outer, int box_inner, int box_outer) {
    const cuuint64_t size[2] = {(cuuint64_t)rows.inner, (cuuint64_t)outer};
    const cuuint32_t box[2] = {(cuuint32_t)box_inner, (cuuint32_t)box_outer};
    const cuuint64_t stride[1] = {(cuuint64_t)rows.stride * 2};
    return encode(map, NUMBERS, rows.base, 2, size, stride, box);
}

static int encode_groups(CUtensorMap *map, CUtensorMapDataType type, spw_tensor_rows rows, long outer,
                         spw_tensor_groups groups, const cuuint32_t *box) {
    const cuuint64_t size[3] = {(cuuint64_t)rows.inner, (cuuint64_t)outer, (cuuint64_t)groups.count};
    const cuuint64_t bytes = type == NUMBERS ? 2 : 4;
    const cuuint64_t stride[2] = {(cuuint64_t)rows.stride * bytes, (cuuint64_t)groups.stride * bytes};
    return encode(map, type, rows.base, 3, size, stride, box);
}

int spw_tensor_map_3d(CUtensorMap *map, spw_tensor_rows rows, long outer, spw_tensor_groups groups,
                      int box_inner, int box_outer) {
    const cuuint32_t box[3] = {(cuuint32_t)box_inner, (cuuint32_t)box_outer, 1};
    return encode_groups(map, NUMBERS, rows, outer, groups, box);
}

int spw_tensor_map_3d_fp32(CUtensorMap *map, spw_tensor_rows rows, long outer, spw_tensor_groups groups,
                           int box_inner, int box_outer) {
    const cuuint32_t box[3] = {(cuuint32_t)box_inner, (cuuint32_t)box_outer, 1};
    return encode_groups(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rows, outer, groups, box);
}

int spw_tensor_map_ragged(CUtensorMap *map, spw_tensor_rows rows, int box_inner, int box_outer) {
    const cuuint64_t row = (cuuint64_t)rows.stride * 2, many = 0x7fff0000;
    const cuuint64_t size[4] = {(cuuint64_t)rows.inner, 1u << 30, many, many};
    const cuuint64_t stride[3] = {row, row, ((cuuint64_t)1 << 34) - row};
    const cuuint32_t box[4] = {(cuuint32_t)box_inner, (cuuint32_t)box_outer, 1, 1};
    return encode(map, NUMBERS, rows.base, 4, size, stride, box);
}
