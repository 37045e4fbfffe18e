/* MegaBlocks, Tutel, ScatterMoE, SonicMoE: saved bytes by the formulas of docs/schemes.md, sections 6.1 to 6.4; who is
 * kept, against plain searches; properties over random routing. */
#include "sim/schemes/selection.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* --- Saved bytes and event lists --- */

static uint64_t saved(const char *text, const spw_layer_shape *s, spw_rank_rows rows) {
    const spw_scheme scheme = scheme_of(text);
    return live_set_of(&scheme, s, &rows).saved_bytes;
}

static void test_saved(void) {
    uint64_t state = 5;
    for (int i = 0; i < 50; i++) {
        const spw_layer_shape s = shape_of(1, 16, 1 + random_below(&state, 8), 1 + random_below(&state, 300),
                                           1 + random_below(&state, 300), 2, 1 + random_below(&state, 99));
        const uint64_t M = random_below(&state, 9999), N = s.assignments, T = s.tokens, H = s.hidden,
                       F = s.ffn;
        const uint64_t sent = random_below(&state, 9999);
        const spw_rank_rows rows = {M, random_below(&state, 9999), sent};
        CHECK(saved("megablocks", &s, rows) == (M * (H + 4 * F) + sent * H) * 2);
        CHECK(saved("megablocks:impl=sparse", &s, rows) == (M * (H + 4 * F) + sent * H) * 2);
        CHECK(saved("megablocks:impl=memory_optimized", &s, rows) == (M * (H + 2 * F) + sent * H) * 2);
        CHECK(saved("torchtitan", &s, rows) ==
              (M * (H + 4 * F)) * 2 + 8 * rows.received + sent * (4 * H + 20));
        const spw_rank_rows all = {N, N, N};
        CHECK(saved("scattermoe", &s, all) == (T * H + N * (4 * F + H)) * 2);
        CHECK(saved("scattermoe:activation=compiled", &s, all) == (T * H + N * (3 * F + H)) * 2);
        CHECK(saved("sonicmoe", &s, all) == 2 * T * H + 4 * N * F + 16 * N);
        CHECK(saved("sonicmoe:rounding=up", &s, rows) == 2 * T * H + 4 * M * F + 16 * M);
        /* fp32: the encoder's input and what the decoder sums; bf16: x, w0_out, w1_out, silu, act */
        CHECK(saved("tutel:capacity_factor=0", &s, rows) == 4 * T * H + M * (2 * H + 8 * F + 4 * H));
        const uint64_t D = s.experts * s.top_k * (3 * ((T + 15) / 16));
        CHECK(saved("tutel:capacity_factor=3", &s, rows) == 4 * T * H + D * (2 * H + 8 * F + 4 * H));
    }
    /* The catalogue's GiB for one sequence of DeepSeek-V3, as many rows as choices. */
    const spw_layer_shape v3 = shape_of(1, 256, 8, 7168, 2048, 1, 4096);
    const spw_rank_rows even = {v3.assignments, v3.assignments, v3.assignments};
    CHECK((double)saved("megablocks", &v3, even) == 1.375 * GIB);
    CHECK((double)saved("megablocks:impl=memory_optimized", &v3, even) == 1.125 * GIB);
    CHECK(fabs((double)saved("scattermoe", &v3, even) / GIB - 0.992) < 0.0005);
    CHECK(fabs((double)saved("sonicmoe", &v3, even) / GIB - 0.305) < 0.0005);
}

static const char *const all_texts[] = {"megablocks",
                                        "megablocks:impl=sparse",
                                        "megablocks:impl=memory_optimized",
                                        "tutel:capacity_factor=1",
                                        "tutel:capacity_factor=0",
                                        "tutel:capacity_factor=-1",
                                        "scattermoe",
                                        "scattermoe:activation=compiled",
                                        "sonicmoe",
                                        "sonicmoe:rounding=nearest",
                                        "torchtitan"};

