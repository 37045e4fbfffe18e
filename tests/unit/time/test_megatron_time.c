/* The time of bare Megatron-Core layers: by hand, properties, and what is damaged. argv[1]: scratch directory. */
#include "sim/score/megatron/measured_time_score.h"
#include "sim/time/megatron/megatron_doubt.h"
#include "sim/time/megatron/megatron_experts.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/time/megatron_preset.h"

#include <math.h>
#include <string.h>

enum { RANKS = 2, LAYERS = 2 };

/* All speeds 10^12, nothing else costs time. */
static spw_megatron_coefficients plain(void) {
    spw_megatron_coefficients c = preset();
    spw_coefficient *const speeds[] = {
        &c.peak_flops,        &c.router_flops,       &c.main_grad_bytes_per_s, &c.exchange_bytes_per_s,
        &c.slots_bytes_per_s, &c.copy_bytes_per_s,   &c.scatter_bytes_per_s,   &c.index_add_bytes_per_s,
        &c.token_bytes_per_s, &c.network_bytes_per_s};
    spw_coefficient *const none[] = {&c.activation_bytes,
                                     &c.activation_gradient_bytes,
                                     &c.norm_gradient_bytes,
                                     &c.duplex_share,
                                     &c.host_first_s,
                                     &c.host_layer_s,
                                     &c.jitter_share,
                                     &c.exchange_latency_s,
                                     &c.kernel_s,
                                     &c.block_s,
                                     &c.spill_share,
                                     &c.zero_share};
    for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++) speeds[i]->value = 1e12;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) none[i]->value = 0.0;
    c.gemm_flops_share.value = 1.0;
    return c;
}

static const spw_megatron_shape shape = {.layers = LAYERS,
                                         .tokens = 4096,
                                         .top_k = 4,
                                         .experts = 16,
                                         .experts_per_rank = 8,
                                         .hidden = 1024,
                                         .ffn = 512};

static void fill(spw_megatron_load load[LAYERS][RANKS], double rows) {
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t r = 0; r < RANKS; r++)
            load[l][r] = (spw_megatron_load){
                .received = rows, .sent = rows, .link_in = rows / 2, .link_out = rows / 2, .tiled = rows};
    }
}

static spw_megatron_time predict(const spw_megatron_coefficients *c, const spw_megatron_shape *s,
                                 spw_megatron_load load[LAYERS][RANKS]) {
    spw_megatron_time t;
    double phase_s[LAYERS][RANKS][SPW_MEGATRON_PHASES], of_rank[RANKS] = {0.0}, sum = 0.0;
    CHECK_OK(spw_megatron_time_predict(c, s, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                       &(spw_megatron_loads){.load = &load[0][0]}, &phase_s[0][0][0], &t));
    for (size_t p = 0; p < SPW_MEGATRON_PHASES; p++) {
        double mean = 0.0;
        for (size_t l = 0; l < LAYERS; l++) {
            for (size_t r = 0; r < RANKS; r++) {
                CHECK(phase_s[l][r][p] >= 0.0);
                mean += phase_s[l][r][p] / RANKS;
                of_rank[r] += phase_s[l][r][p];
            }
        }
        CHECK(fabs(mean - t.phase_s[p]) <= 1e-12);
        sum += t.phase_s[p];
    }
    /* No time is lost or counted twice: the slowest rank's phases are the step. */
    CHECK(fabs(fmax(of_rank[0], of_rank[1]) - t.step_s) < 1e-12);
    CHECK(fabs(t.forward_s + t.backward_s - t.step_s) < 1e-15);
    CHECK(sum <= t.step_s + 1e-12);
    return t;
}

