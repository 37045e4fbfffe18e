/* The schemes around DeepEP, HybridEP and moe_dedup: bytes of rows and buffers against the figures of their authors, drops
 * against a brute force over tokens, and what must hold for any routing (docs/schemes.md, sections 3.4 to 4.8). */
#include "sim/schemes/scheme.h"

#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/selection.h"
#include "sim/schemes/traffic.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1024.0 * 1024.0;

/* DeepSeek-V3's widths. */
static spw_layer_shape shape_on(size_t ranks, size_t node_ranks, size_t experts, size_t top_k,
                                size_t tokens) {
    spw_layer_shape shape = shape_of(ranks, experts, top_k, 7168, 2048, 1, tokens);
    shape.node_ranks = node_ranks;
    return shape;
}

/* DeepSeek-V3, experts over 8 GPUs of a node, or over 8 nodes of 8. */
static spw_layer_shape deepseek(size_t ranks) { return shape_on(ranks, 8, 256, 8, 4096); }

/* --- Bytes ------------------------------------------------------------------------------------------------------ */

static uint64_t row_bytes(const char *text, const spw_layer_shape *s, const char *name) {
    const spw_scheme scheme = scheme_of(text);
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t count = scheme.type->traffic.exchanges(&scheme, s, exchange);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(exchange[i].name, name) == 0) return exchange[i].row_bytes;
    }
    return 0;
}