static void test_events(void) {
    for (size_t i = 0; i < sizeof all_texts / sizeof *all_texts; i++) {
        for (size_t top_k = 1; top_k <= 2; top_k++) {
            const spw_scheme scheme = scheme_of(all_texts[i]);
            const spw_layer_shape s = shape_of(1, 4, top_k, 8, 8, 1, 8);
            spw_layer layer = layer_of(&scheme, &s);
            check_layer(&layer);
            spw_layer_destroy(&layer);
        }
    }
}

/* Balanced routing: every expert holds the mean, padded or rounded as the scheme does it. */
static void test_balanced(void) {
    static const struct {
        const char *text;
        uint64_t held, sent;
    } cases[] = {{"megablocks", 800, 800}, /* 100 tokens of 8 on 4 ranks, 16 experts: 200 a expert */
                 {"megablocks:impl=sparse", 1024, 800},
                 {"tutel:capacity_factor=0", 800, 800},
                 {"tutel:capacity_factor=0,alignment=8", 896, 896},
                 {"tutel:capacity_factor=-0.3", 256, 256}};
    const spw_layer_shape s = shape_of(4, 16, 8, 8, 8, 1, 100), one = shape_of(1, 16, 8, 8, 8, 1, 400);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme scheme = scheme_of(cases[i].text);
        const spw_rank_rows rows = spw_balanced_rows(&scheme, &s);
        CHECK(rows.held == cases[i].held && rows.sent == cases[i].sent);
    }
    static const struct {
        const char *text;
        uint64_t held;
    } rounded[] = {{"sonicmoe", 3200}, /* 200 a expert */
                   {"sonicmoe:rounding=up", 4096},
                   {"sonicmoe:rounding=down", 2048},
                   {"sonicmoe:rounding=nearest", 4096},
                   {"sonicmoe:rounding=up,tile=300", 4800},
                   {"sonicmoe:rounding=up,tile=500", 6400}}; /* there are no more tokens */
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        const spw_scheme scheme = scheme_of(rounded[i].text);
        CHECK(spw_balanced_rows(&scheme, &one).held == rounded[i].held);
    }
}

/* --- Random routing --- */

typedef struct world {
    spw_layer_shape shape;
    uint16_t *id, *weight; /* as a trace has them; a positive half grows with its bits */
    spw_layout *layout;
    spw_counts *counts;
    spw_selection *selection;
    spw_scheme scheme; /* of the last run; the selection borrows both */
    spw_trace_record record;
} world;

static world draw_world(uint64_t *state, size_t most_ranks) {
    world w;
    const size_t ranks = 1 + random_below(state, most_ranks), experts = ranks * (1 + random_below(state, 5));
    const size_t top_k = 1 + random_below(state, experts < 6 ? experts : 6);
    w.shape = shape_of(ranks, experts, top_k, 4, 4, 1 + random_below(state, 3), 1 + random_below(state, 60));
    const size_t choices = ranks * w.shape.assignments;
    const spw_placement place = {ranks, ranks, ranks, experts};
    int32_t *expert = NULL;
    CHECK_OK(SPW_ALLOC(choices, &expert));
    CHECK_OK(SPW_ALLOC(choices, &w.id));
    CHECK_OK(SPW_ALLOC(choices, &w.weight));
    random_routing(state, ranks * w.shape.tokens, top_k, experts, expert);
    for (size_t i = 0; i < choices; i++) {
        w.id[i] = random_below(state, 20) == 0 ? UINT16_MAX : (uint16_t)expert[i];
        w.weight[i] = (uint16_t)(0x3400 + random_below(state, 40) * 37); /* 0.25 to 1, with ties */
    }
    spw_free(expert);
    CHECK_OK(spw_layout_create(ranks, w.shape.sequences, &w.layout));
    for (size_t i = 0; i < ranks * w.shape.sequences; i++) {
        const size_t length = w.shape.sequence_length;
        const spw_segment segment = {i * length, (uint32_t)length, (uint32_t)(i % w.shape.sequences)};
        CHECK_OK(spw_layout_append(w.layout, i / w.shape.sequences, segment));
    }
    CHECK_OK(spw_counts_create(place, w.shape.sequences, &w.counts));
    CHECK_OK(spw_selection_create(place, &w.shape, &w.selection));
    return w;
}

