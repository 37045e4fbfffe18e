/* The layers of Megatron-Core's and Primus' schemes: event lists, what PyTorch's allocator sees of them, the closed form of
 * bare layers, figures of the catalogue, what recompute modules keep. */
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static spw_layer_shape deepseek(size_t sequences) {
    return shape_of(8, 256, 8, 7168, 2048, 1, 4096 * sequences);
}

static const char *const every_option[] = {
    "megatron-alltoall",
    "megatron-alltoall:align=16",
    "megatron-alltoall:align=32,pay=router",
    "megatron-alltoall:capacity_factor=1,pad=true",
    "megatron-alltoall:capacity_factor=1,pad=true,align=128",
    "megatron-alltoall:capacity_factor=2,policy=position",
    "megatron-allgather",
    "megatron-flex",
    "megatron-flex:align=256",
    "megatron-flex:backend=hybridep",
    "megatron-ncclep",
    "primus-syncfree:level=1",
    "primus-syncfree:level=2",
    "primus-syncfree:level=3",
};
enum { EVERY_OPTION = sizeof every_option / sizeof *every_option };

/* --- Event lists --- */

static void test_event_lists(void) {
    static const spw_remat remats[] = {SPW_REMAT_NONE, SPW_REMAT_FULL, SPW_REMAT_SELECTIVE, SPW_REMAT_MOE_ACT,
                                       SPW_REMAT_MOE};
    for (size_t i = 0; i < EVERY_OPTION; i++) {
        const spw_scheme s = scheme_of(every_option[i]);
        for (size_t local = 1; local <= 2; local++) {
            for (size_t r = 0; r < 5; r++) {
                spw_layer_shape shape = shape_of(4, 4 * local, 2, 8, 8, 1, 16);
                shape.remat = remats[r];
                spw_layer layer = layer_of(&s, &shape);
                check_layer(&layer);
                CHECK(spw_layer_is_dynamic(&layer) == (strcmp(s.text, "primus-syncfree:level=3") != 0));
                spw_layer_destroy(&layer);
            }
        }
    }
}

/* --- Flavours --- */

static size_t next_birth(const spw_layer *layer, size_t i, spw_phase until) {
    while (i < layer->events && (layer->event[i].sign <= 0 || layer->event[i].phase > until)) i++;
    return i;
}

/* PyTorch's allocator sees what must live, in the same order, and more: temporaries, and what attributes keep. */
static void test_torch(void) {
    for (size_t local = 1; local <= 4; local *= 4) {
        const spw_scheme s = scheme_of("megatron-alltoall");
        const spw_layer_shape shape = shape_of(4, 4 * local, 2, 8, 8, 1, 16);
        spw_layer live = layer_of(&s, &shape), torch;
        CHECK_OK(spw_layer_build(&s, &shape, SPW_FLAVOUR_TORCH, &torch));
        check_layer(&torch);
        size_t kept = 0;
        for (size_t i = 0; i < torch.events; i++) kept += torch.event[i].sign == 0;
        CHECK(kept == 2 * 3); /* probs, routing_map and permutation, in both passes over the layer */
        size_t j = 0;
        for (size_t i = next_birth(&live, 0, SPW_PHASE_RECOMPUTE); i < live.events;
             i = next_birth(&live, i + 1, SPW_PHASE_RECOMPUTE)) {
            const char *name = live.tensor[live.event[i].tensor].name;
            while (j < torch.events &&
                   (torch.event[j].sign <= 0 || strcmp(torch.tensor[torch.event[j].tensor].name, name) != 0))
                j++;
            CHECK(j < torch.events && torch.event[j].phase == live.event[i].phase);
            j++;
        }
        CHECK(torch.events > live.events + 20);
        spw_layer_destroy(&live);
        spw_layer_destroy(&torch);
    }
}

/* --- The closed form of bare layers --- */

/* What the closed form has per layer and the layer's own list has not: the norm's output and the residual stream, 4 T H;
 * the norm's rstd, 4 T; two rows of 64 bytes of counts. What the list has and the closed form counts as held before the
 * step: probs and routing_map, 5 T E, and the permutation, 8 N, which the dispatcher keeps. */
static int64_t difference(const spw_layer_shape *s, uint64_t sent) {
    const int64_t T = (int64_t)s->tokens, H = (int64_t)s->hidden, E = (int64_t)s->experts;
    return 5 * T * E + 8 * (int64_t)sent - 4 * T * H - 4 * T - 128;
}

