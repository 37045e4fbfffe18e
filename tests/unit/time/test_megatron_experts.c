/* What a rank's experts are loaded with, by hand: idle blocks, unlike rows, operands beyond the cache. */
#include "sim/time/megatron/megatron_experts.h"

#include "tests/unit/check.h"
#include "tests/unit/time/megatron_layers.h"

#include <math.h>
#include <string.h>

static void load_experts(const spw_megatron_coefficients *c, const double *chunk, size_t sources,
                         size_t experts, spw_megatron_load *load) {
    double sum[8];
    spw_megatron_experts_load(c, 1024, 512, &(spw_megatron_chunks){sources, experts, chunk, NULL, sum}, load);
}

/* H = 1024: a block moves two rows. 4 multiprocessors: at most 128 blocks a chunk. A block takes as long as 0.25 rows. */
static void test_idle_blocks(void) {
    spw_megatron_coefficients c = plain();
    spw_megatron_load load = {.received = 0.0};
    c.multiprocessors.value = 4;
    c.block_s.value = 0.25 * 4 * 1024 * 1e-12;
    const double few[] = {64, 0, 8, 64}, many[] = {4096, 0, 16, 100}, even[] = {64, 64, 64, 64};
    const struct {
        const double *chunk;
        double idle, tiled;
        size_t empty;
    } cases[] = {{few, 8.0, 2 * 128, 0},             /* 32 blocks: a chunk takes 8 rows, one has none */
                 {many, 32.0 + 16.0, 4224 + 128, 0}, /* 128 blocks at most: 32 rows */
                 {even, 0.0, 2 * 128, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load_experts(&c, cases[i].chunk, 2, 2, &load);
        CHECK(fabs(load.idle_rows - cases[i].idle) < 1e-9);
        CHECK(load.tiled == cases[i].tiled && load.empty_experts == cases[i].empty);
    }
    const double none[] = {5, 0, 7, 0};
    load_experts(&c, none, 2, 2, &load);
    CHECK(load.tiled == 128 && load.empty_experts == 1);
    CHECK(spw_megatron_cat_blocks(&c, 1024, 3) == 2 && spw_megatron_cat_blocks(&c, 1024, 1e9) == 128);
    /* Idle rows are copied like rows, in all four moves between exchange and experts. */
    spw_megatron_load layer[LAYERS][RANKS];
    fill(layer, 16384);
    const spw_megatron_time without = predict(&c, &shape, layer);
    for (size_t l = 0; l < LAYERS; l++) layer[l][0].idle_rows = layer[l][1].idle_rows = 1000;
    const spw_megatron_time with = predict(&c, &shape, layer);
    CHECK(fabs(with.step_s - without.step_s - 4 * LAYERS * 4 * 1000 * 1024 * 1e-12) < 1e-12);
}

/* Of four experts, rows from two sources: 5 and 9 are nobody else's, 7 is one from 8, and an expert without rows has no product. */
static void test_unlike_rows(void) {
    spw_megatron_coefficients c = plain();
    static const struct {
        double chunk[8], unlike;
    } cases[] = {{{2, 4, 6, 20, 3, 4, 6, 2}, 1.0}, {{2, 4, 3, 8, 3, 4, 4, 1}, 0.25},
                 {{1, 4, 4, 9, 1, 4, 4, 9}, 0.5},  {{8, 8, 8, 8, 8, 8, 8, 8}, 0.0},
                 {{8, 8, 8, 9, 8, 8, 8, 8}, 0.0},  {{30, 0, 9, 0, 0, 0, 1, 0}, 0.5}};
    spw_megatron_load load = {.received = 1.0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.unlike_floor_s.value = 1e-3;
        load_experts(&c, cases[i].chunk, 2, 4, &load);
        CHECK(fabs(load.unlike - cases[i].unlike) < 1e-12);
        c.unlike_floor_s.value = 0.0;
        load_experts(&c, cases[i].chunk, 2, 4, &load);
        CHECK(!(load.unlike > 0.0));
    }
    const double alone[] = {17, 3};
    c.unlike_floor_s.value = 1e-3;
    load_experts(&c, alone, 2, 1, &load);
    CHECK(!(load.unlike > 0.0));
    /* Of each layer the rank that has most: 0.5 and, of the others, 0.25. */
    spw_megatron_load layer[LAYERS][RANKS];
    fill(layer, 16384);
    for (size_t l = 0; l < LAYERS; l++) layer[l][0].unlike = 0.25;
    layer[0][1].unlike = 0.5;
    CHECK(fabs(predict(&c, &shape, layer).unlike - (0.5 + 0.25 * (LAYERS - 1))) < 1e-12);
}

/* A cache of 1 MB: an operand of 1024 rows x 1024 has 2 MB and is read again for half of it, one of 512 deep fits. */
static void test_spills_and_zeros(void) {
    spw_megatron_coefficients c = plain();
    spw_megatron_load load = {.received = 2048.0}, layer[LAYERS][RANKS];
    c.cache_bytes.value = 1024.0 * 1024.0;
    const double two[] = {1024, 1024}, one[] = {2048, 0};
    load_experts(&c, two, 1, 2, &load);
    CHECK(load.spilled[SPW_MEGATRON_DEPTH_HIDDEN] == 0.5 && load.spilled[SPW_MEGATRON_DEPTH_FFN] == 0.0);
    CHECK(load.spilled[SPW_MEGATRON_DEPTH_TWICE_FFN] == 0.5);
    load_experts(&c, one, 1, 2, &load);
    CHECK(load.spilled[SPW_MEGATRON_DEPTH_HIDDEN] == 0.75 && load.spilled[SPW_MEGATRON_DEPTH_FFN] == 0.5);
    /* Forward 4 NHF of depth H and 2 NHF of depth F; backward 4 of 2 F and 2 of H; weight gradients do not spill. */
    fill(layer, 16384);
    const spw_megatron_time plain_time = predict(&c, &shape, layer);
    c.spill_share.value = 0.1;
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t r = 0; r < RANKS; r++) memcpy(layer[l][r].spilled, load.spilled, sizeof load.spilled);
    }
    const spw_megatron_time spilled = predict(&c, &shape, layer);
    const double unit = 16384.0 * 1024 * 512 * 1e-12 * LAYERS;
    CHECK(fabs(spilled.phase_s[SPW_MEGATRON_EXPERTS] - plain_time.phase_s[SPW_MEGATRON_EXPERTS] -
               0.1 * unit * (4 * 0.75 + 2 * 0.5)) < 1e-9);
    CHECK(fabs(spilled.phase_s[SPW_MEGATRON_BACKWARD_EXPERTS] -
               plain_time.phase_s[SPW_MEGATRON_BACKWARD_EXPERTS] - 0.1 * unit * (4 * 0.75 + 2 * 0.75)) <
          1e-9);
    /* Half of the rows are zeros: all products are faster by half of the share. */
    fill(layer, 16384);
    c.zero_share.value = 0.2;
    for (size_t l = 0; l < LAYERS; l++) layer[l][0].zero_rows = layer[l][1].zero_rows = 8192;
    CHECK(fabs(predict(&c, &shape, layer).phase_s[SPW_MEGATRON_EXPERTS] -
               0.9 * plain_time.phase_s[SPW_MEGATRON_EXPERTS]) < 1e-9);
}

int main(void) {
    test_idle_blocks();
    test_unlike_rows();
    test_spills_and_zeros();
    return check_done();
}
