/* Two layers on two ranks, whose times can be had by hand. */
#ifndef SPW_TESTS_MEGATRON_LAYERS_H
#define SPW_TESTS_MEGATRON_LAYERS_H

#include "tests/unit/time/megatron_preset.h"

#include <math.h>

enum { RANKS = 2, LAYERS = 2 };

/* All speeds 10^12, nothing else costs time. */
static inline spw_megatron_coefficients plain(void) {
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

static inline void fill(spw_megatron_load load[LAYERS][RANKS], double rows) {
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t r = 0; r < RANKS; r++)
            load[l][r] = (spw_megatron_load){
                .received = rows, .sent = rows, .link_in = rows / 2, .link_out = rows / 2, .tiled = rows};
    }
}

static inline spw_megatron_time predict(const spw_megatron_coefficients *c, const spw_megatron_shape *s,
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

#endif
