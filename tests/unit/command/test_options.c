/* What stands behind options: ranges, counts, amounts, bytes and percentages, by hand. */
#include "sim/command/job_options.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Positions A:B; B of 0 is the end. */
static void test_ranges(void) {
    static const struct {
        const char *text;
        size_t begin, end;
    } good[] = {{"3", 3, 4},  {"0", 0, 1},  {"2:5", 2, 5}, {"0:1", 0, 1},
                {":7", 0, 7}, {"7:", 7, 0}, {":", 0, 0}};
    static const char *const bad[] = {"",    "2:2", "0:0",   ":0",  "5:2",         "-1",
                                      "1:x", "1 2", "1:2:3", "1.5", "99999999999", " 1"};
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        begin = end = 99;
        CHECK_OK(spw_parse_range("--steps", good[i].text, &begin, &end));
        CHECK(begin == good[i].begin && end == good[i].end);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(spw_parse_range("--steps", bad[i], &begin, &end), SPW_EARG);
        CHECK(strstr(spw_last_error(), "--steps") != NULL);
    }
}

static void test_counts(void) {
    static const char *const bad[] = {
        "", "11", "-1", "+1", " 1", "1.0", "1e1", "0x1", "18446744073709551616"};
    uint64_t value = 99;
    CHECK_OK(spw_parse_count("--seed", "10", 10, &value));
    CHECK(value == 10);
    CHECK_OK(spw_parse_count("--seed", "18446744073709551615", UINT64_MAX, &value));
    CHECK(value == UINT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(spw_parse_count("--seed", bad[i], 10, &value), SPW_EARG);
}

static void test_amounts(void) {
    static const struct {
        const char *option, *text;
        double value; /* NAN: refused */
    } tries[] = {{"--tokens", "300B", 3e11},   {"--tokens", "1.5t", 1.5e12}, {"--tokens", "100K", 1e5},
                 {"--tokens", "2M", 2e6},      {"--tokens", "100000", 1e5},  {"--tokens", "99999", NAN},
                 {"--gpus-hours", "300", 300}, {"--tokens", "3e11", 3e11},   {"--tokens", "300Q", NAN},
                 {"--tokens", "300BB", NAN},   {"--tokens", "0", NAN},       {"--tokens", "2e18", NAN},
                 {"--tokens", "nan", NAN},     {"--tokens", "", NAN}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        double value = -1.0;
        CHECK_STATUS(spw_parse_amount(tries[i].option, tries[i].text, "tokens", &value),
                     isnan(tries[i].value) ? SPW_EARG : SPW_OK);
        if (!isnan(tries[i].value)) CHECK(fabs(value / tries[i].value - 1.0) < 1e-12);
    }
}

static void test_bytes(void) {
    static const struct {
        const char *text;
        size_t bytes; /* 0: refused */
    } tries[] = {{"1", 1},
                 {"7B", 7},
                 {"3kB", 3000},
                 {"4GB", 4000000000},
                 {"512MiB", 536870912},
                 {"2e9", 2000000000},
                 {"1.5KiB", 1536},
                 {"2TB", 2000000000000},
                 {"1gib", 1073741824},
                 {"6mb", 6000000},
                 {"0", 0},
                 {"-1", 0},
                 {"4XB", 0},
                 {"GB", 0},
                 {"", 0}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        size_t bytes = 99;
        CHECK_STATUS(spw_parse_bytes("--memory", tries[i].text, &bytes),
                     tries[i].bytes == 0 ? SPW_EARG : SPW_OK);
        CHECK(bytes == (tries[i].bytes == 0 ? 99 : tries[i].bytes));
    }
}

static void test_percents(void) {
    static const struct {
        const char *text;
        double share; /* NAN: refused */
    } tries[] = {{"0", 0.0},  {"100", 1.0}, {"99.9", 0.999}, {"100.1", NAN},
                 {"-1", NAN}, {"", NAN},    {"5%", NAN}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        double share = -1.0;
        CHECK_STATUS(spw_parse_percent("--drop-at-most", tries[i].text, &share),
                     isnan(tries[i].share) ? SPW_EARG : SPW_OK);
        if (!isnan(tries[i].share)) CHECK(fabs(share - tries[i].share) < 1e-12);
    }
}

int main(void) {
    test_ranges();
    test_counts();
    test_amounts();
    test_bytes();
    test_percents();
    return check_done();
}
