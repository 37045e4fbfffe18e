/* Tempered traces: the wanted counts by pencil, by properties over seeds, and a whole trace whose histograms are exactly those. */
#include "traces/generate/temper.h"

#include "tests/unit/check.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 32, TOP_K = 4, TOKENS = 96, RANKS = 4, LAYERS = 2, STEPS = 2 };

static void test_pencil(void) {
    const uint32_t own[] = {8, 4, 2, 2, 0};
    const uint64_t all[] = {8, 4, 2, 2, 0};
    uint32_t out[5];
    CHECK_OK(spw_temper_target(own, all, 5, 16, 1.0, out));
    CHECK(memcmp(out, own, sizeof own) == 0);
    CHECK_OK(spw_temper_target(own, all, 5, 16, 0.0, out)); /* alike, but for what nobody chose */
    CHECK(out[0] == 4 && out[1] == 4 && out[2] == 4 && out[3] == 4 && out[4] == 0);
    CHECK_OK(
        spw_temper_target(own, all, 5, 16, 2.0, out)); /* 64 : 16 : 4 : 4 of 16: 11.64, 2.91, 0.73, 0.73 */
    CHECK(out[0] == 11 && out[1] == 3 && out[2] == 1 && out[3] == 1);
    CHECK_OK(
        spw_temper_target(own, all, 5, 10, 2.0, out)); /* no more than there are tokens: 6 for 16 : 4 : 4 */
    CHECK(out[0] == 10 && out[1] == 4 && out[2] == 1 && out[3] == 1);
    CHECK_OK(spw_temper_target(own, all, 5, 8, 60.0, out));
    CHECK(out[0] == 8 && out[1] == 8 && out[2] + out[3] == 0);
    const uint32_t half[] = {4, 4, 0, 0,
                             0}; /* of two ranks: the popularity is of both, the choices are its own */
    CHECK_OK(spw_temper_target(half, all, 5, 8, 2.0, out));
    CHECK(out[0] == 5 && out[1] == 3 && out[2] == 0);
    CHECK_STATUS(spw_temper_target(own, all, 5, 7, 2.0, out), SPW_EARG);
    const uint32_t nothing[] = {0, 0, 0, 0, 0};
    CHECK_OK(spw_temper_target(nothing, all, 5, 0, 2.0, out));
    CHECK(out[0] == 0 && out[4] == 0);
}

static void test_properties(void) {
    uint32_t own[EXPERTS], out[EXPERTS];
    uint64_t all[EXPERTS];
    for (unsigned seed = 1; seed <= 200; seed++) {
        const double exponent = (double)(seed % 40) / 4.0;
        uint64_t sum = 0, made = 0;
        srand(seed);
        for (size_t x = 0; x < EXPERTS; x++) {
            own[x] = rand() % 3 == 0 ? 0 : (uint32_t)(rand() % TOKENS);
            all[x] = own[x] + (uint64_t)(rand() % TOKENS);
            sum += own[x];
        }
        CHECK_OK(spw_temper_target(own, all, EXPERTS, TOKENS, exponent, out));
        for (size_t x = 0; x < EXPERTS; x++) {
            made += out[x];
            CHECK(out[x] <= TOKENS && (own[x] > 0 || out[x] == 0));
            for (size_t y = 0; y < EXPERTS; y++) /* hotter stays hotter */
                CHECK(!(own[x] == own[y] && all[x] > all[y] && exponent > 1.0) || out[x] >= out[y]);
        }
        CHECK(made == sum);
    }
}

/* Ids of one step and layer, [RANKS * TOKENS][TOP_K]. */
static void read_ids(const char *path, size_t step, size_t layer, uint16_t *out) {
    spw_trace *trace = NULL;
    spw_trace_record record;
    CHECK_OK(spw_trace_open(path, &trace));
    CHECK_OK(spw_trace_read_record(trace, step, 1, layer, false, &record));
    CHECK(record.tokens == RANKS * TOKENS && record.top_k == TOP_K);
    for (size_t i = 0; i < record.tokens * record.top_k; i++)
        out[i] = record.id_bytes == 1 ? ((const uint8_t *)record.expert_id)[i]
                                      : ((const uint16_t *)record.expert_id)[i];
    spw_trace_close(trace);
}

