/* Hash layers: the table of ids, the frequencies of ids, and what a generator makes of them. argv[1]: scratch directory. */
#include "base/file.h"
#include "base/memory.h"
#include "sim/command/trace/id_counts.h"
#include "tests/unit/check.h"
#include "traces/generate/generate.h"
#include "traces/generate/hash_routing.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <string.h>

enum { EXPERTS = 12, TOP_K = 3, IDS = 40, TOKENS = 6000 };

static const spw_hash_settings usual = {
    .experts = EXPERTS, .top_k = TOP_K, .layers = 2, .vocabulary = IDS, .exponent = 1.0, .seed = 5};

static double zipf(size_t id) {
    double sum = 0.0;
    for (size_t i = 1; i <= IDS; i++) sum += 1.0 / (double)i;
    return 1.0 / (double)(id + 1) / sum;
}

/* Every row: distinct experts, the same each time; all rows together: every expert about as often. */
static void test_table(void) {
    spw_hash_settings settings = usual;
    spw_hash_routing *hash = NULL;
    settings.vocabulary = 4000;
    CHECK_OK(spw_hash_routing_create(&settings, &hash));
    if (hash == NULL) return;
    double count[EXPERTS] = {0}, chi_square = 0.0;
    size_t bad = 0, changed = 0;
    for (size_t id = 0; id < settings.vocabulary; id++) {
        uint16_t row[TOP_K], again[TOP_K], other[TOP_K];
        spw_hash_routing_row(hash, 0, id, row);
        spw_hash_routing_row(hash, 0, id, again);
        spw_hash_routing_row(hash, 1, id, other);
        bad += memcmp(row, again, sizeof row) != 0;
        changed += memcmp(row, other, sizeof row) != 0;
        for (size_t k = 0; k < TOP_K; k++) {
            bad += row[k] >= EXPERTS;
            count[row[k] % EXPERTS] += 1.0;
            for (size_t i = 0; i < k; i++) bad += row[i] == row[k];
        }
    }
    CHECK(bad == 0);
    CHECK(changed > settings.vocabulary * 9 / 10); /* 1 of 1320 orders would agree by chance */
    const double mean = (double)(settings.vocabulary * TOP_K) / EXPERTS,
                 variance = mean * (1.0 - (double)TOP_K / EXPERTS);
    for (size_t i = 0; i < EXPERTS; i++) chi_square += (count[i] - mean) * (count[i] - mean) / variance;
    chi_square *= (double)(EXPERTS - 1) / EXPERTS;
    CHECK(gsl_cdf_chisq_Q(chi_square, EXPERTS - 1) > 1e-5 && gsl_cdf_chisq_P(chi_square, EXPERTS - 1) > 1e-5);
    spw_hash_routing_destroy(hash);
}

/* Frequencies by hand: the ids of a rank follow them, and so do the experts, whose inclusion is summed here. */
static void check_frequencies(const spw_hash_settings *settings, double (*frequency)(size_t id)) {
    static uint32_t id[TOKENS];
    spw_hash_routing *hash = NULL;
    double count[IDS] = {0}, want[EXPERTS] = {0}, chi_square = 0.0;
    size_t free_ids = 0, bad = 0;
    CHECK_OK(spw_hash_routing_create(settings, &hash));
    if (hash == NULL) return;
    spw_hash_routing_ids(hash, 3, 1, TOKENS, id);
    for (size_t t = 0; t < TOKENS; t++) {
        bad += id[t] >= IDS;
        count[id[t] % IDS] += 1.0;
    }
    for (size_t i = 0; i < IDS; i++) {
        uint16_t row[TOP_K];
        const double expected = TOKENS * frequency(i);
        spw_hash_routing_row(hash, 1, i, row);
        for (size_t k = 0; k < TOP_K; k++) want[row[k]] += frequency(i);
        if (expected > 0.0) {
            chi_square += (count[i] - expected) * (count[i] - expected) / expected;
            free_ids++;
        } else {
            bad += count[i] > 0.0;
        }
    }
    for (size_t i = 0; i < EXPERTS; i++)
        bad += !(fabs(spw_hash_routing_inclusion(hash, 1)[i] - want[i]) < 1e-12);
    CHECK(bad == 0);
    CHECK(gsl_cdf_chisq_Q(chi_square, (double)free_ids - 1.0) > 1e-5);
    CHECK(gsl_cdf_chisq_P(chi_square, (double)free_ids - 1.0) > 1e-5);
    spw_hash_routing_destroy(hash);
}