/* deepseek-ai/DeepEP dd758caf csrc/kernels/legacy/{intranode,internode,internode_ll}.cu. */
static void test_row_bytes(void) {
    const spw_layer_shape node = deepseek(8), nodes = deepseek(64);
    static const struct {
        const char *scheme, *exchange;
        uint64_t in_node, across;
    } rows[] = {
        {"deepep", "dispatch", 14436, 14416},
        {"deepep", "combine", 14340, 14352},
        {"deepep", "combine gradient", 14340, 14352},
        {"deepep", "dispatch gradient", 14372, 14384},
        {"deepep:dtype=fp8", "dispatch", 7492, 7472},
        {"deepep:dtype=fp8", "combine", 14340, 14352},
        {"gmm-deepep", "dispatch", 14404, 14416},
        {"ragged-deepep", "dispatch", 14404, 14416},
        {"deepep-ll", "dispatch", 7168 + 224 + 16, 7168 + 224 + 16},
        {"deepep-ll:dtype=bf16", "dispatch", 14352, 14352},
        {"deepep-ll", "combine", 14336, 14336},
        {"hybrid-ep", "dispatch", 14336 + 4 * 256, 14336 + 4 * 32}, /* weights of the node's experts */
        {"hybrid-ep", "combine", 14336, 14336},
        {"moe-dedup:buffer_factor=1", "dispatch", 14336 + 64, 14336 + 64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(row_bytes(rows[i].scheme, &node, rows[i].exchange) == rows[i].in_node);
        CHECK(row_bytes(rows[i].scheme, &nodes, rows[i].exchange) == rows[i].across);
    }
}

static void near(double got, double want, double tolerance) { CHECK(fabs(got - want) <= tolerance * want); }

/* DeepEP branch hybrid-ep docs/Hybrid-EP_Implementation.md: EP64, 4096 tokens a rank, one NVLink domain or 8 nodes of 8;
 * get_low_latency_rdma_size_hint for 128 tokens. */
static void test_buffers(void) {
    const spw_layer_shape one = shape_on(64, 64, 256, 8, 4096), eight = deepseek(64);
    const spw_hybrid_ep_buffers domain = spw_hybrid_ep_buffer_sizes(&one, 4096),
                                nodes = spw_hybrid_ep_buffer_sizes(&eight, 4096);
    near((double)domain.token_bytes / MIB, 3.5 * 1024, 1e-12);
    near((double)domain.probability_bytes / MIB, 256, 1e-12);
    near((double)(domain.token_bytes + domain.probability_bytes) / MIB, 3.75 * 1024, 1e-12);
    CHECK(domain.rdma_bytes == 0 && domain.rdma_token_bytes == 0);
    near((double)nodes.token_bytes / MIB, 3.5 * 1024, 1e-12);
    near((double)nodes.probability_bytes / MIB, 32, 1e-12);
    near((double)nodes.rdma_token_bytes / MIB, 392, 1e-12);
    near((double)nodes.rdma_probability_bytes / MIB, 3.5, 1e-12);
    near((double)(nodes.token_bytes + nodes.probability_bytes + nodes.rdma_token_bytes +
                  nodes.rdma_probability_bytes) /
             MIB,
         4 * 1024, 0.05); /* "~4 GB" */
    near((double)spw_deepep_low_latency_bytes(&eight, 128) / 1e9, 1.908, 0.0005);
    const spw_scheme sized = scheme_of("deepep-ll:max_tokens=128");
    CHECK(sized.type->memory.communication_bytes(&sized, &eight) ==
          spw_deepep_low_latency_bytes(&eight, 128));
    /* version 2, with pencil and paper: 32768 tokens there of 14336 + 128 bytes, back of 14336 + 64 */
    const spw_layer_shape node = deepseek(8), two = deepseek(16);
    CHECK(spw_deepep_elastic_bytes(&node, 4096, false) == (uint64_t)32768 * (14336 + 128));
    CHECK(spw_deepep_elastic_bytes(&node, 4096, true) == (uint64_t)32768 * (14336 + 64));
    CHECK(spw_deepep_elastic_bytes(&two, 4096, false) == (uint64_t)581 << 21);
    /* up to the next multiple of 128, even from one */
    const uint64_t messages = 4 * 256 * 128 * (4 * 56 + 2 * 7168), counters = 2 * 4 * 256;
    CHECK(spw_deepep_low_latency_bytes(&eight, 128) == messages + counters + 128);
}

/* Section 4.2's volumes of one exchange, uniform choices. */
static void test_volumes(void) {
    const spw_layer_shape s = deepseek(8);
    const spw_scheme deepep = scheme_of("deepep");
    const spw_rank_rows rows = spw_balanced_rows(&deepep, &s);
    near((double)rows.received / 4096.0, 5.295, 1e-4); /* distinct ranks of a token */
    near((double)rows.sent * 7 / 8 * (double)row_bytes("deepep", &s, "dispatch") / 1e9, 0.274, 0.002);
    near((double)rows.sent * 7 / 8 * (double)row_bytes("deepep:dtype=fp8", &s, "dispatch") / 1e9, 0.142,
         0.002);
    CHECK(follows_routing(&deepep, &s));
    const spw_scheme padded = scheme_of("deepep:pad=1000"), hybrid = scheme_of("hybrid-ep:pad=16");
    CHECK(spw_balanced_rows(&padded, &s).held == 32 * 2000); /* 1024 rows an expert */
    CHECK(spw_balanced_rows(&hybrid, &s).held == 32768 && rows.held == 32768);
    const spw_live_set exact = live_set_of(&deepep, &s, &rows);
    const double expected = 2.0 * (3.0 * 32768 * 7168 + 3.0 * 32768 * 2048 + (double)rows.received * 7168);
    near((double)exact.backward_bytes, expected,
         0.001); /* x, y, dy, fc1_out, act, d_summed; indices are the rest */
    CHECK((double)exact.backward_bytes > expected);
}

/* The closed forms of section 10; indices, weights, scales and maps come on top, less than 1 %. */
static void test_live_sets(void) {
    const spw_layer_shape s = deepseek(8);
    const double H = 7168, F = 2048, e = 32, RT = 8 * 4096, W = 64 * 4096, M = 8 * 4096, slots = 256 * 4096,
                 budget = 1.5 * M;
    const spw_scheme probe = scheme_of("deepep");
    const double U = (double)spw_balanced_rows(&probe, &s).received;
    const struct {
        const char *scheme;
        double forward, backward;
    } sets[] = {
        {"ragged-deepep", W * (H + 2 * F) + e * W * H, 3 * W * H + W * F + RT * H + e * W * (H + F)},
        {"ragged-ring", W * (H + 2 * F) + e * W * H, 3 * W * H + W * F + RT * H + e * W * (H + F)},
        {"moe-dedup:buffer_factor=1.5", budget * H + RT * H, 2 * budget * H + 3 * budget * F + RT * H},
        {"moe-dedup:buffer_factor=1.25,overflow_factor=1", 2.25 * M * H + RT * H,
         4.5 * M * H + 6.75 * M * F + RT * H},
        {"deepep", M * H + U * H, 3 * M * H + 3 * M * F + U * H},
        {"deepep-ll:dtype=bf16", slots * (H + 2 * F), slots * (2 * H + 4 * F)},
        {"hybrid-ep", M * (H + 2 * F), M * (2 * H + 4 * F)},
        {"hybrid-ep:budget=1.5", budget * (H + 2 * F), budget * (2 * H + 4 * F)},
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const spw_scheme scheme = scheme_of(sets[i].scheme);
        const spw_rank_rows rows = spw_balanced_rows(&scheme, &s);
        const spw_live_set set = live_set_of(&scheme, &s, &rows);
        const double forward = (double)set.forward_bytes / 2.0, backward = (double)set.backward_bytes / 2.0;
        CHECK(forward >= sets[i].forward && forward < 1.01 * sets[i].forward);
        CHECK(backward >= sets[i].backward && backward < 1.01 * sets[i].backward);
    }
}

/* moe-dedup: 16 tokens have as many slots as ranks they may be sent to, which is said, or as many as they can choose. */
static void test_slots(void) {
    static const struct {
        const char *scheme;
        uint64_t slots;
    } cases[] = {{"moe-dedup:buffer_factor=1", 2},
                 {"moe-dedup:buffer_factor=1,max_shards=1", 1},
                 {"moe-dedup:buffer_factor=1,max_shards=5", 5},
                 {"moe-dedup:buffer_factor=1,max_shards=8", 8},
                 {"moe-dedup:buffer_factor=1,max_shards=11", 8}};
    const spw_layer_shape s = shape_on(8, 8, 32, 2, 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme scheme = scheme_of(cases[i].scheme);
        const spw_rank_rows rows = spw_balanced_rows(&scheme, &s);
        CHECK(bytes_of_tensor(&scheme, &s, &rows, "send", NULL, 0) == 16 * cases[i].slots * 7168 * 2);
    }
}

/* --- Any routing ------------------------------------------------------------------------------------------------- */

typedef struct routing {
    spw_layer_shape shape;
    spw_placement place;
    spw_counts *counts;
    spw_layout *layout;
    spw_selection *selection;
    uint16_t *ids;
    spw_trace_record record;
} routing;

static routing draw(uint64_t *state, spw_layer_shape shape, bool skewed) {
    const size_t tokens = shape.ranks * shape.tokens, choices = tokens * shape.top_k;
    routing w = {.shape = shape, .place = {shape.ranks, shape.ranks, shape.node_ranks, shape.experts}};
    int32_t *expert = NULL;
    CHECK_OK(SPW_ALLOC(choices, &expert));
    CHECK_OK(SPW_ALLOC(choices, &w.ids));
    random_routing(state, tokens, shape.top_k, shape.experts, expert);
    for (size_t i = 0; i < choices; i++) {
        const bool none = random_below(state, 20) == 0;
        if (skewed &&
            random_below(state, 2) == 0) /* the same choice for all: distinct within a token as before */
            expert[i] = (int32_t)(i % shape.top_k);
        bool twice = false;
        for (size_t k = i - i % shape.top_k; k < i; k++) twice |= w.ids[k] == (uint16_t)expert[i];
        w.ids[i] = none || twice ? UINT16_MAX : (uint16_t)expert[i];
    }
    spw_free(expert);
    CHECK_OK(spw_layout_create(shape.ranks, 1, &w.layout));
    for (size_t r = 0; r < shape.ranks; r++)
        CHECK_OK(spw_layout_append(w.layout, r, (spw_segment){r * shape.tokens, (uint32_t)shape.tokens, 0}));
    w.record = (spw_trace_record){tokens, shape.top_k, shape.experts, 2, UINT16_MAX, w.ids, NULL};
    CHECK_OK(spw_counts_create(w.place, 1, &w.counts));
    CHECK_OK(spw_counts_fill(w.counts, &w.record, w.layout));
    CHECK_OK(spw_selection_create(w.place, &w.shape, &w.selection));
    return w;
}

static void destroy(routing *w) {
    spw_selection_destroy(w->selection), spw_counts_destroy(w->counts), spw_layout_destroy(w->layout);
    spw_free(w->ids);
}

/* The scheme must outlive what is asked of the selection. */
static const spw_flow *run(routing *w, const spw_scheme *scheme) {
    CHECK_OK(spw_selection_run(w->selection, scheme, w->counts, &w->record, w->layout));
    return spw_selection_flow(w->selection, 0);
}

static uint64_t sum(const uint64_t *values, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) total += values[i];
    return total;
}