static void compare(const uint16_t *before, const uint16_t *after, double exponent) {
    uint32_t own[RANKS][EXPERTS] = {{0}}, made[RANKS][EXPERTS] = {{0}}, wanted[EXPERTS];
    uint64_t all[EXPERTS] = {0}, least = 0, changed = 0;
    for (size_t i = 0; i < RANKS * TOKENS * TOP_K; i++) {
        own[i / (TOKENS * TOP_K)][before[i]]++;
        made[i / (TOKENS * TOP_K)][after[i]]++;
        all[before[i]]++;
        changed += before[i] != after[i];
        for (size_t k = i / TOP_K * TOP_K; k < i; k++) CHECK(after[k] != after[i]);
    }
    for (size_t s = 0; s < RANKS; s++) {
        CHECK_OK(spw_temper_target(own[s], all, EXPERTS, TOKENS, exponent, wanted));
        CHECK(memcmp(wanted, made[s], sizeof wanted) == 0);
        for (size_t x = 0; x < EXPERTS; x++) least += own[s][x] > wanted[x] ? own[s][x] - wanted[x] : 0;
    }
    CHECK(changed >= least && changed <= least + least / 5); /* more than must move only in trades */
    CHECK((exponent == 1.0) == (changed == 0));
}

static void test_trace(const char *folder) {
    char from[512], to[512];
    uint16_t before[RANKS * TOKENS * TOP_K] = {0}, after[RANKS * TOKENS * TOP_K] = {0};
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = LAYERS,
                                      .steps = STEPS,
                                      .ranks = RANKS,
                                      .tokens_per_rank = TOKENS,
                                      .seed = 5};
    (void)snprintf(from, sizeof from, "%s/temper_from.h5", folder);
    CHECK_OK(spw_distribution_parse("lognormal:sigma=0.7", &settings.distribution));
    CHECK_OK(spw_generate_trace(&settings, from));
    static const double exponents[] = {0.0, 0.5, 1.0, 1.5, 3.0, 12.0};
    double last = 0.0;
    for (size_t e = 0; e < sizeof exponents / sizeof *exponents; e++) {
        const spw_temper_settings temper = {.exponent = exponents[e], .seed = 9};
        spw_trace *trace = NULL;
        double part = 0.0, expert = 0.0;
        (void)snprintf(to, sizeof to, "%s/temper_to_%zu.h5", folder, e);
        CHECK_OK(spw_trace_temper(from, to, &temper));
        for (size_t at = 0; at < STEPS * LAYERS; at++) {
            read_ids(from, at / LAYERS, at % LAYERS, before);
            read_ids(to, at / LAYERS, at % LAYERS, after);
            compare(before, after, exponents[e]);
        }
        CHECK_OK(spw_trace_open(to, &trace));
        CHECK_OK(spw_trace_skew(trace, 8, &part, &expert));
        CHECK((exponents[e] > 2.0 ? expert >= last : expert > last) && part <= expert + 1e-12);
        last = expert;
        CHECK_OK(spw_trace_skew(trace, 5, &part, &expert));
        CHECK(isnan(part));
        CHECK(spw_trace_get_info(trace)->steps == STEPS && spw_trace_get_info(trace)->ranks == RANKS);
        CHECK(strstr(spw_trace_get_info(trace)->note, "tempered") != NULL);
        spw_trace_close(trace);
    }
    const spw_temper_settings some = {
        .exponent = 2.0, .seed = 9, .step_begin = 1, .step_end = 2, .layer_begin = 1, .layer_end = 2};
    (void)snprintf(to, sizeof to, "%s/temper_some.h5", folder);
    CHECK_OK(spw_trace_temper(from, to, &some));
    read_ids(from, 1, 1, before);
    read_ids(to, 0, 0, after);
    compare(before, after, 2.0);
    double most = 0.0;
    CHECK_OK(spw_temper_most(from, &some, &most));
    CHECK(most == 4.0 || most == 8.0 || most == 16.0);
    const spw_temper_settings beyond = {.exponent = 2.0, .step_end = 3}, below = {.exponent = -1.0};
    CHECK_STATUS(spw_trace_temper(from, to, &beyond), SPW_EARG);
    CHECK_STATUS(spw_trace_temper(from, to, &below), SPW_EARG);
    CHECK_STATUS(spw_trace_temper("no such file", to, &some), SPW_EIO);
}

