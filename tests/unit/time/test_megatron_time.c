/* The time of bare Megatron-Core layers: by hand, properties, and what is damaged. argv[1]: scratch directory. */
#include "sim/score/megatron/measured_time_score.h"
#include "sim/time/megatron/megatron_doubt.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"
#include "tests/unit/time/megatron_layers.h"

#include <math.h>
#include <string.h>

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

static void check_same(const spw_megatron_time *a, const spw_megatron_time *b) {
    CHECK(a->forward_s == b->forward_s && a->backward_s == b->backward_s && a->step_s == b->step_s &&
          a->unlike == b->unlike);
    for (size_t f = 0; f < SPW_MEGATRON_PHASES; f++)
        CHECK(a->phase_s[f] == b->phase_s[f] && a->rank_wait_s[f] == b->rank_wait_s[f] &&
              a->host_wait_s[f] == b->host_wait_s[f] && a->again_s[f] == b->again_s[f]);
}

/* Some of them the same for all ranks. */
static void fill_at_random(uint64_t *seed, spw_megatron_load *load, size_t count, bool between_nodes) {
    const bool alike = random_below(seed, 3) == 0;
    for (size_t i = 0; i < count; i++) {
        const double rows = 4096.0 + (double)random_below(seed, 9999);
        load[i] = (spw_megatron_load){.received = rows,
                                      .sent = rows + 9.0,
                                      .link_in = rows / 2.0,
                                      .link_out = 3000.0,
                                      .nic_in = between_nodes ? rows / 4.0 : 0.0,
                                      .arrived = rows / 3.0,
                                      .shared = rows / 5.0,
                                      .tiled = rows + 100.0,
                                      .unlike = rows / 2e4};
        if (alike && i > 0) load[i] = load[0];
    }
}

/* Loads side by side take what each takes alone, to the last bit: of any number, with layers in turn from any one on. */
static void test_side_by_side(void) {
    enum { MOST_LOADS = 11, MANY = 72, ROWS = 2 };
    static spw_megatron_load load[MOST_LOADS][ROWS * MANY];
    spw_megatron_coefficients c = preset();
    uint64_t seed = 3;
    c.nic_bytes_per_s = 5e10;
    for (size_t turn = 0; turn < 60; turn++) {
        const size_t count = 1 + turn % MOST_LOADS, ranks = turn % 3 == 0 ? MANY : 2 + turn % 5;
        spw_megatron_loads loads[MOST_LOADS];
        spw_megatron_time want, got[MOST_LOADS];
        spw_megatron_shape s = shape;
        s.layers = 1 + turn % 4;
        s.recompute = turn % 2 == 0 ? SPW_RECOMPUTE_MOE : SPW_RECOMPUTE_NONE;
        s.expert_tensor = turn % 7 == 1 ? 2 : 1;
        s.capacity = turn % 5 == 2 ? 4096 : 0;
        s.padded = turn % 10 == 2;
        for (size_t i = 0; i < count; i++) {
            fill_at_random(&seed, load[i], ROWS * MANY, turn % 4 == 3);
            loads[i] = (spw_megatron_loads){load[i], random_below(&seed, 2), ROWS};
        }
        CHECK_OK(spw_megatron_times_predict(&c, &s, SPW_MEGATRON_TOKENS, ranks, loads, count, got));
        for (size_t i = 0; i < count; i++) {
            CHECK_OK(spw_megatron_time_predict(&c, &s, SPW_MEGATRON_TOKENS, ranks, &loads[i], NULL, &want));
            check_same(&want, &got[i]);
        }
    }
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
    test_side_by_side();
    test_doubts();
    test_damage(argv[1]);
    return check_done();
}
