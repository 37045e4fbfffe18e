#include "kernels/verify/judge.h"

#include "reference/bf16.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void spw_judge_count(spw_judge *judge, spw_status status, const char *format, ...) {
    judge->comparisons++;
    if (status == SPW_OK) return;
    judge->failed++;
    if (judge->quiet) return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "FAILED ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, ": %s\n", spw_last_error());
    va_end(arguments);
}

/* d: what the sum may be off before it is rounded. */
static double rounding(size_t terms, const float *scale, size_t i) {
    return scale != NULL ? ((double)terms + 2) * 0x1p-24 * (double)scale[i] : 0;
}

/* What may stand for `wanted` in bf16: want is itself rounded to fp32, the ends of the interval are rounded outwards. */
static void allowed_bf16(float wanted, double d, double *low, double *high) {
    *low = (double)spw_bf16_to_float(spw_bf16_from_float(nextafterf((float)((double)wanted - d), -INFINITY)));
    *high = (double)spw_bf16_to_float(spw_bf16_from_float(nextafterf((float)((double)wanted + d), INFINITY)));
}

/* `bound`: what the error may be where rounding to the type is the worst that it can be; `least`: where it is right, of a wrong number. */
typedef struct allowed_error {
    double want, low, high, bound, least;
} allowed_error;

static void judge_one(spw_judged *out, size_t i, double got, allowed_error a) {
    const double want = a.want, low = a.low, high = a.high;
    const bool good = got >= low && got <= high && isfinite(got);
    const double error = fabs(got - want), allowed = good ? a.bound : a.least;
    double units = error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
    if (!good) units = isnan(units) ? INFINITY : fmax(units, nextafter(1, 2));
    out->failed += !good;
    if (i > 0 && units <= out->worst) return;
    out->at = i, out->worst = units, out->got = got, out->want = want, out->low = low, out->high = high;
}

/* Half of the distance of neighbours in bf16. */
static double half_step(double x) { return x != 0 ? ldexp(1, ilogb(x) - 8) : 0; }

void spw_judge_all_bf16(size_t count, size_t terms, const uint16_t *got, const float *want,
                        const float *scale, spw_judged *out) {
    *out = (spw_judged){.elements = count};
    for (size_t i = 0; i < count; i++) {
        double low = (double)spw_bf16_to_float(spw_bf16_from_float(want[i])), high = low;
        const double middle = scale != NULL ? (double)want[i] : low;
        const double d = rounding(terms, scale, i);
        if (scale != NULL) allowed_bf16(want[i], d, &low, &high);
        const allowed_error a = {middle, low, high, d + 0x1p-8 * fabs(middle),
                                 scale != NULL ? d + half_step(middle) : 0};
        judge_one(out, i, (double)spw_bf16_to_float(got[i]), a);
    }
}

void spw_judge_all_float(size_t count, size_t terms, const float *got, const float *want, const float *scale,
                         spw_judged *out) {
    *out = (spw_judged){.elements = count};
    for (size_t i = 0; i < count; i++) {
        const double d = rounding(terms, scale, i), wanted = (double)want[i];
        judge_one(out, i, (double)got[i], (allowed_error){wanted, wanted - d, wanted + d, d, d});
    }
}

/* worst: of elements, the largest error by what it may be where that is not 0. */
static void note_worst(double *worst, double error, double allowed) {
    if (allowed > 0 && error / allowed > *worst) *worst = error / allowed;
}

static spw_status first_bf16(size_t count, size_t i, uint16_t got, float want, double d) {
    double low, high;
    allowed_bf16(want, d, &low, &high);
    return spw_fail(SPW_EMISMATCH, "element %zu of %zu: got %.9g (0x%04x), want %.9g in [%.9g, %.9g]", i,
                    count, (double)spw_bf16_to_float(got), got, (double)want, low, high);
}

spw_status spw_judge_bf16(spw_judge *judge, bool exact, size_t count, size_t terms, const uint16_t *got,
                          const float *want, const float *scale) {
    size_t first = count;
    double worst = judge->worst;
#pragma omp parallel for schedule(static) reduction(min : first) reduction(max : worst)
    for (size_t i = 0; i < count; i++) {
        const double value = (double)spw_bf16_to_float(got[i]), wanted = (double)want[i];
        const double d = exact ? 0 : rounding(terms, scale, i);
        double low, high;
        allowed_bf16(want[i], d, &low, &high);
        const bool good = exact ? got[i] == spw_bf16_from_float(want[i]) : value >= low && value <= high;
        if (!(good && isfinite(value)))
            first = i < first ? i : first;
        else
            note_worst(&worst, fabs(value - wanted), d + 0x1p-8 * fabs(wanted));
    }
    judge->worst = worst;
    return first == count
               ? SPW_OK
               : first_bf16(count, first, got[first], want[first], exact ? 0 : rounding(terms, scale, first));
}

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

spw_status spw_judge_float(spw_judge *judge, bool exact, size_t count, size_t terms, const float *got,
                           const float *want, const float *scale) {
    size_t first = count;
    double worst = judge->worst;
#pragma omp parallel for schedule(static) reduction(min : first) reduction(max : worst)
    for (size_t i = 0; i < count; i++) {
        const double limit = exact ? 0 : rounding(terms, scale, i);
        const double error = fabs((double)got[i] - (double)want[i]);
        /* <= so that NaN fails */
        if (exact ? float_bits(got[i]) == float_bits(want[i]) : error <= limit && isfinite(got[i]))
            note_worst(&worst, error, limit);
        else
            first = i < first ? i : first;
    }
    judge->worst = worst;
    if (first == count) return SPW_OK;
    return spw_fail(SPW_EMISMATCH, "element %zu of %zu: got %.9g, want %.9g, allowed %.3g", first, count,
                    (double)got[first], (double)want[first], exact ? 0 : rounding(terms, scale, first));
}

spw_status spw_judge_equal(uint64_t got, uint64_t want) {
    return got == want ? SPW_OK : spw_fail(SPW_EMISMATCH, "got %" PRIu64 ", want %" PRIu64, got, want);
}

spw_status spw_judge_bytes(size_t count, size_t element_bytes, const void *got, const void *want) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)got + i * element_bytes, (const char *)want + i * element_bytes,
                   element_bytes) != 0)
            return spw_fail(SPW_EMISMATCH, "element %zu of %zu differs", i, count);
    }
    return SPW_OK;
}