/* A trace of counts: the counts alone change, each rank's own. */
static void test_counts(const char *folder) {
    char from[512], to[512];
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = LAYERS,
                                      .steps = 1,
                                      .ranks = RANKS,
                                      .tokens_per_rank = TOKENS,
                                      .counts_only = true,
                                      .seed = 5};
    const spw_temper_settings same = {.exponent = 1.0}, more = {.exponent = 2.0};
    uint32_t before[EXPERTS], after[EXPERTS];
    spw_trace *a = NULL, *b = NULL;
    uint64_t sum[2] = {0, 0};
    (void)snprintf(from, sizeof from, "%s/temper_counts.h5", folder);
    CHECK_OK(spw_distribution_parse("zipf:exponent=0.4", &settings.distribution));
    CHECK_OK(spw_generate_trace(&settings, from));
    CHECK_OK(spw_trace_open(from, &a));
    for (int i = 0; i < 2; i++) {
        uint32_t hottest[2] = {0, 0};
        (void)snprintf(to, sizeof to, "%s/temper_counts_%d.h5", folder, i);
        CHECK_OK(spw_trace_temper(from, to, i == 0 ? &same : &more));
        CHECK_OK(spw_trace_open(to, &b));
        CHECK_OK(spw_trace_read_routed(a, 0, 1, before));
        CHECK_OK(spw_trace_read_routed(b, 0, 1, after));
        sum[0] = sum[1] = 0;
        for (size_t x = 0; x < EXPERTS; x++) {
            sum[0] += before[x], sum[1] += after[x];
            hottest[0] = before[x] > hottest[0] ? before[x] : hottest[0];
            hottest[1] = after[x] > hottest[1] ? after[x] : hottest[1];
        }
        CHECK(sum[0] == sum[1] &&
              (i == 0 ? memcmp(before, after, sizeof before) == 0 : hottest[1] > hottest[0]));
        spw_trace_close(b);
    }
    spw_trace_close(a);
}

/* Slots keep their weights; where they stand in the order of their experts they do so again. */
static void test_weights(const char *folder) {
    enum { N = 64 };
    char from[512], to[512];
    uint16_t ids[N][2], weights[N][2];
    const int32_t layer_id = 0;
    const uint32_t experts = 8, top_k = 2;
    const spw_trace_info info = {.layers = 1,
                                 .experts = 8,
                                 .top_k = 2,
                                 .layer_id = &layer_id,
                                 .layer_experts = &experts,
                                 .layer_top_k = &top_k,
                                 .has_tokens = true,
                                 .has_weights = true};
    const spw_trace_write_settings settings = {.info = &info, .order = "ascending_id", .tokens = N};
    const spw_trace_write_step step = {.tokens = N, .tokens_kept = true};
    const spw_temper_settings temper = {.exponent = 3.0, .seed = 2};
    spw_trace_writer *writer = NULL;
    spw_trace *trace = NULL;
    spw_trace_record record;
    uint64_t sum[2] = {0, 0};
    (void)snprintf(from, sizeof from, "%s/temper_weights.h5", folder);
    (void)snprintf(to, sizeof to, "%s/temper_weights_to.h5", folder);
    for (size_t i = 0; i < N; i++) {
        ids[i][0] = i % 4 == 0 ? (uint16_t)(i / 4 % 4) : 2;
        ids[i][1] = (uint16_t)(ids[i][0] + 1 + i % 4);
        weights[i][0] = (uint16_t)(0x3000 + i), weights[i][1] = (uint16_t)(0x3400 + i);
        sum[0] += (uint64_t)weights[i][0] + weights[i][1];
    }
    CHECK_OK(spw_trace_writer_create(from, &settings, &writer));
    CHECK_OK(spw_trace_writer_begin_step(writer, &step));
    CHECK_OK(spw_trace_writer_put_layer(writer, 0, &ids[0][0], &weights[0][0]));
    CHECK_OK(spw_trace_writer_end_step(writer));
    CHECK_OK(spw_trace_writer_finish(writer));
    CHECK_OK(spw_trace_temper(from, to, &temper));
    CHECK_OK(spw_trace_open(to, &trace));
    CHECK_OK(spw_trace_read_record(trace, 0, 1, 0, true, &record));
    for (size_t i = 0; i < N && record.weight != NULL; i++) {
        const uint8_t *id = (const uint8_t *)record.expert_id + 2 * i;
        const uint16_t *w = record.weight + 2 * i;
        CHECK(id[0] < id[1]);
        CHECK((w[0] == weights[i][0] && w[1] == weights[i][1]) ||
              (w[0] == weights[i][1] && w[1] == weights[i][0]));
        if (id[0] == ids[i][0] && id[1] == ids[i][1]) CHECK(w[0] == weights[i][0]);
        sum[1] += (uint64_t)w[0] + w[1];
    }
    CHECK(record.id_bytes == 1 && sum[0] == sum[1]);
    spw_trace_close(trace);
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "/tmp";
    test_pencil();
    test_properties();
    test_trace(folder);
    test_counts(folder);
    test_weights(folder);
    return check_done();
}