static double given[IDS];
static double by_weight(size_t id) {
    double sum = 0.0;
    for (size_t i = 0; i < IDS; i++) sum += given[i];
    return given[id] / sum;
}

static void test_frequencies(void) {
    spw_hash_settings settings = usual;
    check_frequencies(&settings, zipf);
    for (size_t i = 0; i < IDS; i++) given[i] = i % 7 == 3 ? 0.0 : (double)(i * i + 1);
    given[IDS - 1] = 0.0; /* the last id, too, may not occur */
    settings.weight = given;
    check_frequencies(&settings, by_weight);
}

/* A token's experts are its id's row, in every hash layer those of the same id. */
static void test_record(void) {
    static uint16_t first[2 * 500 * TOP_K], second[2 * 500 * TOP_K];
    static uint32_t id[500];
    spw_hash_routing *hash = NULL;
    size_t bad = 0;
    CHECK_OK(spw_hash_routing_create(&usual, &hash));
    if (hash == NULL) return;
    CHECK_OK(spw_hash_routing_record(hash, 0, 4, 2, 500, first));
    CHECK_OK(spw_hash_routing_record(hash, 1, 4, 2, 500, second));
    for (size_t rank = 0; rank < 2; rank++) {
        spw_hash_routing_ids(hash, 4, rank, 500, id);
        for (size_t t = 0; t < 500; t++) {
            uint16_t row[TOP_K];
            const size_t at = (rank * 500 + t) * TOP_K;
            spw_hash_routing_row(hash, 0, id[t], row);
            bad += memcmp(row, first + at, sizeof row) != 0;
            spw_hash_routing_row(hash, 1, id[t], row);
            bad += memcmp(row, second + at, sizeof row) != 0;
        }
    }
    CHECK(bad == 0);
    CHECK(memcmp(first, first + (size_t)500 * TOP_K, (size_t)500 * TOP_K * sizeof *first) !=
          0); /* ranks differ */
    CHECK_OK(spw_hash_routing_record(hash, 0, 5, 2, 500, second));
    CHECK(memcmp(first, second, sizeof first) != 0); /* steps differ */
    spw_hash_routing_destroy(hash);
}

/* One id: every token chooses alike. As even as chance allows where words are alike. */
static void test_extremes(void) {
    static uint16_t id[100 * TOP_K];
    spw_hash_settings settings = usual;
    spw_hash_routing *hash = NULL;
    size_t bad = 0;
    settings.vocabulary = 1;
    CHECK_OK(spw_hash_routing_create(&settings, &hash));
    if (hash == NULL) return;
    CHECK_OK(spw_hash_routing_record(hash, 0, 0, 1, 100, id));
    for (size_t t = 1; t < 100; t++) bad += memcmp(id, id + t * TOP_K, TOP_K * sizeof *id) != 0;
    CHECK(bad == 0);
    CHECK(spw_hash_routing_inclusion(hash, 0)[id[0]] == 1.0);
    spw_hash_routing_destroy(hash);
    const double wrong[][2] = {{-1.0, 2.0}, {0.0, 0.0}, {NAN, 1.0}, {INFINITY, 1.0}};
    settings.vocabulary = 2;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        settings.weight = wrong[i];
        CHECK_STATUS(spw_hash_routing_create(&settings, &hash), SPW_EARG);
        CHECK(hash == NULL);
    }
    settings.vocabulary = 0;
    CHECK_STATUS(spw_hash_routing_create(&settings, &hash), SPW_EARG);
    CHECK(strstr(spw_last_error(), "0 ids; must be 1 to 1048576") != NULL);
}

