/* The generator: requested against realised histograms, composed tokens, the same bytes on any number of threads.
 * argv[1]: scratch directory. */
#include "base/file.h"
#include "base/memory.h"
#include "tests/unit/check.h"
#include "traces/generate/generate.h"
#include "traces/generate/random_stream.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TOKENS = 1 << 15, MOST_EXPERTS = 512, MOST_K = 16 };

static uint16_t ids[MOST_TOKENS * MOST_K];

static bool distinct(const uint16_t *token, size_t top_k) {
    for (size_t i = 0; i < top_k; i++) {
        for (size_t j = 0; j < i; j++) {
            if (token[i] == token[j]) return false;
        }
    }
    return true;
}

/* Pearson's statistic with the variance of each count, tokens pi (1 - pi); experts with pi = 0 or 1 must be exact. */
static void check_layer(spw_generator *generator, const spw_generate_settings *settings, size_t step,
                        size_t layer) {
    static double inclusion[MOST_EXPERTS];
    static uint32_t count[MOST_EXPERTS];
    size_t tokens = settings->ranks * settings->tokens_per_rank, repeated = 0, free_experts = 0;
    double sum = 0.0, chi_square = 0.0;
    memset(count, 0, sizeof count);
    spw_generator_seek(generator, step);
    spw_generator_inclusion(generator, layer, inclusion);
    CHECK_OK(spw_generator_record(generator, layer, ids));
    for (size_t i = 0; i < tokens; i++) {
        repeated += !distinct(ids + i * settings->top_k, settings->top_k);
        for (size_t k = 0; k < settings->top_k; k++) count[ids[i * settings->top_k + k]]++;
    }
    CHECK(repeated == 0);
    for (size_t i = 0; i < settings->experts; i++) {
        double want = inclusion[i] * (double)tokens, variance = want * (1.0 - inclusion[i]);
        sum += inclusion[i];
        if (variance < 5.0) { /* too rare for the chi-square distribution: a bound of its own */
            CHECK(fabs(count[i] - want) <= 6.0 * sqrt(variance) + 12.0);
            continue;
        }
        chi_square += (count[i] - want) * (count[i] - want) / variance;
        free_experts++;
    }
    CHECK(fabs(sum - (double)settings->top_k) < 1e-6);
    CHECK(free_experts > 1);
    double upper = gsl_cdf_chisq_Q(chi_square, (double)free_experts);
    CHECK(upper > 1e-5); /* of some 30 layers with fixed seeds */
    CHECK(gsl_cdf_chisq_P(chi_square, (double)free_experts) > 1e-5);
}

static void test_histograms(void) {
    const char *const names[] = {"uniform",
                                 "zipf:exponent=1.2",
                                 "lognormal:sigma=1",
                                 "dirichlet:alpha=0.5",
                                 "hot-rank:share=0.3,rank=5,popularity=lognormal",
                                 "group-limited:popularity=lognormal",
                                 "drift:drift=0.5",
                                 "collapse:peak=4",
                                 "k-hot:hot=4,heat=0.4",
                                 "max-violation:hot=3,violation=2,popularity=lognormal",
                                 "megatron-w3",
                                 "megatron-w6:turn=2,first=3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        spw_generate_settings settings = {.experts = 64,
                                          .top_k = 8,
                                          .layers = 2,
                                          .steps = 3,
                                          .ranks = 8,
                                          .tokens_per_rank = 1024,
                                          .seed = 11 + i};
        spw_generator *generator = NULL;
        CHECK_OK(spw_distribution_parse(names[i], &settings.distribution));
        CHECK_OK(spw_generator_create(&settings, &generator));
        if (generator == NULL) continue;
        check_layer(generator, &settings, 0, 0);
        check_layer(generator, &settings, 2, 1);
        spw_generator_destroy(generator);
    }
    const size_t shapes[][2] = {{1, 1}, {7, 7}, {13, 1}, {300, 16}, {9, 8}};
    for (size_t i = 0; i < 5; i++) { /* odd shapes; K = E leaves nothing to chance */
        spw_generate_settings settings = {.experts = shapes[i][0],
                                          .top_k = shapes[i][1],
                                          .layers = 1,
                                          .steps = 1,
                                          .ranks = 2,
                                          .tokens_per_rank = 1000};
        spw_generator *generator = NULL;
        CHECK_OK(spw_distribution_parse("lognormal:sigma=2", &settings.distribution));
        CHECK_OK(spw_generator_create(&settings, &generator));
        if (generator == NULL) continue;
        CHECK_OK(spw_generator_record(generator, 0, ids));
        size_t bad = 0;
        for (size_t t = 0; t < 2000; t++) {
            bad += !distinct(ids + t * settings.top_k, settings.top_k);
            for (size_t k = 0; k < settings.top_k; k++)
                bad += ids[t * settings.top_k + k] >= settings.experts;
        }
        CHECK(bad == 0);
        spw_generator_destroy(generator);
    }
}

