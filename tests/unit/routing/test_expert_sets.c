/* Routing counts of long segments, which some processors count by sets of experts, against a count token by token. */
#include "sim/routing/expert_sets.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "traces/trace.h"

#include <string.h>

enum { FIRST = 5 }; /* token of the segment */

typedef struct long_shape {
    spw_placement place;
    size_t tokens, top_k, id_bytes;
    enum { WHOLE, GAP, TWICE, OTHER } what; /* OTHER: never counted by sets */
} long_shape;

typedef struct expected {
    uint32_t *routed, *distinct, *node;
} expected;

static unsigned id_at(const spw_trace_record *record, size_t i) {
    return record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[i]
                                 : ((const uint16_t *)record->expert_id)[i];
}

static void put_id(void *ids, size_t id_bytes, size_t i, size_t id) {
    if (id_bytes == 1) {
        ((uint8_t *)ids)[i] = (uint8_t)id;
    } else {
        ((uint16_t *)ids)[i] = (uint16_t)id;
    }
}

/* All tokens are alike at first, so that counters fill up; the last thousand are not. */
static spw_trace_record draw_record(const long_shape *shape, uint64_t *state, void **ids) {
    const size_t experts = shape->place.experts, missing = shape->id_bytes == 1 ? UINT8_MAX : UINT16_MAX;
    CHECK_OK(spw_alloc(shape->tokens * shape->top_k, shape->id_bytes, ids));
    for (size_t t = 0; t < shape->tokens; t++) {
        const size_t first = t + 1000 < shape->tokens ? experts - 1 : random_below(state, experts),
                     step = experts % 3 != 0 && t % 3 != 0 ? 3 : 1;
        for (size_t k = 0; k < shape->top_k; k++)
            put_id(*ids, shape->id_bytes, t * shape->top_k + k, (first + k * step) % experts);
    }
    const spw_trace_record record = {shape->tokens,     shape->top_k, experts, shape->id_bytes,
                                     (uint16_t)missing, *ids,         NULL};
    const size_t at = 700 * shape->top_k;
    if (shape->what == GAP) put_id(*ids, shape->id_bytes, at + shape->top_k - 1, missing);
    if (shape->what == TWICE) put_id(*ids, shape->id_bytes, at + 1, id_at(&record, at));
    return record;
}

/* Of the last rank, whose tokens are those from FIRST on. */
static void count_by_force(const spw_trace_record *record, const spw_placement *p, const expected *out) {
    const size_t sharers = p->expert_tensor > 0 ? p->expert_tensor : 1, each = p->group_ranks / sharers,
                 begin = p->ranks - p->group_ranks;
    for (size_t t = FIRST; t < record->tokens; t++) {
        for (size_t k = 0; k < record->top_k; k++) {
            const unsigned x = id_at(record, t * record->top_k + k);
            if (x != record->missing) out->routed[x]++;
        }
        for (size_t d = 0, node = SIZE_MAX; d < each; d++) {
            const size_t here = (begin + d * sharers) / p->gpus_per_node - begin / p->gpus_per_node;
            bool meets = false;
            for (size_t k = 0; k < record->top_k; k++) {
                const unsigned x = id_at(record, t * record->top_k + k);
                meets = meets || (x != record->missing && x * each / p->experts == d);
            }
            if (meets) out->distinct[d * sharers]++;
            if (meets && here != node) out->node[node = here]++;
        }
    }
}

/* The sets themselves must not leave the work to others. */
static void check_sets(const long_shape *shape, const spw_counts *counts, const spw_trace_record *record) {
    const spw_placement *p = &counts->placement;
    spw_expert_sets *sets = NULL;
    uint32_t *row = NULL, *destination = NULL;
    CHECK_OK(spw_expert_sets_create(counts, record, &sets));
    if (sets == NULL) return; /* this processor has no such vectors */
    CHECK(shape->what != OTHER || p->experts <= 256);
    CHECK_OK(SPW_ALLOC(p->experts, &row));
    CHECK_OK(SPW_ALLOC(p->group_ranks + counts->group_nodes, &destination));
    spw_expert_sets_set_group(sets, p->ranks / p->group_ranks - 1);
    CHECK(spw_expert_sets_add(sets, record->expert_id, 300, row, destination) == 0);
    const size_t done = spw_expert_sets_add(sets, record->expert_id, record->tokens, row, destination);
    CHECK(shape->what == WHOLE ? done > record->tokens - 17 && done < record->tokens : done == 0);
    uint64_t sum = 0;
    for (size_t x = 0; x < p->experts; x++) sum += row[x];
    CHECK(sum == done * record->top_k);
    spw_free(row);
    spw_free(destination);
    spw_expert_sets_destroy(sets);
}

