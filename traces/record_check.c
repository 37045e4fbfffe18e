#include "traces/record_check.h"

#include <string.h>

#define BASELINE                       /* of the processor that this is compiled for */
enum { VECTOR = 32, MOST_TILED = 16 }; /* VECTOR: bytes, and rows of a tile */

#ifdef __x86_64__
#define WITH_AVX2 __attribute__((target("avx2")))
static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
#define WITH_AVX2
static bool has_avx2(void) { return false; }
#endif

static unsigned id_at(const void *ids, size_t id_bytes, size_t i) {
    return id_bytes == 1 ? ((const uint8_t *)ids)[i] : ((const uint16_t *)ids)[i];
}

/* --- Out of range --- */

#define DEFINE_BEYOND(target, name, element) \
    target static bool name(const element *id, size_t count, element limit, element missing) { \
        element bad = 0; \
        _Pragma("omp simd reduction(| : bad)") for (size_t i = 0; i < count; i++) bad |= \
            (element)((id[i] >= limit) & (id[i] != missing)); \
        return bad != 0; \
    }
DEFINE_BEYOND(BASELINE, beyond_narrow, uint8_t)
DEFINE_BEYOND(BASELINE, beyond_wide, uint16_t)
DEFINE_BEYOND(WITH_AVX2, beyond_narrow_v3, uint8_t)
DEFINE_BEYOND(WITH_AVX2, beyond_wide_v3, uint16_t)
#undef DEFINE_BEYOND

bool spw_any_beyond(const void *ids, size_t id_bytes, size_t count, uint32_t limit, uint16_t missing) {
    if (id_bytes == 1)
        return (has_avx2() ? beyond_narrow_v3 : beyond_narrow)(ids, count, (uint8_t)limit, (uint8_t)missing);
    return (has_avx2() ? beyond_wide_v3 : beyond_wide)(ids, count, (uint16_t)limit, missing);
}

/* --- Twice --- */

/* Row by row: of what the others leave over. */
static bool any_twice_plain(const void *ids, size_t id_bytes, size_t rows, size_t top_k, unsigned missing) {
    for (size_t i = 0; i < rows * top_k; i++) {
        const unsigned id = id_at(ids, id_bytes, i);
        for (size_t j = i - i % top_k; j < i && id != missing; j++) {
            if (id_at(ids, id_bytes, j) == id) return true;
        }
    }
    return false;
}

/* --- Tiles of rows: 32 bytes of ids beside those `distance` places on; mask: all ones where these are of the same row --- */

typedef uint8_t narrow_rows __attribute__((vector_size(VECTOR)));
typedef uint16_t wide_rows __attribute__((vector_size(VECTOR)));

typedef bool tile_function(const char *ids, size_t tile_bytes, size_t tiles, size_t distance_bytes,
                           const char *mask, uint16_t missing);

/* Vectors of whole numbers have no padding. NOLINTBEGIN(bugprone-suspicious-memory-comparison) */
#define DEFINE_TILES(target, name, vector, element) \
    target static bool name(const char *ids, size_t tile_bytes, size_t tiles, size_t distance_bytes, \
                            const char *mask, uint16_t missing) { \
        const vector none = (vector){0} + (element)missing; \
        vector found = {0}, left, right, allowed; \
        for (size_t i = 0; i < tiles * tile_bytes; i += tile_bytes) { \
            for (size_t j = 0; j < tile_bytes; j += sizeof left) { \
                memcpy(&left, ids + i + j, sizeof left); \
                memcpy(&right, ids + i + j + distance_bytes, sizeof right); \
                memcpy(&allowed, mask + j, sizeof allowed); \
                found |= (vector)(left == right) & (vector)(left != none) & allowed; \
            } \
        } \
        return memcmp(&found, &(vector){0}, sizeof found) != 0; \
    }
DEFINE_TILES(BASELINE, tiles_narrow, narrow_rows, uint8_t)
DEFINE_TILES(BASELINE, tiles_wide, wide_rows, uint16_t)
DEFINE_TILES(WITH_AVX2, tiles_narrow_v3, narrow_rows, uint8_t)
DEFINE_TILES(WITH_AVX2, tiles_wide_v3, wide_rows, uint16_t)
#undef DEFINE_TILES
/* NOLINTEND(bugprone-suspicious-memory-comparison) */

static tile_function *const tile_functions[2][2] = {{tiles_narrow, tiles_wide},
                                                    {tiles_narrow_v3, tiles_wide_v3}};

static bool any_twice_tiled(const char *ids, size_t id_bytes, size_t rows, size_t top_k, uint16_t missing) {
    char mask[VECTOR * MOST_TILED * 2];
    const size_t tiles = rows > 0 ? (rows - 1) / VECTOR
                                  : 0, /* a row follows the last, which may be looked into */
        tile_bytes = VECTOR * top_k * id_bytes;
    tile_function *const look = tile_functions[has_avx2()][id_bytes - 1];
    for (size_t distance = 1; distance < top_k; distance++) {
        for (size_t i = 0; i < VECTOR * top_k; i++)
            memset(mask + i * id_bytes, i % top_k + distance < top_k ? UINT8_MAX : 0, id_bytes);
        if (look(ids, tile_bytes, tiles, distance * id_bytes, mask, missing)) return true;
    }
    return any_twice_plain(ids + tiles * tile_bytes, id_bytes, rows - tiles * VECTOR, top_k, missing);
}

