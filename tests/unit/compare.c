#include "tests/unit/compare.h"

#include "base/memory.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { FENCE = 64 };
static const uint32_t poison_bits = 0x7fc0dead;

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

void poison(float *y, size_t count) {
    for (size_t i = 0; i < count; i++) memcpy(y + i, &poison_bits, sizeof poison_bits);
}

float *fenced_create(size_t count) {
    float *all = NULL;
    if (SPW_ALLOC(count + 2 * (size_t)FENCE, &all) != SPW_OK) return NULL;
    poison(all, count + 2 * (size_t)FENCE);
    return all + FENCE;
}

spw_status fenced_check(const float *array, size_t count) {
    for (size_t i = 0; i < FENCE; i++) {
        if (bits(array[(ptrdiff_t)i - FENCE]) != poison_bits) {
            return spw_fail(SPW_EMISMATCH, "element %d was written, the array begins at 0", (int)i - FENCE);
        }
        if (bits(array[count + i]) != poison_bits) {
            return spw_fail(SPW_EMISMATCH, "element %zu was written, the array ends at %zu", count + i,
                            count);
        }
    }
    return SPW_OK;
}

void fenced_destroy(float *array) {
    if (array != NULL) spw_free(array - FENCE);
}

spw_status compare_exact(const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bits(got[i]) != bits(want[i])) {
            return spw_fail(SPW_EMISMATCH, "element %zu: got %.9g (0x%08x), want %.9g (0x%08x)", i,
                            (double)got[i], (unsigned)bits(got[i]), (double)want[i], (unsigned)bits(want[i]));
        }
    }
    return SPW_OK;
}

static spw_status compare(const float *got, const float *want, const float *scale, size_t terms,
                          double storage, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double limit =
            ((double)terms + 2.0) * 0x1p-24 * (double)scale[i] + storage * fabs((double)want[i]);
        const double error = fabs((double)got[i] - (double)want[i]);
        const int finite = (bits(got[i]) & 0x7f800000u) != 0x7f800000u; /* by bits: survives -ffast-math */
        const int good = finite && error <= limit; /* not "error > limit": NaN must fail */
        if (!good) {
            return spw_fail(SPW_EMISMATCH, "element %zu: got %.9g, want %.9g, off by %.3g, allowed %.3g", i,
                            (double)got[i], (double)want[i], error, limit);
        }
    }
    return SPW_OK;
}

spw_status compare_sum(const float *got, const float *want, const float *scale, size_t terms, size_t count) {
    return compare(got, want, scale, terms, 0.0, count);
}

spw_status compare_sum_bf16(const float *got, const float *want, const float *scale, size_t terms,
                            size_t count) {
    return compare(got, want, scale, terms, 0x1p-9, count);
}
