/* Beside a replay of steps through the allocator: the probability that memory runs out, settings of the allocator, and how far
 * micro-batches lie apart. */
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"

#include "tests/unit/check.h"

#include <math.h>

/* --- The replay --- */

/* Clopper and Pearson by hand where the quantile has a closed form, and from tables. */
static void test_probability(void) {
    const spw_probability none = spw_oom_probability(0, 100), all = spw_oom_probability(100, 100),
                          some = spw_oom_probability(5, 100);
    CHECK(none.value == 0.0 && none.low == 0.0);
    CHECK(fabs(none.high - (1.0 - pow(0.025, 1.0 / 100.0))) < 1e-12);
    CHECK(all.value == 1.0 && all.high == 1.0 && fabs(all.low - pow(0.025, 1.0 / 100.0)) < 1e-12);
    CHECK(some.value == 0.05 && fabs(some.low - 0.0164319) < 1e-6 && fabs(some.high - 0.1128349) < 1e-6);
    CHECK(fabs(spw_oom_probability(95, 100).low - (1.0 - some.high)) < 1e-9);
    for (size_t n = 1; n <= 1000000; n = n * 7 / 2 + 1) { /* the quantile is found for every share */
        for (size_t part = 0; part <= 16; part++) {
            const size_t k = part == 1 ? 1 : n * part / 16;
            const spw_probability p = spw_oom_probability(k, n);
            CHECK(p.low >= 0.0 && p.low <= p.value && p.value <= p.high && p.high <= 1.0);
        }
    }
}

static void test_conf(void) {
    spw_job_allocator a = {.max_split_size_mb = 7};
    CHECK_OK(spw_allocator_conf_parse("--allocator",
                                      "expandable_segments:True,garbage_collection_threshold:0.8", &a));
    CHECK(a.expandable_segments && a.garbage_collection_threshold == 0.8 && a.max_split_size_mb == 7);
    CHECK_OK(spw_allocator_conf_parse("--allocator", "max_split_size_mb:512,roundup_power2_divisions:8", &a));
    CHECK(a.max_split_size_mb == 512 && a.roundup_power2_divisions == 8 && a.expandable_segments);
    const spw_allocator_settings s = spw_allocator_conf_settings(&a, 1000, 2000);
    CHECK(s.fraction_bytes == 0 && spw_allocator_limit_bytes(&s) == 1000);
    CHECK_OK(spw_allocator_conf_parse("--allocator", "per_process_memory_fraction:0.25", &a));
    CHECK(spw_allocator_conf_settings(&a, 1000, 2000).fraction_bytes == 500);
    CHECK_OK(spw_allocator_conf_parse("--allocator", "per_process_memory_fraction:1", &a));
    CHECK(a.per_process_memory_fraction == 1.0);
    CHECK(s.max_split_bytes == 512 * UINT64_C(1048576) && s.device_bytes == 1000 && s.expandable_segments);
    static const char *const bad[] = {"x",
                                      "expandable_segments",
                                      "expandable_segments:yes",
                                      "max_split_size_mb:-1",
                                      "max_split_size_mb:1x",
                                      "garbage_collection_threshold:1.5",
                                      "garbage_collection_threshold:1",
                                      "per_process_memory_fraction:1.01",
                                      "per_process_memory_fraction:x",
                                      "colour:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(spw_allocator_conf_parse("--allocator", bad[i], &a), SPW_EARG);
}

/* --- Of many ranks, the fullest --- */

/* Micro-batches behind the kinds: their own rows, in the same units, around the same mean and as far from it, and never above a limit. */
static void test_spread(void) {
    enum { KINDS = 8, MICRO_BATCHES = 64 };
    static const uint64_t held[KINDS] = {1024, 1152, 896, 1280, 1024, 768, 1152, 896};
    spw_rank_rows all[2 * MICRO_BATCHES] = {{.held = 0}},
                          *rows = all + MICRO_BATCHES; /* of the second rank */
    bool spread[2] = {false, false};
    double sum = 0.0, squares = 0.0, before = 0.0, wanted = 0.0;
    size_t others = 0;
    for (size_t b = 0; b < MICRO_BATCHES; b++)
        rows[b] = (spw_rank_rows){held[b % KINDS], b % 2 == 0 ? 700 : 600 + b % KINDS, 5};
    for (size_t k = 0; k < KINDS; k++) before += (double)held[k] / KINDS;
    for (size_t k = 0; k < KINDS; k++)
        wanted += ((double)held[k] - before) * ((double)held[k] - before) / (KINDS - 1);
    for (size_t b = 0; b < MICRO_BATCHES; b++) all[b] = rows[b];
    spw_reserved_memory m = {
        .request = {.ranks = 2, .layers = 1}, .micro_batches = MICRO_BATCHES, .rows = all, .spread = spread};
    spw_reserved_rows_spread(&m, 1);
    for (size_t b = 0; b < MICRO_BATCHES; b++) CHECK(rows[b].held == held[b % KINDS]);
    m.request.kinds = KINDS;
    spw_reserved_rows_spread(&m, 1);
    CHECK(spread[1] && !spread[0]);
    for (size_t b = 0; b < MICRO_BATCHES; b++) CHECK(all[b].held == held[b % KINDS]);
    for (size_t b = 0; b < MICRO_BATCHES; b++) {
        const double off = (double)rows[b].held - before;
        CHECK(b >= KINDS || rows[b].held == held[b]);
        CHECK(rows[b].held % 128 == 0 && rows[b].received <= 700 && rows[b].sent == 5);
        CHECK(rows[b].received <= rows[b].held);
        others += b >= KINDS && rows[b].held != held[b % KINDS];
        sum += b >= KINDS ? off : 0.0;
        squares += b >= KINDS ? off * off : 0.0;
    }
    const double count = (double)(MICRO_BATCHES - KINDS);
    CHECK((double)others > count / 2.0);
    CHECK(fabs(sum / count) < 3.0 * sqrt(wanted / count));
    CHECK(squares / count > 0.5 * wanted && squares / count < 1.7 * wanted);
}

int main(void) {
    test_probability();
    test_conf();
    test_spread();
    return check_done();
}
