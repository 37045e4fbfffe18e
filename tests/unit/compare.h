/* The one place that decides whether a result is right. No tolerance is typed by hand: a bound is derived
 * from the length of a sum and from the size of its terms. Compiled without fast-math. */
#ifndef SPW_TESTS_COMPARE_H
#define SPW_TESTS_COMPARE_H

#include "base/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A poison for outputs: a NaN that no arithmetic produces. */
void poison(float *y, size_t count);

/* An array of `count` numbers between two fences of poison; the array itself is poisoned too. NULL on
 * failure. */
float *fenced_create(size_t count);
/* SPW_EMISMATCH when something was written outside the array. */
SPW_MUST_CHECK spw_status fenced_check(const float *array, size_t count);
void fenced_destroy(float *array); /* NULL is fine */

/* Bitwise equality; for integer-valued data, for pure data movement, and between numbers of threads. */
SPW_MUST_CHECK spw_status compare_exact(const float *got, const float *want, size_t count);

/* |got - want| <= (terms + 2) * 2^-24 * scale, per element (Higham 2002, Accuracy and Stability, ch. 3).
 * terms: roundings on the longest way to a result, the length of the fp32 sum; scale: sum of |terms| from the
 * reference. NaN and infinity fail. */
SPW_MUST_CHECK spw_status compare_sum(const float *got, const float *want, const float *scale, size_t terms,
                                      size_t count);

/* The same, and 2^-9 * |want| more: the result was stored in bf16. */
SPW_MUST_CHECK spw_status compare_sum_bf16(const float *got, const float *want, const float *scale,
                                           size_t terms, size_t count);

#ifdef __cplusplus
}
#endif
#endif