static size_t equal(const double *a, const double *b, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += a[i] == b[i];
    return found;
}

/* Going back to a step gives what it gave before. */
static void test_seek(void) {
    static double before[64], after[64];
    spw_generate_settings settings = {
        .experts = 64, .top_k = 2, .layers = 1, .steps = 4, .ranks = 1, .tokens_per_rank = 8, .seed = 3};
    spw_generator *generator = NULL;
    CHECK_OK(spw_distribution_parse("drift", &settings.distribution));
    CHECK_OK(spw_generator_create(&settings, &generator));
    if (generator == NULL) return;
    spw_generator_seek(generator, 2);
    spw_generator_inclusion(generator, 0, before);
    spw_generator_seek(generator, 3);
    spw_generator_inclusion(generator, 0, after);
    CHECK(equal(before, after, 64) < 64);
    spw_generator_seek(generator, 2);
    spw_generator_inclusion(generator, 0, after);
    CHECK(equal(before, after, 64) == 64);
    spw_generator_destroy(generator);
}

static void check_compose(const uint32_t *count, size_t experts, size_t tokens, size_t top_k) {
    static uint32_t got[MOST_EXPERTS];
    static uint16_t again[MOST_TOKENS * MOST_K];
    size_t repeated = 0;
    memset(got, 0, sizeof got);
    CHECK_OK(spw_compose_tokens(count, experts, tokens, top_k, 9, ids));
    for (size_t i = 0; i < tokens; i++) {
        repeated += !distinct(ids + i * top_k, top_k);
        for (size_t k = 0; k < top_k; k++) got[ids[i * top_k + k] % MOST_EXPERTS]++;
    }
    CHECK(repeated == 0 && memcmp(got, count, experts * sizeof *got) == 0);
    CHECK_OK(spw_compose_tokens(count, experts, tokens, top_k, 9, again));
    CHECK(memcmp(ids, again, tokens * top_k * sizeof *ids) == 0);
}

static void swap_rows(uint32_t *row, size_t i, size_t j) {
    const uint32_t held = row[i];
    row[i] = row[j];
    row[j] = held;
}

static bool has(const uint16_t *token, size_t top_k, uint16_t expert) {
    for (size_t i = 0; i < top_k; i++)
        if (token[i] == expert) return true;
    return false;
}

