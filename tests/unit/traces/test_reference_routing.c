/* The routing that is assumed where nobody names one: the loads of the reference, how they become popularities, and the limit to
 * groups of experts that a model's router has. */
#include "tests/unit/check.h"
#include "traces/generate/generate.h"
#include "traces/generate/reference_loads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 512, TOKENS = 2048, TOP_K = 8 };

static double load[EXPERTS];

static int falling(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Of layer 0, its counts sorted; sum 65,536 tokens x 8. */
static void sorted_counts(double out[SPW_REFERENCE_EXPERTS]) {
    double sum = 0.0;
    memcpy(out, spw_reference_count[0], SPW_REFERENCE_EXPERTS * sizeof *out);
    qsort(out, SPW_REFERENCE_EXPERTS, sizeof *out, falling);
    for (size_t i = 0; i < SPW_REFERENCE_EXPERTS; i++) sum += out[i];
    CHECK(sum == 65536.0 * 8.0);
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void test_loads(void) {
    double count[SPW_REFERENCE_EXPERTS];
    const double mean = 65536.0 * 8.0 / 64.0;
    sorted_counts(count);
    spw_reference_loads(0, 64, load); /* as measured */
    for (size_t i = 0; i < 64; i++) CHECK(near(load[i], count[i] / mean));
    spw_reference_loads(SPW_REFERENCE_LAYERS, 64, load); /* layers go round */
    CHECK(near(load[0], count[0] / mean));
    spw_reference_loads(0, 256, load); /* each four times */
    for (size_t i = 0; i < 256; i++) CHECK(near(load[i], count[i / 4] / mean));
    spw_reference_loads(0, 8, load); /* means of eight */
    for (size_t i = 0; i < 8; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < 8; j++) sum += count[8 * i + j];
        CHECK(near(load[i], sum / 8.0 / mean));
    }
    spw_reference_loads(0, 96,
                        load); /* two thirds of an expert each: 1, then half of 1 and half of 2, then 2 */
    CHECK(near(load[0], count[0] / mean));
    CHECK(near(load[1], 0.5 * (count[0] + count[1]) / mean));
    CHECK(near(load[2], count[1] / mean));
    for (size_t layer = 0; layer < SPW_REFERENCE_LAYERS; layer++)
        for (size_t experts = 1; experts <= EXPERTS; experts++) {
            double sum = 0.0;
            size_t rises = 0;
            spw_reference_loads(layer, experts, load);
            for (size_t i = 0; i < experts; i++) {
                sum += load[i];
                rises += i > 0 && load[i] > load[i - 1] + 1e-9;
            }
            CHECK(fabs(sum - (double)experts) < 1e-6 && rises == 0 && load[experts - 1] > 0.0);
        }
}

static spw_generator *make(const char *text, size_t experts, size_t top_k, spw_generate_settings *settings) {
    spw_generator *generator = NULL;
    *settings = (spw_generate_settings){.experts = experts,
                                        .top_k = top_k,
                                        .layers = 4,
                                        .steps = 1,
                                        .ranks = 2,
                                        .tokens_per_rank = TOKENS / 2,
                                        .seed = 7};
    CHECK_OK(spw_distribution_parse(text, &settings->distribution));
    CHECK_OK(spw_generator_create(settings, &generator));
    return generator;
}

/* Sorted inclusion of a layer. */
static void sorted_inclusion(spw_generator *generator, size_t layer, size_t experts, double *out) {
    spw_generator_inclusion(generator, layer, out);
    qsort(out, experts, sizeof *out, falling);
}

/* An expert of load r is chosen by r top_k / experts of the tokens, within groups, too, as none of these is full. */
static void test_inclusion(void) {
    static const struct {
        const char *text;
        size_t experts, top_k;
    } cases[] = {{"reference", 64, 8},
                 {"reference", 256, 8},
                 {"reference", 8, 2},
                 {"reference:groups=8,kept=4", 256, 8},
                 {"uniform:popularity=reference", 128, 8}};
    double got[EXPERTS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_generate_settings settings;
        spw_generator *generator = make(cases[i].text, cases[i].experts, cases[i].top_k, &settings);
        if (generator == NULL) continue;
        for (size_t layer = 0; layer < 4; layer++) {
            const double mean = (double)cases[i].top_k / (double)cases[i].experts;
            sorted_inclusion(generator, layer, cases[i].experts, got);
            spw_reference_loads(layer, cases[i].experts, load);
            for (size_t x = 0; x < cases[i].experts; x++) CHECK(fabs(got[x] - mean * load[x]) < 1e-6);
        }
        spw_generator_destroy(generator);
    }
    /* 6 of 8: what is above all tokens goes to the others in proportion. */
    spw_generate_settings settings;
    spw_generator *generator = make("reference", 8, 6, &settings);
    double sum = 0.0;
    if (generator == NULL) return;
    sorted_inclusion(generator, 0, 8, got);
    spw_reference_loads(0, 8, load);
    for (size_t i = 0; i < 8; i++) sum += got[i];
    CHECK(fabs(sum - 6.0) < 1e-9 && near(got[0], 1.0) && fabs(got[7] / got[6] - load[7] / load[6]) < 1e-6);
    spw_generator_destroy(generator);
}

/* The exponent: 0 is even, and the more, the more the hottest has. */
static void test_exponent(void) {
    static const char *const text[] = {
        "reference:exponent=0",   "reference:exponent=0.5", "reference",
        "reference:exponent=1.5", "reference:exponent=2",   "reference:exponent=4"};
    double before = 0.0;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        spw_generate_settings settings;
        double part = 0.0, violation = 0.0;
        spw_generator *generator = make(text[i], 64, 2, &settings);
        spw_generator_destroy(generator);
        CHECK_OK(spw_generator_skew(&settings, 64, &part, &violation));
        CHECK(near(part, violation + 1.0));
        CHECK(i == 0 ? fabs(violation) < 1e-6 : violation > before);
        before = violation;
    }
    spw_severity severity;
    CHECK_OK(spw_distribution_severity("reference", 64, 8, &severity));
    CHECK(strcmp(severity.key, "exponent") == 0 && severity.given == 1.0); /* today's */
    CHECK_OK(spw_distribution_severity("reference:exponent=2", 64, 8, &severity));
    CHECK(severity.given == 2.0);
}