static void check_shape(const long_shape *shape, uint64_t *state) {
    const size_t last = shape->place.ranks - 1, experts = shape->place.experts;
    void *ids = NULL;
    expected want = {NULL, NULL, NULL};
    spw_counts *counts = NULL;
    spw_layout *layout = NULL;
    const spw_trace_record record = draw_record(shape, state, &ids);
    CHECK_OK(spw_counts_create(shape->place, 1, &counts));
    CHECK_OK(spw_layout_create(shape->place.ranks, 1, &layout));
    CHECK_OK(spw_layout_append(layout, last, (spw_segment){FIRST, (uint32_t)(shape->tokens - FIRST), 0}));
    CHECK_OK(SPW_ALLOC(experts, &want.routed));
    CHECK_OK(SPW_ALLOC(shape->place.group_ranks, &want.distinct));
    CHECK_OK(SPW_ALLOC(counts->group_nodes, &want.node));
    count_by_force(&record, &shape->place, &want);
    CHECK_OK(spw_counts_fill(counts, &record, layout));
    CHECK(memcmp(counts->routed + last * experts, want.routed, experts * sizeof(uint32_t)) == 0);
    CHECK(memcmp(counts->distinct + last * shape->place.group_ranks, want.distinct,
                 shape->place.group_ranks * sizeof(uint32_t)) == 0);
    CHECK(memcmp(counts->distinct_node + last * counts->group_nodes, want.node,
                 counts->group_nodes * sizeof(uint32_t)) == 0);
    CHECK(counts->tokens[last] == shape->tokens - FIRST);
    check_sets(shape, counts, &record);
    spw_layout_destroy(layout);
    spw_counts_destroy(counts);
    spw_free(want.routed);
    spw_free(want.distinct);
    spw_free(want.node);
    spw_free(ids);
}

int main(void) {
    static const long_shape shapes[] = {
        {{64, 8, 8, 256, 0}, 4101, 8, 2, WHOLE},   {{64, 64, 8, 256, 0}, 4101, 8, 2, WHOLE},
        {{64, 8, 4, 128, 0}, 4100, 8, 1, WHOLE},   {{64, 16, 8, 64, 0}, 1303, 6, 1, WHOLE},
        {{8, 8, 8, 8, 0}, 1300, 2, 1, WHOLE},      {{16, 16, 8, 16, 0}, 1000, 1, 2, WHOLE},
        {{16, 16, 1, 16, 0}, 1000, 3, 2, WHOLE},   {{32, 32, 8, 64, 0}, 4003, 4, 2, WHOLE},
        {{4, 2, 1, 128, 0}, 1300, 8, 2, WHOLE},    {{12, 3, 2, 192, 0}, 1300, 5, 2, OTHER},
        {{4, 4, 2, 256, 0}, 1300, 16, 2, WHOLE},   {{2, 2, 1, 256, 0}, 1300, 9, 2, WHOLE},
        {{3, 1, 8, 200, 0}, 1300, 8, 2, WHOLE},    {{8, 4, 2, 64, 2}, 1300, 8, 2, WHOLE},
        {{16, 16, 3, 128, 0}, 1300, 8, 2, OTHER},  {{16, 8, 3, 64, 4}, 1300, 7, 1, WHOLE},
        {{3, 1, 8, 255, 0}, 1300, 8, 1, WHOLE},    {{3, 1, 8, 255, 0}, 1300, 8, 1, GAP},
        {{64, 8, 8, 256, 0}, 1300, 8, 2, GAP},     {{64, 8, 8, 256, 0}, 1300, 8, 2, TWICE},
        {{16, 16, 8, 32, 0}, 1300, 5, 1, GAP},     {{12, 12, 8, 192, 0}, 1300, 5, 1, WHOLE},
        {{8, 8, 8, 512, 0}, 1300, 8, 2, OTHER},    {{24, 24, 8, 120, 0}, 1300, 8, 1, OTHER},
        {{48, 48, 8, 192, 0}, 4100, 16, 1, WHOLE}, {{8, 8, 4, 64, 0}, 4100, 8, 1, TWICE},
    };
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int before = check_failures;
        check_shape(&shapes[i], &state);
        if (check_failures > before) fprintf(stderr, "shape %zu\n", i);
    }
    return check_done();
}
