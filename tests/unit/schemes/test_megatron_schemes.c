/* The schemes of Megatron-Core and Primus: who is dropped, who pads, and what is refused. Their layers are in
 * test_megatron_layers.c. */
#include "sim/schemes/selection.h"
#include "sim/schemes/traffic.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static spw_layer_shape deepseek(size_t sequences) {
    return shape_of(8, 256, 8, 7168, 2048, 1, 4096 * sequences);
}

/* --- Routing --- */

typedef struct world {
    spw_layer_shape shape;
    spw_placement place;
    spw_trace_record record;
    spw_layout *layout;
    spw_counts *counts;
    spw_selection *selection;
    uint16_t *ids, *weights;
} world;

/* Weights are bits of halves between 2^-10 and 1; few of them, so that they tie. */
static world create_world(uint64_t *state, size_t ranks, size_t local, size_t top_k, size_t tokens) {
    world w = {.shape = shape_of(ranks, ranks * local, top_k, 4, 4, 1, tokens),
               .place = {ranks, ranks, ranks, ranks * local}};
    const size_t all = ranks * tokens, choices = all * top_k;
    int32_t *expert = NULL;
    CHECK_OK(SPW_ALLOC(choices, &expert));
    CHECK_OK(SPW_ALLOC(choices, &w.ids));
    CHECK_OK(SPW_ALLOC(choices, &w.weights));
    random_routing(state, all, top_k, w.shape.experts, expert);
    for (size_t i = 0; i < choices; i++) {
        w.ids[i] = random_below(state, 25) == 0 ? UINT16_MAX : (uint16_t)expert[i];
        w.weights[i] = (uint16_t)(0x1400 + 0x100 * random_below(state, 41));
    }
    spw_free(expert);
    CHECK_OK(spw_layout_create(ranks, 1, &w.layout));
    for (size_t r = 0; r < ranks; r++)
        CHECK_OK(spw_layout_append(w.layout, r, (spw_segment){r * tokens, (uint32_t)tokens, 0}));
    w.record = (spw_trace_record){.tokens = all,
                                  .top_k = top_k,
                                  .experts = w.shape.experts,
                                  .id_bytes = 2,
                                  .missing = UINT16_MAX,
                                  .expert_id = w.ids,
                                  .weight = w.weights};
    CHECK_OK(spw_counts_create(w.place, 1, &w.counts));
    CHECK_OK(spw_counts_fill(w.counts, &w.record, w.layout));
    CHECK_OK(spw_selection_create(w.place, &w.shape, &w.selection));
    return w;
}

static world draw_world(uint64_t *state) {
    const size_t ranks = 1 + random_below(state, 8), local = 1 + random_below(state, 5);
    return create_world(state, ranks, local, 1 + random_below(state, ranks * local < 6 ? ranks * local : 6),
                        1 + random_below(state, 40));
}

static void destroy_world(world *w) {
    spw_selection_destroy(w->selection), spw_counts_destroy(w->counts), spw_layout_destroy(w->layout);
    spw_free(w->ids), spw_free(w->weights);
}

typedef struct outcome {
    uint64_t wire, rows, dropped, sent_rows[64], held[8];
} outcome;

static outcome run(world *w, const char *text) {
    const spw_scheme scheme = scheme_of(text);
    outcome o = {.wire = 0};
    CHECK_OK(spw_selection_run(w->selection, &scheme, w->counts, &w->record, w->layout));
    const spw_flow *flow = spw_selection_flow(w->selection, 0);
    for (size_t i = 0; i < w->shape.ranks * w->shape.ranks; i++)
        o.wire += o.sent_rows[i] = flow->wire[i / w->shape.ranks][i % w->shape.ranks];
    for (size_t r = 0; r < w->shape.ranks; r++) {
        o.rows += o.held[r] = flow->rows[r];
        o.dropped += flow->dropped[r];
    }
    return o;
}

