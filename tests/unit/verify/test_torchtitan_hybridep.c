/* torchtitan behind HybridEP (docs/schemes.md, section 6.7): predicted is executed on random routing, rows and tensors with
 * pencil and paper, and what is refused. */
#include "tests/unit/check.h"
#include "tests/unit/executed.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <string.h>

enum { SEEDS = 120 };

static void test_executed(void) {
    static const char *const texts[] = {"torchtitan-hybridep", "torchtitan-hybridep:pad=16",
                                        "torchtitan-hybridep:capacity=0.4",
                                        "torchtitan-hybridep:capacity=0.2,pad=8"};
    enum { SCHEMES = sizeof texts / sizeof *texts };
    spw_verification *v = executed(texts, SCHEMES, SEEDS);
    for (size_t i = 0; i < SCHEMES && v != NULL; i++) {
        const spw_verify_tally *tally = &v->tally[i];
        CHECK(tally->values == SPW_AGREE_BOUND && tally->cases >= 50);
        CHECK((tally->dropped[0] > 0) == (i > 1));
    }
    spw_free(v);
}

/* DeepSeek-V3 over 8 ranks and 4096 tokens: 262144 rows may come; an eighth of them is 32768. */
static void test_rows(void) {
    const spw_layer_shape v3 = shape_of(8, 256, 8, 7168, 2048, 1, 4096);
    const spw_scheme s = scheme_of("torchtitan-hybridep:capacity=0.125,pad=32");
    const uint64_t rows = 32768, maps = 4096u * 8 * 4 + 32768u * 32 * 5;
    CHECK(s.type->memory.buffer_rows(&s, &v3) == rows);
    CHECK(s.type->routing.worst_factor(&s, &v3) == (262144.0 + 32 * 31) / 262144.0);
    const spw_rank_rows few = {1, 1, 1};
    const spw_live_set live = live_set_of(&s, &v3, &few);
    CHECK(live.saved_bytes == rows * (2 * 14336 + 4 * 4096 + 2) + maps);
    CHECK(live.backward_bytes == live.saved_bytes + rows * (3 * 14336 + 2));
}

static void check_refused(const char *text, spw_layer_shape shape, const char *what) {
    const spw_scheme s = scheme_of(text);
    CHECK_STATUS(spw_scheme_check(&s, &shape), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), what) != NULL);
}

static void test_refusals(void) {
    spw_layer_shape shape = shape_of(8, 64, 4, 64, 32, 1, 40);
    check_refused("torchtitan-hybridep", shape_of(1, 64, 4, 64, 32, 1, 40), "not on one rank");
    check_refused("torchtitan-hybridep:capacity=0.0001", shape, "leaves none");
    check_refused("torchtitan-hybridep:pad=1.5", shape, "whole number of rows");
    shape.node_ranks = 3;
    check_refused("torchtitan-hybridep", shape, "a multiple of the node would be right");
    shape.node_ranks = 8, shape.remat = SPW_REMAT_MOE;
    check_refused("torchtitan-hybridep", shape, "remat moe");
}

int main(void) {
    test_executed();
    test_rows();
    test_refusals();
    return check_done();
}
