/* The greatest sums of a layer by what few events hold against all of its events. */
#include "sim/schemes/live_law.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/scheme_of.h"

enum { DRAWS = 200 };

static void compare(const spw_live_law *law, const spw_layer *layer, const spw_rank_rows *rows) {
    const spw_live_set found = spw_live_law_at(law, rows), right = spw_layer_live_set(layer, rows);
    CHECK(found.backward_bytes == right.backward_bytes && found.saved_bytes == right.saved_bytes &&
          found.to_host_bytes == right.to_host_bytes);
}

/* Rows of all sizes, and such that sums do not fit. */
static void compare_many(const spw_layer *layer, bool linear, uint64_t seed) {
    spw_live_law law;
    CHECK_OK(spw_live_law_create(layer, &law));
    CHECK((law.sums > 0) == linear);
    for (size_t i = 0; i < DRAWS; i++) {
        const uint64_t most = UINT64_C(1) << random_below(&seed, 40);
        const spw_rank_rows rows = {.held = random_below(&seed, most),
                                    .received = random_below(&seed, most),
                                    .sent = random_below(&seed, most)};
        compare(&law, layer, &rows);
    }
    compare(&law, layer, &(spw_rank_rows){.held = UINT64_MAX / 3, .received = 1});
    compare(&law, layer, &(spw_rank_rows){.held = 0});
    spw_live_law_destroy(&law);
}

static void check_schemes(void) {
    static const char *const scheme[] = {"megatron-alltoall",
                                         "megatron-alltoall:capacity_factor=1,pad=true",
                                         "megatron-allgather",
                                         "megatron-flex",
                                         "megatron-flex:backend=hybridep",
                                         "megatron-ncclep",
                                         "primus-syncfree:level=2",
                                         "deepep",
                                         "megablocks"};
    static const spw_remat remat[] = {SPW_REMAT_NONE, SPW_REMAT_FULL, SPW_REMAT_MOE_ACT};
    for (size_t i = 0; i < sizeof scheme / sizeof *scheme; i++)
        for (size_t r = 0; r < 3; r++) {
            const spw_scheme s = scheme_of(scheme[i]);
            spw_layer_shape shape = shape_of(8, 32, 4, 512, 256, 1, 64);
            shape.remat = remat[i > 6 && r == 2 ? 0 : r];
            spw_layer layer = layer_of(&s, &shape);
            compare_many(&layer, true, i * 3 + r);
            spw_layer_destroy(&layer);
        }
}

/* What is left out by its size, or goes to the host, is looked at event by event; so is what may not fit. */
static void check_others(void) {
    spw_layer_tensor tensor[] = {{.rows = SPW_ROWS_HELD, .bytes = 100}, {.rows = SPW_ROWS_SENT, .bytes = 7}};
    spw_event event[] = {
        {SPW_PHASE_RECOMPUTE, "a", 0, 1, 0, 0, false},  {SPW_PHASE_RECOMPUTE, "b", 1, 1, 0, 0, false},
        {SPW_PHASE_RECOMPUTE, "c", 0, -1, 0, 0, false}, {SPW_PHASE_BACKWARD, "d", 0, 1, 0, 0, false},
        {SPW_PHASE_BACKWARD, "e", 1, -1, 0, 0, false},  {SPW_PHASE_BACKWARD, "f", 0, -1, 0, 0, false}};
    const spw_layer layer = {.tensor = tensor, .event = event, .tensors = 2, .events = 6};
    spw_live_law law;
    compare_many(&layer, true, 1);
    CHECK_OK(spw_live_law_create(&layer, &law));
    CHECK(law.sums == 1); /* behind "b" and "d" the same lives, and never more */
    const spw_live_set set = spw_live_law_at(&law, &(spw_rank_rows){.held = 3, .sent = 10});
    CHECK(set.backward_bytes == 370 && set.saved_bytes == 70);
    spw_live_law_destroy(&law);
    event[0].least_bytes = event[2].least_bytes = 1000;
    compare_many(&layer, false, 2);
    event[0].least_bytes = event[2].least_bytes = 0;
    event[2].to_host = true;
    compare_many(&layer, false, 3);
    event[2].to_host = false;
    tensor[1].bytes = UINT64_MAX / 2;
    compare_many(&layer, false, 4);
}

int main(void) {
    check_schemes();
    check_others();
    return check_done();
}