static uint64_t all_assignments(const world *w) {
    uint64_t sum = 0;
    for (size_t r = 0; r < w->shape.ranks; r++) sum += w->counts->assignments[r];
    return sum;
}

/* Rank among the rank's choices of the same expert, by falling weight or not, ties to the earlier: by looking at all. */
static void check_kept(world *w, double factor, bool by_weight) {
    char text[96];
    const uint8_t *kept = NULL;
    const size_t K = w->shape.top_k, N = w->shape.assignments;
    (void)snprintf(text, sizeof text, "megatron-alltoall:capacity_factor=%g,policy=%s", factor,
                   by_weight ? "probs" : "position");
    (void)run(w, text);
    CHECK_OK(spw_selection_kept(w->selection, &kept));
    const double slots = ceil((double)(w->shape.tokens * K) / (double)w->shape.experts * factor);
    for (size_t first = 0; first < w->shape.ranks * N; first += N) { /* of a rank */
        for (size_t i = first; i < first + N; i++) {
            size_t before = 0;
            for (size_t j = first; j < first + N; j++) {
                if (w->ids[j] != w->ids[i] || j == i) continue;
                before += by_weight && w->weights[j] != w->weights[i] ? w->weights[j] > w->weights[i] : j < i;
            }
            CHECK(kept[i] == (w->ids[i] != UINT16_MAX && (double)before < slots));
        }
    }
}

static void check_capacity(world *w) {
    static const char *const families[] = {"megatron-alltoall", "megatron-allgather", "megatron-flex",
                                           "megatron-flex:backend=hybridep"};
    const uint64_t all = all_assignments(w);
    for (size_t i = 0; i < 4; i++) {
        const outcome dropless = run(w, families[i]);
        CHECK(dropless.dropped == 0 && dropless.rows == all);
        for (int policy = 0; policy < 2; policy++) {
            uint64_t before = UINT64_MAX;
            for (int tenths = 1; tenths < 60; tenths += 4) {
                char text[128];
                (void)snprintf(text, sizeof text, "%s%scapacity_factor=%g,policy=%s", families[i],
                               strchr(families[i], ':') != NULL ? "," : ":", tenths / 10.0,
                               policy == 0 ? "probs" : "position");
                const outcome o = run(w, text);
                CHECK(o.dropped <= before && o.rows + o.dropped == all && o.wire <= dropless.wire);
                before = o.dropped;
            }
            char text[128];
            (void)snprintf(text, sizeof text, "%s%scapacity_factor=1e6,policy=%s", families[i],
                           strchr(families[i], ':') != NULL ? "," : ":", policy == 0 ? "probs" : "position");
            const outcome wide = run(w, text);
            CHECK(wide.dropped == 0 && memcmp(&wide, &dropless, sizeof wide) == 0);
        }
    }
}

static void check_deduplicated(world *w) {
    const outcome plain = run(w, "megatron-alltoall"), once = run(w, "megatron-flex"),
                  all = run(w, "megatron-allgather"), primus = run(w, "primus-syncfree:level=3");
    for (size_t i = 0; i < w->shape.ranks * w->shape.ranks; i++) {
        CHECK(once.sent_rows[i] <= plain.sent_rows[i] &&
              plain.sent_rows[i] <= w->shape.top_k * once.sent_rows[i]);
        CHECK(once.sent_rows[i] <= all.sent_rows[i] && all.sent_rows[i] == w->shape.tokens);
        CHECK(primus.sent_rows[i] == once.sent_rows[i]);
    }
    CHECK(memcmp(plain.held, once.held, sizeof plain.held) == 0 &&
          memcmp(plain.held, all.held, sizeof plain.held) == 0);
}

