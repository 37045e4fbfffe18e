/* Schemes: how they are written, and what they hold. The closed forms are those of docs/schemes.md, section 10, the figures those of
 * its sections 1.1, 2.5, 4.3 and 8. */
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/scheme.h"

#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* DeepSeek-V3, expert-parallel over 8. */
static spw_layer_shape deepseek(size_t sequences) { return shape_of(8, 256, 8, 7168, 2048, sequences, 4096); }

/* --- Reading --- */

#define KNOWN ";" LIST
#define LIST \
    " known schemes: dense, ragged, gmm, gmm-deepep, ring, megatron-alltoall, megatron-allgather, " \
    "megatron-flex, megatron-syncfree, megatron-ncclep, primus-syncfree, primus-megamoe, ragged-deepep, " \
    "ragged-ring, deepep, deepep-ll, hybrid-ep, moe-dedup, megablocks, tutel, scattermoe, sonicmoe, " \
    "transformers, " \
    "torchtitan, torchtitan-hybridep, torchtitan-async"
#define SLOTS "slots of an expert as a multiple of the balanced load of a sequence"
#define ROWS \
    "rows of the receive buffer as a multiple of the rows a rank sends; 0 = the worst case, which never " \
    "drops"
#define RANGE(value) \
    "scheme 'dense:capacity_factor=" value "': capacity_factor=" value \
    " must be a number in [0.001, 1e+06] (" SLOTS ")"
#define DIGITS "00000000000000000000000000000000000000000000000000000000000000"

static void test_refusals(void) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"gmn", "scheme 'gmn' is unknown; did you mean 'gmm'?" LIST},
        {"", "scheme '' is unknown" KNOWN},
        {":capacity_factor=1", "scheme '' is unknown" KNOWN},
        {"GMM", "scheme 'GMM' is unknown" KNOWN},
        {"gmm ", "scheme 'gmm ' is unknown; did you mean 'gmm'?" LIST},
        {"gm", "scheme 'gm' is unknown; did you mean 'gmm'?" LIST},
        {"gmm,ring", "scheme 'gmm,ring' is unknown" KNOWN},
        {"dense", "scheme 'dense' needs capacity_factor, as in dense:capacity_factor=1.25 (" SLOTS ")"},
        {"dense:capacity_factor=", RANGE("")},
        {"dense:capacity_factor=x", RANGE("x")},
        {"dense:capacity_factor=1x", RANGE("1x")},
        {"dense:capacity_factor=0", RANGE("0")},
        {"dense:capacity_factor=-1", RANGE("-1")},
        {"dense:capacity_factor=0.0009", RANGE("0.0009")},
        {"dense:capacity_factor=1000001", RANGE("1000001")},
        {"dense:capacity_factor=nan", RANGE("nan")},
        {"dense:capacity_factor=inf", RANGE("inf")},
        {"dense:capacity_factor=1e999", RANGE("1e999")},
        {"dense:capacity_factor", "scheme 'dense:capacity_factor': 'capacity_factor' is no option of dense; "
                                  "write key=value with one of: "
                                  "capacity_factor, layout"},
        {"dense:",
         "scheme 'dense:': '' is no option of dense; write key=value with one of: capacity_factor, layout"},
        {"dense:capacity_factor=1,",
         "scheme 'dense:capacity_factor=1,': '' is no option of dense; write key=value with one of: "
         "capacity_factor, layout"},
        {"dense:capacity=1",
         "scheme 'dense:capacity=1': 'capacity=1' is no option of dense; write key=value with one of: "
         "capacity_factor, layout"},
        {"dense:capacity_factr=1",
         "scheme 'dense:capacity_factr=1': 'capacity_factr=1' is no option of dense; did you mean "
         "'capacity_factor'? write key=value with one of: capacity_factor, layout"},
        {"dense:capacity_factor=1,x=2",
         "scheme 'dense:capacity_factor=1,x=2': 'x=2' is no option of dense; write key=value with one of: "
         "capacity_factor, layout"},
        {"gmm:buffer_factor=-1",
         "scheme 'gmm:buffer_factor=-1': buffer_factor=-1 must be a number in [0, 1e+06] (" ROWS ")"},
        {"dense:capacity_factor=1,layout=ragged",
         "scheme 'dense:capacity_factor=1,layout=ragged': "
         "layout=ragged must be one of: exchange, gathered, peeled, auto "
         "(tokens go to the experts by all-to-all, or all experts' "
         "weights come to the tokens, or the expert axis "
         "is peeled off the batch; auto: as the tree of --stack has it, exchange without one)"},
        {"gmm-deepep:buffer_factor=1", "scheme 'gmm-deepep:buffer_factor=1': 'buffer_factor=1' is no option "
                                       "of gmm-deepep; write key=value with one of: fan_in"},
    };
    spw_scheme scheme;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(spw_scheme_parse(cases[i].text, &scheme), SPW_ECONFIG);
        const bool same = strcmp(spw_last_error(), cases[i].message) == 0;
        CHECK(same);
        if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), cases[i].message);
    }
    char text[SPW_SCHEME_TEXT + 1];
    memset(text, 'g', SPW_SCHEME_TEXT);
    text[SPW_SCHEME_TEXT] = '\0';
    CHECK_STATUS(spw_scheme_parse(text, &scheme), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "is longer than 127 characters") != NULL);
    /* A long number is read to its end. */
    CHECK_STATUS(spw_scheme_parse("dense:capacity_factor=1." DIGITS "junk", &scheme), SPW_ECONFIG);
}