/* T = 4096, H = 1024, F = 512, E = 16, e = 8; 16384 rows in and out, half of them stay. In units of 10^-12 s. */
static void test_by_hand(void) {
    const spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    fill(load, 16384);
    const spw_megatron_time t = predict(&c, &shape, load);
    const double TH = 4096.0 * 1024, NH = 16384.0 * 1024, NHF = NH * 512, unit = 1e-12 * LAYERS;
    const struct {
        spw_megatron_phase phase;
        double work;
    } by_hand[] = {{SPW_MEGATRON_ROUTE, 16 * TH + 2 * TH * 16},
                   {SPW_MEGATRON_PERMUTE, 48 * 4096.0 * 16 + 4 * NH},
                   {SPW_MEGATRON_DISPATCH, 2 * NH / 2},
                   {SPW_MEGATRON_SORT, 4 * NH},
                   {SPW_MEGATRON_EXPERTS, 6 * NHF},
                   {SPW_MEGATRON_UNSORT, 4 * NH},
                   {SPW_MEGATRON_COMBINE, 2 * NH / 2},
                   {SPW_MEGATRON_UNPERMUTE, 4 * NH},
                   {SPW_MEGATRON_BACKWARD_PERMUTE, 4 * NH + 4 * TH * 16},
                   {SPW_MEGATRON_BACKWARD_DISPATCH, 2 * NH / 2},
                   {SPW_MEGATRON_BACKWARD_SORT, 4 * NH},
                   {SPW_MEGATRON_BACKWARD_EXPERTS, 12 * NHF + 10 * 8 * 3 * 1024.0 * 512},
                   {SPW_MEGATRON_BACKWARD_UNSORT, 4 * NH},
                   {SPW_MEGATRON_BACKWARD_COMBINE, 2 * NH / 2},
                   {SPW_MEGATRON_BACKWARD_UNPERMUTE, 4 * NH}};
    double sum = 0.0;
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        const double want = unit * by_hand[i].work;
        CHECK(fabs(t.phase_s[by_hand[i].phase] - want) < 1e-9 * want);
        sum += want;
    }
    CHECK(t.phase_s[SPW_MEGATRON_RECOMPUTE] == 0.0);
    CHECK(fabs(t.step_s - sum) < 1e-9 * sum);

    spw_megatron_shape again = shape;
    again.recompute = SPW_RECOMPUTE_MOE;
    const spw_megatron_time twice = predict(&c, &again, load);
    CHECK(fabs(twice.phase_s[SPW_MEGATRON_RECOMPUTE] - t.forward_s) < 1e-9 * t.forward_s);
    for (int p = 0; p < SPW_MEGATRON_PHASES; p++) { /* phase by phase, without waiting */
        const double once =
            p < SPW_MEGATRON_BACKWARD_PERMUTE ? t.phase_s[p] - t.rank_wait_s[p] - t.host_wait_s[p] : 0.0;
        CHECK(fabs(twice.again_s[p] - once) < 1e-9 * t.forward_s && t.again_s[p] == 0.0);
    }
    CHECK(fabs(twice.step_s - t.step_s - t.forward_s) < 1e-9 * t.step_s);
}

/* An exchange between nodes: 8192 rows of 2048 bytes by a link, 4096 by the busiest NIC, at half of its 20 GB/s. */
static void test_legs(void) {
    spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    const double link_s = 8192.0 * 2048.0 / 1e12, nic_s = 4096.0 * 2048.0 / 1e10;
    c.nic_bytes_per_s = 2e10, c.exchange_nic_share.value = 0.5, c.exchange_serial_share.value = 0.25;
    c.exchange_start_s.value = 5e-6, c.exchange_latency_s.value = 2e-6;
    fill(load, 16384);
    const spw_megatron_time inside = predict(&c, &shape, load);
    CHECK(fabs(inside.phase_s[SPW_MEGATRON_DISPATCH] - LAYERS * (2 * 2e-6 + link_s)) < 1e-12);
    for (size_t l = 0; l < LAYERS; l++) load[l][0].nic_out = 4096.0, load[l][1].nic_in = 1024.0;
    const spw_megatron_time between = predict(&c, &shape, load);
    CHECK(fabs(between.phase_s[SPW_MEGATRON_DISPATCH] - LAYERS * (2 * 5e-6 + nic_s + 0.25 * link_s)) < 1e-12);
    CHECK(fabs(between.phase_s[SPW_MEGATRON_COMBINE] - LAYERS * (5e-6 + nic_s + 0.25 * link_s)) < 1e-12);
    c.exchange_latency_s.value = 9e-6; /* the stack's own is longer */
    CHECK(fabs(predict(&c, &shape, load).phase_s[SPW_MEGATRON_COMBINE] -
               LAYERS * (9e-6 + nic_s + 0.25 * link_s)) < 1e-12);
}