static uint64_t dropped_by(routing *w, const char *text) {
    const spw_scheme scheme = scheme_of(text);
    return sum(run(w, &scheme)->dropped, w->shape.ranks);
}

static uint64_t dispatch_bytes(routing *w, const char *text) {
    const spw_scheme scheme = scheme_of(text);
    spw_traffic traffic;
    const spw_flow *flow = run(w, &scheme);
    const spw_routed_group routed = {&scheme, &w->shape, spw_selection_counts(w->selection), 0};
    spw_group_rows rows;
    spw_group_rows_of(&routed, flow, &rows);
    spw_traffic_compute(&routed, flow, &rows, true, &traffic, NULL, NULL);
    return traffic.dispatch_bytes;
}

/* Choice i of all (rank, token, slot): its expert, or -1. */
static int expert_at(const routing *w, size_t i) { return w->ids[i] == UINT16_MAX ? -1 : (int)w->ids[i]; }

/* Rows of a rank by the rule of the receiver: experts by id, each from the next multiple of `pad` on, choices in order of
 * rank, token and slot; those from `limit` on are dropped. sent: [choices] 0 where a choice never left its rank. */
static void brute_places(const routing *w, const uint8_t *sent, size_t limit, size_t pad, uint8_t *kept) {
    const spw_layer_shape *s = &w->shape;
    for (size_t d = 0; d < s->ranks; d++) {
        size_t place = 0;
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
            while (place % pad != 0) place++;
            for (size_t i = 0; i < s->ranks * s->assignments; i++) {
                if (expert_at(w, i) != (int)x || !sent[i]) continue;
                kept[i] = place++ < limit;
            }
        }
    }
}

