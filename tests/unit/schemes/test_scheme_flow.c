/* What schemes send and drop: by hand, and properties over random worlds. The closed forms are those of docs/schemes.md, section 10. */
#include "sim/routing/counts.h"
#include "sim/schemes/scheme.h"
#include "sim/schemes/traffic.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"
#include "traces/trace.h"

#include <string.h>

/* --- What is sent and dropped --- */

typedef struct group_flow {
    spw_flow flow;
    spw_traffic traffic;
    uint64_t *sent, *received;
} group_flow;

typedef struct world {
    spw_layer_shape shape;
    spw_placement place;
    spw_counts *counts;
} world;

/* Two groups, full micro-batches, ids skewed towards the low experts. */
static world draw_world(uint64_t *state) {
    world w;
    const size_t ranks = 1 + random_below(state, 9), local = 1 + random_below(state, 6);
    const size_t experts = ranks * local, top_k = 1 + random_below(state, experts < 8 ? experts : 8);
    w.shape = shape_of(ranks, experts, top_k, 1 + random_below(state, 50), 1 + random_below(state, 50),
                       1 + random_below(state, 3), 1 + random_below(state, 20));
    const size_t nodes[] = {1, 3, 8};
    w.place = (spw_placement){2 * ranks, ranks, nodes[random_below(state, 3)], experts};
    const size_t tokens = 2 * ranks * w.shape.tokens;
    int32_t *expert = NULL;
    uint16_t *ids = NULL;
    spw_layout *layout = NULL;
    CHECK_OK(SPW_ALLOC(tokens * top_k, &expert));
    CHECK_OK(SPW_ALLOC(tokens * top_k, &ids));
    random_routing(state, tokens, top_k, experts, expert);
    for (size_t i = 0; i < tokens * top_k; i++)
        ids[i] = random_below(state, 20) == 0 ? UINT16_MAX : (uint16_t)expert[i];
    CHECK_OK(spw_layout_create(2 * ranks, w.shape.sequences, &layout));
    for (size_t i = 0; i < 2 * ranks * w.shape.sequences; i++) {
        const size_t length = w.shape.sequence_length;
        const spw_segment segment = {i * length, (uint32_t)length, (uint32_t)(i % w.shape.sequences)};
        CHECK_OK(spw_layout_append(layout, i / w.shape.sequences, segment));
    }
    const spw_trace_record record = {tokens, top_k, experts, 2, UINT16_MAX, ids, NULL};
    CHECK_OK(spw_counts_create(w.place, w.shape.sequences, &w.counts));
    CHECK_OK(spw_counts_fill(w.counts, &record, layout));
    spw_layout_destroy(layout);
    spw_free(ids);
    spw_free(expert);
    return w;
}

static group_flow flow_of(const world *w, const char *text, size_t group) {
    const spw_scheme scheme = scheme_of(text);
    const size_t ranks = w->shape.ranks;
    group_flow g = {.flow.chosen = NULL};
    CHECK_OK(SPW_ALLOC(ranks, &g.flow.wire));
    CHECK_OK(SPW_ALLOC(ranks * ranks, &g.flow.line));
    CHECK_OK(SPW_ALLOC(ranks, &g.flow.rows));
    CHECK_OK(SPW_ALLOC(ranks * w->shape.sequences * w->shape.experts, &g.flow.limit));
    CHECK_OK(SPW_ALLOC(ranks, &g.flow.dropped));
    CHECK_OK(SPW_ALLOC(ranks, &g.sent));
    CHECK_OK(SPW_ALLOC(ranks, &g.received));
    memset(g.flow.line, 0xA5, ranks * ranks * sizeof *g.flow.line); /* all of it is overwritten */
    memset(g.flow.rows, 0xA5, ranks * sizeof *g.flow.rows);
    memset(g.flow.dropped, 0xA5, ranks * sizeof *g.flow.dropped);
    const spw_routed_group routed = {&scheme, &w->shape, w->counts, group};
    spw_group_rows rows;
    scheme.type->routing.flow(&routed, &g.flow);
    CHECK_OK(spw_flow_check(&scheme, &g.flow));
    spw_group_rows_of(&routed, &g.flow, &rows);
    spw_traffic_compute(&routed, &g.flow, &rows, true, &g.traffic, g.sent, g.received);
    return g;
}

static void destroy_flow(group_flow *g) {
    void *const owned[] = {g->flow.wire,    g->flow.line, g->flow.rows, g->flow.limit,
                           g->flow.dropped, g->sent,      g->received};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
}

static uint64_t sum(const uint64_t *values, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) total += values[i];
    return total;
}