static void destroy_world(world *w) {
    spw_selection_destroy(w->selection);
    spw_counts_destroy(w->counts);
    spw_layout_destroy(w->layout);
    spw_free(w->weight);
    spw_free(w->id);
}

static spw_status try_run(world *w, const char *text, bool weights) {
    w->scheme = scheme_of(text);
    w->record = (spw_trace_record){.tokens = w->shape.ranks * w->shape.tokens,
                                   .top_k = w->shape.top_k,
                                   .experts = w->shape.experts,
                                   .id_bytes = 2,
                                   .missing = UINT16_MAX,
                                   .expert_id = w->id,
                                   .weight = weights ? w->weight : NULL};
    CHECK_OK(spw_counts_fill(w->counts, &w->record, w->layout));
    return spw_selection_run(w->selection, &w->scheme, w->counts, &w->record, w->layout);
}

/* What became of the choices: flow, and who is kept [ranks][tokens][top_k]. */
static const spw_flow *run(world *w, const char *text, const uint8_t **kept) {
    CHECK_OK(try_run(w, text, true));
    CHECK_OK(spw_selection_kept(w->selection, kept));
    return spw_selection_flow(w->selection, 0);
}

static uint64_t sum(const uint64_t *values, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) total += values[i];
    return total;
}

static uint64_t sum_wire(const spw_flow *flow, size_t ranks) {
    uint64_t total = 0;
    for (size_t i = 0; i < ranks * ranks; i++) total += flow->wire[i / ranks][i % ranks];
    return total;
}

static size_t choices_of(const world *w, size_t first, size_t end, size_t expert) {
    size_t n = 0;
    for (size_t i = first; i < end; i++) n += w->id[i] == expert;
    return n;
}

static void check_megablocks(world *w) {
    const spw_layer_shape *s = &w->shape;
    const size_t choices = s->ranks * s->assignments;
    const uint8_t *kept = NULL;
    const spw_flow *flow = run(w, "megablocks", &kept);
    const uint64_t made = sum(w->counts->assignments, s->ranks);
    CHECK(sum(flow->rows, s->ranks) == made && sum_wire(flow, s->ranks) == made);
    CHECK(sum(flow->dropped, s->ranks) == 0);
    for (size_t i = 0; i < choices; i++) CHECK(kept[i] == (w->id[i] != UINT16_MAX));
    flow = run(w, "megablocks:impl=sparse", &kept);
    CHECK(sum_wire(flow, s->ranks) == made); /* padding is not sent */
    for (size_t d = 0; d < s->ranks; d++) {
        uint64_t rows = 0, padded = 0;
        for (size_t x = d * s->experts_per_rank; x < (d + 1) * s->experts_per_rank; x++) {
            const size_t n = choices_of(w, 0, choices, x);
            rows += n;
            padded += (n / 128 + (n % 128 != 0)) * 128;
        }
        CHECK(flow->rows[d] == padded && padded - rows <= 127 * s->experts_per_rank);
    }
}

/* Is choice j of the rank served before choice i of the same expert? */
static bool before(const world *w, size_t j, size_t i, bool prioritized) {
    const size_t top_k = w->shape.top_k, k = i % top_k, other = j % top_k;
    if (other != k || !prioritized) return other != k ? other < k : j < i;
    uint16_t best[2] = {0, 0};
    for (size_t n = 0; n < top_k; n++) {
        const size_t a = j - other + n, b = i - k + n;
        if (w->id[a] != UINT16_MAX && w->weight[a] > best[0]) best[0] = w->weight[a];
        if (w->id[b] != UINT16_MAX && w->weight[b] > best[1]) best[1] = w->weight[b];
    }
    return best[0] != best[1] ? best[0] > best[1] : j < i;
}