/* The first `most` ranks that a token chose, by rank. */
static void brute_shards(const routing *w, size_t most, uint8_t *sent) {
    const spw_layer_shape *s = &w->shape;
    for (size_t i = 0; i < s->ranks * s->assignments; i++) {
        const size_t first = i - i % s->top_k;
        if (expert_at(w, i) < 0) continue;
        const size_t own = (size_t)expert_at(w, i) / s->experts_per_rank;
        size_t before = 0;
        for (size_t d = 0; d < own; d++) {
            bool chosen = false;
            for (size_t k = first; k < first + s->top_k; k++)
                chosen |= expert_at(w, k) >= 0 && (size_t)expert_at(w, k) / s->experts_per_rank == d;
            before += chosen;
        }
        sent[i] = before < most;
    }
}

/* Drops, marks, rows on the wire and lost tokens of a scheme against the brute force. */
static void check_against(routing *w, const char *text, const uint8_t *sent, const uint8_t *kept) {
    const spw_layer_shape *s = &w->shape;
    const spw_scheme scheme = scheme_of(text);
    const spw_flow *flow = run(w, &scheme);
    const uint8_t *marked = NULL;
    const uint64_t *lost = NULL;
    CHECK_OK(spw_selection_kept(w->selection, &marked));
    CHECK_OK(spw_selection_lost_tokens(w->selection, &lost));
    for (size_t r = 0; r < s->ranks; r++) {
        uint64_t dropped = 0, gone = 0, wire[16] = {0};
        for (size_t t = 0; t < s->tokens; t++) {
            size_t chosen = 0, stays = 0;
            bool to[16] = {false};
            for (size_t i = (r * s->tokens + t) * s->top_k; i < (r * s->tokens + t + 1) * s->top_k; i++) {
                if (expert_at(w, i) < 0) continue;
                CHECK(marked[i] == kept[i]);
                to[(size_t)expert_at(w, i) / s->experts_per_rank] |= sent[i] != 0;
                chosen++, stays += kept[i];
            }
            dropped += chosen - stays;
            gone += chosen > 0 && stays == 0;
            for (size_t d = 0; d < s->ranks; d++) wire[d] += to[d];
        }
        CHECK(flow->dropped[r] == dropped);
        CHECK(lost[r] == gone);
        for (size_t d = 0; d < s->ranks; d++) CHECK(flow->wire[r][d] == wire[d]);
    }
}

static void check_drops(routing *w) {
    const size_t choices = w->shape.ranks * w->shape.assignments, n = w->shape.assignments;
    uint8_t *all = NULL, *sent = NULL, *kept = NULL;
    CHECK_OK(SPW_ALLOC(choices, &all));
    CHECK_OK(SPW_ALLOC(choices, &sent));
    CHECK_OK(SPW_ALLOC(choices, &kept));
    memset(all, 1, choices);
    brute_places(w, all, n, 1, kept);
    check_against(w, "hybrid-ep:budget=1", all, kept);
    check_against(w, "moe-dedup:buffer_factor=1", all, kept);
    check_against(w, "moe-dedup:buffer_factor=0.5,overflow_factor=0.5", all, kept);
    brute_places(w, all, (n / 2 + 3) / 4 * 4, 4, kept);
    check_against(w, "hybrid-ep:budget=0.5,pad=4", all, kept);
    brute_shards(w, 2, sent);
    memset(kept, 0, choices);
    brute_places(w, sent, n / 2, 1, kept);
    check_against(w, "moe-dedup:buffer_factor=0.5,max_shards=2", sent, kept);
    spw_free(kept), spw_free(sent), spw_free(all);
}