/* The definition, every token where it lies: dealt from a line, then four times neighbours of a random order trade what one has alone. */
static void compose_in_place(const uint32_t *count, size_t experts, size_t tokens, size_t top_k,
                             uint64_t seed, uint16_t *out) {
    static uint32_t order[MOST_EXPERTS], row[MOST_TOKENS];
    spw_random_stream stream;
    size_t place = 0;
    CHECK(tokens > 0);
    if (tokens == 0) return;
    spw_random_stream_init(&stream, seed, 5, experts, tokens, top_k);
    for (size_t i = 0; i < experts; i++) order[i] = (uint32_t)i;
    for (size_t i = 0; i < tokens; i++) row[i] = (uint32_t)i;
    for (size_t i = experts; i > 1; i--) swap_rows(order, i - 1, spw_random_below(&stream, i));
    for (size_t i = tokens; i > 1; i--) swap_rows(row, i - 1, spw_random_below(&stream, i));
    for (size_t i = 0; i < experts; i++)
        for (uint32_t n = 0; n < count[order[i]]; n++, place++)
            out[row[place % tokens] * top_k + place / tokens] = (uint16_t)order[i];
    for (int round = 0; round < 4; round++) {
        for (size_t i = tokens; i > 1; i--) swap_rows(row, i - 1, spw_random_below(&stream, i));
        for (size_t i = 0; i + 1 < tokens; i += 2) {
            uint16_t *const token[2] = {out + row[i] * top_k, out + row[i + 1] * top_k}, *slot[2 * MOST_K];
            uint32_t alone[2 * MOST_K];
            size_t many = 0;
            for (size_t side = 0; side < 2; side++)
                for (size_t k = 0; k < top_k; k++)
                    if (!has(token[1 - side], top_k, token[side][k])) {
                        slot[many] = &token[side][k];
                        alone[many++] = token[side][k];
                    }
            for (size_t n = many; n > 1; n--) swap_rows(alone, n - 1, spw_random_below(&stream, n));
            for (size_t n = 0; n < many; n++) *slot[n] = (uint16_t)alone[n];
        }
    }
}

/* Tokens are moved into the order in which they trade, which changes no answer. */
static void test_compose_in_place(void) {
    static uint16_t again[MOST_TOKENS * MOST_K];
    uint64_t state = 11;
    for (size_t i = 0; i < 60; i++) {
        const size_t top_k = i % 3 == 0 ? 8 : 1 + i % MOST_K, experts = top_k + (i * 37) % 90,
                     tokens = 1 + (i * i * 7) % MOST_TOKENS;
        uint32_t count[MOST_EXPERTS] = {0};
        for (size_t n = 0; n < tokens * top_k;) { /* a random sum of so many, none above `tokens` */
            const size_t x = spw_random_mix(state++) % experts;
            if (count[x] < tokens) count[x]++, n++;
        }
        CHECK_OK(spw_compose_tokens(count, experts, tokens, top_k, i, ids));
        compose_in_place(count, experts, tokens, top_k, i, again);
        CHECK(memcmp(ids, again, tokens * top_k * sizeof *ids) == 0);
    }
}

static double distinct_ranks(size_t tokens, size_t top_k, size_t local) {
    double sum = 0.0;
    for (size_t i = 0; i < tokens; i++) {
        unsigned long long mask = 0;
        for (size_t k = 0; k < top_k; k++) mask |= 1ull << (ids[i * top_k + k] / local);
        sum += __builtin_popcountll(mask);
    }
    return sum / (double)tokens;
}

static void test_compose(void) {
    const uint32_t by_hand[] = {2, 1, 1}; /* 2 tokens, top-2: one has {0, 1}, the other {0, 2} */
    CHECK_OK(spw_compose_tokens(by_hand, 3, 2, 2, 1, ids));
    CHECK((ids[0] == 0) + (ids[1] == 0) == 1 && (ids[2] == 0) + (ids[3] == 0) == 1);
    CHECK(ids[0] + ids[1] + ids[2] + ids[3] == 3);
    const uint32_t too_many[] = {3, 1, 0}, wrong_sum[] = {2, 1, 2};
    CHECK_STATUS(spw_compose_tokens(too_many, 3, 2, 2, 1, ids), SPW_EARG);
    CHECK_STATUS(spw_compose_tokens(wrong_sum, 3, 2, 2, 1, ids), SPW_EARG);
    uint32_t count[MOST_EXPERTS] = {0};
    for (size_t i = 0; i < 256; i++) count[i] = 128;
    check_compose(count, 256, 4096, 8);
    CHECK(fabs(distinct_ranks(4096, 8, 32) - 5.295) < 0.06); /* as independent tokens would */
    for (size_t i = 0; i < 8; i++) count[i] = 999;           /* one token short of all */
    for (size_t i = 8; i < 256; i++) count[i] = 0;
    count[9] = 8;
    check_compose(count, 256, 1000, 8);
    for (size_t i = 0; i < 7; i++) count[i] = 5; /* K = E */
    check_compose(count, 7, 5, 7);
    memset(count, 0, sizeof count);
    check_compose(count, 7, 0, 3);
}

