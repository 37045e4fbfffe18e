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

#ifdef __cplusplus
}
#endif
#endif