/* Capacity without end drops nothing, and more of it never drops more; a row a rank is never more than a row a choice. */
static void check_orders(routing *w) {
    static const char *const ample[] = {"hybrid-ep",
                                        "hybrid-ep:budget=10000,pad=16",
                                        "moe-dedup:buffer_factor=10000",
                                        "moe-dedup:buffer_factor=0.001,overflow_factor=10000",
                                        "deepep",
                                        "deepep-ll",
                                        "ragged-deepep"};
    const uint64_t assignments = sum(w->counts->assignments, w->shape.ranks);
    for (size_t i = 0; i < sizeof ample / sizeof ample[0]; i++) {
        const spw_scheme scheme = scheme_of(ample[i]);
        const spw_flow *flow = run(w, &scheme);
        CHECK(sum(flow->dropped, w->shape.ranks) == 0);
        if (strstr(ample[i], "pad") == NULL) CHECK(sum(flow->rows, w->shape.ranks) == assignments);
    }
    static const char *const families[] = {"hybrid-ep:pad=4,budget=%g", "moe-dedup:buffer_factor=%g",
                                           "moe-dedup:max_shards=2,overflow_factor=0.25,buffer_factor=%g"};
    for (size_t f = 0; f < 3; f++) {
        uint64_t before = UINT64_MAX;
        for (int quarters = 1; quarters <= 16; quarters++) {
            char text[96];
            (void)snprintf(text, sizeof text, families[f], 0.25 * quarters);
            const uint64_t now = dropped_by(w, text);
            CHECK(now <= before);
            before = now;
        }
    }
    const uint64_t plain = dispatch_bytes(w, "gmm") / 14336; /* rows, without what they carry */
    CHECK(dispatch_bytes(w, "deepep") / row_bytes("deepep", &w->shape, "dispatch") <= plain);
    CHECK(dispatch_bytes(w, "deepep-ll:dtype=bf16") == plain * 14352);
    CHECK(plain == 0 || dispatch_bytes(w, "deepep:dtype=fp8") < dispatch_bytes(w, "deepep"));
    CHECK(dispatch_bytes(w, "moe-dedup:buffer_factor=1,max_shards=1") <=
          dispatch_bytes(w, "moe-dedup:buffer_factor=1"));
}

/* A rank pads every expert by less than the multiple; on average by half of it less a half (section 5.5). */
static void test_padding_waste(uint64_t *state) {
    routing w = draw(state, shape_on(8, 8, 256, 8, 512), false);
    static const struct {
        size_t pad;
        double mean;
    } cases[] = {{1, 0}, {16, 240}, {32, 496}};
    for (size_t i = 0; i < 3; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "deepep:pad=%zu", cases[i].pad);
        const spw_scheme scheme = scheme_of(text);
        const spw_flow *flow = run(&w, &scheme);
        double waste = 0.0;
        for (size_t d = 0; d < 8; d++) {
            uint64_t held = 0, padded = 0;
            for (size_t x = d * 32; x < (d + 1) * 32; x++) {
                uint64_t rows = 0;
                for (size_t s = 0; s < 8; s++) rows += w.counts->routed[s * 256 + x];
                held += rows;
                while (rows % cases[i].pad != 0) rows++;
                padded += rows;
            }
            CHECK(flow->rows[d] == padded && padded - held <= 32 * (cases[i].pad - 1));
            waste += (double)(padded - held) / 8.0;
        }
        CHECK(fabs(waste - cases[i].mean) <= 0.15 * cases[i].mean);
    }
    destroy(&w);
}

/* Two ranks, two experts each, five tokens: on paper. Rank 0 chooses (0,1) (0,2) (0,1), rank 1 (0,3) (1,2). Rank 0 receives for
 * expert 0 from rank 0 three and from rank 1 one, for expert 1 from rank 0 two and from rank 1 one. */
