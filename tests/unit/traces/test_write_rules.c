/* What a writer takes of a layer, against all numbers of 16 bits and all small counts: a weight is finite and not below 0, falling ones
 * do not rise, no token chooses an expert twice, and counts are those of some choices. */
#include "traces/trace_internal.h"
#include "traces/write/trace_write_internal.h"
#include "traces/write/trace_write_rules.h"

#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { TOP_K = 2, TOKENS = 3, EXPERTS = 4 };

/* A number of IEEE 754's binary16. */
static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, part = bits & 1023;
    const double size = exponent == 31  ? (part != 0 ? NAN : INFINITY)
                        : exponent == 0 ? ldexp(part, -24)
                                        : ldexp(1024 + part, exponent - 25);
    return bits >> 15 != 0 ? -size : size;
}

static spw_trace_writer *writer_of(bool falls) {
    static spw_trace_writer writer;
    static uint32_t layer_top_k[] = {TOP_K};
    memset(&writer, 0, sizeof writer);
    writer.top_k = TOP_K, writer.experts = EXPERTS, writer.layer_top_k = layer_top_k, writer.falls = falls;
    writer.step.tokens = TOKENS;
    return &writer;
}

static void test_weights(void) {
    static const uint16_t experts[] = {0, 1, 2, 3, 1, 0};
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        const uint16_t weights[] = {0x3c00, 0x3800, 0x3c00, (uint16_t)bits, 0x3c00, 0};
        const double value = half((uint16_t)bits);
        const bool good = isfinite(value) && value >= 0.0;
        const spw_status status = spw_trace_write_check_layer(writer_of(false), 0, experts, weights);
        if ((status == SPW_OK) == good) continue;
        CHECK(false);
        fprintf(stderr, "  %#x, %g: %d\n", bits, value, (int)status);
    }
    for (uint32_t bits = 0; bits < 0x7c00; bits += 7)
        for (uint32_t before = 0; before < 0x7c00; before += 1013) {
            const uint16_t weights[] = {0x3c00, 0x3800, (uint16_t)before, (uint16_t)bits, 0x3c00, 0};
            const bool good = half((uint16_t)bits) <= half((uint16_t)before);
            if ((spw_trace_write_check_layer(writer_of(true), 0, experts, weights) == SPW_OK) != good)
                CHECK(false);
        }
    /* of a choice that is missing nothing is asked */
    static const uint16_t missing[] = {0, SPW_TRACE_MISSING, 2, 3, 1, 0};
    const uint16_t wrong[] = {0x3c00, 0xfe00, 0x3c00, 0x3800, 0x3c00, 0};
    CHECK_OK(spw_trace_write_check_layer(writer_of(true), 0, missing, wrong));
}

static void test_twice(void) {
    size_t refused = 0;
    for (size_t a = 0; a < EXPERTS; a++)
        for (size_t b = 0; b < EXPERTS; b++) {
            const uint16_t experts[] = {0, 1, 2, 3, (uint16_t)a, (uint16_t)b};
            const spw_status status = spw_trace_write_check_layer(writer_of(false), 0, experts, NULL);
            CHECK((status == SPW_OK) == (a != b));
            refused += status != SPW_OK && strstr(spw_last_error(), "token 2: an expert twice") != NULL;
        }
    CHECK(refused == EXPERTS);
}

/* Of 3 tokens that choose 2 each: none above 3, no more than 6 in all. */
static void test_counts(void) {
    for (uint32_t at = 0; at < 5 * 5 * 5 * 5; at++) {
        const uint32_t counts[EXPERTS] = {at % 5, at / 5 % 5, at / 25 % 5, at / 125};
        bool good = counts[0] + counts[1] + counts[2] + counts[3] <= TOKENS * TOP_K;
        for (size_t x = 0; x < EXPERTS; x++) good = good && counts[x] <= TOKENS;
        CHECK((spw_trace_write_check_counts(writer_of(false), 0, counts) == SPW_OK) == good);
    }
}

int main(void) {
    test_weights();
    test_twice();
    test_counts();
    return check_done();
}
