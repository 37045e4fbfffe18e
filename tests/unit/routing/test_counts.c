/* Routing counts: one layout by hand, then random ones against a brute force that asks of every token, rank
 * and node whether they meet. */
#include "sim/routing/counts.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "traces/trace.h"

#include <omp.h>
#include <string.h>

enum { LAYOUTS = 240, MOST_TOKENS = 96 };

/* --- By hand --- */

/* Two groups of two ranks, a node each; experts 0 and 1 live on the first rank of a group, 2 and 3 on the
 * second. 255: no choice. Rank 2 holds nothing. */
static void test_by_hand(void) {
    static const uint8_t ids[][2] = {
        {3, 0},   /* rank 3, sequence 1 */
        {0, 1},   /* rank 0, sequence 0 */
        {3, 0},   /* rank 0, sequence 0 */
        {255, 1}, /* rank 1, sequence 0 */
        {2, 3},   /* rank 0, sequence 1 */
        {255, 255},
    };
    const spw_trace_record record = {6, 2, 4, 1, 255, ids, NULL};
    const spw_placement place = {.ranks = 4, .group_ranks = 2, .gpus_per_node = 1, .experts = 4};
    spw_layout *layout = NULL;
    spw_counts *counts = NULL;
    CHECK_OK(spw_layout_create(4, 2, &layout));
    CHECK_OK(spw_layout_append(layout, 0, (spw_segment){1, 2, 0}));
    CHECK_OK(spw_layout_append(layout, 0, (spw_segment){4, 2, 1}));
    CHECK_OK(spw_layout_append(layout, 1, (spw_segment){3, 1, 0}));
    CHECK_OK(spw_layout_append(layout, 3, (spw_segment){0, 1, 1}));
    CHECK_OK(spw_counts_create(place, 2, &counts));
    CHECK_OK(spw_counts_fill(counts, &record, layout));

    static const uint32_t routed[] = {2, 1, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1};
    static const uint32_t first[] = {2, 1, 0, 1, 0, 0, 1, 1};
    static const uint32_t distinct[] = {2, 2, 1, 0, 0, 0, 1, 1};
    static const uint64_t tokens[] = {4, 1, 0, 1}, assignments[] = {6, 1, 0, 2};
    CHECK(memcmp(counts->routed, routed, sizeof routed) == 0);
    CHECK(memcmp(counts->per_sequence, first, sizeof first) == 0);
    CHECK(memcmp(counts->distinct, distinct, sizeof distinct) == 0);
    CHECK(counts->group_nodes == 2 && memcmp(counts->distinct_node, distinct, sizeof distinct) == 0);
    CHECK(memcmp(counts->tokens, tokens, sizeof tokens) == 0);
    CHECK(memcmp(counts->assignments, assignments, sizeof assignments) == 0);
    CHECK(spw_placement_first_node(&place, 1) == 2 && spw_placement_node(&place, 1, 1) == 1);

    /* Of rank 0, expert 0 keeps one token, 1 and 2 none, 3 all: the first token keeps 0, the second 3, the
     * third 3. With 3 taking none the last two lose everything, but a token without choices loses nothing. */
    uint32_t limit[4 * 4] = {1, 0, 0, 9};
    uint64_t lost[4] = {9, 9, 9, 9};
    CHECK_OK(spw_counts_lost_tokens(counts, &record, layout, limit, false, lost));
    CHECK(lost[0] == 0 && lost[1] == 1 && lost[2] == 0 && lost[3] == 1);
    limit[3] = 0;
    CHECK_OK(spw_counts_lost_tokens(counts, &record, layout, limit, false, lost));
    CHECK(lost[0] == 2);
    uint32_t by_sequence[4 * 2 * 4] = {[3] = 1, [7] = 1}; /* expert 3 takes one token of each sequence */
    CHECK_OK(spw_counts_lost_tokens(counts, &record, layout, by_sequence, true, lost));
    CHECK(lost[0] == 1 && lost[1] == 1 && lost[3] == 1);

    spw_layout_clear(layout);
    CHECK_OK(spw_counts_fill(counts, &record, layout));
    for (size_t i = 0; i < 16; i++) CHECK(counts->routed[i] == 0);
    for (size_t i = 0; i < 8; i++) CHECK(counts->distinct[i] == 0 && counts->distinct_node[i] == 0);
    spw_counts_destroy(counts);
    spw_layout_destroy(layout);
}