static void test_on_paper(void) {
    static const uint16_t choices[] = {0, 1, 0, 2, 0, 1, 0, 3, 1, 2, UINT16_MAX, UINT16_MAX};
    uint64_t state = 1;
    spw_layer_shape shape = shape_on(2, 2, 4, 2, 3);
    routing w = draw(&state, shape, false);
    memcpy(w.ids, choices, sizeof choices);
    CHECK_OK(spw_counts_fill(w.counts, &w.record, w.layout));
    /* budget 0.9: int(6 x 0.9) = 5 rows. Rank 0: 4 of expert 0, 1 of expert 1 (rank 0's first); 2 dropped, 1 of each. */
    const spw_scheme tight = scheme_of("hybrid-ep:budget=0.9");
    const spw_flow *flow = run(&w, &tight);
    CHECK(flow->rows[0] == 5 && flow->rows[1] == 3);
    CHECK(flow->dropped[0] == 1 && flow->dropped[1] == 1);
    CHECK(flow->wire[0][0] == 3 && flow->wire[0][1] == 1 && flow->wire[1][0] == 2 && flow->wire[1][1] == 2);
    /* pad 3: the budget is 6, expert 1 starts at row 6, so all of it is dropped. */
    const spw_scheme padded = scheme_of("hybrid-ep:budget=0.9,pad=3");
    flow = run(&w, &padded);
    CHECK(flow->rows[0] == 6 && flow->rows[1] == 6); /* 2 of expert 2 and 1 of expert 3, each up to 3 */
    CHECK(flow->dropped[0] == 2 && flow->dropped[1] == 1);
    /* one rank a token: (0,2) loses 2, (0,3) loses 3, (1,2) loses 2; then 4 rows of expert 0 and 3 of expert 1 want 6 places */
    const spw_scheme dedup = scheme_of("moe-dedup:buffer_factor=0.5,overflow_factor=0.5,max_shards=1");
    flow = run(&w, &dedup);
    CHECK(flow->rows[0] == 6 && flow->rows[1] == 0);
    CHECK(flow->dropped[0] == 1 && flow->dropped[1] == 3);
    CHECK(flow->wire[0][0] == 3 && flow->wire[0][1] == 0 && flow->wire[1][0] == 2 && flow->wire[1][1] == 0);
    destroy(&w);
}

static void test_refusals(void) {
    const spw_layer_shape s = deepseek(8), uneven = shape_on(8, 3, 256, 8, 64);
    static const struct {
        const char *scheme, *message;
    } refused[] = {
        {"deepep:pad=1.5", "pad=1.5 must be a whole number of rows"},
        {"hybrid-ep:pad=2.5", "pad=2.5 must be a whole number of rows"},
        {"deepep-ll:max_tokens=128", "a rank has 4096 tokens, more than its buffers are made for"},
        {"deepep-ll:max_tokens=5000.5", "must be a whole number of tokens"},
        {"moe-dedup:buffer_factor=1,max_shards=1.5", "must be a whole number of ranks"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const spw_scheme scheme = scheme_of(refused[i].scheme);
        CHECK_STATUS(scheme.type->check(&scheme, &s), SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), refused[i].message) != NULL);
    }
    const spw_scheme hybrid = scheme_of("hybrid-ep"), thin = scheme_of("moe-dedup:buffer_factor=0.001");
    CHECK_STATUS(hybrid.type->check(&hybrid, &uneven), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "8 expert-parallel ranks on nodes of 3") != NULL);
    CHECK_STATUS(thin.type->check(&thin, &uneven), SPW_ECONFIG); /* 512 assignments, 0.512 rows */
    CHECK_OK(thin.type->check(&thin, &s));
    spw_scheme scheme;
    CHECK_STATUS(spw_scheme_parse("moe-dedup", &scheme), SPW_ECONFIG);
    CHECK_STATUS(spw_scheme_parse("deepep:dtype=fp16", &scheme), SPW_ECONFIG);
    CHECK_STATUS(spw_scheme_parse("hybrid-ep:budget=-1", &scheme), SPW_ECONFIG);
}

int main(void) {
    uint64_t state = 20261121;
    test_row_bytes();
    test_buffers();
    test_volumes();
    test_live_sets();
    test_slots();
    test_on_paper();
    test_refusals();
    test_padding_waste(&state);
    for (size_t i = 0; i < 24; i++) {
        const size_t ranks = 1 + random_below(&state, 6), experts = ranks * (1 + random_below(&state, 5));
        const size_t top_k = 1 + random_below(&state, experts < 6 ? experts : 6);
        routing w = draw(&state, shape_on(ranks, ranks, experts, top_k, 4 * (1 + random_below(&state, 10))),
                         i % 2 == 0);
        check_drops(&w);
        check_orders(&w);
        destroy(&w);
    }
    return check_done();
}
