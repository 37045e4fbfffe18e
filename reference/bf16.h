/* bfloat16 storage, emulated exactly: the upper half of an fp32. Source: Intel, BFLOAT16 Hardware Numerics
 * Definition (2018); the bits are those of PyTorch, ml_dtypes and the CDNA3 conversion instructions. */
#ifndef SPW_REFERENCE_BF16_H
#define SPW_REFERENCE_BF16_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nearest bf16, ties to the even one. A magnitude of 0x1.ffp127 or more becomes infinity; subnormal numbers
 * are kept; a NaN keeps its sign and becomes quiet (0x7fc0 or 0xffc0). */
uint16_t spw_bf16_from_float(float x);
float spw_bf16_to_float(uint16_t bits); /* exact */

/* out[i] = x[i] rounded to bf16, i < count. The arrays may be the same one. */
void spw_bf16_round(const float *x, size_t count, float *out);

#ifdef __cplusplus
}
#endif
#endif