/* Long segments: counters a byte wide would overflow, sums over blocks would lose the last one. */
static void test_long_segment(void) {
    enum { TOKENS = 1009 };
    static const size_t groups[] = {1, 8, 15, 40, 63, 64, 65, 96};
    static uint16_t ids[TOKENS][3];
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const size_t group = groups[i];
        const spw_placement place = {group, group, 8, group * 3};
        const spw_trace_record record = {TOKENS, 3, group * 3, 2, UINT16_MAX, ids, NULL};
        spw_layout *layout = NULL;
        spw_counts *counts = NULL;
        for (size_t t = 0; t < TOKENS; t++) { /* all to the last rank, half to the first too */
            ids[t][0] = (uint16_t)(group * 3 - 1);
            ids[t][1] = (uint16_t)(group * 3 - 2);
            ids[t][2] = t % 2 == 0 ? 0 : UINT16_MAX;
        }
        CHECK_OK(spw_layout_create(group, 1, &layout));
        CHECK_OK(spw_layout_append(layout, 0, (spw_segment){0, TOKENS, 0}));
        CHECK_OK(spw_counts_create(place, 1, &counts));
        CHECK_OK(spw_counts_fill(counts, &record, layout));
        CHECK(counts->distinct[group - 1] == TOKENS);
        CHECK(counts->distinct[0] == (group > 1 ? TOKENS / 2 + 1 : TOKENS));
        CHECK(counts->distinct_node[counts->group_nodes - 1] == TOKENS);
        CHECK(counts->routed[group * 3 - 1] == TOKENS &&
              counts->assignments[0] == TOKENS * 2 + TOKENS / 2 + 1);
        spw_counts_destroy(counts);
        spw_layout_destroy(layout);
    }
}

/* --- At random --- */

typedef struct world {
    spw_placement place;
    spw_trace_record record;
    spw_layout *layout;
    size_t sequences;
    void *ids;
} world;

static unsigned id_of(const spw_trace_record *record, uint64_t token, size_t slot) {
    const size_t i = token * record->top_k + slot;
    return record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[i]
                                 : ((const uint16_t *)record->expert_id)[i];
}

static void set_id(world *w, uint64_t token, size_t slot, size_t id) {
    const size_t i = token * w->record.top_k + slot;
    if (w->record.id_bytes == 1) {
        ((uint8_t *)w->ids)[i] = (uint8_t)id;
    } else {
        ((uint16_t *)w->ids)[i] = (uint16_t)id;
    }
}

/* Distinct experts, or none: `crowd` makes all tokens go to the same few, `gaps` leaves choices out. */
static void draw_ids(world *w, uint64_t *state) {
    const size_t experts = w->place.experts, top_k = w->record.top_k;
    const bool crowd = random_below(state, 5) == 0;
    const size_t gaps = random_below(state, 2) * random_below(state, 60);
    for (uint64_t t = 0; t < w->record.tokens; t++) {
        const size_t first = crowd ? 0 : random_below(state, experts);
        size_t stride = 1 + random_below(state, experts); /* made a unit of Z / experts: all are distinct */
        for (size_t a = experts, b = stride; b != 0;) {
            const size_t rest = a % b;
            a = b;
            b = rest;
            if (b == 0 && a != 1) stride = 1;
        }
        for (size_t k = 0; k < top_k; k++) {
            const bool gap = random_below(state, 100) < gaps;
            set_id(w, t, k, gap ? w->record.missing : (first + k * stride) % experts);
        }
    }
}

