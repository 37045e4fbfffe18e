/* Counts put together from pieces against counts of every token, on random layouts that repeat pieces. */
#include "base/memory.h"
#include "sim/routing/segment_counts.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "traces/generate/made_trace.h"

#include <math.h>
#include <string.h>

enum { MISSING = 0xffff, PIECES = 12 };

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
    CHECK(memcmp(a->assignments, b->assignments, p->ranks * sizeof *a->assignments) == 0);
}

static size_t lines_of(const spw_counts *c) {
    size_t lines = 0;
    for (size_t r = 0; r < c->placement.ranks; r++) lines = c->line[r] + 1u > lines ? c->line[r] + 1u : lines;
    return lines;
}

/* Ranks with the pieces of one before them left out: how many hold something else. */
static size_t held_of(const spw_layout *layout) {
    size_t held = 0;
    for (size_t r = 0; r < layout->ranks; r++) {
        const size_t pieces = layout->begin[r + 1] - layout->begin[r];
        bool anew = true;
        for (size_t other = 0; other < r; other++)
            anew = anew && (layout->begin[other + 1] - layout->begin[other] != pieces ||
                            memcmp(layout->segment + layout->begin[other], layout->segment + layout->begin[r],
                                   pieces * sizeof *layout->segment) != 0);
        held += anew;
    }
    return held;
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
                if (i % sequences > 0 && random_below(&seed, 4) == 0) continue; /* nothing of this sequence */
                const uint64_t first = random_below(&seed, PIECES) * length;
                const uint32_t part =
                    (uint32_t)(random_below(&seed, 4) == 0 ? 1 + random_below(&seed, length) : length);
                CHECK_OK(spw_layout_append(layout, i / sequences,
                                           (spw_segment){first, part, (uint32_t)(i % sequences)}));
            }
            CHECK_OK(spw_counts_create(placement, sequences, &want));
            CHECK_OK(spw_counts_create(placement, sequences, &got));
            memset(got->per_sequence, 0xff, ranks * sequences * experts * sizeof *got->per_sequence);
            memset(got->routed, 0xff, ranks * experts * sizeof *got->routed);
            CHECK_OK(spw_counts_fill(want, &record, layout));
            CHECK_OK(spw_segment_counts_fill(cache, got, &record, layout));
            same(want, got);
            if (got->shared) CHECK(lines_of(got) == held_of(layout));
            spw_counts_destroy(want), spw_counts_destroy(got), spw_layout_destroy(layout);
        }
    }
    spw_segment_counts_destroy(cache);
    spw_free(id);
}

/* By the law of generated tokens, with two sharers of each expert, against the tokens. */
static void check_law(void) {
    enum { SOURCES = 64, TOKENS = 256, EACH = 4 };
    const spw_placement placement = {
        .ranks = 16, .group_ranks = 8, .gpus_per_node = 4, .experts = 16, .expert_tensor = 2};
    spw_placement crooked = placement;
    spw_generate_settings s = {
        .experts = 16, .top_k = 3, .layers = 1, .steps = 1, .ranks = SOURCES, .tokens_per_rank = TOKENS};
    spw_expert_blocks blocks;
    spw_trace *trace = NULL;
    spw_trace_record law, tokens;
    spw_segment_counts *cache = NULL;
    spw_counts *drawn = NULL, *counted = NULL;
    spw_layout *layout = NULL;
    CHECK(spw_segment_counts_law(&placement, &blocks) && blocks.rank == 4 && blocks.node == 8);
    crooked.gpus_per_node = 3;
    CHECK(!spw_segment_counts_law(&crooked, &blocks)); /* groups lie differently */
    crooked.gpus_per_node = 1;
    CHECK(!spw_segment_counts_law(&crooked, &blocks)); /* sharers on two nodes */
    crooked.gpus_per_node = 16;
    CHECK(spw_segment_counts_law(&crooked, &blocks) && blocks.node == 16);
    CHECK(spw_segment_counts_law(&placement, &blocks));
    CHECK_OK(spw_distribution_parse("zipf:exponent=0.5", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    CHECK_OK(spw_trace_read_law(trace, 0, 0, blocks, &law));
    CHECK_OK(spw_trace_read_record(trace, 0, 1, 0, false, &tokens));
    CHECK_OK(spw_layout_create(placement.ranks, 2, &layout));
    for (size_t i = 0; i < placement.ranks * EACH; i++)
        CHECK_OK(
            spw_layout_append(layout, i / EACH, (spw_segment){i * TOKENS, TOKENS, (uint32_t)(i / 2 % 2)}));
    CHECK_OK(spw_segment_counts_create(placement, &cache));
    CHECK_OK(spw_counts_create(placement, 2, &drawn));
    CHECK_OK(spw_counts_create(placement, 2, &counted));
    CHECK_OK(spw_segment_counts_fill(cache, drawn, &law, layout));
    CHECK_OK(spw_counts_fill(counted, &tokens, layout));
    CHECK(spw_segment_counts_know(cache, layout));
    const double room = 6.0 * 0.5 * sqrt(2.0 * EACH * TOKENS);
    for (size_t r = 0; r < placement.ranks; r++) {
        CHECK(drawn->tokens[r] == EACH * TOKENS && drawn->assignments[r] == 3 * EACH * TOKENS);
        for (size_t x = 0; x < 16; x++) {
            const uint32_t *row = drawn->per_sequence + r * 2 * 16 + x;
            CHECK(row[0] + row[16] == drawn->routed[r * 16 + x] && row[0] > 0 && row[16] > 0);
            CHECK(fabs((double)drawn->routed[r * 16 + x] - (double)counted->routed[r * 16 + x]) < room);
        }
        for (size_t d = 0; d < 8; d++) {
            const double got = drawn->distinct[r * 8 + d], want = counted->distinct[r * 8 + d];
            CHECK(d % 2 == 0 ? got > 0.0 && fabs(got - want) < room : got == 0.0 && want == 0.0);
        }
        for (size_t d = 0; d < 2; d++)
            CHECK(fabs((double)drawn->distinct_node[r * 2 + d] - (double)counted->distinct_node[r * 2 + d]) <
                  room);
    }
    spw_counts_destroy(drawn);
    spw_counts_destroy(counted);
    spw_layout_destroy(layout);
    spw_segment_counts_destroy(cache);
    spw_trace_close(trace);
}

int main(void) {
    check_law();
    for (uint64_t seed = 1; seed <= 200; seed++) run(seed);
    return check_done();
}
