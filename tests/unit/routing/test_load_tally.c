/* What a capacity drops, by the loads of experts: by hand, and against counts that were limited to it. */
#include "base/memory.h"
#include "sim/routing/counts.h"
#include "sim/routing/load_tally.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"

#include <string.h>

/* Counts of `ranks` ranks, of which every two share a line where `shared`. */
static spw_counts *make_counts(size_t ranks, size_t experts, bool shared) {
    spw_counts *counts = NULL;
    CHECK_OK(spw_counts_create((spw_placement){ranks, 1, ranks, experts, 0}, 1, &counts));
    counts->shared = shared;
    for (size_t r = 0; r < ranks; r++) counts->line[r] = (uint32_t)(r / 2);
    return counts;
}

static void sum_assignments(spw_counts *counts) {
    for (size_t r = 0; r < counts->placement.ranks; r++) {
        counts->assignments[r] = 0;
        for (size_t x = 0; x < counts->placement.experts; x++)
            counts->assignments[r] += spw_counts_routed_of(counts, r)[x];
    }
}

static void note_and_take(spw_load_tally *tally, size_t step, const spw_counts *counts) {
    spw_note note = {.data = NULL};
    CHECK_OK(spw_load_tally_note(tally, counts, &note));
    spw_note_reader reader = {note.data, note.bytes};
    CHECK_OK(spw_load_tally_take(tally, step, &reader));
    CHECK(reader.bytes == 0);
    spw_free(note.data);
}

/* Two ranks with loads 3, 0, 5 and 1, 2, 0; in a second step both have 0, 2, 1. */
static void test_by_hand(void) {
    const uint32_t first[] = {3, 0, 5, 1, 2, 0}, second[] = {0, 2, 1};
    spw_counts *apart = make_counts(2, 3, false), *shared = make_counts(2, 3, true);
    spw_load_tally tally;
    memcpy(apart->routed, first, sizeof first);
    memcpy(shared->routed, second, sizeof second);
    CHECK_OK(spw_load_tally_create(5, 2, &tally));
    note_and_take(&tally, 0, apart);
    note_and_take(&tally, 1, shared);
    const struct {
        size_t capacity;
        uint64_t dropped;
        size_t steps;
    } want[] = {{0, 17, 2}, {1, 9, 2}, {2, 4, 1}, {4, 1, 1}, {5, 0, 0}, {SIZE_MAX, 0, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const spw_capacity_drops drops = spw_load_tally_drops(&tally, want[i].capacity);
        CHECK(drops.assignments == 17);
        CHECK(drops.dropped == want[i].dropped);
        CHECK(drops.dropping_steps == want[i].steps);
    }
    spw_load_tally_destroy(&tally);
    spw_counts_destroy(apart);
    spw_counts_destroy(shared);
}

/* A micro-batch of random loads; returns what is dropped of it by spw_counts_limit(). */
static uint64_t draw(uint64_t *seed, size_t most, size_t capacity, spw_counts *counts, spw_counts *kept) {
    const size_t ranks = counts->placement.ranks;
    uint64_t dropped = 0;
    for (size_t i = 0; i < ranks * counts->placement.experts; i++)
        counts->routed[i] = (uint32_t)random_below(seed, most + 1);
    sum_assignments(counts);
    CHECK_OK(spw_counts_limit(counts, capacity, kept));
    for (size_t r = 0; r < ranks; r++) dropped += counts->assignments[r] - kept->assignments[r];
    return dropped;
}

/* The same as those of another tally, which is told what the first has found. */
static void check_told(spw_load_tally *tally, size_t capacity, spw_capacity_drops want) {
    spw_note note = {.data = NULL};
    spw_load_tally other;
    CHECK_OK(spw_load_tally_create(tally->most, tally->steps, &other));
    CHECK_OK(spw_load_tally_state(tally, &(spw_state){.out = &note}));
    spw_note_reader reader = {note.data, note.bytes};
    CHECK_OK(spw_load_tally_state(&other, &(spw_state){.in = &reader}));
    const spw_capacity_drops drops = spw_load_tally_drops(&other, capacity);
    CHECK(drops.assignments == want.assignments && drops.dropped == want.dropped);
    CHECK(drops.dropping_steps == want.dropping_steps);
    spw_load_tally_destroy(&other);
    spw_free(note.data);
}

static void test_against_limits(uint64_t seed) {
    const size_t ranks = 2 * (1 + random_below(&seed, 4)), experts = ranks * (1 + random_below(&seed, 3)),
                 most = 1 + random_below(&seed, 60), steps = 1 + random_below(&seed, 3),
                 capacity = random_below(&seed, most + 2);
    spw_counts *counts = make_counts(ranks, experts, random_below(&seed, 2) == 0),
               *kept = make_counts(ranks, experts, false);
    spw_capacity_drops want = {.assignments = 0};
    spw_load_tally tally;
    CHECK_OK(spw_load_tally_create(most, steps, &tally));
    for (size_t step = 0; step < steps; step++) {
        const uint64_t before = want.dropped;
        for (size_t batch = 0; batch < 2; batch++) {
            want.dropped += draw(&seed, most, capacity, counts, kept);
            for (size_t r = 0; r < ranks; r++) want.assignments += counts->assignments[r];
            note_and_take(&tally, step, counts);
        }
        want.dropping_steps += want.dropped > before;
    }
    const spw_capacity_drops drops = spw_load_tally_drops(&tally, capacity);
    CHECK(drops.assignments == want.assignments);
    CHECK(drops.dropped == want.dropped);
    CHECK(drops.dropping_steps == want.dropping_steps);
    check_told(&tally, capacity, want);
    spw_load_tally_destroy(&tally);
    spw_counts_destroy(counts);
    spw_counts_destroy(kept);
}

/* More choices than tokens: of a trace that contradicts itself. */
static void test_refused(void) {
    spw_counts *counts = make_counts(2, 2, false);
    spw_note note = {.data = NULL};
    spw_load_tally tally;
    memset(counts->routed, 0, 4 * sizeof *counts->routed);
    counts->routed[3] = 8;
    CHECK_OK(spw_load_tally_create(7, 1, &tally));
    CHECK_STATUS(spw_load_tally_note(&tally, counts, &note), SPW_EFORMAT);
    spw_load_tally_destroy(&tally);
    spw_counts_destroy(counts);
    spw_free(note.data);
}

int main(void) {
    test_by_hand();
    for (uint64_t seed = 1; seed <= 300; seed++) test_against_limits(seed);
    test_refused();
    return check_done();
}
