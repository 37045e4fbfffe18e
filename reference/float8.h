/* fp8 e4m3fn storage, emulated exactly, and its block-scaled form.
 * Source: Micikevicius et al. 2022, "FP8 Formats for Deep Learning"; OCP 8-bit Floating Point
 * Specification 1.0 (sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinity; NaN is 0x7f and 0xff;
 * largest 448). */
#ifndef SPW_REFERENCE_FLOAT8_H
#define SPW_REFERENCE_FLOAT8_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a magnitude beyond the largest number becomes. 464, half way to the missing 480, is a tie and goes to
 * the even 448. SATURATE is what the GPU conversions do (OCP's saturating mode); NAN is ml_dtypes (JAX) and
 * PyTorch. */
typedef enum spw_float8_overflow { SPW_FLOAT8_SATURATE, SPW_FLOAT8_NAN } spw_float8_overflow;

enum { SPW_FLOAT8_BLOCK = 128 };
#define SPW_FLOAT8_MAX 448.0f

/* Nearest e4m3fn, ties to even; subnormal numbers (down to 2^-9) are kept; a NaN keeps its sign. */
uint8_t spw_float8_from_float(float x, spw_float8_overflow overflow);
float spw_float8_to_float(uint8_t bits); /* exact */

/* Block scaling of activations: each row in blocks of 128 columns, the last one may be shorter.
 *   x       [rows][columns]
 *   code    [rows][columns]                     scale = largest |x| of the block / 448 in fp32 (1 if that is
 * 0); scale   [rows][ceil(columns / 128)] fp32    code = x / scale in fp32, rounded to e4m3fn, saturating A
 * NaN in x gives a NaN code and takes no part in the maximum; an infinity makes its whole block NaN or 0.
 * Source: deepseek-ai/DeepSeek-V3 inference/kernel.py act_quant. One thread owns one row. */
void spw_float8_quantize_rows(const float *x, size_t rows, size_t columns, uint8_t *code, float *scale);

/* x[r][c] = code * scale, rounded to fp32. */
void spw_float8_dequantize_rows(const uint8_t *code, const float *scale, size_t rows, size_t columns,
                                float *x);

/* Block scaling of weights: tiles of 128 x 128, cut at the edges; scale [ceil(rows / 128)][ceil(columns /
 * 128)]. Source: the same file, weight_dequant. */
void spw_float8_quantize_tiles(const float *x, size_t rows, size_t columns, uint8_t *code, float *scale);
void spw_float8_dequantize_tiles(const uint8_t *code, const float *scale, size_t rows, size_t columns,
                                 float *x);

/* Block scaling along the rows, for sums over them (gradients of weights): each column of an expert in blocks of 128 rows. Row r
 * of expert e, offset[e] <= r < offset[e + 1], is number r - offset[e] from block offset[e] / 128 + e on, so that no block has rows
 * of two experts and no table says where they begin.
 *   x       [rows][width]
 *   code    [width][128 blocks]     blocks = rows / 128 + experts, both divisions rounded down; 0 behind the expert's last row in
 *                                   its last block
 *   scale   [blocks][width] fp32    of a block and a column, as of spw_float8_quantize_rows
 * A block that no expert has is left alone; so are, when read back, rows that no expert has.
 * Source: DeepSeek-V3 Technical Report, section 3.3 (blocks of 128 x 1 in the backward pass); DeepGEMM's products with groups along
 * the sum. One thread owns one column. */
typedef struct spw_float8_groups {
    size_t experts, rows;
    const size_t *offset; /* [experts + 1] */
} spw_float8_groups;
size_t spw_float8_column_blocks(size_t experts, size_t rows);
void spw_float8_quantize_columns(spw_float8_groups groups, const float *x, size_t width, uint8_t *code,
                                 float *scale);
void spw_float8_dequantize_columns(spw_float8_groups groups, const uint8_t *code, const float *scale,
                                   size_t width, float *x);

#ifdef __cplusplus
}
#endif
#endif
