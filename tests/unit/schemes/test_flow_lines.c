/* Lines of a flow: who shares one, by looking at every pair; and rows that a line cannot hold. */
#include "sim/schemes/flow_lines.h"

#include "sim/time/megatron/megatron_experts.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <string.h>

enum { MOST = 300 };
static uint32_t table[MOST][4];
static const uint32_t *wire[MOST];
static spw_alike alike;

static void check_alike(size_t ranks) {
    size_t all = 0;
    for (size_t r = 0; r < ranks; r++) {
        const size_t line = alike.of[r];
        CHECK(line < alike.lines && wire[alike.first[line]] == wire[r] && alike.first[line] <= r);
        for (size_t other = 0; other < r; other++)
            CHECK((wire[other] == wire[r]) == (alike.of[other] == alike.of[r]));
    }
    for (size_t line = 0; line < alike.lines; line++) {
        size_t times = 0;
        for (size_t r = 0; r < ranks; r++) times += alike.of[r] == line;
        CHECK(times == alike.times[line]);
        all += times;
    }
    CHECK(all == ranks);
}

static void test_who_shares(void) {
    uint64_t seed = 11;
    for (int turn = 0; turn < 200; turn++) {
        const size_t ranks = 1 + random_below(&seed, MOST), lines = 1 + random_below(&seed, MOST);
        const spw_flow flow = {.wire = wire};
        for (size_t r = 0; r < ranks; r++) wire[r] = table[random_below(&seed, lines)];
        spw_alike_of_flow(&flow, ranks, &alike);
        check_alike(ranks);
    }
}

/* A row more than 32 bits hold is said, and none is forgotten before. */
static void test_too_many(void) {
    const spw_scheme scheme = scheme_of("tutel:capacity_factor=1");
    uint32_t line[2];
    const uint32_t *two[2];
    spw_flow flow = {.wire = two, .line = line};
    spw_flow_one_line(&flow, 2, UINT32_MAX);
    CHECK_OK(spw_flow_check(&scheme, &flow));
    CHECK(two[0] == line && two[1] == line && line[0] == UINT32_MAX && line[1] == UINT32_MAX);
    spw_flow_one_line(&flow, 2, (uint64_t)UINT32_MAX + 1);
    CHECK_STATUS(spw_flow_check(&scheme, &flow), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "more than 4294967295 rows") != NULL);
}

static void test_parts(void) {
    const spw_scheme plain = scheme_of("megatron-alltoall"), both[] = {plain, scheme_of("megatron-flex")},
                     dense = scheme_of("dense:capacity_factor=1");
    CHECK(spw_counts_parts_of(&plain, 1) == SPW_COUNTS_ROUTED);
    CHECK(spw_counts_parts_of(both, 2) == SPW_COUNTS_DISTINCT);
    CHECK(spw_counts_parts_of(&dense, 1) == SPW_COUNTS_SEQUENCES);
}

/* Sources that stand once with a number, or as often as it says: the same load. 1e-9: one block takes a third of a row. */
static void test_times(void) {
    static const double once[] = {5, 9, 0, 7, 64, 3}, many[] = {5, 9, 0, 7, 0, 7, 0, 7, 64, 3, 64, 3};
    static const uint32_t times[] = {1, 3, 2};
    spw_megatron_coefficients c = {.multiprocessors.value = 4, .unlike_floor_s.value = 1.0};
    spw_megatron_load a = {.received = 0.0}, b = a;
    double sum[2];
    c.cat_blocks.value = 32, c.cat_block_bytes.value = 4096, c.copy_bytes_per_s.value = 1e12;
    c.block_s.value = 4.0 / 3.0 * 1024 * 1e-12, c.tile_rows.value = 16, c.cache_bytes.value = 1e5;
    spw_megatron_experts_load(&c, 1024, 512, &(spw_megatron_chunks){3, 2, once, times, sum}, &a);
    spw_megatron_experts_load(&c, 1024, 512, &(spw_megatron_chunks){6, 2, many, NULL, sum}, &b);
    CHECK(sum[0] == 36.0 && sum[1] == 133.0); /* sorted */
    CHECK(spw_megatron_load_is(&a, &b) && a.idle_rows > 0.0 && a.tiled == 48.0 + 144.0);
}

/* Sums of choices, rank by rank: of few tokens in 32 bits, of many in 64. */
static void test_chosen_sums(void) {
    enum { RANKS = 12, EXPERTS = 1200, LINES = 5 };
    static uint32_t routed[LINES * EXPERTS], line[2 * RANKS];
    static uint64_t assignments[2 * RANKS], sum[EXPERTS];
    uint64_t seed = 5;
    for (int wide = 0; wide < 2; wide++) {
        spw_counts counts = {.placement = {.ranks = 2 * RANKS, .group_ranks = RANKS, .experts = EXPERTS},
                             .line = line,
                             .shared = true,
                             .routed = routed,
                             .assignments = assignments};
        const spw_layer_shape shape = {.ranks = RANKS, .experts = EXPERTS};
        const spw_routed_group group = {.shape = &shape, .counts = &counts, .number = 1};
        for (size_t i = 0; i < sizeof routed / sizeof *routed; i++)
            routed[i] =
                wide ? UINT32_MAX - (uint32_t)random_below(&seed, 9) : (uint32_t)random_below(&seed, 99);
        for (size_t r = 0; r < 2 * RANKS; r++) {
            line[r] = (uint32_t)random_below(&seed, LINES);
            assignments[r] = 0;
            for (size_t x = 0; x < EXPERTS; x++) assignments[r] += routed[line[r] * EXPERTS + x];
        }
        spw_alike_of_counts(&group, &alike);
        for (size_t first = 0; first < EXPERTS; first += 70) {
            spw_chosen_sums(&group, &alike, first, EXPERTS - first, sum);
            for (size_t x = first; x < EXPERTS; x++) CHECK(sum[x - first] == spw_chosen_rows(&group, x));
        }
    }
}

int main(void) {
    test_chosen_sums();
    test_who_shares();
    test_too_many();
    test_parts();
    test_times();
    return check_done();
}
