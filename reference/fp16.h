/* fp16 storage, emulated exactly: IEEE 754-2019's binary16, 1 bit of sign, 5 of exponent, 10 of fraction. The bits are those of
 * numpy's float16, PyTorch and the conversion instructions of GPUs. */
#ifndef SPW_REFERENCE_FP16_H
#define SPW_REFERENCE_FP16_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPW_FP16_MAX 65504.0f /* the largest finite number */

/* Nearest fp16, ties to the even one. A magnitude of 65520 or more becomes infinity; below 2^-14 numbers are subnormal, multiples
 * of 2^-24; a NaN keeps its sign and becomes quiet (0x7e00 or 0xfe00). */
uint16_t spw_fp16_from_float(float x);
float spw_fp16_to_float(uint16_t bits); /* exact */

/* out[i] = x[i] rounded to fp16, i < count. The arrays may be the same one. */
void spw_fp16_round(const float *x, size_t count, float *out);

#ifdef __cplusplus
}
#endif
#endif
