#include "traces/generate/random_stream.h"

static void set(void *state, unsigned long seed) { *(uint64_t *)state = seed; }

static uint64_t next(void *state) {
    uint64_t *counter = state;
    return spw_random_mix(*counter += 0x9e3779b97f4a7c15u);
}

static unsigned long get(void *state) { return (unsigned long)(next(state) >> 32); }
static double get_double(void *state) { return (double)(next(state) >> 11) * 0x1p-53; }

static const gsl_rng_type type = {"splitmix64", 0xffffffffu, 0, sizeof(uint64_t), set, get, get_double};

void spw_random_stream_init(spw_random_stream *stream, uint64_t seed, uint64_t purpose, uint64_t a,
                            uint64_t b, uint64_t c) {
    const uint64_t parts[] = {purpose, a, b, c};
    uint64_t state = spw_random_mix(seed + 0x9e3779b97f4a7c15u);
    for (int i = 0; i < 4; i++) state = spw_random_mix((state ^ parts[i]) + 0x9e3779b97f4a7c15u);
    stream->state = state;
    stream->rng = (gsl_rng){&type, &stream->state};
}