/* In a generator the first layers are hash layers, and the rest is what it is without them. */
static void test_generator(void) {
    static uint16_t with[3][400 * TOP_K], without[3][400 * TOP_K];
    static double inclusion[EXPERTS];
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = 3,
                                      .steps = 2,
                                      .ranks = 4,
                                      .tokens_per_rank = 100,
                                      .seed = 9};
    const char *const texts[] = {"lognormal", "lognormal:hash=2,vocabulary=30,words=1.5"};
    double sum = 0.0;
    for (size_t i = 0; i < 2; i++) {
        spw_generator *generator = NULL;
        CHECK_OK(spw_distribution_parse(texts[i], &settings.distribution));
        CHECK_OK(spw_generator_create(&settings, &generator));
        if (generator == NULL) return;
        spw_generator_seek(generator, 1);
        for (size_t layer = 0; layer < 3; layer++)
            CHECK_OK(spw_generator_record(generator, layer, i == 0 ? without[layer] : with[layer]));
        spw_generator_inclusion(generator, 1, inclusion);
        spw_generator_destroy(generator);
    }
    for (size_t i = 0; i < EXPERTS; i++) sum += inclusion[i];
    CHECK(fabs(sum - TOP_K) < 1e-12);
    CHECK(memcmp(with[2], without[2], sizeof with[2]) == 0);
    CHECK(memcmp(with[0], without[0], sizeof with[0]) != 0 &&
          memcmp(with[1], without[1], sizeof with[1]) != 0);
    CHECK_OK(spw_distribution_parse("hash", &settings.distribution)); /* all layers */
    CHECK(settings.distribution.hash >= 3.0 && settings.distribution.words == 1.0);
    CHECK_STATUS(spw_distribution_parse("uniform:words=2", &settings.distribution), SPW_EARG);
    CHECK(strstr(spw_last_error(), "'words' does nothing without 'hash'") != NULL);
    int n = 0;
    CHECK_OK(spw_distribution_parse(texts[1], &settings.distribution));
    for (spw_status status = SPW_ENOMEM; status != SPW_OK && n < 100; n++) {
        spw_generator *generator = NULL;
        spw_alloc_fail_after(n);
        status = spw_generator_create(&settings, &generator);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
        spw_generator_destroy(generator);
    }
    CHECK(n > 1 && n < 100);
}

/* --- A table of counts --- */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static void test_counts(const char *scratch) {
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"id,count\n1.5,2\n", ":2: id '1.5'; must be a whole number of 0 to 1048575"},
        {"id,count\n-1,2\n", "id '-1'"},
        {"id,count\n1048576,2\n", "id '1048576'"},
        {"id,count\n7,many\n", ":2: count 'many'; must be a number of 0 or more"},
        {"id,count\n7,-2\n", "count '-2'"},
        {"id,count\n7,1\n7,1\n", ":3: id 7 stands there twice"},
        {"id,count\n", "no ids; write a line a token's id"},
        {"id,times\n7,1\n", "count"},
    };
    char path[512];
    double *weight = NULL;
    size_t count = 0;
    (void)snprintf(path, sizeof path, "%s/test_hash_ids.csv", scratch);
    write_text(path, "count,id\n5,3\n0.5,0\n");
    CHECK_OK(spw_id_counts_read(path, &weight, &count));
    CHECK(count == 4 && weight != NULL && weight[0] == 0.5 && weight[1] == 0.0 && weight[3] == 5.0);
    spw_free(weight);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(path, wrong[i].text);
        CHECK_STATUS(spw_id_counts_read(path, &weight, &count), SPW_EFORMAT);
        const bool said = strstr(spw_last_error(), wrong[i].message) != NULL;
        CHECK(said && weight == NULL);
        if (!said) fprintf(stderr, "  got %s\n", spw_last_error());
    }
    CHECK(remove(path) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    test_table();
    test_frequencies();
    test_record();
    test_extremes();
    test_generator();
    test_counts(argv[1]);
    return check_done();
}
