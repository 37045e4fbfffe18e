/* A random stream that GSL's distributions draw from: SplitMix64 (Steele, Lea, Flood 2014), 64 bits of state,
 * so that a stream per (step, layer, rank) costs nothing to start. GSL's own generators take seeds of 32
 * bits. */
#ifndef SPW_TRACES_GENERATE_RANDOM_STREAM_H
#define SPW_TRACES_GENERATE_RANDOM_STREAM_H

#include <gsl/gsl_rng.h>
#include <stdint.h>

typedef struct spw_random_stream {
    gsl_rng rng; /* hand &stream.rng to GSL */
    uint64_t state;
} spw_random_stream;

/* The stream of (seed, purpose, a, b, c). Must stay where it is: it points into itself. */
void spw_random_stream_init(spw_random_stream *stream, uint64_t seed, uint64_t purpose, uint64_t a,
                            uint64_t b, uint64_t c);

static inline uint64_t spw_random_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static const uint64_t SPW_RANDOM_STEP = 0x9e3779b97f4a7c15u; /* of the state */

static inline uint64_t spw_random_next(spw_random_stream *stream) {
    return spw_random_mix(stream->state += SPW_RANDOM_STEP);
}

/* Uniform in [0, bound), bound >= 1 (Lemire 2019; the bias is below bound / 2^64). */
static inline uint64_t spw_random_below(spw_random_stream *stream, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)spw_random_next(stream) * bound) >> 64);
}

#endif