/* Rank 1 late in layer 0, rank 0 in layer 1: the step pays for both, not for the larger of the sums. */
static void test_stragglers(void) {
    spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    fill(load, 16384);
    const spw_megatron_time even = predict(&c, &shape, load);
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t r = 0; r < RANKS; r++) {
            load[l][r].received += l == r ? 8192 : -8192;
            load[l][r].tiled = load[l][r].received;
        }
    }
    const spw_megatron_time uneven = predict(&c, &shape, load);
    for (size_t l = 0; l < LAYERS; l++) load[l][0].received = load[l][0].tiled = 16384 + 8192;
    const spw_megatron_time one = predict(&c, &shape, load);
    CHECK(fabs(uneven.step_s - one.step_s) < 1e-12);
    CHECK(uneven.step_s > 1.3 * even.step_s);
    /* Jitter is waited for where ranks are alike, and not where one is late. */
    fill(load, 16384);
    c.jitter_share.value = 0.01;
    const spw_megatron_time jitter = predict(&c, &shape, load);
    CHECK(jitter.step_s > 1.004 * even.step_s && jitter.step_s < 1.01 * even.step_s);
    CHECK(jitter.phase_s[SPW_MEGATRON_EXPERTS] == even.phase_s[SPW_MEGATRON_EXPERTS]);
    fill(load, 16384);
    for (size_t l = 0; l < LAYERS; l++) load[l][0].received = load[l][0].tiled = 0;
    const double late = predict(&c, &shape, load).step_s;
    c.jitter_share.value = 0.0;
    CHECK(late < 1.002 * predict(&c, &shape, load).step_s);
}

/* One coefficient moves its phases, and nothing else. */
static void test_knobs(void) {
#define BIT(phase) (1u << SPW_MEGATRON_##phase)
    static const unsigned exchanges =
        BIT(DISPATCH) | BIT(COMBINE) | BIT(BACKWARD_DISPATCH) | BIT(BACKWARD_COMBINE);
    static const struct {
        size_t offset;
        double factor;
        unsigned phases;
    } knobs[] = {
        {offsetof(spw_megatron_coefficients, exchange_bytes_per_s), 2.0, exchanges},
        {offsetof(spw_megatron_coefficients, exchange_latency_s), 0.5, exchanges},
        {offsetof(spw_megatron_coefficients, duplex_share), 0.5, exchanges},
        {offsetof(spw_megatron_coefficients, peak_flops), 2.0, BIT(EXPERTS) | BIT(BACKWARD_EXPERTS)},
        {offsetof(spw_megatron_coefficients, activation_bytes), 0.5, BIT(EXPERTS)},
        {offsetof(spw_megatron_coefficients, main_grad_bytes_per_s), 2.0, BIT(BACKWARD_EXPERTS)},
        {offsetof(spw_megatron_coefficients, scatter_bytes_per_s), 2.0, BIT(UNPERMUTE)},
        {offsetof(spw_megatron_coefficients, index_add_bytes_per_s), 2.0, BIT(BACKWARD_PERMUTE)},
        {offsetof(spw_megatron_coefficients, slots_bytes_per_s), 2.0, 0},
    };
#undef BIT
    spw_megatron_load load[LAYERS][RANKS];
    spw_megatron_coefficients c = preset();
    c.jitter_share.value = c.host_first_s.value = c.host_layer_s.value = 0.0; /* they follow the others */
    fill(load, 16384);
    const spw_megatron_time before = predict(&c, &shape, load);
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        spw_megatron_coefficients turned = c;
        ((spw_coefficient *)(void *)((char *)&turned + knobs[i].offset))->value *= knobs[i].factor;
        const spw_megatron_time after = predict(&turned, &shape, load);
        for (spw_megatron_phase p = 0; p < SPW_MEGATRON_PHASES; p++) {
            const bool moves = (knobs[i].phases >> p & 1u) != 0;
            CHECK(moves ? after.phase_s[p] < before.phase_s[p]
                        : fabs(after.phase_s[p] - before.phase_s[p]) < 1e-15);
        }
    }
}

/* 2^27 bytes from each rank to the other are nothing special; a row more is, where messages differ; 1.5 x as many are not. */
static void test_long_messages(void) {
    const double row = 2.0 * 1024, rows = 134217728.0 / row;
    spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    c.long_message_share.value = 1.4;
    const struct {
        double received[RANKS], factor;
    } cases[] = {{{rows, rows}, 1.0},
                 {{rows, rows - 1}, 1.0},
                 {{rows + 1, rows}, 1.4 * rows / (rows + 1)},
                 {{rows + 1, rows + 1}, 1.0},
                 {{1.3 * rows, rows}, 1.4 / 1.3},
                 {{1.5 * rows, rows}, 1.0},
                 {{2.0 * rows + 1, rows}, 2.8 * rows / (2 * rows + 1)}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fill(load, rows);
        for (size_t l = 0; l < LAYERS; l++) {
            for (size_t r = 0; r < RANKS; r++) {
                load[l][r].received = cases[i].received[r];
                load[l][r].sent = cases[i].received[1 - r];
                load[l][r].link_in = load[l][r].received;
                load[l][r].link_out = load[l][r].sent;
            }
        }
        const double most = fmax(cases[i].received[0], cases[i].received[1]);
        const double want = 1e-12 * LAYERS * row * most * cases[i].factor;
        CHECK(fabs(predict(&c, &shape, load).phase_s[SPW_MEGATRON_BACKWARD_DISPATCH] - want) < 1e-9 * want);
    }
}