static void test_reading(void) {
    spw_scheme s = scheme_of("dense:capacity_factor=1.25");
    CHECK(strcmp(s.type->name, "dense") == 0 && strcmp(s.text, "dense:capacity_factor=1.25") == 0);
    CHECK(spw_scheme_option_value(&s, "capacity_factor") == 1.25);
    CHECK(isnan(spw_scheme_option_value(&s, "buffer_factor")));
    s = scheme_of("gmm");
    CHECK(spw_scheme_option_value(&s, "buffer_factor") == 0.0);
    s = scheme_of("ring:buffer_factor=1e6");
    CHECK(spw_scheme_option_value(&s, "buffer_factor") == 1e6);
    CHECK(spw_scheme_option_value(&s, "token_chunks") == 1.0 &&
          spw_scheme_option_is(&s, "ragged_sort", "false"));
    CHECK(!spw_scheme_option_is(&s, "buffer_factor", "1e6") &&
          !spw_scheme_option_is(&s, "layout", "exchange"));
    s = scheme_of("dense:layout=peeled,capacity_factor=2");
    CHECK(spw_scheme_option_is(&s, "layout", "peeled") && !spw_scheme_option_is(&s, "layout", "gathered"));
    CHECK(spw_scheme_option_value(&s, "capacity_factor") == 2.0 &&
          spw_scheme_option_value(&s, "layout") == 2.0);
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) { /* what every row of the table must say */
        const spw_scheme_type *t = spw_scheme_types[i];
        CHECK(t->about.summary != NULL && t->about.source != NULL && t->about.section != NULL &&
              t->options != NULL);
        CHECK(t->routing.flow != NULL && t->traffic.exchanges != NULL);
        for (size_t j = 0; spw_scheme_types[j] != NULL; j++)
            CHECK(i == j || strcmp(t->name, spw_scheme_types[j]->name) != 0);
    }
    for (int phase = 0; phase < SPW_PHASE_COUNT; phase++) CHECK(spw_phase_name((spw_phase)phase)[0] != '\0');
}

/* --- Capacity and buffers --- */

