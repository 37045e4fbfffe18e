/* torchtitan's minimal async EP (docs/schemes.md, section 6.6): predicted is executed on random routing, the symmetric buffers
 * with pencil and paper, and what is refused. */
#include "tests/unit/check.h"
#include "tests/unit/executed.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/scheme_of.h"

#include <string.h>

enum { SEEDS = 120 };

static void test_executed(void) {
    static const char *const text = "torchtitan-async";
    spw_verification *v = executed(&text, 1, SEEDS);
    if (v == NULL) return;
    CHECK(v->tally[0].values == SPW_AGREE_EXACT && v->tally[0].cases >= 50);
    spw_free(v);
}

/* DeepSeek-V3 over 8 ranks and 4096 tokens: 262144 rows may come, 32768 leave. */
static void test_buffers(void) {
    const spw_layer_shape v3 = shape_of(8, 256, 8, 7168, 2048, 1, 4096);
    const spw_scheme s = scheme_of("torchtitan-async");
    const uint64_t rows = 262144, sent = 32768;
    CHECK(s.type->memory.communication_bytes(&s, &v3) == 2 * rows * 14336 + 8 * 8 * 256);
    CHECK(s.type->memory.buffer_rows(&s, &v3) == rows);
    const spw_rank_rows few = {1, 1, sent};
    const spw_live_set live = live_set_of(&s, &v3, &few);
    CHECK(live.saved_bytes == rows * (4 * 2048 * 2 + 16) + 32 * sent);
    /* w0_out, dx_w1 and dx_w0, and the gradient of w0_out in the place of three tensors that are gone */
    CHECK(live.backward_bytes == rows * (2 * 14336 + 4096 + 16) + 12 * sent);
}

static void check_refused(spw_layer_shape shape, spw_remat remat, const char *what) {
    const spw_scheme s = scheme_of("torchtitan-async");
    shape.remat = remat;
    CHECK_STATUS(spw_scheme_check(&s, &shape), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), what) != NULL);
}

static void test_refusals(void) {
    const spw_layer_shape good = shape_of(8, 64, 4, 64, 32, 1, 40);
    spw_layer_shape spread = shape_of(8, 64, 4, 64, 32, 1, 40);
    spread.node_ranks = 4;
    check_refused(good, SPW_REMAT_NONE, "full recompute only");
    check_refused(spread, SPW_REMAT_FULL, "of one node, not 8 with 4 on a node");
    check_refused(shape_of(1, 64, 4, 64, 32, 1, 40), SPW_REMAT_FULL, "two expert-parallel ranks or more");
}

int main(void) {
    test_executed();
    test_buffers();
    test_refusals();
    return check_done();
}
