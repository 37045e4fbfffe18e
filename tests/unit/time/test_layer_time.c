/* Whole layers of our own kernels: by hand on a machine of round figures, waiting, damage. */
#include "sim/time/layer_time.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 2, TOKENS = 8, TOP_K = 2, EXPERTS = 4, HIDDEN = 1000, FFN = 500 };

/* Everything 10^12 bytes/s, links 10^9, no starts; products cost what their bytes do. */
static spw_cluster plain(void) {
    spw_cluster c = {.bf16_flops = {.value = 1e30},
                     .hbm_bytes_per_s = {.value = 1e30},
                     .link = {.points = 1, .message_bytes = {1 << 20}, .exchange_mb_per_s = {1000}},
                     .kernels = {.copy_gb_per_s = 1000,
                                 .fan_out_gb_per_s = 1000,
                                 .slots_gb_per_s = 1000,
                                 .fan_in_gb_per_s = 1000,
                                 .fan_in_gradient_gb_per_s = 1000,
                                 .swiglu_gb_per_s = 1000,
                                 .swiglu_gradient_gb_per_s = 1000,
                                 .plan_us = 7,
                                 .slot_ns = 1000,
                                 .notices_us = 1,
                                 .send_start_us = 3,
                                 .send_share = 0.5,
                                 .return_start_us = 2,
                                 .return_share = 0.25}};
    (void)snprintf(c.name, sizeof c.name, "plain");
    return c;
}

static void near(double got, double want, const char *what) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) printf("%s: %.9g, not %.9g\n", what, got, want);
    CHECK(fabs(got - want) <= 1e-9 * fabs(want));
}

static spw_own_times times(const spw_cluster *c, spw_own_scheme scheme, int32_t expert[RANKS][TOKENS][TOP_K],
                           size_t capacity) {
    const spw_own_layer layer = {scheme, RANKS, TOKENS, HIDDEN, FFN, EXPERTS, TOP_K, capacity};
    const int32_t *of_rank[RANKS] = {&expert[0][0][0], &expert[1][0][0]};
    spw_gemm_curves *curves = NULL;
    spw_own_times t = {.rows_max = 0};
    CHECK_OK(spw_gemm_curves_create(c, &curves));
    if (curves != NULL) CHECK_OK(spw_own_layer_times(c, curves, &layer, of_rank, &t));
    spw_gemm_curves_destroy(curves);
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0.0;
        for (int p = 0; p < SPW_OWN_TOTAL; p++) sum += t.seconds[pass][p];
        CHECK(t.seconds[pass][SPW_OWN_TOTAL] <= sum * (1 + 1e-12));
    }
    return t;
}

/* Every token one expert of each rank, or both of rank 0. */
static void route(int32_t expert[RANKS][TOKENS][TOP_K], bool one_sided) {
    for (int r = 0; r < RANKS; r++) {
        for (int t = 0; t < TOKENS; t++) {
            expert[r][t][0] = t % 2;
            expert[r][t][1] = one_sided ? 1 - t % 2 : 2 + t % 2;
        }
    }
}

