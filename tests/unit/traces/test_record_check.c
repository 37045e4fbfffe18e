/* Quick questions about many choices, beside slow answers: every width, top-k 1 to 20, and a repetition at every place. */
#include "traces/record_check.h"

#include "tests/unit/check.h"

#include <string.h>

enum { MOST_ROWS = 70, MOST_K = 20, MISSING = 255 };

static unsigned get(const void *ids, size_t id_bytes, size_t i) {
    return id_bytes == 1 ? ((const uint8_t *)ids)[i] : ((const uint16_t *)ids)[i];
}

static void put(void *ids, size_t id_bytes, size_t i, unsigned value) {
    if (id_bytes == 1) {
        ((uint8_t *)ids)[i] = (uint8_t)value;
    } else {
        ((uint16_t *)ids)[i] = (uint16_t)value;
    }
}

static bool slow_twice(const void *ids, size_t id_bytes, size_t rows, size_t top_k, unsigned missing) {
    bool twice = false;
    for (size_t r = 0; r < rows; r++) {
        for (size_t a = 0; a < top_k; a++) {
            for (size_t b = 0; b < a; b++) {
                const unsigned x = get(ids, id_bytes, r * top_k + a);
                twice = twice || (x == get(ids, id_bytes, r * top_k + b) && x != missing);
            }
        }
    }
    return twice;
}

/* Distinct ids in a row, and behind the last row what would be a repetition. */
static void fill(void *ids, size_t id_bytes, size_t rows, size_t top_k) {
    for (size_t i = rows * top_k; i < (rows + 1) * top_k; i++) put(ids, id_bytes, i, 3);
    for (size_t r = 0; r < rows; r++) {
        for (size_t k = 0; k < top_k; k++)
            put(ids, id_bytes, r * top_k + k, (unsigned)((r * 13 + k * 9) % 200));
    }
}

static void test_twice(size_t id_bytes) {
    static uint16_t memory[(MOST_ROWS + 1) * MOST_K];
    const size_t sizes[] = {0, 1, 3, 4, 31, 32, 33, 65, MOST_ROWS};
    for (size_t top_k = 1; top_k <= MOST_K; top_k++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t rows = sizes[i];
            fill(memory, id_bytes, rows, top_k);
            CHECK(!slow_twice(memory, id_bytes, rows, top_k, MISSING));
            CHECK(!spw_any_twice(memory, id_bytes, rows, top_k, MISSING));
            for (size_t at = 0; at < rows * top_k; at++) { /* as another of its row, wherever that is */
                const size_t row = at / top_k, other = row * top_k + (at + 1 + row % 5) % top_k;
                const unsigned was = get(memory, id_bytes, at);
                if (other == at) continue;
                put(memory, id_bytes, at, get(memory, id_bytes, other));
                CHECK(spw_any_twice(memory, id_bytes, rows, top_k, MISSING));
                put(memory, id_bytes, at, MISSING);
                const unsigned beside = get(memory, id_bytes, other);
                put(memory, id_bytes, other, MISSING); /* no choice is no repetition */
                CHECK(!spw_any_twice(memory, id_bytes, rows, top_k, MISSING));
                put(memory, id_bytes, at, was);
                put(memory, id_bytes, other, beside);
            }
        }
    }
}

static void test_beyond_and_sum(size_t id_bytes) {
    static uint16_t memory[300];
    const size_t counts[] = {0, 1, 7, 8, 64, 299};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t count = counts[i];
        uint64_t sum = 0;
        for (size_t j = 0; j < count; j++) {
            put(memory, id_bytes, j, (unsigned)(j * 37 % 200));
            sum += get(memory, id_bytes, j);
        }
        CHECK(spw_id_sum(memory, id_bytes, count) == sum);
        CHECK(!spw_any_beyond(memory, id_bytes, count, 200, MISSING));
        for (size_t j = 0; j < count; j++) {
            const unsigned was = get(memory, id_bytes, j);
            put(memory, id_bytes, j, 200);
            CHECK(spw_any_beyond(memory, id_bytes, count, 200, MISSING));
            CHECK(!spw_any_beyond(memory, id_bytes, count, 201, MISSING));
            CHECK(spw_id_sum(memory, id_bytes, count) == sum + 200 - was);
            put(memory, id_bytes, j, MISSING);
            CHECK(!spw_any_beyond(memory, id_bytes, count, 200, MISSING));
            put(memory, id_bytes, j, was);
        }
    }
}

/* The largest ids, so many that a lane of any width overflows. */
static void test_large_sums(void) {
    static uint8_t narrow[1 << 18];
    static uint16_t wide[1 << 18];
    memset(narrow, UINT8_MAX, sizeof narrow);
    memset(wide, UINT8_MAX, sizeof wide);
    CHECK(spw_id_sum(narrow, 1, sizeof narrow) == (uint64_t)UINT8_MAX << 18);
    CHECK(spw_id_sum(wide, 2, sizeof wide / sizeof *wide) == (uint64_t)UINT16_MAX << 18);
}

int main(void) {
    for (size_t id_bytes = 1; id_bytes <= 2; id_bytes++) {
        test_twice(id_bytes);
        test_beyond_and_sum(id_bytes);
    }
    test_large_sums();
    return check_done();
}