static void test_capacity(void) {
    static const struct {
        size_t length, top_k, experts;
        const char *scheme;
        size_t slots;
    } cases[] = {
        {4096, 8, 256, "dense:capacity_factor=1", 128},   {4096, 8, 256, "dense:capacity_factor=1.25", 160},
        {4096, 8, 256, "dense:capacity_factor=2", 256},   {4096, 8, 256, "dense:capacity_factor=4", 512},
        {10, 2, 3, "dense:capacity_factor=1", 7},         {10, 2, 3, "dense:capacity_factor=1.25", 8},
        {10, 2, 3, "dense:capacity_factor=0.5", 3},       {7, 1, 64, "dense:capacity_factor=1.999", 1},
        {7, 1, 64, "dense:capacity_factor=1", 1},         {1, 1, 64, "dense:capacity_factor=0.5", 0},
        {5, 3, 4, "dense:capacity_factor=0.1", 0},        {4096, 8, 60, "dense:capacity_factor=1", 547},
        {4096, 8, 60, "dense:capacity_factor=1.25", 683}, {1, 1, 1, "dense:capacity_factor=3.5", 3},
        {4096, 8, 256, "dense:capacity_factor=1.3", 166}, {512, 8, 64, "dense:capacity_factor=1.25", 80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme s = scheme_of(cases[i].scheme);
        const spw_layer_shape shape = shape_of(1, cases[i].experts, cases[i].top_k, 8, 8, 1, cases[i].length);
        CHECK(spw_scheme_capacity(&s, &shape) == cases[i].slots);
        CHECK(s.type->memory.buffer_rows(&s, &shape) == cases[i].experts * cases[i].slots);
    }
    const spw_scheme gmm = scheme_of("gmm");
    const spw_layer_shape shape = deepseek(1);
    CHECK(spw_scheme_capacity(&gmm, &shape) == 0);
}

static void test_buffers(void) {
    const spw_scheme gmm = scheme_of("gmm"), half = scheme_of("gmm:buffer_factor=1.5");
    const spw_scheme ring = scheme_of("ring"), cut = scheme_of("ring:buffer_factor=1.5");
    const spw_scheme huge = scheme_of("ring:buffer_factor=99"), deepep = scheme_of("gmm-deepep");
    const spw_layer_shape v3 = deepseek(1), few = shape_of(8, 16, 5, 8, 8, 3, 7);
    CHECK(gmm.type->memory.buffer_rows(&gmm, &v3) == 64 * 4096);
    CHECK(deepep.type->memory.buffer_rows(&deepep, &v3) == 64 * 4096);
    CHECK(gmm.type->memory.buffer_rows(&gmm, &few) ==
          8 * 21 * 2); /* two experts a rank: a token comes twice at most */
    CHECK(half.type->memory.buffer_rows(&half, &few) == 157); /* trunc(105 x 1.5) */
    CHECK(ring.type->memory.buffer_rows(&ring, &few) == 8 * 105);
    CHECK(cut.type->memory.buffer_rows(&cut, &few) == 157);
    CHECK(huge.type->memory.buffer_rows(&huge, &few) == 8 * 105); /* only what is less is truncated (2.6) */
    const spw_layer_shape alone = shape_of(1, 16, 5, 8, 8, 3, 7);
    CHECK_OK(gmm.type->check(&gmm, &alone));
    CHECK_OK(half.type->check(&half, &few));
    CHECK_STATUS(half.type->check(&half, &alone), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(),
                 "scheme 'gmm:buffer_factor=1.5': buffer_factor needs expert parallelism over 2 "
                 "ranks or more, the job has 1; leave buffer_factor out") == 0);
}

static uint64_t tensor_bytes(const spw_scheme *s, const spw_layer_shape *shape, const char *name) {
    return bytes_of_tensor(s, shape, NULL, name, NULL, 0);
}

/* What the issue names for DeepSeek-V3, exactly, and in proportion to the sequences. */
static void test_named_figures(void) {
    const spw_scheme gmm = scheme_of("gmm"), ragged = scheme_of("ragged"),
                     dense = scheme_of("dense:capacity_factor=1.25");
    for (size_t p = 1; p <= 16; p *= 2) {
        const spw_layer_shape v3 = deepseek(p);
        CHECK((double)tensor_bytes(&gmm, &v3, "x") == (double)p * 3.5 * GIB);
        CHECK((double)tensor_bytes(&gmm, &v3, "w0_out") == (double)p * 1.0 * GIB);
        CHECK((double)tensor_bytes(&gmm, &v3, "returned") == (double)p * 0.4375 * GIB);
        CHECK((double)tensor_bytes(&ragged, &v3, "ragged_dot_hidden_operand") == (double)p * 112.0 * GIB);
        CHECK((double)tensor_bytes(&ragged, &v3, "ragged_dot_ffn_operand") == (double)p * 32.0 * GIB);
        CHECK((double)tensor_bytes(&dense, &v3, "x") == (double)p * 0.546875 * GIB);
        CHECK((double)tensor_bytes(&dense, &v3, "combine_mask") == (double)p * 0.3125 * GIB);
        CHECK(live_set_of(&gmm, &v3, NULL).backward_bytes == p * (uint64_t)(14.375 * GIB));
    }
    const spw_layer_shape v3 = deepseek(1);
    char formula[160];
    CHECK(bytes_of_tensor(&dense, &v3, NULL, "x", formula, sizeof formula) == 40960u * 7168u * 2u);
    CHECK(strcmp(formula, "[D = p E C, H] x 2 B = 40960 x 7168 x 2") == 0);
}

