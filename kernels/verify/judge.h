/* Decides whether a kernel's result is right. The allowance is derived, never typed: see spw_judge_bf16. */
#ifndef SPW_KERNELS_VERIFY_JUDGE_H
#define SPW_KERNELS_VERIFY_JUDGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A count of comparisons; one comparison is one array of one kernel in one case. */
typedef struct spw_judge {
    size_t comparisons, failed;
    bool quiet;   /* do not print: failures are expected */
    double worst; /* largest error over its allowance among those that passed */
} spw_judge;

/* Prints the message of a failed comparison with its label to standard error and counts it. */
void spw_judge_count(spw_judge *judge, spw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A sum of `terms` fp32 products, rounded to bf16 once. With d = (terms + 2) 2^-24 scale (Higham, Accuracy
 * and Stability of Numerical Algorithms, 2nd ed., eq. 3.5, unit roundoff 2^-24) the sum lies in [want - d,
 * want + d]; rounding is monotone, so got must lie in [bf16(want - d), bf16(want + d)]: never more than 2^-8
 * |want| beyond d, and no value typed by hand. Exact data (d = 0 by construction): got is want rounded to
 * bf16, bit by bit. NaN and inf never pass. */
SPW_MUST_CHECK spw_status spw_judge_bf16(spw_judge *judge, bool exact, size_t count, size_t terms,
                                         const uint16_t *got, const float *want, const float *scale);
/* The same of fp16: got in [fp16(want - d), fp16(want + d)], never more than 2^-11 |want| or, of subnormal numbers, 2^-25 beyond d.
 * As fp16 ends at 65504, infinity is right where an end of the interval rounds to it, which it does from 65520 on; NaN never is. */
SPW_MUST_CHECK spw_status spw_judge_fp16(spw_judge *judge, bool exact, size_t count, size_t terms,
                                         const uint16_t *got, const float *want, const float *scale);
/* Results in fp32: |got - want| <= d; `exact` compares bits. */
SPW_MUST_CHECK spw_status spw_judge_float(spw_judge *judge, bool exact, size_t count, size_t terms,
                                          const float *got, const float *want, const float *scale);
/* The same rules over every element, for a report: how far the worst is, in units of its bound (beyond 1 is wrong; infinity
 * for NaN, inf and where one number alone is right; a wrong bf16 or fp16 is measured by d and half a step of its type), and what would have passed there. scale NULL: exact. */
typedef struct spw_judged {
    size_t elements, failed, at;
    double worst, got, want, low, high;
} spw_judged;
void spw_judge_all_bf16(size_t count, size_t terms, const uint16_t *got, const float *want,
                        const float *scale, spw_judged *out);
void spw_judge_all_fp16(size_t count, size_t terms, const uint16_t *got, const float *want,
                        const float *scale, spw_judged *out);
void spw_judge_all_float(size_t count, size_t terms, const float *got, const float *want, const float *scale,
                         spw_judged *out);
/* Counts and bytes. */
SPW_MUST_CHECK spw_status spw_judge_equal(uint64_t got, uint64_t want);
/* Data movement and indices. */
SPW_MUST_CHECK spw_status spw_judge_bytes(size_t count, size_t element_bytes, const void *got,
                                          const void *want);

#endif
