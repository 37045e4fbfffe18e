/* Grouped GEMM on the GPU: reference/grouped_gemm.h with operands and results of bf16 or fp16 (shape.element; spw_bf16 then holds
 * the bits of fp16), sums in fp32, and the offsets on the device: the host never waits for them. Of fp16 a result of 65520 or more is
 * infinity, a subnormal number is kept as it is; gfx90a alone takes subnormal operands for 0.
 * Kernels other than naive and tiled stay on their multiprocessors until all is done; shape.multiprocessors says how many these are
 * at most (0: all), and leaves the others to work beside them, like an exchange between ranks. The results are the same with any
 * number. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_GPU_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_GPU_H

#include "base/status.h"
#include "kernels/gemm/grouped_gemm_float8.h"
#include "kernels/gemm/grouped_gemm_fused.h"
#include "kernels/gemm/grouped_gemm_launch.h"
#include "reference/grouped_gemm.h"
#include "reference/swiglu.h"

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
/* Tiles that the last one above chooses where it expects them to be faster. */
extern const spw_gemm_variant spw_gemm_tile_variants[];

/* Device pointers, 16-byte aligned; in and out are multiples of 8. Rows of all three arrays and matrices of experts may lie apart, which
 * shape.stride says: arrays are views into wider ones, slices of a fused parameter among them. 0: packed as written here; `expert` 0: a
 * matrix ends where the next one begins. Strides are multiples of 8 elements, rows and matrices do not overlap. What lies between rows is
 * neither read nor written. So it is in the fused products below, also where rows are gathered, and for h and d_h.
 *   forward          left = x  [rows][in],  right = w   as reference/grouped_gemm.h, result = y [rows][out]
 *   input gradient   left = dy [rows][out], right = w,                              result = dx [rows][in]
 *   weight gradient  left = x  [rows][in],  right = dy  [rows][out],                result = dw as w
 *   offset           [experts + 1] int32
 * The result is rounded once. Every element of it is written, unused tail rows and empty experts with
 * 0. Does not wait. SPW_EARG: widths, strides, pointers; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm(const spw_gemm_variant *variant, spw_gemm_operation operation,
                                               spw_gemm_shape shape, const spw_bf16 *left,
                                               const spw_bf16 *right, const int *offset, spw_bf16 *result,
                                               gpu_stream stream);

/* act[r][f] = swiglu(sum over i of x[r][i] w[e](i, f), sum over i of x[r][i] w[e](i, ffn + f)), rounded
 * once; neither sum is rounded or stored. shape.out is 2 ffn; w as in the forward pass, gate and up side by side;
 * act [rows][ffn]. On matrix cores only: Hopper, CDNA 2 to 4. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_swiglu(spw_gemm_shape shape, const spw_bf16 *x,
                                                      const spw_bf16 *w, const int *offset, spw_bf16 *act,
                                                      gpu_stream stream);

/* --- An expert layer's products with what stands around them: fewer arrays are written and read again. Hopper, CDNA 2 to 4. ---
 * Rows of a product may be gathered: row r is row assignment[r] / top_k of the array, as spw_ref_plan_create numbers
 * assignments. assignment [rows] int32, of which those in front of offset[experts] are read; NULL or
 * top_k 0: row r is row r, and assignment tells the weights of rows alone. tokens: rows of the array. */
typedef struct spw_gemm_rows {
    const int *assignment;
    size_t top_k, tokens;
} spw_gemm_rows;

/* Multiprocessors that a kernel of this shape takes: shape.multiprocessors, or all of them where it is 0 or more than there are. */
int spw_gemm_blocks(spw_gemm_shape shape);

/* Between the two products; all 0: SwiGLU, gate and up side by side, no bias. Taken: gated activations (SwiGLU, clamped, GeGLU)
 * and SPW_RELU2, of which the first product has one matrix: ffn columns. SPW_EARG: SPW_GELU; a limit with GeGLU; pairs without a gate. */
