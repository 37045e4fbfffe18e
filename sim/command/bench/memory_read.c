#include "sim/command/bench/memory_read.h"

#include <string.h>
#include <unistd.h>

#define STREAMS ((size_t)4)
#define TASKS ((size_t)64)

typedef uint64_t line __attribute__((vector_size(64)));

/* Streams of `part` words beside each other, which keeps more lines under way than one does. */
static inline __attribute__((always_inline)) uint64_t sum_streams(const uint64_t *data, size_t part) {
    line sum = {0}, next;
    uint64_t total = 0;
    for (size_t i = 0; i + sizeof next / sizeof *data <= part; i += sizeof next / sizeof *data) {
        for (size_t j = 0; j < STREAMS; j++) {
            memcpy(&next, data + j * part + i, sizeof next);
            sum += next;
        }
    }
    for (size_t i = 0; i < sizeof sum / sizeof *data; i++) total += sum[i];
    return total;
}

static uint64_t sum_baseline(const uint64_t *data, size_t part) { return sum_streams(data, part); }
#ifdef __x86_64__
__attribute__((target("avx512f"))) static uint64_t sum_v4(const uint64_t *data, size_t part) {
    return sum_streams(data, part);
}
__attribute__((target("avx2"))) static uint64_t sum_v3(const uint64_t *data, size_t part) {
    return sum_streams(data, part);
}
#endif

typedef uint64_t sum_function(const uint64_t *, size_t);

static sum_function *widest(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return sum_v4;
    if (__builtin_cpu_supports("avx2")) return sum_v3;
#endif
    return sum_baseline;
}

uint64_t spw_memory_read(const uint64_t *data, size_t count) {
    sum_function *const add = widest();
    const size_t line_words = sizeof(line) / sizeof *data,
                 part = count / TASKS / STREAMS / line_words * line_words;
    uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static)
    for (size_t i = 0; i < TASKS; i++) sum += add(data + i * STREAMS * part, part);
    return sum;
}

size_t spw_memory_beyond_caches(void) {
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t twice = cache > 0 ? 2 * (size_t)cache : 0;
    return twice < least ? least : twice > most ? most : twice;
}
