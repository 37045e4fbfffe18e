/* Quantiles by pencil and paper, and by counting over every size up to 300. */
#include "sim/statistics/quantiles.h"

#include "tests/unit/check.h"

#include <math.h>
#include <stdint.h>

static size_t at_most(const uint64_t *value, size_t count, uint64_t limit) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += value[i] <= limit;
    return n;
}

static void test_by_hand(void) {
    uint64_t one[] = {7}, four[] = {40, 10, 30, 20};
    spw_byte_quantiles q = spw_byte_quantiles_of(one, 1);
    CHECK(q.p50_bytes == 7 && q.p99_bytes == 7 && q.max_bytes == 7);
    q = spw_byte_quantiles_of(four, 4);
    CHECK(q.p50_bytes == 20 && q.p99_bytes == 40 && q.max_bytes == 40);
    q = spw_byte_quantiles_of(NULL, 0);
    CHECK(q.p50_bytes == 0 && q.max_bytes == 0);
    double values[] = {4.0, 1.0, 3.0, 2.0};
    CHECK(fabs(spw_quantile(values, 4, 0.5) - 2.5) < 1e-12);
    CHECK(fabs(spw_quantile(values, 4, 0.9) - 3.7) < 1e-12);
    CHECK(isnan(spw_quantile(values, 0, 0.5)));
}

/* The definition: at least the share lies at or below, and less than the share lies below. */
static void test_definition(void) {
    uint64_t value[300];
    for (size_t count = 1; count <= 300; count++) {
        for (size_t i = 0; i < count; i++) value[i] = (i * 7919 + count * 31) % 97;
        const spw_byte_quantiles q = spw_byte_quantiles_of(value, count);
        const struct {
            uint64_t found;
            size_t percent;
        } want[] = {{q.p50_bytes, 50}, {q.p99_bytes, 99}, {q.max_bytes, 100}};
        for (size_t w = 0; w < 3; w++) {
            CHECK(at_most(value, count, want[w].found) * 100 >= want[w].percent * count);
            CHECK(want[w].found == 0 ||
                  at_most(value, count, want[w].found - 1) * 100 < want[w].percent * count);
        }
    }
}

int main(void) {
    test_by_hand();
    test_definition();
    return check_done();
}