/* Rows of one rank to one expert, or of all ranks, are a multiple: with as many tokens as there are at most. */
static void check_alignment(world *w, size_t align) {
    char text[96];
    const size_t R = w->shape.ranks, T = w->shape.tokens, e = w->shape.experts_per_rank;
    const outcome plain = run(w, "megatron-alltoall");
    (void)snprintf(text, sizeof text, "megatron-alltoall:align=%zu,pay=router", align);
    const outcome router = run(w, text);
    (void)snprintf(text, sizeof text, "megatron-alltoall:align=%zu", align);
    const outcome experts = run(w, text);
    (void)snprintf(text, sizeof text, "megatron-flex:backend=hybridep,align=%zu", align);
    const outcome hybrid = run(w, text);
    (void)snprintf(text, sizeof text, "megatron-flex:align=%zu", align);
    const outcome flex = run(w, text);
    CHECK(experts.wire == plain.wire && router.wire >= plain.wire && router.rows == router.wire);
    for (size_t d = 0; d < R; d++) {
        uint64_t at_source = 0, at_expert = 0, assigned = 0, arrived = 0;
        bool enough = true;
        for (size_t r = 0; r < R; r++) arrived += flex.sent_rows[r * R + d];
        for (size_t x = d * e; x < (d + 1) * e; x++) {
            uint64_t sum = 0;
            for (size_t r = 0; r < R; r++) {
                const uint64_t n = w->counts->routed[r * w->shape.experts + x];
                const uint64_t up = n % align == 0 ? n : n + align - n % align;
                at_source += up < T ? up : T;
                sum += n;
            }
            const uint64_t up = sum % align == 0 ? sum : sum + align - sum % align;
            at_expert += up;
            assigned += sum;
            enough = enough && up <= arrived;
        }
        CHECK(router.held[d] == at_source && experts.held[d] == at_expert && hybrid.held[d] == at_expert);
        CHECK(flex.held[d] == (enough ? at_expert : assigned));
    }
}

static void check_slots(world *w) {
    const spw_scheme s = scheme_of("megatron-alltoall:capacity_factor=0.5,pad=true");
    if (spw_scheme_check(&s, &w->shape) != SPW_OK) return;
    const double slots = ceil((double)w->shape.assignments / (double)w->shape.experts * 0.5);
    const outcome o = run(w, s.text), same = run(w, "megatron-alltoall:capacity_factor=0.5");
    for (size_t i = 0; i < w->shape.ranks * w->shape.ranks; i++)
        CHECK((double)o.sent_rows[i] == slots * (double)w->shape.experts_per_rank);
    CHECK(o.dropped == same.dropped && same.wire <= o.wire);
}

static void test_routing(void) {
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t state = seed;
        world w = draw_world(&state);
        const int before = check_failures;
        check_kept(&w, 0.7, true);
        check_kept(&w, 0.7, false);
        check_kept(&w, 1.25, true);
        check_capacity(&w);
        check_deduplicated(&w);
        check_alignment(&w, 16);
        check_alignment(&w, 128);
        check_slots(&w);
        if (check_failures > before) fprintf(stderr, "seed %u\n", (unsigned)seed);
        destroy_world(&w);
    }
}

/* Mean extra rows a rank: e (a - 1) / 2 where the receiver pads, e R (a - 1) / 2 where every sender does (5.5, 10). */
static void test_waste(void) {
    static const struct {
        size_t align;
        double receiver, senders;
    } cases[] = {{16, 240, 1920}, {32, 496, 3968}, {128, 2032, 0}, {256, 4080, 0}};
    const size_t cells = 8 * 256;
    spw_layer_shape s = deepseek(1);
    uint64_t state = 3, rows[8], dropped[8];
    uint32_t line[64];
    const uint32_t *wire[8];
    uint32_t *routed = NULL, *limit = NULL;
    CHECK_OK(SPW_ALLOC(cells, &routed));
    CHECK_OK(SPW_ALLOC(cells, &limit));
    const spw_counts counts = {.placement = {8, 8, 8, 256}, .sequences = 1, .routed = routed};
    for (size_t i = 0; i < 4; i++) {
        double extra[2] = {0.0, 0.0};
        enum { DRAWS = 200 };
        for (size_t n = 0; n < DRAWS; n++) {
            uint64_t plain = 0;
            for (size_t j = 0; j < cells; j++)
                plain += routed[j] = 300 + (uint32_t)random_below(&state, 1024);
            for (int router = 0; router < 2; router++) {
                char text[64];
                spw_flow flow = {
                    .wire = wire, .line = line, .rows = rows, .limit = limit, .dropped = dropped};
                (void)snprintf(text, sizeof text, "megatron-alltoall:align=%zu%s", cases[i].align,
                               router ? ",pay=router" : "");
                const spw_scheme scheme = scheme_of(text);
                scheme.type->routing.flow(&(spw_routed_group){&scheme, &s, &counts, 0}, &flow);
                uint64_t held = 0;
                for (size_t d = 0; d < 8; d++) held += rows[d];
                extra[router] += (double)(held - plain) / 8.0 / DRAWS;
            }
        }
        CHECK(fabs(extra[0] / cases[i].receiver - 1.0) < 0.02);
        if (cases[i].senders > 0.0) CHECK(fabs(extra[1] / cases[i].senders - 1.0) < 0.02);
    }
    spw_free(routed), spw_free(limit);
}

