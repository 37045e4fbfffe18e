/* What tests of the allocator and its lists share: numbers by chance, and whether two replays said the same. */
#ifndef SPW_TESTS_UNIT_MEMORY_REPLAYS_H
#define SPW_TESTS_UNIT_MEMORY_REPLAYS_H

#include "sim/memory/allocator/allocator.h"

#include <stdbool.h>
#include <stdint.h>

/* Marsaglia's xorshift; *state is not 0. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline bool same_stats(const spw_allocator_stats *a, const spw_allocator_stats *b) {
    return a->requested_bytes == b->requested_bytes && a->allocated_bytes == b->allocated_bytes &&
           a->reserved_bytes == b->reserved_bytes && a->requested_peak_bytes == b->requested_peak_bytes &&
           a->allocated_peak_bytes == b->allocated_peak_bytes &&
           a->reserved_peak_bytes == b->reserved_peak_bytes && a->retries == b->retries &&
           a->refused == b->refused && a->segments == b->segments;
}

#endif