/* --- Live sets --- */

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void check_live_sets(const spw_layer_shape *s) {
    const uint64_t H = s->hidden, F = s->ffn, N = s->assignments, W = s->worst_rows, b = s->element_bytes;
    const uint64_t RT = s->ranks * s->tokens;
    static const char *const dense[] = {"dense:capacity_factor=0.3", "dense:capacity_factor=1.25",
                                        "dense:capacity_factor=4"};
    for (size_t i = 0; i < 3; i++) {
        const spw_scheme scheme = scheme_of(dense[i]);
        const uint64_t C = spw_scheme_capacity(&scheme, s), D = s->sequences * s->experts * C;
        CHECK(live_set_of(&scheme, s, NULL).backward_bytes ==
              (3 * D * H + 3 * D * F + 3 * s->tokens * s->experts * C) * b);
    }
    static const char *const gmm[] = {"gmm", "gmm:buffer_factor=0.25", "gmm:buffer_factor=1.5"};
    for (size_t i = 0; i < 3; i++) {
        const spw_scheme scheme = scheme_of(gmm[i]);
        const spw_live_set live = live_set_of(&scheme, s, NULL);
        const uint64_t B = scheme.type->memory.buffer_rows(&scheme, s);
        CHECK(live.backward_bytes == (3 * B * H + 3 * B * F + 2 * N * H) * b);
        /* (2 B H + N H) b of section 2.2 while F is small; else w0, w1 and act are more. */
        const uint64_t rows = most(2 * B * H + N * H, 2 * N * H), wide = most(B * H + 2 * B * F, 3 * B * F);
        CHECK(live.forward_bytes == most(rows, wide) * b);
        CHECK(live.saved_bytes == (B * H + 3 * B * F + N * H) * b); /* x, w0, w1, act; the returned rows */
    }
    const spw_scheme deepep = scheme_of("gmm-deepep");
    CHECK(live_set_of(&deepep, s, NULL).backward_bytes == (3 * W * H + 3 * W * F + 2 * RT * H) * b);
    static const char *const ring[] = {"ring", "ring:buffer_factor=1.5"};
    for (size_t i = 0; i < 2; i++) {
        const spw_scheme scheme = scheme_of(ring[i]);
        const uint64_t B = scheme.type->memory.buffer_rows(&scheme, s);
        CHECK(live_set_of(&scheme, s, NULL).backward_bytes == (3 * B * H + 3 * B * F + 2 * RT * H) * b);
    }
    const spw_scheme ragged = scheme_of("ragged"), plain = scheme_of("gmm"); /* both operands of a gradient */
    const uint64_t operands = s->experts_per_rank * W * (H + F) * b;
    const uint64_t all = live_set_of(&ragged, s, NULL).backward_bytes;
    CHECK(all > operands && all <= operands + live_set_of(&plain, s, NULL).backward_bytes);
}