typedef struct spw_gemm_activation {
    spw_swiglu kind;
    bool pairs; /* gate and up in turn in w's columns and in h: 2 f is gate, 2 f + 1 up */
    const spw_bf16 *
        bias; /* [experts][columns of w], added to the first product's sums; NULL: none. Not read backward: h has it */
} spw_gemm_activation;

/* spw_gpu_grouped_gemm_swiglu with another activation: act alone.
 * shape.out as below. Does not wait. SPW_EARG: widths, activations; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_activated(spw_gemm_shape shape,
                                                         const spw_gemm_activation *activation,
                                                         const spw_bf16 *x, const spw_bf16 *w,
                                                         const int *offset, spw_bf16 *act, gpu_stream stream);

/* Forward with gate and up kept for the backward pass; shape.out is 2 ffn, a multiple of 16 (SPW_RELU2: ffn, of 8).
 *   x    [..][in], gathered            w   as in the forward pass, gate and up side by side
 *   h    [rows][out]                   gate and up, rounded
 *   act  [rows][ffn]                   their activation, of the sums before they are rounded
 * Unused tail rows become 0. Does not wait. SPW_EARG: widths; SPW_EDEVICE. */
typedef struct spw_gemm_up {
    const spw_bf16 *x, *w;
    const int *offset;
    spw_bf16 *h, *act;
    spw_gemm_activation activation;
} spw_gemm_up;
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_up(spw_gemm_shape shape, spw_gemm_rows rows,
                                                  const spw_gemm_up *g, gpu_stream stream);

/* Backward through the weighted sum, the second product and SwiGLU. shape is that of the second product: in = ffn, out =
 * hidden. With s[r][f] = sum over o of dy[r][o] w[e](f, o), v the row's weight and act of h:
 *   d_h [rows][2 ffn] = gradients of gate and up for v s      act [rows][ffn] = v act, the left side of w's gradient
 *   row_sum [ceil(ffn / 128)][rows] = parts of sum over f of s act, the gradient of v
 * Unused tail rows become 0 in d_h and act; in row_sum they are 0, too, and h is not read there. */
typedef struct spw_gemm_down_gradient {
    const spw_bf16 *dy;  /* [..][out], gathered */
    const float *weight; /* of an assignment, without assignments of a row; NULL: 1 */
    const spw_bf16 *w, *h;
    const int *offset;
    spw_bf16 *d_h, *act;
    float *row_sum;
    spw_gemm_activation activation; /* h and d_h are laid out as it says */
} spw_gemm_down_gradient;
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_down_gradient(spw_gemm_shape shape, spw_gemm_rows rows,
                                                             const spw_gemm_down_gradient *g,
                                                             gpu_stream stream);

/* The weight gradient with gathered rows of x (gathers_x) or of dy. *dw, or NULL: then main, in fp32 and laid out as
 * dw, strides among it, grows by it. Each element is added to once. */
typedef struct spw_gemm_weight_gradient {
    const spw_bf16 *x, *dy;
    bool gathers_x;
    const int *offset;
    spw_bf16 *dw;
    float *main;
} spw_gemm_weight_gradient;
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_weight_gradient(spw_gemm_shape shape, spw_gemm_rows rows,
                                                               const spw_gemm_weight_gradient *g,
                                                               gpu_stream stream);

/* The same table for fp8. */
typedef struct spw_gemm_float8_variant {
    const char *name;
    spw_gemm_float8_launcher *launch;
    /* Of a block's sum: 24 is fp32's. Hopper's tensor cores keep the highest 14 bits of 32 products and of the sum so far,
     * all shifted to the largest of them, and cut off the rest [published: DeepSeek-V3 Technical Report, section 3.5.2]. */
    int sum_bits;
    spw_gemm_float8_weights_launcher *weights;
} spw_gemm_float8_variant;
extern const spw_gemm_float8_variant spw_gemm_float8_variants[];

