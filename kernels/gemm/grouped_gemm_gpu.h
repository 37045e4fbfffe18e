/* Grouped GEMM on the GPU: reference/grouped_gemm.h with bf16 operands and results, sums in fp32, and the
 * offsets on the device: the host never waits for them. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_GPU_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_GPU_H

#include "base/status.h"
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "reference/grouped_gemm.h"

typedef enum spw_gemm_operation {
    SPW_GEMM_FORWARD,
    SPW_GEMM_INPUT_GRADIENT,
    SPW_GEMM_WEIGHT_GRADIENT
} spw_gemm_operation;

/* One rung of the ladder. Rows of a table that ends with name == NULL, plain to fast; only those that this
 * build holds. */
typedef struct spw_gemm_variant {
    const char *name;
    spw_gemm_launcher *launch;
} spw_gemm_variant;
extern const spw_gemm_variant spw_gemm_variants[];

/* Device pointers, 16-byte aligned; in and out are multiples of 8.
 *   forward          left = x  [rows][in],  right = w   as reference/grouped_gemm.h, result = y [rows][out]
 *   input gradient   left = dy [rows][out], right = w,                              result = dx [rows][in]
 *   weight gradient  left = x  [rows][in],  right = dy  [rows][out],                result = dw as w
 *   offset           [experts + 1] int32
 * The result is rounded to bf16 once. Every element of it is written, unused tail rows and empty experts with
 * 0. Does not wait. SPW_EARG: widths; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm(const spw_gemm_variant *variant, spw_gemm_operation operation,
                                               spw_gemm_shape shape, const spw_bf16 *left,
                                               const spw_bf16 *right, const int *offset, spw_bf16 *result,
                                               gpu_stream stream);

/* act[r][f] = swiglu(sum over i of x[r][i] w[e](i, f), sum over i of x[r][i] w[e](i, ffn + f)), rounded to bf16
 * once; neither sum is rounded or stored. shape.out is 2 ffn; w as in the forward pass, gate and up side by side;
 * act [rows][ffn]. On matrix cores only: Hopper, CDNA 2 to 4. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_swiglu(spw_gemm_shape shape, const spw_bf16 *x,
                                                      const spw_bf16 *w, const int *offset, spw_bf16 *act,
                                                      gpu_stream stream);

/* The same table for fp8. */
typedef struct spw_gemm_float8_variant {
    const char *name;
    spw_gemm_float8_launcher *launch;
    /* Of a block's sum: 24 is fp32's. Hopper's tensor cores keep the highest 14 bits of 32 products and of the sum so far,
     * all shifted to the largest of them, and cut off the rest [published: DeepSeek-V3 Technical Report, section 3.5.2]. */
    int sum_bits;
} spw_gemm_float8_variant;
extern const spw_gemm_float8_variant spw_gemm_float8_variants[];

/* y[r][o] = sum over i of x[r][i] w[e][o][i], of codes of e4m3fn times their scales (reference/float8.h), rounded to bf16
 * once; a block of 128 terms is summed in fp32 (of sum_bits), then scaled and added.
 *   x  [rows][in] codes, x_scale [rows][ceil(in / 128)]: spw_float8_quantize_rows
 *   w  [experts][out][in] codes, w_scale [experts][ceil(out / 128)][ceil(in / 128)]: spw_float8_quantize_tiles of each expert
 *   y  [rows][out], 0 in the unused tail
 * shape.transposed must be set; in is a multiple of 16, out of 8. The input gradient is the same product, of dy and of codes of
 * w stored [experts][in][out]. Device pointers, 16-byte aligned. Does not wait. SPW_EARG: widths; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_float8(const spw_gemm_float8_variant *variant,
                                                      spw_gemm_shape shape, const unsigned char *x,
                                                      const float *x_scale, const unsigned char *w,
                                                      const float *w_scale, const int *offset, spw_bf16 *y,
                                                      gpu_stream stream);

/* Of MXFP8 (kernels/gemm/grouped_gemm_mxfp8_launch.h): as above with codes of e4m3 and, for 32 of them along the sum, a byte of
 * E8M0, four in a word.
 *   x  [rows][in] codes, x_scale [rows][ceil(in / 128)];   w  [experts][out][in] codes, w_scale [experts][out][ceil(in / 128)]
 * shape.transposed must be set; in is a multiple of 32, out of 8. Does not wait. SPW_EARG: widths; SPW_EDEVICE, too where the GPU
 * has no such products, which spw_gpu_has_mxfp8 says: AMD's gfx950 alone has them here. */
bool spw_gpu_has_mxfp8(void);
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_mxfp8(spw_gemm_shape shape, const unsigned char *x,
                                                     const unsigned *x_scale, const unsigned char *w,
                                                     const unsigned *w_scale, const int *offset, spw_bf16 *y,
                                                     gpu_stream stream);

#endif