static void test_live_sets(void) {
    static const size_t ranks[] = {1, 2, 3, 8}, local[] = {1, 5, 32}, widths[] = {1, 7, 96, 1024};
    for (size_t r = 0; r < 4; r++) {
        for (size_t e = 0; e < 3; e++) {
            for (size_t h = 0; h < 4; h++) {
                for (size_t f = 0; f < 4; f++) { /* F below, at and above H */
                    const size_t experts = ranks[r] * local[e], top_k = experts < 6 ? 1 : 6;
                    const spw_layer_shape s =
                        shape_of(ranks[r], experts, top_k, widths[h], widths[f], 1 + h, 3 + 8 * f);
                    check_live_sets(&s);
                }
            }
        }
    }
    const spw_layer_shape v3 = deepseek(1);
    const spw_scheme gmm = scheme_of("gmm");
    CHECK(live_set_of(&gmm, &v3, NULL).forward_bytes == (uint64_t)(7.4375 * GIB)); /* 7.44 in section 2.2 */
    /* What no machine can hold stays at the end of 64 bits. */
    const spw_layer_shape vast = shape_of(1024, 65536, 64, 1 << 24, 1 << 24, 1 << 20, 1 << 11);
    const spw_scheme ragged = scheme_of("ragged");
    CHECK(live_set_of(&ragged, &vast, NULL).backward_bytes == UINT64_MAX);
    CHECK(live_set_of(&gmm, &vast, NULL).backward_bytes == UINT64_MAX);
}

/* --- Exchanges --- */

static void test_exchanges(void) {
    static const struct {
        const char *scheme;
        size_t without, with; /* remat */
        uint64_t dispatch, combine;
    } cases[] = {
        {"dense:capacity_factor=1.25", 4, 6, 14336, 14336},
        {"gmm", 4, 6, 14336, 14336},
        {"ragged", 4, 6, 14336, 14336},
        {"gmm-deepep", 4, 5, 14404, 14340},
        {"ring", 5, 6, 14336 + 8 * 256, 14336},
    };
    const spw_layer_shape v3 = deepseek(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const spw_scheme s = scheme_of(cases[i].scheme);
        spw_exchange exchange[SPW_SCHEME_EXCHANGES];
        const size_t count = s.type->traffic.exchanges(&s, &v3, exchange);
        size_t without = 0, forward = 0, back = 0;
        for (size_t x = 0; x < count; x++) {
            without += exchange[x].phase != SPW_PHASE_RECOMPUTE;
            back += exchange[x].back;
            if (exchange[x].phase != SPW_PHASE_FORWARD) continue;
            CHECK(exchange[x].row_bytes == (exchange[x].back ? cases[i].combine : cases[i].dispatch));
            forward++;
        }
        CHECK(count == cases[i].with && without == cases[i].without && forward == 2);
        CHECK(back == (cases[i].with == 6 ? 3 : 2) && !exchange[0].back && exchange[1].back);
    }
}

static bool is_mb(uint64_t bytes, double mb) { return fabs((double)bytes / 1e6 - mb) <= 0.05 + 1e-9; }

static void test_deepep_buffers(void) {
    static const struct {
        size_t ranks, sms;
        double nvl_mb, rdma_mb;
    } published[] = {{8, 20, 335.7, 0},  {8, 24, 402.9, 0},      {8, 32, 537.1, 0},
                     {8, 64, 1074.3, 0}, {64, 20, 377.7, 336.0}, {16, 20, 377.7, 91.9}};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const spw_deepep_buffers b = spw_deepep_buffer_hint(published[i].ranks, 7168, 2, published[i].sms);
        CHECK(is_mb(b.nvl_bytes, published[i].nvl_mb) && is_mb(b.rdma_bytes, published[i].rdma_mb));
        const spw_deepep_buffers narrow =
            spw_deepep_buffer_hint(published[i].ranks, 7168, 1, published[i].sms);
        CHECK(narrow.nvl_bytes == b.nvl_bytes && narrow.rdma_bytes == b.rdma_bytes);
        CHECK(b.nvl_bytes % 128 == 0 && b.rdma_bytes % 128 == 0);
    }
    const spw_deepep_buffers two = spw_deepep_buffer_hint(2, 7168, 2, 20);
    CHECK(two.nvl_bytes > 0 && two.nvl_bytes < spw_deepep_buffer_hint(8, 7168, 2, 20).nvl_bytes);
}

int main(void) {
    test_refusals();
    test_reading();
    test_capacity();
    test_buffers();
    test_named_figures();
    test_live_sets();
    test_exchanges();
    test_deepep_buffers();
    return check_done();
}
