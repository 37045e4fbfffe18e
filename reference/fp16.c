#include "reference/fp16.h"

#include <string.h>

/* Of fp32, whose fraction has 13 bits more and whose exponent's bias is 112 larger. */
enum { MORE_BITS = 13, MORE_BIAS = 112, FRACTION = 10 };

/* x / 2^bits, nearest, ties to even; bits from 1 to 31. */
static uint32_t shifted(uint32_t x, unsigned bits) {
    const uint32_t half = (uint32_t)1 << (bits - 1), even = x >> bits & 1u;
    return (x + (half - 1) + even) >> bits;
}

uint16_t spw_fp16_from_float(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu, exponent = magnitude >> 23;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520, half of the way to 2^16 */
    if (exponent > MORE_BIAS) /* a carry goes on to the exponent, as it should */
        return (uint16_t)(sign | (shifted(magnitude, MORE_BITS) - ((uint32_t)MORE_BIAS << FRACTION)));
    if (exponent < MORE_BIAS - FRACTION)
        return (uint16_t)sign; /* less than 2^-25, half of the smallest number */
    const uint32_t whole = (magnitude & 0x7fffffu) | 0x800000u; /* in units of 2^(exponent - 150) */
    return (uint16_t)(sign | shifted(whole, MORE_BITS + 1 + MORE_BIAS - exponent));
}

float spw_fp16_to_float(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> FRACTION & 0x1fu,
                   fraction = bits & 0x3ffu;
    uint32_t u = sign | 0x7f800000u | fraction << MORE_BITS;
    float x;
    if (exponent == 0) { /* a multiple of 2^-24 */
        x = (float)fraction * 0x1p-24f;
        return sign != 0 ? -x : x;
    }
    if (exponent < 0x1f) u = sign | (exponent + MORE_BIAS) << 23 | fraction << MORE_BITS;
    memcpy(&x, &u, sizeof x);
    return x;
}

void spw_fp16_round(const float *x, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = spw_fp16_to_float(spw_fp16_from_float(x[i]));
}