/* Cuts the tokens into pieces in any order and deals them to ranks and sequences; some ranks stay empty. */
static void draw_layout(world *w, uint64_t *state) {
    uint64_t cut[MOST_TOKENS + 1] = {0};
    size_t pieces = 0, next = 0;
    while (cut[pieces] < w->record.tokens) {
        const uint64_t end = cut[pieces] + 1 + random_below(state, 12);
        cut[++pieces] = end < w->record.tokens ? end : w->record.tokens;
    }
    size_t order[MOST_TOKENS];
    for (size_t i = 0; i < pieces; i++) order[i] = i;
    for (size_t i = pieces; i > 1; i--) {
        const size_t other = random_below(state, i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    CHECK_OK(spw_layout_create(w->place.ranks, w->sequences, &w->layout));
    for (size_t rank = 0; rank < w->place.ranks && next < pieces; rank++) {
        uint32_t sequence = 0;
        size_t take = random_below(state, 4) == 0 ? 0 : 1 + random_below(state, 4);
        for (; take > 0 && next < pieces; take--, next++) {
            const spw_segment segment = {cut[order[next]],
                                         (uint32_t)(cut[order[next] + 1] - cut[order[next]]), sequence};
            CHECK_OK(spw_layout_append(w->layout, rank, segment));
            if (random_below(state, 2) == 0 && sequence + 1 < w->sequences) sequence++;
        }
    }
}

static world draw_world(uint64_t *state) {
    static const size_t nodes[] = {1, 3, 4, 8};
    world w = {.sequences = 1 + random_below(state, 4)};
    const size_t group =
        random_below(state, 3) == 0 ? 60 + random_below(state, 37) : 1 + random_below(state, 20);
    w.place = (spw_placement){group * (1 + random_below(state, 3)), group, nodes[random_below(state, 4)],
                              group * (1 + random_below(state, 7))};
    const size_t experts = w.place.experts;
    size_t top_k = 1 + random_below(state, 12);
    if (random_below(state, 6) == 0 || top_k > experts) top_k = experts;
    const bool narrow = experts <= 255 && random_below(state, 2) == 0;
    const size_t most = top_k > 12 ? 12 : MOST_TOKENS;
    const size_t tokens = random_below(state, 8) == 0 ? 1 : 1 + random_below(state, most);
    w.record = (spw_trace_record){
        tokens, top_k, experts, narrow ? 1 : 2, narrow ? UINT8_MAX : UINT16_MAX, NULL, (void *)NULL};
    CHECK_OK(spw_alloc(tokens * top_k, w.record.id_bytes, &w.ids));
    w.record.expert_id = w.ids;
    draw_ids(&w, state);
    draw_layout(&w, state);
    return w;
}

static void destroy_world(world *w) {
    spw_layout_destroy(w->layout);
    spw_free(w->ids);
}

/* Does the token choose an expert on a rank of [begin, end) of its group? */
static bool goes_to(const world *w, uint64_t token, size_t begin, size_t end) {
    const size_t experts_per_rank = w->place.experts / w->place.group_ranks;
    for (size_t k = 0; k < w->record.top_k; k++) {
        const unsigned x = id_of(&w->record, token, k);
        if (x != w->record.missing && x >= begin * experts_per_rank && x < end * experts_per_rank)
            return true;
    }
    return false;
}

/* Members of the group of `rank` on the k-th node that the group touches: [*begin, *end). */
static void members_on(const world *w, size_t rank, size_t k, size_t *begin, size_t *end) {
    const size_t group = w->place.group_ranks; /* drawn, 1 or more */
    const size_t first = rank / group * group; /* NOLINT(clang-analyzer-core.DivideZero) */
    const size_t node = first / w->place.gpus_per_node + k;
    *begin = *end = 0;
    for (size_t m = w->place.group_ranks; m-- > 0;) {
        if ((first + m) / w->place.gpus_per_node != node) continue;
        *begin = m;
        *end = *end == 0 ? m + 1 : *end;
    }
}

/* Tokens of `segment` that go to [begin, end). */
static uint32_t meet(const world *w, const spw_segment *segment, size_t begin, size_t end) {
    uint32_t sum = 0;
    for (uint64_t t = segment->first; t < segment->first + segment->tokens; t++)
        sum += goes_to(w, t, begin, end) ? 1 : 0;
    return sum;
}

static bool rank_agrees(const world *w, const spw_counts *c, size_t rank) {
    const size_t experts = w->place.experts, group = w->place.group_ranks;
    const spw_segment *from = w->layout->segment + w->layout->begin[rank];
    const size_t segments = w->layout->begin[rank + 1] - w->layout->begin[rank];
    uint64_t tokens = 0, assignments = 0;
    bool same = true;
    for (size_t x = 0; x < experts; x++) {
        uint32_t routed = 0;
        for (size_t q = 0; q < w->sequences; q++) {
            uint32_t n = 0;
            for (size_t i = 0; i < segments; i++) {
                for (uint64_t t = from[i].first; from[i].sequence == q && t < from[i].first + from[i].tokens;
                     t++) {
                    for (size_t k = 0; k < w->record.top_k; k++) n += id_of(&w->record, t, k) == x;
                }
            }
            same = same && c->per_sequence[(rank * w->sequences + q) * experts + x] == n;
            routed += n;
        }
        same = same && c->routed[rank * experts + x] == routed;
        assignments += routed;
    }
    for (size_t d = 0; d < group; d++) {
        uint32_t u = 0;
        for (size_t i = 0; i < segments; i++) u += meet(w, &from[i], d, d + 1);
        same = same && c->distinct[rank * group + d] == u;
    }
    for (size_t k = 0; k < c->group_nodes; k++) {
        uint32_t q = 0;
        size_t begin = 0, end = 0;
        members_on(w, rank, k, &begin, &end);
        for (size_t i = 0; i < segments; i++) q += meet(w, &from[i], begin, end);
        same = same && c->distinct_node[rank * c->group_nodes + k] == q;
    }
    for (size_t i = 0; i < segments; i++) tokens += from[i].tokens;
    return same && c->tokens[rank] == tokens && c->assignments[rank] == assignments;
}

/* Every array of the counts in one, to compare bit by bit. */
static size_t pack(const world *w, const spw_counts *c, uint32_t *out) {
    const size_t ranks = w->place.ranks, experts = w->place.experts;
    const struct {
        const void *from;
        size_t words;
    } parts[] = {{c->per_sequence, ranks * w->sequences * experts},
                 {c->routed, ranks * experts},
                 {c->distinct, ranks * w->place.group_ranks},
                 {c->distinct_node, ranks * c->group_nodes},
                 {c->tokens, ranks * 2},
                 {c->assignments, ranks * 2}};
    size_t words = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (out != NULL) memcpy(out + words, parts[i].from, parts[i].words * sizeof *out);
        words += parts[i].words;
    }
    return words;
}

static void check_threads(const world *w, spw_counts *c) {
    static const int threads[] = {1, 2, 7};
    const size_t words = pack(w, c, NULL);
    uint32_t *first = NULL, *again = NULL;
    CHECK_OK(SPW_ALLOC(words, &first));
    CHECK_OK(SPW_ALLOC(words, &again));
    (void)pack(w, c, first);
    for (size_t i = 0; i < 3; i++) {
        omp_set_num_threads(threads[i]);
        CHECK_OK(spw_counts_fill(c, &w->record, w->layout));
        (void)pack(w, c, again);
        CHECK(memcmp(first, again, words * sizeof *first) == 0);
    }
    spw_free(first);
    spw_free(again);
}

/* How often tokens of [segment, until (segment, token)) of the same unit chose x. */
static uint32_t chosen_before(const world *w, size_t rank, size_t segment, uint64_t token, unsigned x,
                              bool per_sequence) {
    uint32_t sum = 0;
    for (size_t i = w->layout->begin[rank]; i <= segment; i++) {
        const spw_segment *s = &w->layout->segment[i];
        if (per_sequence && s->sequence != w->layout->segment[segment].sequence) continue;
        const uint64_t end = i == segment ? token : s->first + s->tokens;
        for (uint64_t t = s->first; t < end; t++) {
            for (size_t k = 0; k < w->record.top_k; k++) sum += id_of(&w->record, t, k) == x;
        }
    }
    return sum;
}

static uint64_t lost_by_force(const world *w, size_t rank, const uint32_t *limit, bool per_sequence) {
    const size_t experts = w->place.experts, units = per_sequence ? w->sequences : 1;
    uint64_t lost = 0;
    for (size_t i = w->layout->begin[rank]; i < w->layout->begin[rank + 1]; i++) {
        const spw_segment *s = &w->layout->segment[i];
        const uint32_t *bound = limit + (rank * units + (per_sequence ? s->sequence : 0)) * experts;
        for (uint64_t t = s->first; t < s->first + s->tokens; t++) {
            size_t chosen = 0, kept = 0;
            for (size_t k = 0; k < w->record.top_k; k++) {
                const unsigned x = id_of(&w->record, t, k);
                if (x == w->record.missing) continue;
                chosen++;
                kept += chosen_before(w, rank, i, t, x, per_sequence) < bound[x];
            }
            lost += chosen > 0 && kept == 0;
        }
    }
    return lost;
}

static void check_lost(const world *w, const spw_counts *c, uint64_t *state) {
    const size_t cells = w->place.ranks * w->sequences * w->place.experts;
    uint32_t *limit = NULL;
    uint64_t *lost = NULL;
    CHECK_OK(SPW_ALLOC(cells, &limit));
    CHECK_OK(SPW_ALLOC(w->place.ranks, &lost));
    for (int per_sequence = 0; per_sequence < 2; per_sequence++) {
        for (size_t i = 0; i < cells; i++) limit[i] = (uint32_t)random_below(state, 3);
        omp_set_num_threads(1 + (int)random_below(state, 3));
        CHECK_OK(spw_counts_lost_tokens(c, &w->record, w->layout, limit, per_sequence == 1, lost));
        bool same = true;
        for (size_t rank = 0; rank < w->place.ranks; rank++)
            same = same && lost[rank] == lost_by_force(w, rank, limit, per_sequence == 1);
        CHECK(same);
    }
    spw_free(limit);
    spw_free(lost);
}

static void test_at_random(void) {
    for (uint64_t seed = 1; seed <= LAYOUTS; seed++) {
        uint64_t state = seed;
        world w = draw_world(&state);
        spw_counts *c = NULL;
        const int before = check_failures;
        CHECK_OK(spw_counts_create(w.place, w.sequences, &c));
        CHECK_OK(spw_counts_fill(c, &w.record, w.layout));
        bool same = true;
        for (size_t rank = 0; rank < w.place.ranks; rank++) same = same && rank_agrees(&w, c, rank);
        CHECK(same);
        check_threads(&w, c);
        check_lost(&w, c, &state);
        if (check_failures > before) {
            fprintf(stderr, "seed %u: %zu ranks in groups of %zu, %zu a node, %zu experts, top-%zu\n",
                    (unsigned)seed, w.place.ranks, w.place.group_ranks, w.place.gpus_per_node,
                    w.place.experts, w.record.top_k);
        }
        spw_counts_destroy(c);
        destroy_world(&w);
    }
}

/* --- What cannot be, and what cannot be allocated --- */

static void test_refusals(void) {
    static const spw_placement bad[] = {{0, 1, 8, 8}, {8, 0, 8, 8},  {8, 8, 0, 8}, {8, 8, 8, 0},
                                        {8, 3, 8, 9}, {8, 4, 8, 10}, {4, 8, 8, 8}, {8, 8, 8, 4}};
    spw_counts *c = (spw_counts *)&c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(spw_counts_create(bad[i], 1, &c), SPW_ECONFIG);
        CHECK(c == NULL);
    }
    CHECK_STATUS(spw_counts_create((spw_placement){8, 8, 8, 8}, 0, &c), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(), "") != 0);
    CHECK_STATUS(spw_counts_create((spw_placement){8, 8, 8, 8}, SIZE_MAX / 8, &c), SPW_ENOMEM);
    CHECK_STATUS(spw_counts_create((spw_placement){8, 8, 8, 8}, SIZE_MAX / 64, &c), SPW_ECONFIG);
    CHECK(c == NULL);
}