/* Which routings take the limit of a model, 4 of 8 groups, and which say otherwise or name their experts. */
static void test_limit(void) {
    static const struct {
        const char *text;
        bool limited;
        double groups, kept;
    } cases[] = {{"reference", true, 8, 4},
                 {"uniform", true, 8, 4},
                 {"zipf", true, 8, 4},
                 {"lognormal", true, 8, 4},
                 {"dirichlet", true, 8, 4},
                 {"drift", true, 8, 4},
                 {"collapse", true, 8, 4},
                 {"reference:groups=0", false, 0, 0},
                 {"zipf:groups=4,kept=2", false, 4, 2},
                 {"group-limited:groups=16", false, 16, 4},
                 {"hot-rank", false, 0, 0},
                 {"k-hot", false, 0, 0},
                 {"max-violation", false, 0, 0},
                 {"megatron-w0", false, 0, 0},
                 {"megatron-w3", false, 0, 0}};
    spw_distribution d;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(spw_distribution_parse(cases[i].text, &d));
        CHECK(spw_distribution_limit(&d, 8, 4) == cases[i].limited);
        CHECK(d.groups == cases[i].groups && (d.groups == 0.0 || d.kept == cases[i].kept));
    }
    CHECK_OK(spw_distribution_parse("reference", &d));
    CHECK(!spw_distribution_limit(&d, 1, 1) && !spw_distribution_limit(&d, 8, 8) && d.groups == 0.0);
    CHECK_STATUS(spw_distribution_parse("reference:groups=0,kept=2", &d), SPW_EARG);
    CHECK_STATUS(spw_distribution_parse("uniform:exponent=2", &d), SPW_EARG);
}

/* No token has experts of more groups than it may, by looking at each. */
static void test_groups(void) {
    static uint16_t ids[TOKENS * TOP_K];
    static const struct { size_t groups, kept; } cases[] = {{8, 4}, {8, 1}, {4, 2}, {16, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_generate_settings settings;
        size_t most = 0;
        spw_generator *generator = make("reference", 256, TOP_K, &settings);
        spw_generator_destroy(generator);
        CHECK(spw_distribution_limit(&settings.distribution, cases[i].groups, cases[i].kept));
        CHECK_OK(spw_generator_create(&settings, &generator));
        if (generator == NULL) continue;
        CHECK_OK(spw_generator_record(generator, 1, ids));
        for (size_t t = 0; t < TOKENS; t++) {
            unsigned mask = 0;
            for (size_t k = 0; k < TOP_K; k++) mask |= 1u << ids[t * TOP_K + k] / (256 / cases[i].groups);
            const size_t seen = (size_t)__builtin_popcount(mask);
            most = seen > most ? seen : most;
        }
        CHECK(most == cases[i].kept);
        spw_generator_destroy(generator);
    }
}

int main(void) {
    test_loads();
    test_inclusion();
    test_exponent();
    test_limit();
    test_groups();
    return check_done();
}