static uint64_t assignments_of(const world *w, size_t group) {
    return sum(w->counts->assignments + group * w->shape.ranks, w->shape.ranks);
}

/* What holds for every scheme. */
static void check_conserved(const world *w, const group_flow *g) {
    const size_t ranks = w->shape.ranks;
    CHECK(sum(g->sent, ranks) == g->traffic.dispatch_bytes &&
          sum(g->received, ranks) == g->traffic.dispatch_bytes);
    CHECK(g->traffic.layer_bytes >= g->traffic.dispatch_bytes + g->traffic.combine_bytes);
    CHECK(g->traffic.max_link_bytes <= g->traffic.intra_node_bytes + g->traffic.inter_node_bytes);
}

static void check_dropless(const world *w, size_t group) {
    static const char *const dropless[] = {"ragged", "gmm", "gmm-deepep", "ring"};
    const size_t ranks = w->shape.ranks;
    for (size_t i = 0; i < 4; i++) {
        group_flow g = flow_of(w, dropless[i], group);
        CHECK(sum(g.flow.dropped, ranks) == 0);
        CHECK(sum(g.flow.rows, ranks) == assignments_of(w, group));
        for (size_t d = 0; d < ranks; d++) CHECK(g.flow.rows[d] <= w->shape.worst_rows);
        check_conserved(w, &g);
        destroy_flow(&g);
    }
}

static void check_deduplicated(const world *w, size_t group) {
    group_flow plain = flow_of(w, "gmm", group), once = flow_of(w, "gmm-deepep", group);
    group_flow ring = flow_of(w, "ring", group);
    const size_t ranks = w->shape.ranks;
    for (size_t i = 0; i < ranks * ranks; i++) {
        CHECK(once.flow.wire[i / ranks][i % ranks] <= plain.flow.wire[i / ranks][i % ranks] &&
              once.flow.wire[i / ranks][i % ranks] <= w->shape.tokens);
        CHECK(plain.flow.wire[i / ranks][i % ranks] <= once.flow.wire[i / ranks][i % ranks] * w->shape.top_k);
        CHECK(ring.flow.wire[i / ranks][i % ranks] == w->shape.tokens);
    }
    /* A token crosses once a node: never more than once a rank. */
    CHECK(once.traffic.inter_node_bytes + once.traffic.intra_node_bytes <= once.traffic.dispatch_bytes * 2);
    CHECK(plain.traffic.inter_node_bytes + plain.traffic.intra_node_bytes == plain.traffic.dispatch_bytes);
    destroy_flow(&plain);
    destroy_flow(&once);
    destroy_flow(&ring);
}

static void check_dense(const world *w, size_t group) {
    uint64_t before = UINT64_MAX;
    const size_t ranks = w->shape.ranks;
    for (int tenths = 1; tenths <= 40; tenths += 3) {
        char text[64];
        (void)snprintf(text, sizeof text, "dense:capacity_factor=%d.%d", tenths / 10, tenths % 10);
        group_flow g = flow_of(w, text, group);
        const uint64_t dropped = sum(g.flow.dropped, ranks);
        CHECK(dropped <= before && dropped <= assignments_of(w, group));
        CHECK(sum(g.flow.rows, ranks) >= assignments_of(w, group) - dropped); /* empty slots are held too */
        before = dropped;
        check_conserved(w, &g);
        destroy_flow(&g);
    }
    group_flow all = flow_of(w, "dense:capacity_factor=1000", group);
    CHECK(sum(all.flow.dropped, ranks) == 0);
    destroy_flow(&all);
}

static void check_truncated(const world *w, size_t group) {
    static const char *const names[] = {"gmm", "ring"};
    const size_t ranks = w->shape.ranks;
    for (size_t n = 0; n < 2; n++) {
        uint64_t before = UINT64_MAX;
        for (int tenths = 1; tenths <= 31; tenths += 6) {
            char text[64];
            (void)snprintf(text, sizeof text, "%s:buffer_factor=%d.%d", names[n], tenths / 10, tenths % 10);
            const spw_scheme scheme = scheme_of(text);
            group_flow g = flow_of(w, text, group);
            const uint64_t dropped = sum(g.flow.dropped, ranks), rows = sum(g.flow.rows, ranks);
            CHECK(dropped <= before && rows + dropped == assignments_of(w, group));
            for (size_t d = 0; d < ranks; d++)
                CHECK(g.flow.rows[d] <= scheme.type->memory.buffer_rows(&scheme, &w->shape));
            before = dropped;
            check_conserved(w, &g);
            destroy_flow(&g);
        }
        char text[64];
        (void)snprintf(text, sizeof text, "%s:buffer_factor=1000", names[n]);
        group_flow wide = flow_of(w, text, group), whole = flow_of(w, names[n], group);
        CHECK(sum(wide.flow.dropped, ranks) == 0);
        CHECK(memcmp(wide.flow.line, whole.flow.line, ranks * ranks * sizeof *wide.flow.line) == 0);
        CHECK(memcmp(wide.flow.rows, whole.flow.rows, ranks * sizeof *wide.flow.rows) == 0);
        CHECK(memcmp(wide.flow.limit, whole.flow.limit, ranks * w->shape.experts * sizeof *wide.flow.limit) ==
              0);
        destroy_flow(&wide);
        destroy_flow(&whole);
    }
}