static spw_status everything(const world *w, uint64_t *lost, const uint32_t *limit) {
    spw_status status = SPW_OK;
    spw_counts *c = NULL;
    spw_layout *copy = NULL;
    SPW_TRY(spw_layout_create(w->place.ranks, w->sequences, &copy));
    for (size_t rank = 0; rank < w->place.ranks; rank++) {
        for (size_t i = w->layout->begin[rank]; i < w->layout->begin[rank + 1]; i++)
            SPW_TRY(spw_layout_append(copy, rank, w->layout->segment[i]));
    }
    SPW_TRY(spw_counts_create(w->place, w->sequences, &c));
    SPW_TRY(spw_counts_fill(c, &w->record, copy));
    SPW_TRY(spw_counts_lost_tokens(c, &w->record, copy, limit, false, lost));

cleanup:
    spw_counts_destroy(c);
    spw_layout_destroy(copy);
    return status;
}

static void test_allocations(void) {
    for (int threads = 1; threads <= 3; threads++) {
        uint64_t state = 5;
        world w = draw_world(&state);
        uint64_t *lost = NULL;
        uint32_t *limit = NULL;
        CHECK_OK(SPW_ALLOC(w.place.ranks, &lost));
        CHECK_OK(SPW_ALLOC(w.place.ranks * w.place.experts, &limit));
        omp_set_num_threads(threads);
        int failed = 0;
        for (;; failed++) {
            spw_alloc_fail_after(failed);
            const spw_status status = everything(&w, lost, limit);
            spw_alloc_fail_after(-1);
            if (status == SPW_OK) break;
            CHECK(status == SPW_ENOMEM && failed < 100);
            if (failed == 100) break;
        }
        CHECK(failed >= 12 && failed < 100); /* layout, segments, counts, and a few a thread */
        spw_free(lost);
        spw_free(limit);
        destroy_world(&w);
    }
}

int main(void) {
    test_by_hand();
    test_long_segment();
    test_at_random();
    test_refusals();
    test_allocations();
    return check_done();
}