static void test_closed_form(void) {
    uint64_t state = 5;
    for (int round = 0; round < 60; round++) {
        const bool act = round % 2 == 1, padded = round % 3 == 2;
        spw_layer_shape s = shape_of(4, 64, 8, 512, 192, 1, 1024);
        s.remat = act ? SPW_REMAT_MOE_ACT : SPW_REMAT_NONE;
        const spw_scheme scheme =
            scheme_of(padded ? "megatron-alltoall:capacity_factor=1.25,pad=true" : "megatron-alltoall");
        spw_rank_rows rows = {2048 + random_below(&state, 30000), 0, s.assignments};
        if (padded) rows.held = rows.sent = 64 * 160;
        rows.received = rows.held;
        const spw_megatron_shape stack = {.layers = 1,
                                          .tokens = s.tokens,
                                          .top_k = s.top_k,
                                          .experts = s.experts,
                                          .experts_per_rank = s.experts_per_rank,
                                          .hidden = s.hidden,
                                          .ffn = s.ffn,
                                          .capacity = padded ? 160 : 0,
                                          .padded = padded,
                                          .recompute = act ? SPW_RECOMPUTE_MOE_ACT : SPW_RECOMPUTE_NONE};
        const spw_megatron_bytes closed = spw_megatron_closed_form(&stack, &rows.held, &rows.sent);
        spw_layer layer = layer_of(&scheme, &s);
        const spw_live_set live = spw_layer_live_set(&layer, &rows);
        const char *step = spw_layer_step(&layer, live.backward_event);
        CHECK((int64_t)live.saved_bytes == (int64_t)closed.after_forward_bytes + difference(&s, rows.sent));
        /* The residual stream, 2 T H of the 4 T H, is born after the forward peak: the closed form takes it off. */
        CHECK((int64_t)live.backward_bytes ==
              (int64_t)closed.forward_bytes + difference(&s, rows.sent) + 2 * (int64_t)(s.tokens * s.hidden));
        CHECK(strcmp(step, "unsort chunks") == 0 || strcmp(step, "combine") == 0 ||
              strcmp(step, "unpermute") == 0);
        spw_layer_destroy(&layer);
    }
}

/* M (H + 3 F) b, and M (H + 2 F) b with moe_act; the rest is a few bytes a token and expert. */
static void test_saved(void) {
    for (size_t p = 1; p <= 16; p *= 2) {
        spw_layer_shape s = deepseek(p);
        static const double multiples[] = {1.0, 1.5, 8.0}, gib[] = {0.8125, 1.21875, 6.5};
        const spw_scheme scheme = scheme_of("megatron-alltoall");
        for (size_t i = 0; i < 3; i++) {
            const uint64_t M = (uint64_t)(multiples[i] * (double)s.assignments);
            const spw_rank_rows rows = {M, M, s.assignments};
            const uint64_t routing = s.tokens * (17 * s.experts + 4 * s.top_k) + 8 * s.assignments;
            s.remat = SPW_REMAT_NONE;
            const uint64_t saved = live_set_of(&scheme, &s, &rows).saved_bytes;
            CHECK(saved == M * (s.hidden + 3 * s.ffn) * 2 + 4 * M + routing);
            CHECK((double)(saved - 4 * M - routing) == (double)p * gib[i] * GIB);
            s.remat = SPW_REMAT_MOE_ACT;
            CHECK(live_set_of(&scheme, &s, &rows).saved_bytes == saved - M * s.ffn * 2);
            s.remat = SPW_REMAT_MOE;
            CHECK(live_set_of(&scheme, &s, &rows).saved_bytes == saved);
        }
    }
}

