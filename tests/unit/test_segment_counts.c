/* Counts put together from pieces against counts of every token, on random layouts that repeat pieces. */
#include "base/memory.h"
#include "sim/routing/segment_counts.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "traces/trace.h"

#include <string.h>

enum { MISSING = 0xffff, PIECES = 12 };

static void same(const spw_counts *a, const spw_counts *b) {
    const spw_placement *p = &a->placement;
    CHECK(memcmp(a->per_sequence, b->per_sequence,
                 p->ranks * a->sequences * p->experts * sizeof *a->per_sequence) == 0);
    CHECK(memcmp(a->routed, b->routed, p->ranks * p->experts * sizeof *a->routed) == 0);
    CHECK(memcmp(a->distinct, b->distinct, p->ranks * p->group_ranks * sizeof *a->distinct) == 0);
    CHECK(memcmp(a->distinct_node, b->distinct_node, p->ranks * a->group_nodes * sizeof *a->distinct_node) ==
          0);
    CHECK(memcmp(a->tokens, b->tokens, p->ranks * sizeof *a->tokens) == 0);
    CHECK(memcmp(a->assignments, b->assignments, p->ranks * sizeof *a->assignments) == 0);
}

static void draw_ids(uint64_t *seed, size_t tokens, size_t top_k, size_t experts, uint16_t *id) {
    for (size_t t = 0; t < tokens; t++) {
        const size_t first = random_below(seed, experts);
        for (size_t k = 0; k < top_k; k++)
            id[t * top_k + k] = (uint16_t)(random_below(seed, 9) == 0 ? MISSING : (first + k * 3) % experts);
    }
}

static void run(uint64_t seed) {
    static const size_t group_sizes[] = {1, 2, 4, 8}, nodes[] = {2, 3, 4};
    const size_t group = group_sizes[random_below(&seed, 4)], ranks = group * (1 + random_below(&seed, 3)),
                 experts = group * (1 + random_below(&seed, 4)), length = 1 + random_below(&seed, 40),
                 tokens = PIECES * length;
    const size_t top_k = experts % 3 == 0 ? 1 : 1 + random_below(&seed, experts < 3 ? experts : 3);
    const spw_placement placement = {ranks, group, nodes[random_below(&seed, 3)], experts};
    uint16_t *id = NULL;
    spw_segment_counts *cache = NULL;
    CHECK_OK(SPW_ALLOC(tokens * top_k, &id));
    CHECK_OK(spw_segment_counts_create(placement, &cache));
    for (int record_number = 0; record_number < 2; record_number++) {
        draw_ids(&seed, tokens, top_k, experts, id);
        const spw_trace_record record = {.tokens = tokens,
                                         .top_k = top_k,
                                         .experts = experts,
                                         .id_bytes = 2,
                                         .missing = MISSING,
                                         .expert_id = id};
        spw_segment_counts_forget(cache);
        for (size_t sequences = 1; sequences <= 5; sequences += 2) { /* batches share what was counted */
            spw_layout *layout = NULL;
            spw_counts *want = NULL, *got = NULL;
            CHECK_OK(spw_layout_create(ranks, sequences, &layout));
            for (size_t i = 0; i < ranks * sequences; i++) {
                const uint64_t first = random_below(&seed, PIECES) * length;
                const uint32_t part =
                    (uint32_t)(random_below(&seed, 4) == 0 ? 1 + random_below(&seed, length) : length);
                CHECK_OK(spw_layout_append(layout, i / sequences,
                                           (spw_segment){first, part, (uint32_t)(i % sequences)}));
            }
            CHECK_OK(spw_counts_create(placement, sequences, &want));
            CHECK_OK(spw_counts_create(placement, sequences, &got));
            CHECK_OK(spw_counts_fill(want, &record, layout));
            CHECK_OK(spw_segment_counts_fill(cache, got, &record, layout));
            same(want, got);
            spw_counts_destroy(want), spw_counts_destroy(got), spw_layout_destroy(layout);
        }
    }
    spw_segment_counts_destroy(cache);
    spw_free(id);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 200; seed++) run(seed);
    return check_done();
}
