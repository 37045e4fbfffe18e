/* Rows in bf16 to codes of e4m3fn with scales (reference/float8.h), in the pass that makes the rows. Launchers as in local_launch.h. */
#ifndef SPW_KERNELS_LOCAL_FLOAT8_LAUNCH_H
#define SPW_KERNELS_LOCAL_FLOAT8_LAUNCH_H

#include "kernels/local/local_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where codes go, in either form or both; bit by bit those of spw_float8_quantize_rows and spw_float8_quantize_columns of the same bf16,
 * but for the sign of a NaN. Of the rows that an expert has; others are left alone.
 *   by rows      code [rows][width], scale [rows][ceil(width / 128)]: for products along the columns. NULL: not wanted
 *   by columns   column_code [width][128 blocks], column_scale [blocks][width], blocks = rows / 128 + experts: for the gradient of weights.
 *                NULL: not wanted
 * width is a multiple of 16. */
typedef struct spw_float8_gpu {
    int experts, rows, width, pad;
    const int *offset; /* [experts + 1] */
    unsigned char *code;
    float *scale;
    unsigned char *column_code;
    float *column_scale;
} spw_float8_gpu;

/* x [rows][width]. */
int spw_launch_float8_rows(spw_float8_gpu q, const spw_bf16 *x, gpu_stream stream);
/* Row r is x[assignment[r] / top_k], so tokens need not be fanned out before (spw_ref_permute). */
int spw_launch_float8_gathered(spw_float8_gpu q, const spw_bf16 *x, const int *assignment, int top_k,
                               gpu_stream stream);
/* The rows are those that spw_launch_activation would write, rounded to bf16; s.rows and s.ffn are q's. */
int spw_launch_float8_activation(spw_float8_gpu q, spw_swiglu_gpu s, gpu_stream stream);

/* Backward through the activation s: d_act [rows][ffn] is its gradient before a row's factor, which is weight[assignment[r]]. What is made is
 * rounded to bf16 once, then coded.
 *   slopes     factor d_act through the activation, laid out as gate and up; width is s.stride
 *   weighted   factor act, width ffn: what the gradient of the second product's weights reads;
 *              row_sum [ceil(ffn / 128)][rows]: parts of sum d_act act, the factor's gradient, in fp32 */
typedef struct spw_float8_backward_gpu {
    spw_swiglu_gpu s;
    const spw_bf16 *d_act;
    const int *assignment;
    const float *weight;
    float *row_sum;
} spw_float8_backward_gpu;
int spw_launch_float8_slopes(spw_float8_gpu q, spw_float8_backward_gpu b, gpu_stream stream);
int spw_launch_float8_weighted(spw_float8_gpu q, spw_float8_backward_gpu b, gpu_stream stream);

/* Weights [experts][rows][columns] in bf16 to codes and scales [experts][ceil(rows / 128)][ceil(columns / 128)] of
 * spw_float8_quantize_tiles and to their transposes [experts][columns][rows] and [..][ceil(columns / 128)][ceil(rows / 128)], which are
 * exact. The fp8 products want codes with the sum's dimension contiguous: the forward pass [out][in], the input gradient [in][out], so a step
 * needs both. Either pair may be NULL. rows and columns are multiples of 8. */
typedef struct spw_float8_weights_gpu {
    int experts, rows, columns, pad;
    unsigned char *code;
    float *scale;
    unsigned char *turned_code;
    float *turned_scale;
} spw_float8_weights_gpu;
int spw_launch_float8_weights(spw_float8_weights_gpu q, const spw_bf16 *w, gpu_stream stream);
/* The transposes alone, of codes and scales that are there (q.code and q.scale are read): weights [in][out] for the forward product. */
int spw_launch_float8_turn(spw_float8_weights_gpu q, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