/* The saved bytes of docs/schemes.md, sections 3.5, 5.2 to 5.4, from rows that differ. */
static void test_saved_forms(void) {
    const spw_layer_shape s = shape_of(4, 24, 3, 40, 24, 1, 50);
    const spw_rank_rows rows = {1000, 170, 130};
    const uint64_t M = 1000, U = 170, n = 130, T = 50, K = 3, E = 24, e = 6, RT = 200,
                   experts = M * (40 + 3 * 24) * 2 + 4 * M, buffer = RT * K;
    const struct {
        const char *scheme;
        uint64_t bytes;
    } cases[] = {
        {"megatron-alltoall", experts + T * (17 * E + 4 * K) + 8 * n},
        {"megatron-alltoall:capacity_factor=1,pad=true", experts + T * (9 * E + 4 * K) + 16 * n},
        {"megatron-alltoall:align=16", experts + T * (17 * E + 4 * K) + 8 * n},
        {"megatron-allgather", experts + 8 * M + T * (4 * E + 4 * K) + 6 * e * RT},
        {"megatron-flex", experts + 8 * M + T * (4 * E + 16 * K) + U * (4 + 9 * e)},
        {"megatron-flex:backend=hybridep", experts + T * (9 * E + 4 * K)},
        {"primus-syncfree:level=1", experts + T * (9 * E + 4 * (2 * E + 1)) + 4 * U},
        {"primus-syncfree:level=2", experts + T * (16 * E + 4 * K) + 4 * RT * (2 * e + 2)},
        {"primus-syncfree:level=3",
         buffer * (40 + 3 * 24) * 2 + 4 * buffer + T * (16 * E + 4 * K) + 4 * RT * (2 * e + 2)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme scheme = scheme_of(cases[i].scheme);
        const spw_live_set live = live_set_of(&scheme, &s, &rows);
        CHECK(live.saved_bytes == cases[i].bytes);
        CHECK(live.backward_bytes > live.saved_bytes && live.backward_bytes > live.forward_bytes);
    }
}

/* --- Figures of the catalogue --- */

static void test_row_bytes(void) {
    static const struct {
        const char *scheme;
        size_t node_ranks;
        uint64_t there, back, back_gradient, there_gradient; /* of dispatch, combine, and their gradients */
    } cases[] = {
        {"megatron-alltoall", 8, 14340, 14336, 14336, 14340},
        {"megatron-allgather", 8, 14336 + 5 * 256, 28672, 28672, 14336 + 4 * 256},
        {"megatron-flex", 8, 14436, 14340, 14340, 14372}, /* 4.2, PyTorch's int64 indices */
        {"megatron-flex", 4, 14416, 14352, 14352, 14384},
        {"megatron-flex:backend=hybridep", 8, 14336 + 1024, 14336, 14336, 14336 + 1024},
        {"megatron-ncclep", 4, 14336 + 512, 14336, 14336, 14336 + 512},
        {"primus-syncfree:level=1", 8, 14340, 14336, 14336, 14340},
        {"primus-syncfree:level=3", 8, 14436, 14340, 14340, 14372},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme s = scheme_of(cases[i].scheme);
        spw_layer_shape shape = deepseek(1);
        spw_exchange x[SPW_SCHEME_EXCHANGES];
        shape.node_ranks = cases[i].node_ranks;
        CHECK(s.type->traffic.exchanges(&s, &shape, x) == 6);
        CHECK(x[0].row_bytes == cases[i].there && x[1].row_bytes == cases[i].back);
        CHECK(x[2].row_bytes == x[0].row_bytes && x[3].row_bytes == x[1].row_bytes);
        CHECK(x[4].row_bytes == cases[i].back_gradient && x[5].row_bytes == cases[i].there_gradient);
        CHECK(!x[0].back && x[1].back && !x[4].back && x[5].back);
    }
}

static uint64_t tensor_bytes(const char *scheme, const spw_layer_shape *shape, const spw_rank_rows *rows,
                             const char *name) {
    const spw_scheme s = scheme_of(scheme);
    return bytes_of_tensor(&s, shape, rows, name, NULL, 0);
}

static void test_figures(void) {
    const spw_layer_shape v3 = deepseek(1);
    const spw_rank_rows rows = {33000, 33000, 32768};
    CHECK((double)tensor_bytes("primus-syncfree:level=2", &v3, &rows, "received_rows") == 0.4375 * GIB);
    CHECK((double)tensor_bytes("primus-syncfree:level=3", &v3, &rows, "received_rows") == 0.4375 * GIB);
    CHECK((double)tensor_bytes("primus-syncfree:level=3", &v3, &rows, "fc1_input") ==
          3.5 * GIB); /* R T K H b */
    CHECK((double)tensor_bytes("primus-syncfree:level=3", &v3, &rows, "fc1_output") == 2.0 * GIB);
    CHECK(tensor_bytes("primus-syncfree:level=2", &v3, &rows, "fc1_input") == 33000u * 7168u * 2u);
    CHECK(tensor_bytes("primus-syncfree:level=2", &v3, &rows, "row_id_map") == 32768u * 65u * 4u);
    CHECK(tensor_bytes("primus-syncfree:level=1", &v3, &rows, "row_id_map") == 4096u * 513u * 4u);
    /* A level whose buffers do not follow the routing but for what the rows are. */
    const spw_rank_rows few = {1, 1, 1};
    const spw_scheme fixed = scheme_of("primus-syncfree:level=3"), exact = scheme_of("megatron-flex");
    CHECK(live_set_of(&fixed, &v3, &few).saved_bytes == live_set_of(&fixed, &v3, &rows).saved_bytes);
    CHECK(live_set_of(&exact, &v3, &few).saved_bytes < live_set_of(&exact, &v3, &rows).saved_bytes);
    /* DeepEP's buffers: 20 multiprocessors in Megatron, 32 in Primus (4.3). */
    const spw_scheme primus = scheme_of("primus-syncfree:level=2"),
                     plain = scheme_of("primus-syncfree:level=1");
    CHECK(fabs((double)exact.type->memory.communication_bytes(&exact, &v3) / 1e6 - 335.7) < 0.05);
    CHECK(fabs((double)primus.type->memory.communication_bytes(&primus, &v3) / 1e6 - 537.1) < 0.05);
    CHECK(plain.type->memory.communication_bytes(&plain, &v3) == 0);
    CHECK(spw_scheme_by_node(&primus) && !spw_scheme_by_node(&plain) && spw_scheme_once_a_rank(&exact));
}

/* --- Rematerialization --- */

static uint64_t peak_of(const char *scheme_text, const char *remat) {
    char text[512];
    spw_job job;
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: mi355x-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                   "batch: {sequences_per_gpu: 1, sequence_length: 4096}\nremat: %s\n",
                   remat);
    CHECK_OK(spw_job_parse("job", ".", text, strlen(text), &job));
    const spw_scheme scheme = scheme_of(scheme_text);
    spw_footprint f;
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(f.moment == SPW_MOMENT_MOE_LAYER);
    return f.peak_bytes;
}