/* y[r][o] = sum over i of x[r][i] w[e][o][i], of codes of e4m3fn times their scales (reference/float8.h), rounded to bf16
 * once; a block of 128 terms is summed in fp32 (of sum_bits), then scaled and added.
 *   x  [rows][in] codes, x_scale [rows][ceil(in / 128)]: spw_float8_quantize_rows
 *   w  [experts][out][in] codes, w_scale [experts][ceil(out / 128)][ceil(in / 128)]: spw_float8_quantize_tiles of each expert
 *   y  [rows][out], 0 in the unused tail
 * shape.transposed must be set, as Hopper's tensor cores take codes of fp8 with the sum's dimension contiguous alone; weights [in][out] are
 * transposed once a step, codes and scales (kernels/local/float8_launch.h). in is a multiple of 16, out of 8. The input gradient is the same
 * product, of dy and of codes of w stored [experts][in][out]. Strides as above, of codes multiples of 16; scales are packed. Device pointers, 16-byte aligned. Does not wait. SPW_EARG: widths; SPW_EDEVICE. */
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_float8(const spw_gemm_float8_variant *variant,
                                                      spw_gemm_shape shape, const unsigned char *x,
                                                      const float *x_scale, const unsigned char *w,
                                                      const float *w_scale, const int *offset, spw_bf16 *y,
                                                      gpu_stream stream);

/* The gradient of weights: dw[e](i, o) = sum over r of expert e of x[r][i] dy[r][o], of both operands by columns
 * (spw_float8_quantize_columns: codes with a scale for 128 rows of an expert and a column). The tensor cores of Hopper take codes of fp8 with
 * the sum's dimension contiguous alone, so a step keeps codes of both forms: by rows for the two other products, by columns for this one.
 *   x        [in][128 blocks] codes, x_scale [blocks][in];  dy [out][128 blocks], dy_scale [blocks][out];  blocks = rows / 128 + experts
 *            rounded down. Expert e begins at block offset[e] / 128 + e; behind its last row its last block has codes of 0. Blocks that no
 *            expert has are not read
 *   dw       as reference/grouped_gemm.h says, rounded to bf16 once, 0 for an expert without rows; or NULL: then main, in fp32 and laid out
 *            as dw, grows by it. Each element is added to once. Either may have strides, x and dy have none
 * A block of 128 terms is summed as above, then scaled and added. in and out are multiples of 8. Device pointers, 16-byte aligned. Does not
 * wait. SPW_EARG: widths; SPW_EDEVICE. */
typedef struct spw_gemm_float8_gradient {
    const unsigned char *x, *dy;
    const float *x_scale, *dy_scale;
    const int *offset; /* [experts + 1] */
    spw_bf16 *dw;
    float *main;
} spw_gemm_float8_gradient;
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_float8_weight_gradient(const spw_gemm_float8_variant *variant,
                                                                      spw_gemm_shape shape,
                                                                      const spw_gemm_float8_gradient *g,
                                                                      gpu_stream stream);

/* Of MXFP8 (kernels/gemm/grouped_gemm_mxfp8_launch.h): as above with codes of e4m3 and, for 32 of them along the sum, a byte of
 * E8M0, four in a word.
 *   x  [rows][in] codes, x_scale [rows][ceil(in / 128)];   w  [experts][out][in] codes, w_scale [experts][out][ceil(in / 128)]
 * shape.transposed must be set; in is a multiple of 32, out of 8; no strides. Does not wait. SPW_EARG: widths; SPW_EDEVICE, too where the GPU
 * has no such products, which spw_gpu_has_mxfp8 says: AMD's gfx950 alone has them here. */
bool spw_gpu_has_mxfp8(void);
SPW_MUST_CHECK spw_status spw_gpu_grouped_gemm_mxfp8(spw_gemm_shape shape, const unsigned char *x,
                                                     const unsigned *x_scale, const unsigned char *w,
                                                     const unsigned *w_scale, const int *offset, spw_bf16 *y,
                                                     gpu_stream stream);

#endif
