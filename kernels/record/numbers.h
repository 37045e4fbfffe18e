/* Test data by counting: element i of stream `seed` is a function of (seed, i) alone, so that the host can
 * form any part of an array that was filled on the device. The integers behind a number are the same on both. */
#ifndef SPW_KERNELS_RECORD_NUMBERS_H
#define SPW_KERNELS_RECORD_NUMBERS_H

#include <stdint.h>

typedef enum spw_numbers {
    SPW_NUMBERS_BELL,    /* a sum of four uniform numbers: mean 0, deviation 0.58, all bits in use */
    SPW_NUMBERS_INTEGER, /* -8 ... 8: sums of their products are exact in fp32 */
    SPW_NUMBERS_NAN,
    SPW_NUMBERS_LARGE, /* integers times 16: products up to 2^14, whose sums leave fp16 */
    SPW_NUMBERS_TINY,  /* integers times 2^-20: all subnormal in fp16 */
} spw_numbers;

#if defined(__CUDACC__)
#define SPW_NUMBERS_FUNCTION static __host__ __device__ inline
#elif defined(__HIP__)
#define SPW_NUMBERS_FUNCTION static __attribute__((host)) __attribute__((device)) inline
#else
#define SPW_NUMBERS_FUNCTION static inline
#endif

/* Steele, Lea, Flood 2014: SplitMix. */
SPW_NUMBERS_FUNCTION uint64_t spw_number_bits(uint64_t seed, uint64_t i) {
    uint64_t z = (seed * 0x632be59bd9b4e019u + i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The number times 2^16, an integer; of SPW_NUMBERS_BELL and SPW_NUMBERS_INTEGER alone. */
SPW_NUMBERS_FUNCTION int32_t spw_number_fixed(int kind, uint64_t seed, uint64_t i) {
    const uint64_t z = spw_number_bits(seed, i);
    if (kind == SPW_NUMBERS_INTEGER) return ((int32_t)(z >> 40) % 17 - 8) * 65536;
    return (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) + (int32_t)(z >> 32 & 0xffff) +
           (int32_t)(z >> 48) - 131070;
}

/* The number itself. */
SPW_NUMBERS_FUNCTION float spw_number(int kind, uint64_t seed, uint64_t i) {
    const int integer = kind == SPW_NUMBERS_LARGE || kind == SPW_NUMBERS_TINY;
    const float number =
        (float)spw_number_fixed(integer ? SPW_NUMBERS_INTEGER : kind, seed, i) * (1.0f / 65536);
    return kind == SPW_NUMBERS_LARGE  ? number * 16
           : kind == SPW_NUMBERS_TINY ? number * (1.0f / 1048576)
                                      : number;
}

#endif