static void check_tutel(world *w, double factor, size_t alignment, bool prioritized) {
    const spw_layer_shape *s = &w->shape;
    const uint8_t *kept = NULL;
    size_t fullest = 0,
           capacity = s->top_k * (size_t)(fabs(factor) * ceil((double)s->tokens / (double)s->experts));
    char text[128];
    (void)snprintf(text, sizeof text, "tutel:capacity_factor=%g,alignment=%zu,batch_prioritized=%s", factor,
                   alignment, prioritized ? "true" : "false");
    for (size_t r = 0; r < s->ranks; r++) {
        for (size_t x = 0; x < s->experts; x++) {
            const size_t n = choices_of(w, r * s->assignments, (r + 1) * s->assignments, x);
            fullest = n > fullest ? n : fullest;
        }
    }
    if (factor == 0.0 || (factor < 0.0 && fullest < capacity)) capacity = fullest;
    const size_t unaligned = capacity;
    while (capacity % alignment != 0) capacity++;
    const spw_flow *flow = run(w, text, &kept);
    for (size_t r = 0; r < s->ranks; r++) {
        uint64_t dropped = 0;
        for (size_t i = r * s->assignments; i < (r + 1) * s->assignments; i++) {
            size_t place = 0;
            for (size_t j = r * s->assignments; j < (r + 1) * s->assignments; j++)
                place += j != i && w->id[j] == w->id[i] && before(w, j, i, prioritized);
            CHECK(kept[i] == (w->id[i] != UINT16_MAX && place < capacity));
            dropped += w->id[i] != UINT16_MAX && place >= capacity;
        }
        CHECK(flow->dropped[r] == dropped && flow->rows[r] == s->experts * capacity);
        CHECK(factor != 0.0 || dropped == 0);
        for (size_t d = 0; d < s->ranks; d++) CHECK(flow->wire[r][d] == s->experts_per_rank * capacity);
    }
    CHECK(capacity - unaligned < alignment);
}

static void check_tutel_capacity(world *w) {
    const spw_layer_shape *s = &w->shape;
    const uint8_t *kept = NULL;
    uint64_t least = UINT64_MAX;
    for (int tenths = 0; tenths <= 60; tenths += 5) {
        char text[64];
        (void)snprintf(text, sizeof text, "tutel:capacity_factor=%d.%d", tenths / 10, tenths % 10 + 1);
        const uint64_t dropped = sum(run(w, text, &kept)->dropped, s->ranks);
        CHECK(dropped <= least);
        least = dropped;
    }
    const spw_flow *flow = run(w, "tutel:capacity_factor=1000", &kept); /* as dropless */
    CHECK(sum(flow->dropped, s->ranks) == 0);
    for (size_t i = 0; i < s->ranks * s->assignments; i++) CHECK(kept[i] == (w->id[i] != UINT16_MAX));
}

static void check_sonicmoe(world *w, const char *rounding, size_t tile) {
    const spw_layer_shape *s = &w->shape;
    const uint8_t *kept = NULL;
    uint64_t rows = 0, dropped = 0;
    char text[64];
    (void)snprintf(text, sizeof text, "sonicmoe:rounding=%s,tile=%zu", rounding, tile);
    const spw_flow *flow = run(w, text, &kept);
    for (size_t x = 0; x < s->experts; x++) {
        const size_t n = choices_of(w, 0, s->assignments, x);
        const double share = (double)n / (double)tile; /* nearbyint: half to even */
        const double target = rounding[0] == 'n'   ? nearbyint(share)
                              : rounding[0] == 'u' ? ceil(share)
                                                   : floor(share);
        const size_t taken = target * (double)tile < (double)s->tokens ? (size_t)target * tile : s->tokens;
        CHECK(taken >= n ? taken - n < tile : n - taken < tile);
        CHECK(rounding[0] != 'n' || (taken >= n ? taken - n : n - taken) * 2 <= tile);
        rows += taken;
        for (size_t i = 0; i < s->assignments; i++) {
            size_t better = 0;
            for (size_t j = 0; j < s->assignments && w->id[i] == x; j++) {
                better += w->id[j] == x && j != i &&
                          (w->weight[j] > w->weight[i] || (w->weight[j] == w->weight[i] && j < i));
            }
            if (w->id[i] != x) continue;
            CHECK(kept[i] == (better < taken));
            dropped += better >= taken;
        }
    }
    CHECK(flow->rows[0] == rows && flow->dropped[0] == dropped);
    CHECK(rounding[0] != 'u' || dropped == 0);
    flow = run(w, "sonicmoe", &kept);
    CHECK(flow->rows[0] == w->counts->assignments[0] && flow->dropped[0] == 0);
}