/* C = ceil(T K / E f): 128 slots at p = 1, 2048 at p = 16. */
static void test_slots(void) {
    static const struct {
        size_t sequences;
        const char *scheme;
        uint64_t slots;
    } cases[] = {{1, "megatron-alltoall:capacity_factor=1,pad=true", 128},
                 {16, "megatron-alltoall:capacity_factor=1,pad=true", 2048},
                 {1, "megatron-alltoall:capacity_factor=1.251,pad=true", 161},
                 {1, "megatron-alltoall:capacity_factor=0.001,pad=true", 1}};
    for (size_t i = 0; i < 4; i++) {
        const spw_scheme s = scheme_of(cases[i].scheme);
        const spw_layer_shape shape = deepseek(cases[i].sequences);
        const spw_rank_rows rows = spw_balanced_rows(&s, &shape);
        CHECK(rows.sent == 256 * cases[i].slots && rows.held == 32 * 8 * cases[i].slots);
    }
}

/* --- Refusals --- */

static void check_refused(const char *text, const spw_layer_shape *shape, const char *what) {
    const spw_scheme s = scheme_of(text);
    CHECK_STATUS(spw_scheme_check(&s, shape), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), what) != NULL);
}

static void test_refusals(void) {
    spw_layer_shape v3 = deepseek(1);
    check_refused("megatron-alltoall:pad=true", &v3, "needs capacity_factor");
    check_refused("megatron-alltoall:capacity_factor=1,pad=true,align=16,pay=router", &v3,
                  "pay=experts would be");
    check_refused("megatron-alltoall:capacity_factor=33,pad=true", &v3, "at most experts / top_k = 32");
    check_refused("primus-syncfree:level=3,align=16", &v3, "align=none or level=2");
    v3.remat = SPW_REMAT_MOE;
    check_refused("gmm", &v3, "is a MaxText program, which knows no remat moe");
    check_refused("ring", &v3, "none, full or another name of MaxText's");
    spw_scheme s;
    CHECK_STATUS(spw_scheme_parse("primus-syncfree:level=4", &s), SPW_ECONFIG);
    CHECK_STATUS(spw_scheme_parse("megatron-alltoall:align=8", &s), SPW_ECONFIG);
    uint64_t state = 1;
    world w = draw_world(&state);
    w.record.weight = NULL;
    s = scheme_of("megatron-flex:capacity_factor=1");
    CHECK_STATUS(spw_selection_run(w.selection, &s, w.counts, &w.record, w.layout), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "drops by router weight, and the trace has none") != NULL);
    (void)run(&w, "megatron-flex:capacity_factor=1,policy=position");
    destroy_world(&w);
}

static size_t looked_at; /* how often choices were looked at */
static spw_status keep_and_count(const spw_scheme *scheme, const spw_layer_shape *shape,
                                 const spw_choices *choices, uint8_t *kept) {
    looked_at++;
    return scheme_of("megatron-alltoall").type->routing.keep(scheme, shape, choices, kept);
}

