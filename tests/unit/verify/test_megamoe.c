/* Primus' MegaMoE (docs/schemes.md, section 3.7): predicted is executed on random routing, the heap with pencil and paper, and
 * what is refused. */
#include "tests/unit/check.h"
#include "tests/unit/executed.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <string.h>

enum { SEEDS = 120 };

static void test_executed(void) {
    static const char *const text = "primus-megamoe";
    spw_verification *v = executed(&text, 1, SEEDS);
    if (v == NULL) return;
    CHECK(v->tally[0].values == SPW_AGREE_BOUND && v->tally[0].cases >= 50);
    spw_free(v);
}

/* DeepSeek-V3 over 8 ranks and 4096 tokens: 262144 rows at most and 32 x 255 of padding are 1056 tiles of 256. */
static void test_heap(void) {
    const spw_layer_shape v3 = shape_of(8, 256, 8, 7168, 2048, 1, 4096);
    const spw_scheme s = scheme_of("primus-megamoe");
    const uint64_t rows = 270336, pools = 2 * rows * 14336, returned = 32768u * 14336;
    CHECK(s.type->memory.buffer_rows(&s, &v3) == rows);
    CHECK(s.type->memory.communication_bytes(&s, &v3) ==
          256 + pools + returned + 2 * 16896 + 524288 + 8192 + 3 * 4 * rows + 131072);
    CHECK(s.type->memory.own_rows(&s, &v3, 0) == 4 * (2 * rows + 1056 + 7 * 256 + 1) + 8 * 65);
    /* Whatever arrives, a layer keeps fc1's output and four bytes a row, the router's tensors and the tables. */
    const spw_rank_rows few = {1, 1, 1};
    const uint64_t router = 4096u * 4 * (256 + 8) + 4096u * 8 * 8;
    const spw_live_set live = live_set_of(&s, &v3, &few);
    CHECK(live.saved_bytes == rows * (2 * 2048 * 2 + 4) + router + 2174604);
    CHECK(live.backward_bytes == live.saved_bytes + rows * (4 * 2048 * 2 + 4));
    /* 100 tokens take the places of 128, and 3 experts those of their tiles: 2 x 128 x 2 + 3 x 255 in tiles of 256. */
    const spw_layer_shape odd = shape_of(2, 6, 2, 512, 256, 1, 100);
    CHECK(s.type->memory.buffer_rows(&s, &odd) == 1280);
}

static void check_refused(spw_layer_shape shape, spw_remat remat, const char *what) {
    const spw_scheme s = scheme_of("primus-megamoe");
    shape.remat = remat;
    CHECK_STATUS(spw_scheme_check(&s, &shape), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), what) != NULL);
}

static void test_refusals(void) {
    const spw_scheme s = scheme_of("primus-megamoe");
    const spw_layer_shape good = shape_of(8, 64, 4, 7168, 2048, 1, 4096);
    spw_layer_shape spread = shape_of(8, 64, 4, 7168, 2048, 1, 4096);
    spread.node_ranks = 4;
    CHECK_OK(spw_scheme_check(&s, &good));
    check_refused(spread, SPW_REMAT_FULL,
                  "2 to 8 expert-parallel ranks of one node, not on 8 with 4 on a node");
    check_refused(shape_of(16, 64, 4, 7168, 2048, 1, 4096), SPW_REMAT_FULL, "not on 16");
    check_refused(shape_of(1, 64, 4, 7168, 2048, 1, 4096), SPW_REMAT_FULL, "not on 1");
    check_refused(shape_of(8, 64, 4, 2880, 2048, 1, 4096), SPW_REMAT_FULL, "not 2880, 2048 and 4096");
    check_refused(shape_of(8, 64, 4, 7168, 2880, 1, 4096), SPW_REMAT_FULL,
                  "expert widths in multiples of 256");
    check_refused(shape_of(8, 64, 4, 7168, 2048, 1, 4000), SPW_REMAT_FULL,
                  "tokens of a rank in multiples of 128");
    check_refused(good, SPW_REMAT_MOE_ACT, "recomputes nothing by itself");
    check_refused(good, SPW_REMAT_MOE, "remat full, selective or none would be right");
}

int main(void) {
    test_executed();
    test_heap();
    test_refusals();
    return check_done();
}