static void test_threads(const char *folder) {
    char path[2][512];
    char *text[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    struct stat file[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        spw_generate_settings settings = {.experts = 64,
                                          .top_k = 4,
                                          .layers = 3,
                                          .steps = 2,
                                          .ranks = 16,
                                          .tokens_per_rank = 700,
                                          .seed = 5,
                                          .level = i == 0 ? 0 : SPW_TRACE_STORED};
        (void)snprintf(path[i], sizeof path[i], "%s/generate_%d_%d.h5", folder, i, (int)getpid());
        omp_set_num_threads(i == 0 ? 1 : 5);
        CHECK_OK(spw_distribution_parse("drift:groups=8,kept=4", &settings.distribution));
        CHECK_OK(spw_generate_trace(&settings, path[i]));
        spw_trace *trace = NULL;
        CHECK_OK(spw_trace_open(path[i], &trace));
        if (trace == NULL) return;
        CHECK(stat(path[i], &file[i]) == 0);
        CHECK_OK(SPW_ALLOC(2 * 3 * 16 * 700 * 4, &text[i]));
        for (size_t at = 0; text[i] != NULL && at < 6; at++) {
            spw_trace_record record;
            CHECK_OK(spw_trace_read_record(trace, at / 3, 1, at % 3, false, &record));
            size_t bytes = record.tokens * record.top_k * record.id_bytes;
            memcpy(text[i] + length[i], record.expert_id, bytes);
            length[i] += bytes;
        }
        spw_trace_close(trace);
        (void)unlink(path[i]);
    }
    CHECK(length[0] == 2 * 3 * 16 * 700 * 4 && length[0] == length[1] &&
          memcmp(text[0], text[1], length[0]) == 0);
    CHECK(file[0].st_size < 2 * 3 * 16 * 700 * 4 && file[1].st_size > 2 * 3 * 16 * 700 * 4);
    spw_free(text[0]);
    spw_free(text[1]);
}

/* Pencil and paper: 64 experts, 8 a token, 8 ranks of 8 experts, mean load of an expert 1/8 of the tokens. */
static void test_skew(void) {
    const struct {
        const char *name;
        size_t steps;
        double max_over_mean, max_violation;
    } cases[] = {
        {"uniform", 1, 1.0, 0.0},
        {"megatron-w0", 1, 1.0, 0.0},
        /* hot 16 experts, two whole ranks: 3/4 of the tokens give each 1/2, the others 1/8: 13/32 over 1/8 */
        {"megatron-w1", 1, 3.25, 2.25},
        {"megatron-w2", 1, 3.25, 2.25},
        /* every other expert: 3/4 of 1/4 and 1/4 of 1/8 are 7/32, the rest 1/32; a rank has four of each */
        {"megatron-w3", 1, 1.0, 0.75},
        {"megatron-w5", 1, 2.0, 1.0}, /* the upper half alone, alike */
        {"megatron-w6", 12, 3.25, 2.25},
        {"megatron-w7", 3, 1.0, 0.0}, /* steady steps */
        {"megatron-w7", 4, 2.5, 1.5}, /* the burst: half of 1/2 and half of 1/8 are 5/16 */
        {"k-hot:hot=8,heat=1", 1, 8.0, 7.0},
        {"k-hot:hot=1,heat=1", 1, 16.0 / 9.0, 7.0}, /* 1 and 7 experts of 7/63, over 8 of 1/8 */
        {"k-hot:hot=8,heat=0", 1, 1.0, 0.0},
        {"k-hot:hot=8,stride=8,heat=0.5", 1, 1.0, 3.5}, /* one of each rank: 9/16 over 1/8 */
        {"max-violation:hot=8,violation=0.5", 1, 1.5, 0.5},
        {"max-violation:hot=1,violation=3.5", 1, (4.5 + 7.0 * 59.5 / 63.0) / 8.0, 3.5},
        {"hot-rank:share=0.5,ranks=8", 1, 4.0, 3.0},
        /* i^-1 over 64 experts, the most popular in all tokens: the violation alone does not depend on the order */
        {"zipf:exponent=10", 1, 0.0, 7.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_generate_settings settings = {.experts = 64,
                                          .top_k = 8,
                                          .layers = 2,
                                          .steps = cases[i].steps,
                                          .ranks = 8,
                                          .tokens_per_rank = 1};
        double max_over_mean = 0.0, max_violation = 0.0;
        CHECK_OK(spw_distribution_parse(cases[i].name, &settings.distribution));
        CHECK_OK(spw_generator_skew(&settings, 8, &max_over_mean, &max_violation));
        CHECK(fabs(max_violation - cases[i].max_violation) < 1e-9);
        CHECK(cases[i].max_over_mean == 0.0 || fabs(max_over_mean - cases[i].max_over_mean) < 1e-9);
        CHECK_STATUS(spw_generator_skew(&settings, 7, &max_over_mean, &max_violation), SPW_EARG);
    }
    /* Round robin is even to the last choice. */
    spw_generate_settings even = {
        .experts = 64, .top_k = 8, .layers = 1, .steps = 1, .ranks = 2, .tokens_per_rank = 16};
    spw_generator *generator = NULL;
    size_t count[64] = {0};
    CHECK_OK(spw_distribution_parse("megatron-w0", &even.distribution));
    CHECK_OK(spw_generator_create(&even, &generator));
    CHECK_OK(spw_generator_record(generator, 0, ids));
    for (size_t i = 0; i < 2 * 16 * 8; i++) count[ids[i]]++;
    for (size_t i = 0; i < 64; i++) CHECK(count[i] == 4);
    spw_generator_destroy(generator);
}

/* A hot set of as many experts as a token chooses leaves nothing to chance: every other one of 16, which goes on by 8 a step. */
static void test_turns(void) {
    spw_generate_settings settings = {
        .experts = 64, .top_k = 8, .layers = 1, .steps = 4, .ranks = 1, .tokens_per_rank = 4};
    spw_generator *generator = NULL;
    CHECK_OK(spw_distribution_parse("k-hot:hot=8,heat=1,stride=2,turn=1,first=3", &settings.distribution));
    CHECK_OK(spw_generator_create(&settings, &generator));
    for (size_t step = 0; step < 4 && generator != NULL; step++) {
        size_t there = 0;
        spw_generator_seek(generator, step);
        CHECK_OK(spw_generator_record(generator, 0, ids));
        for (size_t i = 0; i < 8; i++)
            for (size_t k = 0; k < 8; k++) there += ids[k] == (3 + 8 * step + 2 * i) % 64;
        CHECK(there == 8);
    }
    spw_generator_destroy(generator);
}

static void test_severity(void) {
    const struct {
        const char *name, *key;
        double low, high;
    } cases[] = {{"zipf", "exponent", 0.0, 4.0},           {"k-hot:hot=4", "heat", 0.0, 1.0},
                 {"max-violation", "violation", 0.0, 7.0}, {"max-violation:hot=16", "violation", 0.0, 3.0},
                 {"hot-rank:ranks=4", "share", 0.25, 1.0}, {"collapse:rise=0", "peak", 0.0, 10.0},
                 {"megatron-w6", "heat", 0.0, 1.0}};
    spw_severity severity;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(spw_distribution_severity(cases[i].name, 64, 8, &severity));
        CHECK(strcmp(severity.key, cases[i].key) == 0);
        CHECK(severity.low == cases[i].low && severity.high == cases[i].high);
    }
    CHECK_STATUS(spw_distribution_severity("uniform", 64, 8, &severity), SPW_EARG);
    CHECK_OK(spw_distribution_severity("zipf:drift=0.1,exponent=1.25", 64, 8, &severity));
    CHECK(severity.given == 1.25);
    CHECK_OK(spw_distribution_severity("zipf:drift=0.1", 64, 8, &severity));
    CHECK(isnan(severity.given));
    static const char *const at[][2] = {{"zipf", "zipf:exponent=0.5"},
                                        {"zipf:exponent=1", "zipf:exponent=0.5"},
                                        {"zipf:exponent=1,drift=2", "zipf:exponent=0.5,drift=2"},
                                        {"zipf:drift=2,exponent=1", "zipf:drift=2,exponent=0.5"},
                                        {"zipf:drift=2", "zipf:drift=2,exponent=0.5"}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        char text[64];
        CHECK_OK(spw_distribution_at(at[i][0], "exponent", 0.5, text, sizeof text));
        CHECK(strcmp(text, at[i][1]) == 0);
        CHECK_STATUS(spw_distribution_at(at[i][0], "exponent", 0.5, text, 8), SPW_EARG);
    }
}

static void test_refusals(void) {
    spw_distribution distribution;
    const char *const bad[] = {"",
                               "zip",
                               "zipf:",
                               "zipf:exponent",
                               "zipf:exponent=x",
                               "zipf:exponent=-1",
                               "zipf:exponent=nan",
                               "uniform:groups=2.5",
                               "zipf:exponent=1,",
                               "uniform:popularity=x",
                               "zipf:alpha=1",
                               "zipf:exponent=1,exponent=2",
                               "uniform:exponent=1",
                               "drift:popularity=zipf,sigma=1",
                               "uniform:kept=2",
                               "drift:share=0,rank=1",
                               "group-limited:rise=1",
                               "megatron-w4",
                               "megatron-w8",
                               "k-hot:hot=-1",
                               "uniform:heat=0.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(spw_distribution_parse(bad[i], &distribution), SPW_EARG);
    CHECK_STATUS(spw_distribution_parse("zipf:alpha=1", &distribution), SPW_EARG);
    CHECK(strstr(spw_last_error(),
                 "popularity zipf has no alpha; its keys are popularity, exponent, share") != NULL);
    CHECK_STATUS(spw_distribution_parse("group-limited:rise=1", &distribution), SPW_EARG);
    CHECK(strstr(spw_last_error(), "without 'peak'") != NULL);
    static const char *const good[] = {
        "hot-rank:rank=3,popularity=zipf,exponent=2", "drift:sigma=1,groups=4,kept=2",
        "uniform:peak=2,rise=1,share=0.5,ranks=4,rank=1", "lognormal:popularity=dirichlet,alpha=2"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_OK(spw_distribution_parse(good[i], &distribution));
    const struct {
        const char *name;
        size_t experts, top_k;
    } impossible[] = {{"uniform", 4, 5},
                      {"group-limited", 60, 8},
                      {"group-limited:kept=1", 64, 16},
                      {"hot-rank:share=0.9", 64, 16},
                      {"hot-rank:rank=8", 64, 8},
                      {"k-hot:hot=65", 64, 8},
                      {"k-hot:hot=33,stride=2", 64, 8},
                      {"k-hot:hot=4,share=0.5,ranks=8", 64, 8},
                      {"max-violation:violation=7.1", 64, 8},
                      {"uniform", 0, 0}};
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        spw_generate_settings settings = {.experts = impossible[i].experts,
                                          .top_k = impossible[i].top_k,
                                          .layers = 1,
                                          .steps = 1,
                                          .ranks = 1,
                                          .tokens_per_rank = 1};
        spw_generator *generator = NULL;
        CHECK_OK(spw_distribution_parse(impossible[i].name, &settings.distribution));
        CHECK_STATUS(spw_generator_create(&settings, &generator), SPW_EARG);
        CHECK(generator == NULL);
    }
}

int main(int argc, char **argv) {
    test_histograms();
    test_seek();
    test_compose();
    test_compose_in_place();
    test_refusals();
    test_skew();
    test_turns();
    test_severity();
    test_threads(argc > 1 ? argv[1] : ".");
    return check_done();
}