/* 8 tokens of each rank go to the other; 16 rows a rank; rows of 2000 bytes. */
static void test_by_hand(void) {
    const spw_cluster c = plain();
    int32_t expert[RANKS][TOKENS][TOP_K];
    route(expert, false);
    const double row = 2.0 * HIDDEN, TB = 1e-12, send = 8 * row / 0.5e9, back = 8 * row / 0.25e9;
    spw_own_times t = times(&c, SPW_OWN_GMM_DEEPEP, expert, 0);
    const double worst = RANKS * TOKENS * TOP_K, tail = worst - 16;
    near(t.rows_max, 16, "rows"), near(t.rows_mean, 16, "rows");
    near(t.seconds[0][SPW_OWN_DISPATCH], 3e-6 + send, "dispatch");
    near(t.seconds[0][SPW_OWN_PLAN], 7e-6, "plan");
    near(t.seconds[0][SPW_OWN_FAN_OUT], (16 + 16) * row * TB, "fan-out");
    near(t.seconds[0][SPW_OWN_SWIGLU], 6 * worst * FFN * TB, "swiglu of all rows of the buffer");
    near(t.seconds[0][SPW_OWN_COMBINE], 2e-6 + back, "combine");
    near(t.seconds[1][SPW_OWN_COMBINE_GRADIENT], 2e-6 + send, "no notices");
    near(t.seconds[1][SPW_OWN_FAN_IN_GRADIENT], (16 + 2 * 16) * row * TB, "fan-in gradient");
    near(t.seconds[1][SPW_OWN_SWIGLU_GRADIENT], 10 * worst * FFN * TB, "swiglu gradient");
    CHECK(t.seconds[0][SPW_OWN_GEMM2] >= 2 * tail * HIDDEN * TB);
    near(t.bytes[0][SPW_OWN_DISPATCH], 8 * (row + 4 * (2 * TOP_K + 1)), "bytes and words");
    near(t.bytes[1][SPW_OWN_DISPATCH_GRADIENT], 8 * (row + 4 + 4 * TOP_K), "bytes and gradients of weights");
    double sum = 0.0;
    for (int p = 0; p < SPW_OWN_TOTAL; p++) sum += t.seconds[0][p];
    near(t.seconds[0][SPW_OWN_TOTAL], sum, "nobody waits");

    spw_own_times exact = times(&c, SPW_OWN_DEEPEP, expert, 0);
    near(exact.seconds[0][SPW_OWN_SWIGLU], 6 * 16.0 * FFN * TB, "exact buffers");
    CHECK(exact.seconds[0][SPW_OWN_GEMM2] < t.seconds[0][SPW_OWN_GEMM2]);

    t = times(&c, SPW_OWN_GMM, expert, 0);
    near(t.seconds[0][SPW_OWN_PLAN], 8e-6, "plan and notices");
    near(t.seconds[0][SPW_OWN_FAN_OUT], (8 + 16) * row * TB, "own tokens");
    near(t.bytes[0][SPW_OWN_DISPATCH], 8 * row, "a row a choice");

    t = times(&c, SPW_OWN_DENSE, expert, 3); /* 4 choices an expert and rank, 3 slots */
    near(t.rows_max, 12, "slots");
    near(t.seconds[0][SPW_OWN_PLAN], 16e-6, "a microsecond a choice");
    near(t.seconds[0][SPW_OWN_FAN_OUT], (8 + 12) * row * TB, "to slots");
    near(t.seconds[0][SPW_OWN_FAN_IN], (8 + 12) * row * TB, "of kept choices");
    near(t.bytes[0][SPW_OWN_DISPATCH], 6 * row, "slots travel");
    t = times(&c, SPW_OWN_DENSE, expert, 5);
    near(t.seconds[1][SPW_OWN_FAN_IN_GRADIENT], (8 + 2 * 16 + 4) * row * TB, "empty slots are cleared");

    t = times(&c, SPW_OWN_RING, expert, 0);
    near(t.bytes[0][SPW_OWN_DISPATCH], 8 * (row + 8 * EXPERTS), "all tokens with words of all experts");
    near(t.bytes[1][SPW_OWN_ROUTER_GRADIENT], 8 * 4 * EXPERTS, "gradients of logits");
    CHECK(t.seconds[1][SPW_OWN_ROUTER_GRADIENT] > 2e-6);
}

/* All rows on rank 0: rank 1 comes early to the way back and waits, inside that phase. */
static void test_waiting(void) {
    spw_cluster c = plain();
    int32_t expert[RANKS][TOKENS][TOP_K];
    c.hbm_bytes_per_s.value = 1e9; /* products take milliseconds */
    route(expert, true);
    const spw_own_times t = times(&c, SPW_OWN_DEEPEP, expert, 0);
    near(t.rows_max, 32, "all rows");
    near(t.rows_mean, 16, "mean rows");
    const double back = 8 * 2.0 * HIDDEN / 0.25e9 + 2e-6;
    CHECK(t.seconds[0][SPW_OWN_COMBINE] > back + t.seconds[0][SPW_OWN_GEMM1]);
    near(t.seconds[0][SPW_OWN_TOTAL],
         t.seconds[0][SPW_OWN_DISPATCH] + t.seconds[0][SPW_OWN_PLAN] + t.seconds[0][SPW_OWN_COMBINE],
         "rank 1");
}

static void test_damage(void) {
    spw_cluster c = plain();
    int32_t expert[RANKS][TOKENS][TOP_K];
    const int32_t *of_rank[RANKS] = {&expert[0][0][0], &expert[1][0][0]};
    spw_own_layer layer = {SPW_OWN_GMM, RANKS, TOKENS, HIDDEN, FFN, EXPERTS, TOP_K, 0};
    spw_gemm_curves *curves = NULL;
    spw_own_times t;
    route(expert, false);
    CHECK_OK(spw_gemm_curves_create(&c, &curves));
    for (int i = 0; i < 4; i++) {
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_own_layer_times(&c, curves, &layer, of_rank, &t), SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
    layer.scheme = SPW_OWN_DENSE;
    CHECK_STATUS(spw_own_layer_times(&c, curves, &layer, of_rank, &t), SPW_EARG);
    layer.scheme = SPW_OWN_GMM, layer.experts = 5;
    CHECK_STATUS(spw_own_layer_times(&c, curves, &layer, of_rank, &t), SPW_EARG);
    layer.experts = EXPERTS, c.link.points = 0;
    CHECK_STATUS(spw_own_layer_times(&c, curves, &layer, of_rank, &t), SPW_ECONFIG);
    c.link.points = 1, c.kernels.copy_gb_per_s = 0;
    CHECK_STATUS(spw_own_layer_times(&c, curves, &layer, of_rank, &t), SPW_ECONFIG);
    spw_gemm_curves_destroy(curves);
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &c));
    CHECK(c.kernels.copy_gb_per_s == 0.0 && c.kernels.source[0] == '\0');
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &c));
    CHECK(c.kernels.fan_out_gb_per_s == 3641.0 && c.kernels.evidence == SPW_EVIDENCE_MEASURED);
}

int main(void) {
    test_by_hand();
    test_waiting();
    test_damage();
    return check_done();
}
