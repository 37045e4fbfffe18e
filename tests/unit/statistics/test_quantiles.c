/* Quantiles by pencil and paper, and by counting over every size up to 300. */
#include "sim/statistics/overflow_rate.h"
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

/* Without overflows the limit is 1 - 0.05^(1/n); with one, (1 - p)^n + n p (1 - p)^(n - 1) = 0.05 there. */
static void test_overflow_rate(void) {
    for (size_t n = 1; n <= 5000; n = n * 3 + 1) {
        const double none = spw_overflow_upper_limit(0, n), one = spw_overflow_upper_limit(1, n + 1);
        CHECK(fabs(none - (1.0 - pow(0.05, 1.0 / (double)n))) < 1e-9);
        const double rest = 1.0 - one,
                     left = pow(rest, (double)n + 1.0) + ((double)n + 1.0) * one * pow(rest, (double)n);
        CHECK(fabs(left - 0.05) < 1e-9);
        CHECK(spw_overflow_upper_limit(n, n) == 1.0);
    }
    CHECK(spw_overflow_steps_needed(0.001) == 2995 && spw_overflow_steps_needed(0.01) == 299);
    CHECK(spw_overflow_steps_needed(0.0) == 0);
    CHECK(spw_overflows_allowed(0.001, 2994) == SPW_OVERFLOWS_NONE &&
          spw_overflows_allowed(0.001, 2995) == 0);
    CHECK(spw_overflows_allowed(0.01, 298) == SPW_OVERFLOWS_NONE && spw_overflows_allowed(0.01, 299) == 0);
    CHECK(spw_overflows_allowed(0.0, 100000) == SPW_OVERFLOWS_NONE);
    for (size_t n = 299; n <= 20000; n += 333) { /* the most whose limit is within the share */
        const size_t k = spw_overflows_allowed(0.01, n);
        CHECK(spw_overflow_upper_limit(k, n) <= 0.01 && spw_overflow_upper_limit(k + 1, n) > 0.01);
    }
}

int main(void) {
    test_overflow_rate();
    test_by_hand();
    test_definition();
    return check_done();
}
