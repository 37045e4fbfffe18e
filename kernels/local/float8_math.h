/* Numbers to codes of e4m3fn as reference/float8.h has them, saturating. A NaN becomes a NaN, of either sign. */
#ifndef SPW_KERNELS_LOCAL_FLOAT8_MATH_H
#define SPW_KERNELS_LOCAL_FLOAT8_MATH_H

#include "kernels/gpu/gpu.h"

enum { FLOAT8_BLOCK = 128, FLOAT8_NAN = 0x7f };

GPU_DEVICE unsigned gpu_to_float8(float x) {
#if defined(__CUDA_ARCH__)
    unsigned short both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
    return both;
#else
    const unsigned bits = gpu_float_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) return sign | FLOAT8_NAN;
    /* Below 2^-6 codes are 2^-9 apart, as fp32 from 2^14 on. */
    const float small = gpu_bits_float(magnitude) + 0x1p14f;
    const unsigned cut = magnitude > 0x43e00000u ? 0x43e00000u : magnitude; /* 448 */
    const unsigned large = ((cut + 0x7ffffu + (cut >> 20 & 1)) >> 20) - (120u << 3);
    return sign | (magnitude < 0x3c800000u ? gpu_float_bits(small) & 0xf : large);
#endif
}

/* Four of them in a word, the first lowest. */
GPU_DEVICE unsigned gpu_to_float8x4(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__)
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return low | (unsigned)high << 16;
#else
    return gpu_to_float8(a) | gpu_to_float8(b) << 8 | gpu_to_float8(c) << 16 | gpu_to_float8(d) << 24;
#endif
}

/* The magnitude of a bf16 as an integer of its order; a NaN is the least. */
GPU_DEVICE unsigned float8_magnitude(unsigned bf16) {
    const unsigned magnitude = bf16 & 0x7fff;
    return magnitude > 0x7f80 ? 0 : magnitude;
}
/* A block's scale from the largest of them. */
GPU_DEVICE float float8_scale(unsigned largest) {
    const float ratio = gpu_bits_float(largest << 16) / 448.0f;
    return ratio > 0 ? ratio : 1.0f;
}

GPU_DEVICE float bf16_low(unsigned pair) { return gpu_bits_float(pair << 16); }
GPU_DEVICE float bf16_high(unsigned pair) { return gpu_bits_float(pair & 0xffff0000u); }
/* Four bf16 in two words, over a scale. */
GPU_DEVICE unsigned float8_codes(unsigned first, unsigned second, float scale) {
    return gpu_to_float8x4(bf16_low(first) / scale, bf16_high(first) / scale, bf16_low(second) / scale,
                           bf16_high(second) / scale);
}
GPU_DEVICE unsigned float8_largest(unsigned pair, unsigned largest) {
    const unsigned low = float8_magnitude(pair), high = float8_magnitude(pair >> 16);
    const unsigned both = low > high ? low : high;
    return both > largest ? both : largest;
}

#endif
