/* Random data for the tests of reference/: the same on every machine. */
#ifndef SPW_TESTS_REF_RANDOM_H
#define SPW_TESTS_REF_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Knuth's 64-bit linear congruence, upper bits. */
static inline uint32_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
static inline size_t random_below(uint64_t *state, size_t limit) { return random_next(state) % limit; }

/* In [-1, 1). */
static inline float random_uniform(uint64_t *state) {
    return (float)random_next(state) / 1073741824.0f - 1.0f;
}
/* In [-4, 4]: sums of products stay exact. */
static inline float random_integer(uint64_t *state) { return (float)(random_next(state) % 9) - 4.0f; }

static inline void random_fill(uint64_t *state, float (*draw)(uint64_t *), float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = draw(state);
}

/* top_k distinct experts for each token, skewed towards the low ids. */
static inline void random_routing(uint64_t *state, size_t tokens, size_t top_k, size_t experts,
                                  int32_t *expert) {
    for (size_t t = 0; t < tokens; t++) {
        for (size_t k = 0; k < top_k; k++) {
            int taken = 1;
            while (taken) {
                size_t x = random_below(state, experts), other = random_below(state, experts);
                if (other < x && random_below(state, 2)) x = other;
                taken = 0;
                for (size_t j = 0; j < k; j++) taken |= expert[t * top_k + j] == (int32_t)x;
                expert[t * top_k + k] = (int32_t)x;
            }
        }
    }
}

#endif