static void test_properties(void) {
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t state = seed;
        world w = draw_world(&state);
        const int before = check_failures;
        for (size_t group = 0; group < 2; group++) {
            check_dropless(&w, group);
            check_deduplicated(&w, group);
            check_dense(&w, group);
            check_truncated(&w, group);
        }
        if (check_failures > before) fprintf(stderr, "seed %u\n", (unsigned)seed);
        spw_counts_destroy(w.counts);
    }
}

/* Three ranks of two experts, two tokens each, top-2. Who is served first decides who loses. */
static void test_drops_by_hand(void) {
    static const uint8_t ids[][2] = {{0, 1}, {0, 2}, {1, 0}, {0, 4}, {1, 5}, {1, 3}};
    world w = {.shape = shape_of(3, 6, 2, 4, 4, 1, 2), .place = {3, 3, 8, 6}};
    const spw_trace_record record = {6, 2, 6, 1, 255, ids, NULL};
    spw_layout *layout = NULL;
    CHECK_OK(spw_layout_create(3, 1, &layout));
    for (size_t r = 0; r < 3; r++) CHECK_OK(spw_layout_append(layout, r, (spw_segment){2 * r, 2, 0}));
    CHECK_OK(spw_counts_create(w.place, 1, &w.counts));
    CHECK_OK(spw_counts_fill(w.counts, &record, layout));

    /* 8 rows for rank 0 in a buffer of trunc(4 x 1) = 4. From rank 0 come 0 0 1, from rank 1 the first of 0 0
     * 1, from rank 2 nothing more. */
    group_flow g = flow_of(&w, "gmm:buffer_factor=1", 0);
    CHECK(g.flow.rows[0] == 4 && g.flow.rows[1] == 2 && g.flow.rows[2] == 2);
    CHECK(g.flow.dropped[0] == 0 && g.flow.dropped[1] == 2 && g.flow.dropped[2] == 2);
    CHECK(g.flow.limit[6] == 1 && g.flow.limit[7] == 0 && g.flow.limit[13] == 0);
    CHECK(g.flow.wire[0][0] == 3 && g.flow.wire[1][0] == 1 && g.flow.wire[2][0] == 0);
    CHECK(g.sent[0] == 8 && g.sent[1] == 16 && g.sent[2] == 8 && g.received[0] == 8);
    destroy_flow(&g);
    /* The ring serves expert 0 of all ranks, then expert 1: 0 0 | 0 0 fill it. */
    g = flow_of(&w, "ring:buffer_factor=1", 0);
    CHECK(g.flow.rows[0] == 4 && g.flow.dropped[0] == 1 && g.flow.dropped[1] == 1 && g.flow.dropped[2] == 2);
    CHECK(g.sent[0] == 2 * 2 * (4 * 2 + 2 * 6 * 4));
    destroy_flow(&g);
    /* C = trunc(ceil(2 x 2 / 6) x 1) = 1: the second token of a sequence loses what the first has taken. */
    g = flow_of(&w, "dense:capacity_factor=1", 0);
    CHECK(g.flow.dropped[0] == 1 && g.flow.dropped[1] == 1 && g.flow.dropped[2] == 1);
    CHECK(g.flow.rows[2] == 6 && g.flow.wire[0][1] == 2 && g.sent[0] == 2 * 2 * 8);
    destroy_flow(&g);
    g = flow_of(&w, "gmm-deepep", 0);
    CHECK(g.flow.wire[0][0] == 2 && g.flow.wire[0][1] == 1 && g.flow.wire[0][2] == 0 && g.flow.rows[0] == 8);
    CHECK(g.sent[0] == 4 * 2 + 8 * 2 + 4 && g.sent[2] == 3 * (4 * 2 + 8 * 2 + 4));
    destroy_flow(&g);

    spw_counts_destroy(w.counts);
    spw_layout_destroy(layout);
}

int main(void) {
    test_drops_by_hand();
    test_properties();
    return check_done();
}
