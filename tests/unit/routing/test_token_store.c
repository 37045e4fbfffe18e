/* Counts that replays share through a store against counts of every token: other numbers of ranks, expert-parallel sizes, nodes, layers
 * and steps in turn, and once more without a record. */
#include "base/memory.h"
#include "sim/routing/token_store.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "traces/trace.h"

#include <stdint.h>
#include <string.h>

enum { EXPERTS = 16, TOP_K = 3, PIECES = 16, LENGTH = 20, LAYERS = 3, MANY = (1 << 18) + 1 };

static uint16_t id[LAYERS][PIECES * LENGTH * TOP_K];

static spw_trace_record record_of(size_t layer) {
    return (spw_trace_record){.tokens = PIECES * LENGTH,
                              .top_k = TOP_K,
                              .experts = EXPERTS,
                              .id_bytes = 2,
                              .missing = UINT16_MAX,
                              .expert_id = id[layer]};
}

/* Whoever fills them may let ranks share a line. */
static void same(const spw_counts *a, const spw_counts *b) {
    const spw_placement *p = &a->placement;
    for (size_t r = 0; r < p->ranks; r++) {
        const size_t of_sequences = a->sequences * p->experts * sizeof(uint32_t);
        CHECK(memcmp(spw_counts_sequences_of(a, r), spw_counts_sequences_of(b, r), of_sequences) == 0);
        CHECK(memcmp(spw_counts_routed_of(a, r), spw_counts_routed_of(b, r), p->experts * sizeof(uint32_t)) ==
              0);
        CHECK(memcmp(spw_counts_distinct_of(a, r), spw_counts_distinct_of(b, r),
                     p->group_ranks * sizeof(uint32_t)) == 0);
        CHECK(memcmp(spw_counts_nodes_of(a, r), spw_counts_nodes_of(b, r),
                     a->group_nodes * sizeof(uint32_t)) == 0);
    }
    CHECK(memcmp(a->tokens, b->tokens, p->ranks * sizeof *a->tokens) == 0);
}

/* Whole pieces, one after the other or drawn. */
static spw_layout *layout_of(size_t ranks, size_t sequences, uint64_t *seed) {
    spw_layout *layout = NULL;
    CHECK_OK(spw_layout_create(ranks, sequences, &layout));
    for (size_t i = 0; i < ranks * sequences; i++) {
        const size_t piece = seed != NULL ? random_below(seed, PIECES) : i % PIECES;
        CHECK_OK(spw_layout_append(layout, i / sequences,
                                   (spw_segment){piece * LENGTH, LENGTH, (uint32_t)(i % sequences)}));
    }
    return layout;
}

/* One replay's counts of a layer; *knew says whether no record was needed. */
static void fill(spw_token_store *store, spw_placement placement, size_t step, size_t layer,
                 const spw_layout *layout, bool *knew) {
    const spw_trace_record record = record_of((layer + step) % LAYERS);
    spw_segment_counts *cache = NULL;
    spw_counts *want = NULL, *got = NULL;
    CHECK_OK(spw_counts_create(placement, layout->sequences, &want));
    CHECK_OK(spw_counts_create(placement, layout->sequences, &got));
    CHECK_OK(spw_counts_fill(want, &record, layout));
    CHECK_OK(
        spw_token_store_counts(store, (spw_stored_steps){step, step + 1}, layer, &placement, layout, &cache));
    CHECK(cache != NULL);
    *knew = spw_segment_counts_know(cache, layout);
    CHECK_OK(spw_segment_counts_fill(cache, got, *knew ? NULL : &record, layout));
    same(want, got);
    spw_counts_destroy(want), spw_counts_destroy(got);
}

static void test_replays(void) {
    static const size_t groups[] = {1, 2, 4, 8}, nodes[] = {2, 4, 8}, sharers[] = {1, 2};
    spw_token_store *store = NULL;
    uint64_t seed = 5;
    CHECK_OK(spw_token_store_create(&store));
    for (int turn = 0; turn < 400; turn++) {
        const size_t group = groups[random_below(&seed, 4)], share = sharers[random_below(&seed, 2)];
        const spw_placement placement = {group * (1 + random_below(&seed, 3)), group,
                                         nodes[random_below(&seed, 3)], EXPERTS,
                                         group % share == 0 ? share : 1};
        const size_t step = random_below(&seed, 2), layer = random_below(&seed, LAYERS);
        spw_layout *layout = layout_of(placement.ranks, 1 + random_below(&seed, 3), &seed);
        bool knew = false;
        if (random_below(&seed, 100) == 0) spw_token_store_forget(store);
        fill(store, placement, step, layer, layout, &knew);
        fill(store, placement, step, layer, layout, &knew);
        CHECK(knew);
        spw_layout_destroy(layout);
    }
    spw_token_store_destroy(store);
}