/* The scheme with a keep() that counts how often it is asked. */
static spw_scheme watched(const char *text, spw_scheme_type *type) {
    spw_scheme scheme = scheme_of(text);
    *type = *scheme.type;
    type->routing.keep = keep_and_count;
    scheme.type = type;
    looked_at = 0;
    return scheme;
}

/* Where drops alone are asked for, counts give them at every factor: as many as choice by choice, and no choice is looked at. */
static void test_drops_alone(void) {
    static const char *const text[] = {"megatron-flex:capacity_factor=0.6",
                                       "megatron-flex:capacity_factor=0.9,policy=position",
                                       "megatron-flex:capacity_factor=1e6"};
    uint64_t state = 77, some = 0;
    for (size_t i = 0; i < 60; i++) {
        world w = draw_world(&state);
        spw_scheme_type type;
        const spw_scheme scheme = watched(text[i % 3], &type);
        uint64_t want[8] = {0};
        const size_t looks = i % 3 < 2 && w.shape.experts_per_rank > 1;
        CHECK_OK(spw_selection_run(w.selection, &scheme, w.counts, &w.record, w.layout));
        for (size_t r = 0; r < w.shape.ranks; r++) want[r] = spw_selection_flow(w.selection, 0)->dropped[r];
        CHECK(looked_at == looks);
        spw_selection_drops_alone(w.selection);
        CHECK_OK(spw_selection_run(w.selection, &scheme, w.counts, &w.record, w.layout));
        CHECK(looked_at == looks);
        for (size_t r = 0; r < w.shape.ranks; r++) {
            CHECK(spw_selection_flow(w.selection, 0)->dropped[r] == want[r]);
            some += want[r];
        }
        destroy_world(&w);
    }
    CHECK(some > 0);
}

/* What stays by counts is what is kept choice by choice, of which nothing was looked at before it was asked for. */
static void check_kept_counts(world *w, const spw_scheme *scheme) {
    const spw_layer_shape *s = &w->shape;
    const uint8_t *kept = NULL;
    const uint64_t *said = NULL;
    uint64_t lost[8] = {0}; /* as said before the choices are asked for, which would fill it in */
    CHECK_OK(spw_selection_run(w->selection, scheme, w->counts, &w->record, w->layout));
    CHECK(looked_at == 0);
    const spw_counts *counts = spw_selection_counts(w->selection);
    CHECK_OK(spw_selection_lost_tokens(w->selection, &said));
    for (size_t r = 0; r < s->ranks; r++) lost[r] = said[r];
    CHECK_OK(spw_selection_kept(w->selection, &kept));
    CHECK(looked_at == 1);
    for (size_t r = 0; r < s->ranks; r++) {
        uint64_t dropped = w->counts->assignments[r], all_lost = 0;
        uint32_t routed[64] = {0};
        for (size_t t = r * s->tokens; t < (r + 1) * s->tokens; t++) {
            size_t chosen = 0, stay = 0;
            for (size_t i = t * s->top_k; i < (t + 1) * s->top_k; i++) {
                chosen += w->ids[i] != UINT16_MAX, stay += kept[i];
                if (kept[i] != 0) routed[w->ids[i]]++;
            }
            dropped -= stay;
            all_lost += chosen > 0 && stay == 0;
        }
        for (size_t x = 0; x < s->experts; x++) CHECK(spw_counts_routed_of(counts, r)[x] == routed[x]);
        CHECK(counts->assignments[r] + dropped == w->counts->assignments[r]);
        CHECK(counts->tokens[r] == w->counts->tokens[r]);
        CHECK(spw_selection_flow(w->selection, 0)->dropped[r] == dropped && lost[r] == all_lost);
    }
}