/* DeepSeek-V3, one sequence, M = N: by module what the other layers no longer keep. */
static void test_remat(void) {
    static const char *const schemes[] = {"megatron-alltoall", "megatron-allgather", "megatron-flex"};
    const uint64_t M = 32768, layers = 61, moe_layers = 58, T = 4096, heads = 128;
    for (size_t i = 0; i < 3; i++) {
        spw_layer_shape shape = deepseek(1);
        const spw_scheme scheme = scheme_of(schemes[i]);
        const spw_rank_rows rows = spw_balanced_rows(&scheme, &shape);
        const uint64_t saved = live_set_of(&scheme, &shape, &rows).saved_bytes;
        const uint64_t none = peak_of(schemes[i], "none"), selective = peak_of(schemes[i], "selective"),
                       act = peak_of(schemes[i], "moe_act"), moe = peak_of(schemes[i], "moe"),
                       full = peak_of(schemes[i], "full");
        CHECK(llabs((int64_t)(none - selective) - (int64_t)((layers - 1) * T * heads * 4)) <= 2);
        CHECK(llabs((int64_t)(none - act) - (int64_t)(moe_layers * M * 2048 * 2)) <= 2);
        /* the first MoE layer is the last to run backward: those behind it hold input and output, all what dispatchers keep */
        const int64_t fewer = (int64_t)((moe_layers - 1) * (saved + 3 * T * 2048 * 2)),
                      kept = (int64_t)((moe_layers - 1) * T * (5 * 256 + 8 * 8));
        CHECK(llabs((int64_t)(none - moe) - fewer + kept) <= 2);
        CHECK(full < moe && moe < act && act < selective && selective < none);
        CHECK(peak_of(schemes[i], "minimal") > full); /* MaxText's names keep their meaning */
    }
    CHECK(spw_remat_keeps_layers(SPW_REMAT_MOE) && !spw_remat_keeps_experts(SPW_REMAT_MOE));
    CHECK(!spw_remat_keeps_layers(SPW_REMAT_FULL) && !spw_remat_keeps_layers(SPW_REMAT_MINIMAL));
}
/* All of them can run. */
static void test_checks(void) {
    const spw_layer_shape v3 = deepseek(1);
    for (size_t i = 0; i < EVERY_OPTION; i++) {
        const spw_scheme s = scheme_of(every_option[i]);
        CHECK_OK(spw_scheme_check(&s, &v3));
    }
}

int main(void) {
    test_event_lists();
    test_torch();
    test_closed_form();
    test_saved();
    test_saved_forms();
    test_row_bytes();
    test_figures();
    test_remat();
    test_checks();
    return check_done();
}