static void test_random(void) {
    uint64_t state = 11;
    for (int i = 0; i < 60; i++) {
        world w = draw_world(&state, 6);
        const size_t alignment = 1 + random_below(&state, 9);
        check_megablocks(&w);
        check_tutel(&w, 1.0, alignment, false);
        check_tutel(&w, 1.5, alignment, true);
        check_tutel(&w, 0.25, 1, i % 2 == 0);
        check_tutel(&w, 0.0, alignment, false);
        check_tutel(&w, -0.5, alignment, false);
        check_tutel(&w, -3.0, alignment, false);
        check_tutel_capacity(&w);
        destroy_world(&w);
        w = draw_world(&state, 1);
        const size_t tile = 1 + random_below(&state, 12);
        check_sonicmoe(&w, "nearest", tile), check_sonicmoe(&w, "nearest", 2 * tile);
        check_sonicmoe(&w, "up", tile), check_sonicmoe(&w, "down", tile);
        const uint8_t *kept = NULL;
        const spw_flow *flow = run(&w, "scattermoe", &kept);
        CHECK(flow->rows[0] == w.counts->assignments[0] && flow->dropped[0] == 0);
        destroy_world(&w);
    }
}

/* --- What is refused --- */

static void test_refusals(void) {
    static const struct {
        const char *text;
        bool needs_weights;
    } cases[] = {{"megablocks", false},
                 {"tutel:capacity_factor=1", false},
                 {"tutel:capacity_factor=1,batch_prioritized=true", true},
                 {"scattermoe", false},
                 {"sonicmoe", false},
                 {"sonicmoe:rounding=up", false},
                 {"sonicmoe:rounding=down", true},
                 {"sonicmoe:rounding=nearest", true}};
    uint64_t state = 3;
    world w = draw_world(&state, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(try_run(&w, cases[i].text, false), cases[i].needs_weights ? SPW_ECONFIG : SPW_OK);
        if (cases[i].needs_weights) CHECK(strstr(spw_last_error(), "the trace has none") != NULL);
    }
    const spw_layer_shape one = shape_of(1, 8, 2, 8, 8, 1, 8), two = shape_of(2, 8, 2, 8, 8, 1, 8);
    static const char *const single[] = {"scattermoe", "sonicmoe", "sonicmoe:rounding=up"};
    for (size_t i = 0; i < 3; i++) {
        const spw_scheme scheme = scheme_of(single[i]);
        CHECK_OK(scheme.type->check(&scheme, &one));
        CHECK_STATUS(scheme.type->check(&scheme, &two), SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), "has no expert parallelism, the job has 2 ranks") != NULL);
    }
    spw_layer_shape megatron = one;
    megatron.remat = SPW_REMAT_MOE_ACT;
    for (size_t i = 0; i < sizeof all_texts / sizeof *all_texts; i++) {
        const spw_scheme scheme = scheme_of(all_texts[i]);
        CHECK_OK(spw_scheme_check(&scheme, &one));
        CHECK_STATUS(spw_scheme_check(&scheme, &megatron), SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), "is Megatron-Core's") != NULL);
    }
    const spw_scheme prioritized = scheme_of("tutel:capacity_factor=0,batch_prioritized=true");
    CHECK_STATUS(prioritized.type->check(&prioritized, &two), SPW_ECONFIG);
    const spw_scheme rounded = scheme_of("sonicmoe:rounding=down");
    CHECK_OK(try_run(&w, "sonicmoe:rounding=down", true));
    for (int i = 0; i < 2; i++) { /* every allocation of keep() fails once */
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_selection_run(w.selection, &rounded, w.counts, &w.record, w.layout), SPW_ENOMEM);
        spw_alloc_fail_after(-1);
    }
    destroy_world(&w);
}

int main(void) {
    test_saved();
    test_events();
    test_balanced();
    test_random();
    test_refusals();
    return check_done();
}