static void test_by_counts(void) {
    static const char *const text[] = {
        "megatron-alltoall:capacity_factor=0.6", "megatron-allgather:capacity_factor=0.9,policy=position",
        "megatron-alltoall:capacity_factor=1,pad=true", "megatron-alltoall:capacity_factor=1e6",
        "megatron-allgather:capacity_factor=0.3"};
    static const char *const others[] = {"megatron-alltoall", "megatron-flex:capacity_factor=1",
                                         "megatron-ncclep:rank_capacity=1", "dense:capacity_factor=1"};
    const spw_layer_shape shape = shape_of(8, 64, 4, 4, 4, 1, 64);
    uint64_t state = 78;
    for (size_t i = 0; i < 100; i++) {
        world w = draw_world(&state);
        spw_scheme_type type;
        const spw_scheme flex = scheme_of("megatron-flex:capacity_factor=0.5"),
                         scheme = watched(text[i % 5], &type);
        if (i % 2 == 0) /* whose counts have more tables */
            CHECK_OK(spw_selection_run(w.selection, &flex, w.counts, &w.record, w.layout));
        looked_at = 0;
        CHECK(spw_selection_by_counts(&scheme, &w.shape, 1, false));
        check_kept_counts(&w, &scheme);
        destroy_world(&w);
    }
    for (size_t i = 0; i < 4; i++) {
        const spw_scheme scheme = scheme_of(others[i]);
        CHECK(!spw_selection_by_counts(&scheme, &shape, 8, false));
        CHECK(spw_selection_by_counts(&scheme, &shape, 8, true) == (i == 1));
    }
}

/* Tokens that travel once a rank: of each rank and receiver those with a kept choice there. */
static void check_kept_wire(world *w, const spw_scheme *scheme) {
    const spw_layer_shape *s = &w->shape;
    const uint8_t *kept = NULL;
    CHECK_OK(spw_selection_run(w->selection, scheme, w->counts, &w->record, w->layout));
    CHECK(looked_at == 0);
    const spw_flow *flow = spw_selection_flow(w->selection, 0);
    CHECK_OK(spw_selection_kept(w->selection, &kept));
    for (size_t d = 0; d < s->ranks; d++) {
        uint64_t arrived = 0, held = 0;
        for (size_t r = 0; r < s->ranks; r++) {
            uint64_t tokens = 0;
            for (size_t t = r * s->tokens; t < (r + 1) * s->tokens; t++) {
                size_t here = 0;
                for (size_t i = t * s->top_k; i < (t + 1) * s->top_k; i++)
                    here += kept[i] && w->ids[i] / s->experts_per_rank == d;
                tokens += here > 0;
                held += here;
            }
            CHECK(flow->wire[r][d] == tokens);
            arrived += tokens;
        }
        CHECK(flow->rows[d] == held && (s->experts_per_rank > 1 || held == arrived));
    }
}

/* One expert a rank of a node, or a capacity that nobody exceeds: counts say what travels. */
static void test_wire_by_counts(void) {
    uint64_t state = 79;
    for (size_t i = 0; i < 60; i++) {
        const bool one = i % 2 == 0;
        const size_t ranks = 1 + random_below(&state, 8), local = one ? 1 : 1 + random_below(&state, 5),
                     most = ranks * local < 6 ? ranks * local : 6;
        world w =
            create_world(&state, ranks, local, 1 + random_below(&state, most), 1 + random_below(&state, 40));
        spw_scheme_type type;
        const spw_scheme scheme =
            watched(one ? "megatron-flex:capacity_factor=0.6" : "megatron-flex:capacity_factor=1e6", &type);
        CHECK(spw_selection_by_counts(&scheme, &w.shape, 2 * ranks, false));
        if (one && ranks > 1) CHECK(!spw_selection_by_counts(&scheme, &w.shape, ranks - 1, false));
        check_kept_wire(&w, &scheme);
        destroy_world(&w);
    }
}

int main(void) {
    test_drops_alone();
    test_by_counts();
    test_wire_by_counts();
    test_routing();
    test_waste();
    test_slots();
    test_refusals();
    return check_done();
}