static void test_host(void) {
    spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    spw_megatron_shape padded = shape;
    fill(load, 16384);
    const spw_megatron_time fast = predict(&c, &shape, load);
    c.host_first_s.value = 0.1;
    c.host_layer_s.value = 1.0;
    const spw_megatron_time slow = predict(&c, &shape, load);
    CHECK(fabs(slow.forward_s - 1.1) < 0.1 && slow.forward_s > 1.1);
    CHECK(fabs(slow.backward_s - fast.backward_s) < 1e-12);
    /* Padded to capacity, no counts are waited for. */
    padded.capacity = 1024;
    padded.padded = true;
    CHECK(predict(&c, &padded, load).forward_s < fast.forward_s + 0.05);
}

/* Two loads that come round from the second on are those of a list of three layers in which they stand in turn. */
static void test_loads_in_turn(void) {
    const spw_megatron_coefficients c = plain();
    spw_megatron_load two[LAYERS][RANKS], three[3][RANKS];
    spw_megatron_time want, got;
    spw_megatron_shape deep = shape;
    deep.layers = 3, fill(two, 16384);
    two[0][0].received = two[0][0].tiled = 30000;
    for (size_t l = 0; l < 3; l++) memcpy(three[l], two[(1 + l) % 2], sizeof three[l]);
    CHECK_OK(spw_megatron_time_predict(&c, &deep, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                       &(spw_megatron_loads){.load = &three[0][0]}, NULL, &want));
    CHECK_OK(spw_megatron_time_predict(&c, &deep, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                       &(spw_megatron_loads){&two[0][0], 1, 2}, NULL, &got));
    CHECK(got.step_s == want.step_s && got.forward_s == want.forward_s);
    CHECK_OK(spw_megatron_time_predict(&c, &deep, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                       &(spw_megatron_loads){&two[0][0], 0, 2}, NULL, &got));
    CHECK(got.step_s > want.step_s); /* the full one twice */
}

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

/* Away from what was measured the interval is wider, by the part of the step that each doubt concerns. */
static void test_doubts(void) {
    spw_megatron_coefficients c = preset();
    spw_timeline t;
    c.half_width.value = 0.04, c.ranks_half_width.value = 0.05, c.counted_half_width.value = 0.2;
    c.dispatcher_half_width.value = 0.1, c.exchange_half_width.value = 0.5, c.scaled_half_width.value = 0.3;
    CHECK(spw_megatron_layers_half_width(&c, 4, 8192) == 0.04);
    CHECK(spw_megatron_layers_half_width(&c, 2, 8192) == 0.04 + 0.05);
    CHECK(spw_megatron_layers_half_width(&c, 4, 128) == 0.04 + 0.05);
    spw_timeline_clear(&t);
    CHECK_OK(spw_timeline_add(&t, "expert_products", "", SPW_STREAM_COMPUTE, 2.0, 2.0));
    CHECK_OK(spw_timeline_add(&t, "exchanges", "", SPW_STREAM_COLLECTIVE, 1.0, 1.0));
    t.component[1].exchange_s = t.component[1].dispatcher_s = 1.0;
    CHECK_OK(spw_timeline_add(&t, "attention", "", SPW_STREAM_COMPUTE, 1.0, 1.0));
    spw_timeline_finish(&t, 1.0);
    const struct {
        spw_megatron_far far;
        double half_width;
    } cases[] = {{{.layers = 0.04}, 0.03},
                 {{.layers = 0.04, .counted = true}, 0.03 + 0.05},
                 {{.layers = 0.04, .dispatcher = true}, 0.03 + 0.025},
                 {{.layers = 0.04, .network = true}, 0.03 + 0.125},
                 {{.layers = 0.04, .scaled = true}, 0.03 + 0.3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_megatron_doubt(&c, &cases[i].far, &t);
        CHECK(fabs(log(t.high_s / 4.0) - cases[i].half_width) < 1e-12);
        CHECK(fabs(log(4.0 / t.low_s) - cases[i].half_width) < 1e-12);
    }
    /* Whatever component holds them: half of the expert layers' first one is a dispatcher's, half of that goes over the wire. */
    const spw_megatron_far network = {.network = true}, dispatcher = {.dispatcher = true};
    t.component[0].exchange_s = 0.5, t.component[0].dispatcher_s = 1.0;
    CHECK(spw_timeline_exchanges_s(&t) == 1.5);
    spw_megatron_doubt(&c, &network, &t);
    CHECK(fabs(log(t.high_s / 4.0) - 0.5 * 1.5 / 4.0) < 1e-12);
    spw_megatron_doubt(&c, &dispatcher, &t);
    CHECK(fabs(log(t.high_s / 4.0) - 0.1 * 2.0 / 4.0) < 1e-12);
}

static void test_tiles(void) {
    const spw_megatron_coefficients c = plain();
    spw_megatron_load load[LAYERS][RANKS];
    spw_megatron_shape odd = shape;
    fill(load, 16384);
    const spw_megatron_time even = predict(&c, &shape, load);
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t r = 0; r < RANKS; r++) load[l][r].tiled = 1.25 * 16384;
    }
    CHECK(fabs(predict(&c, &shape, load).phase_s[SPW_MEGATRON_EXPERTS] -
               1.25 * even.phase_s[SPW_MEGATRON_EXPERTS]) < 1e-12);
    fill(load, 16384);
    odd.hidden = 1025; /* a column more needs a tile more */
    CHECK(predict(&c, &odd, load).phase_s[SPW_MEGATRON_EXPERTS] > 1.05 * even.phase_s[SPW_MEGATRON_EXPERTS]);
    for (size_t l = 0; l < LAYERS; l++) load[l][1].empty_experts = 8;
    CHECK(predict(&c, &shape, load).phase_s[SPW_MEGATRON_BACKWARD_EXPERTS] >
          even.phase_s[SPW_MEGATRON_BACKWARD_EXPERTS]);
}

