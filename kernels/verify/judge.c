#include "kernels/verify/judge.h"

#include "reference/bf16.h"
#include "reference/fp16.h"

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

/* A type of 16 bits: how it is read and rounded; what rounding may be off, of a number's magnitude and at least; of neighbours that
 * are 2^-place apart in [1, 2) and nowhere closer than 2^closest; whether infinity is the rounding of large sums. */
typedef struct half {
    uint16_t (*from_float)(float x);
    float (*to_float)(uint16_t bits);
    double relative, least;
    int place, closest;
    bool overflows;
} half;
static const half bf16 = {spw_bf16_from_float, spw_bf16_to_float, 0x1p-8, 0, 7, -133, false};
static const half fp16 = {spw_fp16_from_float, spw_fp16_to_float, 0x1p-11, 0x1p-25, 10, -24, true};

static double rounded(const half *type, float x) { return (double)type->to_float(type->from_float(x)); }

/* What may stand for `wanted`: want is itself rounded to fp32, the ends of the interval are rounded outwards. */
static void allowed_half(const half *type, float wanted, double d, double *low, double *high) {
    *low = rounded(type, nextafterf((float)((double)wanted - d), -INFINITY));
    *high = rounded(type, nextafterf((float)((double)wanted + d), INFINITY));
}

/* Within the interval; NaN is in none. */
static bool within(const half *type, double value, double low, double high) {
    return value >= low && value <= high && (type->overflows || isfinite(value));
}

/* What rounding to the type may be off at `x`. */
static double rounding_of(const half *type, double x) { return fmax(type->relative * fabs(x), type->least); }

/* `bound`: what the error may be where rounding to the type is the worst that it can be; `least`: where it is right, of a wrong number. */
typedef struct allowed_error {
    double want, low, high, bound, least;
    bool overflows;
} allowed_error;

static void judge_one(spw_judged *out, size_t i, double got, allowed_error a) {
    const double want = a.want, low = a.low, high = a.high;
    const bool good = got >= low && got <= high && (isfinite(got) || a.overflows);
    const double error = good && isinf(got) ? 0 : fabs(got - want), allowed = good ? a.bound : a.least;
    double units = error == 0 ? 0 : allowed > 0 ? error / allowed : INFINITY;
    if (!good) units = isnan(units) ? INFINITY : fmax(units, nextafter(1, 2));
    out->failed += !good;
    if (i > 0 && units <= out->worst) return;
    out->at = i, out->worst = units, out->got = got, out->want = want, out->low = low, out->high = high;
}

/* Half of the distance of neighbours. */
static double half_step(const half *type, double x) {
    return x != 0 ? ldexp(1, (int)fmax(ilogb(x) - type->place, type->closest) - 1) : 0;
}

static void judge_all(const half *type, size_t count, size_t terms, const uint16_t *got, const float *want,
                      const float *scale, spw_judged *out) {
    *out = (spw_judged){.elements = count};
    for (size_t i = 0; i < count; i++) {
        double low = rounded(type, want[i]), high = low;
        const double middle = scale != NULL ? (double)want[i] : low;
        const double d = rounding(terms, scale, i);
        if (scale != NULL) allowed_half(type, want[i], d, &low, &high);
        const allowed_error a = {middle,
                                 low,
                                 high,
                                 d + rounding_of(type, middle),
                                 scale != NULL ? d + half_step(type, middle) : 0,
                                 type->overflows};
        judge_one(out, i, (double)type->to_float(got[i]), a);
    }
}

void spw_judge_all_bf16(size_t count, size_t terms, const uint16_t *got, const float *want,
                        const float *scale, spw_judged *out) {
    judge_all(&bf16, count, terms, got, want, scale, out);
}

void spw_judge_all_fp16(size_t count, size_t terms, const uint16_t *got, const float *want,
                        const float *scale, spw_judged *out) {
    judge_all(&fp16, count, terms, got, want, scale, out);
}

void spw_judge_all_float(size_t count, size_t terms, const float *got, const float *want, const float *scale,
                         spw_judged *out) {
    *out = (spw_judged){.elements = count};
    for (size_t i = 0; i < count; i++) {
        const double d = rounding(terms, scale, i), wanted = (double)want[i];
        judge_one(out, i, (double)got[i], (allowed_error){wanted, wanted - d, wanted + d, d, d, false});
    }
}

/* worst: of elements, the largest error by what it may be where that is not 0. */
static void note_worst(double *worst, double error, double allowed) {
    if (allowed > 0 && error / allowed > *worst) *worst = error / allowed;
}

static spw_status first_wrong(const half *type, size_t count, size_t i, uint16_t got, float want, double d) {
    double low, high;
    allowed_half(type, want, d, &low, &high);
    return spw_fail(SPW_EMISMATCH, "element %zu of %zu: got %.9g (0x%04x), want %.9g in [%.9g, %.9g]", i,
                    count, (double)type->to_float(got), got, (double)want, low, high);
}

/* What a sum of so many terms may be; scale NULL: exactly want. */
typedef struct expected {
    size_t count, terms;
    const float *want, *scale;
} expected;

static spw_status judge_half(spw_judge *judge, const half *type, const uint16_t *got, expected e) {
    size_t first = e.count;
    double worst = judge->worst;
#pragma omp parallel for schedule(static) reduction(min : first) reduction(max : worst)
    for (size_t i = 0; i < e.count; i++) {
        const double value = (double)type->to_float(got[i]), wanted = (double)e.want[i];
        const double d = rounding(e.terms, e.scale, i);
        double low, high;
        allowed_half(type, e.want[i], d, &low, &high);
        const bool same = got[i] == type->from_float(e.want[i]) && within(type, value, value, value);
        if (!(e.scale == NULL ? same : within(type, value, low, high)))
            first = i < first ? i : first;
        else if (isfinite(value))
            note_worst(&worst, fabs(value - wanted), d + rounding_of(type, wanted));
    }
    judge->worst = worst;
    if (first == e.count) return SPW_OK;
    return first_wrong(type, e.count, first, got[first], e.want[first], rounding(e.terms, e.scale, first));
}

spw_status spw_judge_bf16(spw_judge *judge, bool exact, size_t count, size_t terms, const uint16_t *got,
                          const float *want, const float *scale) {
    return judge_half(judge, &bf16, got, (expected){count, terms, want, exact ? NULL : scale});
}

spw_status spw_judge_fp16(spw_judge *judge, bool exact, size_t count, size_t terms, const uint16_t *got,
                          const float *want, const float *scale) {
    return judge_half(judge, &fp16, got, (expected){count, terms, want, exact ? NULL : scale});
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
