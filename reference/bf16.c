#include "reference/bf16.h"

#include <string.h>

uint16_t spw_bf16_from_float(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16 & 0x8000u) | 0x7fc0u);
    u += 0x7fffu +
         (u >> 16 & 1u); /* half a unit, a shade less when the upper half is even; carries to infinity */
    return (uint16_t)(u >> 16);
}

float spw_bf16_to_float(uint16_t bits) {
    const uint32_t u = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

void spw_bf16_round(const float *x, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) out[i] = spw_bf16_to_float(spw_bf16_from_float(x[i]));
}
