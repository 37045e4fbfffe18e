/* Sums and products of sizes that stay at the end of 64 bits instead of starting anew: what no machine can hold is
 * compared with what it has, and must lose. */
#ifndef SPW_BASE_SATURATE_H
#define SPW_BASE_SATURATE_H

#include <stdint.h>

static inline uint64_t spw_saturated_product(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t spw_saturated_sum(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#endif