/* --- Eight to a row, the common case: 32 bytes of rows beside themselves, turned within each row --- */

#define TURNED(first, d) \
    (first) + (0 + (d)) % 8, (first) + (1 + (d)) % 8, (first) + (2 + (d)) % 8, (first) + (3 + (d)) % 8, \
        (first) + (4 + (d)) % 8, (first) + (5 + (d)) % 8, (first) + (6 + (d)) % 8, (first) + (7 + (d)) % 8
/* As above, and v is a name. NOLINTBEGIN(bugprone-suspicious-memory-comparison,bugprone-macro-parentheses) */
#define NARROW(v, d) \
    (narrow_rows)(v == \
                  __builtin_shufflevector(v, v, TURNED(0, d), TURNED(8, d), TURNED(16, d), TURNED(24, d)))
#define WIDE(v, d) (wide_rows)(v == __builtin_shufflevector(v, v, TURNED(0, d), TURNED(8, d)))
#define DEFINE_EIGHT(target, name, vector, EQUAL) \
    target static bool name(const char *ids, size_t vectors) { \
        vector found = {0}; \
        for (size_t i = 0; i < vectors; i++) { \
            vector v; \
            memcpy(&v, ids + i * sizeof v, sizeof v); \
            found |= EQUAL(v, 1) | EQUAL(v, 2) | EQUAL(v, 3) | EQUAL(v, 4); \
        } \
        return memcmp(&found, &(vector){0}, sizeof found) != 0; \
    }
DEFINE_EIGHT(WITH_AVX2, eight_narrow, narrow_rows, NARROW)
DEFINE_EIGHT(WITH_AVX2, eight_wide, wide_rows, WIDE)
/* NOLINTEND(bugprone-suspicious-memory-comparison,bugprone-macro-parentheses) */

/* False when none of the ids [rows][8] stands twice in its row; true also where only `missing` does. */
static bool maybe_twice_of_eight(const char *ids, size_t id_bytes, size_t rows) {
    const size_t vectors = rows * 8 * id_bytes / VECTOR, done = vectors * VECTOR / (8 * id_bytes);
    if (!has_avx2() || (id_bytes == 1 ? eight_narrow(ids, vectors) : eight_wide(ids, vectors))) return true;
    return any_twice_plain(ids + vectors * VECTOR, id_bytes, rows - done, 8, UINT32_MAX);
}

bool spw_any_twice(const void *ids, size_t id_bytes, size_t rows, size_t top_k, uint16_t missing) {
    if (top_k < 2 || (top_k == 8 && !maybe_twice_of_eight(ids, id_bytes, rows))) return false;
    if (top_k > MOST_TILED) return any_twice_plain(ids, id_bytes, rows, top_k, missing);
    return any_twice_tiled(ids, id_bytes, rows, top_k, missing);
}

/* --- Sums --- */

/* Halves of the lanes of a word are added to lanes of twice the width, which hold `most` such sums. */
static inline __attribute__((always_inline)) uint64_t sum_words(const char *ids, size_t words, uint64_t low,
                                                                unsigned bits, size_t most) {
    const uint64_t lane = ((uint64_t)1 << 2 * bits) - 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < words;) {
        const size_t end = words - i < most ? words : i + most;
        uint64_t part = 0, word = 0;
        for (size_t j = i; j < end; j++) {
            memcpy(&word, ids + j * sizeof word, sizeof word);
            part += (word & low) + (word >> bits & low);
        }
        for (unsigned at = 0; at < 64; at += 2 * bits) sum += part >> at & lane;
        i = end;
    }
    return sum;
}

static inline __attribute__((always_inline)) uint64_t sum_either(const char *ids, size_t words,
                                                                 size_t id_bytes) {
    return id_bytes == 1 ? sum_words(ids, words, 0x00ff00ff00ff00ffu, 8, 128)
                         : sum_words(ids, words, 0x0000ffff0000ffffu, 16, 32768);
}
static uint64_t sum_baseline(const char *ids, size_t words, size_t id_bytes) {
    return sum_either(ids, words, id_bytes);
}
WITH_AVX2 static uint64_t sum_v3(const char *ids, size_t words, size_t id_bytes) {
    return sum_either(ids, words, id_bytes);
}

uint64_t spw_id_sum(const void *ids, size_t id_bytes, size_t count) {
    const size_t words = count * id_bytes / sizeof(uint64_t);
    uint64_t sum = (has_avx2() ? sum_v3 : sum_baseline)(ids, words, id_bytes);
    for (size_t i = words * sizeof(uint64_t) / id_bytes; i < count; i++) sum += id_at(ids, id_bytes, i);
    return sum;
}