/* Pieces that were counted for 2 ranks are known for 4, and nothing else is. */
static void test_known(void) {
    const spw_placement two = {2, 2, 8, EXPERTS, 1}, four = {4, 2, 8, EXPERTS, 1},
                        wide = {4, 4, 8, EXPERTS, 1}, shared = {4, 2, 8, EXPERTS, 2};
    spw_token_store *store = NULL;
    spw_layout *few = layout_of(2, 8, NULL), *more = layout_of(4, 4, NULL);
    bool knew = true;
    CHECK_OK(spw_token_store_create(&store));
    fill(store, two, 0, 0, few, &knew);
    CHECK(!knew);
    fill(store, four, 0, 0, more, &knew);
    CHECK(knew);
    fill(store, four, 0, 1, more, &knew);
    CHECK(!knew);
    fill(store, four, 1, 0, more, &knew);
    CHECK(!knew);
    fill(store, wide, 0, 0, more, &knew);
    CHECK(!knew);
    fill(store, shared, 0, 0, more, &knew);
    CHECK(!knew);
    spw_token_store_forget(store);
    fill(store, four, 0, 0, more, &knew);
    CHECK(!knew);
    spw_layout_destroy(few), spw_layout_destroy(more), spw_token_store_destroy(store);
}

/* A process with a limit keeps less: as many pieces as may be looked at, of 36 MiB, have room in one without. */
static void test_room(void) {
    const spw_placement one = {1, 1, 8, EXPERTS, 1};
    spw_token_store *store = NULL;
    spw_segment_counts *cache = NULL;
    spw_layout *most = NULL;
    CHECK_OK(spw_token_store_create(&store));
    CHECK_OK(spw_layout_create(1, 1, &most));
    for (size_t i = 0; i + 1 < MANY; i++) CHECK_OK(spw_layout_append(most, 0, (spw_segment){i, 1, 0}));
    spw_memory_limit(SIZE_MAX, SIZE_MAX);
    CHECK_OK(spw_token_store_counts(store, (spw_stored_steps){0, 1}, 0, &one, most, &cache));
    CHECK(cache == NULL);
    spw_memory_limit(0, 0);
    CHECK_OK(spw_token_store_counts(store, (spw_stored_steps){0, 1}, 0, &one, most, &cache));
    CHECK(cache != NULL);
    spw_layout_destroy(most), spw_token_store_destroy(store);
}

/* What has no room, or lies differently in every group, is not kept. */
static void test_limits(void) {
    const spw_placement one = {1, 1, 8, EXPERTS, 1}, crooked = {12, 4, 6, EXPERTS, 1};
    spw_token_store *store = NULL;
    spw_segment_counts *cache = NULL;
    spw_layout *layout = layout_of(12, 1, NULL), *many = NULL;
    CHECK_OK(spw_token_store_create(&store));
    CHECK_OK(spw_token_store_counts(store, (spw_stored_steps){0, 1}, 0, &crooked, layout, &cache));
    CHECK(cache == NULL);
    CHECK_OK(spw_layout_create(1, 1, &many));
    for (size_t i = 0; i < MANY; i++) CHECK_OK(spw_layout_append(many, 0, (spw_segment){i, 1, 0}));
    CHECK_OK(spw_token_store_counts(store, (spw_stored_steps){0, 1}, 0, &one, many, &cache));
    CHECK(cache == NULL);
    spw_layout_destroy(layout), spw_layout_destroy(many), spw_token_store_destroy(store);
}

int main(void) {
    uint64_t seed = 1;
    for (size_t i = 0; i < LAYERS; i++)
        for (size_t t = 0; t < PIECES * LENGTH; t++) {
            const size_t first = random_below(&seed, EXPERTS);
            for (size_t k = 0; k < TOP_K; k++)
                id[i][t * TOP_K + k] = (uint16_t)((first + k * (1 + t % 5)) % EXPERTS);
        }
    test_replays();
    test_known();
    test_room();
    test_limits();
    return check_done();
}