static void test_damage(const char *scratch) {
    const spw_megatron_coefficients c = preset();
    spw_megatron_time t;
    spw_megatron_shape empty = shape;
    spw_measured_time time;
    spw_measured_tables tables;
    spw_megatron_coefficients read;
    char path[PATH];
    const char *const paths[] = {path};
    spw_megatron_load load[LAYERS][RANKS];
    fill(load, 1);
    empty.layers = 0;
    CHECK_STATUS(spw_megatron_time_predict(&c, &empty, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                           &(spw_megatron_loads){.load = &load[0][0]}, NULL, &t),
                 SPW_EARG);
    CHECK_STATUS(spw_megatron_time_predict(&c, &shape, SPW_MEGATRON_ALL_TO_ALL, 0,
                                           &(spw_megatron_loads){.load = &load[0][0]}, NULL, &t),
                 SPW_EARG);
    for (int i = 0; i < 2; i++) {
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_megatron_time_predict(&c, &shape, SPW_MEGATRON_ALL_TO_ALL, RANKS,
                                               &(spw_megatron_loads){.load = &load[0][0]}, NULL, &t),
                     SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
    CHECK_STATUS(spw_megatron_coefficients_read("no-such", NULL, &read), SPW_ECONFIG);
    CHECK_STATUS(spw_megatron_coefficients_parse("x", "name: a\n", 8, &read), SPW_ECONFIG);

    (void)snprintf(path, sizeof path, "%s/damaged_phases.csv", scratch);
    static const char *const text[] = {"run,rank,layer,rows,forward_experts\nx,0,0,1,2.0\n",
                                       "run,rank,step_ms\nx,0,1\n"};
    static const spw_status phases[] = {SPW_EFORMAT, SPW_EFORMAT}, kinds[] = {SPW_OK, SPW_EARG};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        FILE *file = fopen(path, "w");
        CHECK(file != NULL);
        if (file == NULL) return;
        CHECK(fputs(text[i], file) >= 0);
        CHECK(fclose(file) == 0);
        CHECK_STATUS(spw_measured_time_open(paths, i, paths, 1 - i, &time), phases[i]);
        CHECK_STATUS(spw_measured_tables_sort(paths, 1, &tables), kinds[i]);
        if (kinds[i] == SPW_OK) {
            CHECK(tables.phases == 1 && tables.runs == 1 &&
                  strstr(tables.run[0], "damaged_runs.csv") != NULL);
            spw_measured_tables_free(&tables);
        }
        CHECK(remove(path) == 0);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s SCRATCH\n", argv[0]);
        return 2;
    }
    test_by_hand();
    test_legs();
    test_stragglers();
    test_knobs();
    test_long_messages();
    test_host();
    test_tiles();
    test_loads_in_turn();
    test_idle_blocks();
    test_unlike_rows();
    test_spills_and_zeros();
    test_doubts();
    test_damage(argv[1]);
    return check_done();
}
