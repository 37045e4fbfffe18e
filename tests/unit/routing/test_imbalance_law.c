/* The law of a stated imbalance: pencil and paper, what holds of every number and size, and what it refuses. tests/oracle/
 * imbalance_oracle.py draws tokens and placements of its own. */
#include "sim/routing/imbalance_law.h"

#include "tests/unit/check.h"

#include <math.h>

static double sum_of(const spw_imbalance_law *law) {
    double sum = 0.0;
    for (size_t i = 0; i < law->experts; i++) sum += law->inclusion[i];
    return sum;
}

/* Two experts, one a rank, one choice: p1 / p2 = exp(2 sigma 0.6745), 0.6745 the upper quartile of the normal distribution, and
 * max / mean = 2 p1 / (p1 + p2). */
static void test_by_hand(void) {
    spw_imbalance_law law;
    CHECK_OK(spw_imbalance_law_create(2, 1, 2, 1.5, &law));
    CHECK(fabs(law.inclusion[0] - 0.75) < 1e-9 && fabs(law.inclusion[1] - 0.25) < 1e-9);
    CHECK(fabs(law.sigma - log(3.0) / (2.0 * 0.674489750196)) < 1e-9);
    CHECK(law.together < 1e-12 && law.sizes == 2);
    spw_imbalance_law_destroy(&law);
}

/* Of 8 experts, top 2, on 2 ranks: 3 of 7 placements have the two most popular experts together. With every token on these two,
 * max / mean is 2 there and 1 elsewhere. */
static void test_limit(void) {
    spw_imbalance_law law;
    CHECK_OK(spw_imbalance_law_create(8, 2, 2, 2.0, &law));
    CHECK(law.together > 0.0 && law.together <= 1.0);
    CHECK(fabs(spw_imbalance_law_at(&law, 2) - 2.0) < 1e-12 &&
          fabs(spw_imbalance_law_at(&law, 1) - 1.0) < 1e-12);
    CHECK(spw_imbalance_law_at(&law, 8) <= 4.0 && spw_imbalance_law_at(&law, 8) > 3.0);
    spw_imbalance_law_destroy(&law);
    CHECK(fabs(spw_imbalance_most(8, 2, 8) - 4.0) < 1e-12 && fabs(spw_imbalance_most(8, 2, 2) - 2.0) < 1e-12);
}

/* The stated size has the stated number, 1 rank has 1, more ranks are no more even, and more stated is more everywhere. */
static void test_properties(size_t experts, size_t top_k, size_t ranks) {
    const double most = spw_imbalance_most(experts, top_k, ranks);
    double before[SPW_LAW_SIZES] = {0.0};
    for (int i = 0; i <= 12; i++) {
        const double stated = 1.0 + (most - 1.0) * i / 12.0;
        spw_imbalance_law law;
        CHECK_OK(spw_imbalance_law_create(experts, top_k, ranks, stated, &law));
        CHECK(fabs(spw_imbalance_law_at(&law, ranks) - stated) < 1e-12 && law.at[0] == 1.0 &&
              law.size[0] == 1);
        CHECK(fabs(sum_of(&law) - (double)top_k) < 1e-9);
        for (size_t s = 0; s < law.sizes; s++) {
            CHECK(law.at[s] >= before[s] - 1e-9);
            CHECK(law.at[s] <= spw_imbalance_most(experts, top_k, law.size[s]) + 1e-9);
            for (size_t t = 0; t < s; t++) /* of nested sizes alone: others share no placement */
                CHECK(law.size[s] % law.size[t] != 0 || law.at[s] >= law.at[t] - 1e-6);
            CHECK(i > 0 || fabs(law.at[s] - 1.0) < 1e-9);
            before[s] = law.at[s];
        }
        spw_imbalance_law_destroy(&law);
    }
}

/* The placement of a size has the size's unevenness, about, and its fullest rank first. */
static void test_placement(double stated) {
    double inclusion[64];
    spw_imbalance_law law;
    CHECK_OK(spw_imbalance_law_create(64, 8, 8, stated, &law));
    for (size_t s = 0; s < law.sizes; s++) {
        const size_t ranks = law.size[s], mine = 64 / ranks;
        double most = 0.0, first = 0.0, all = 0.0;
        spw_imbalance_law_place(&law, ranks, inclusion);
        for (size_t d = 0; d < ranks; d++) {
            double sum = 0.0;
            for (size_t i = 0; i < mine; i++) sum += inclusion[d * mine + i];
            if (d == 0) first = sum;
            most = fmax(most, sum);
            all += sum;
        }
        CHECK(fabs(most - first) < 1e-12 && fabs(all - 8.0) < 1e-9);
        CHECK(fabs(most * (double)ranks / 8.0 - law.at[s]) < 0.05 * law.at[s]);
    }
    spw_imbalance_law_destroy(&law);
}

static void test_refusals(void) {
    spw_imbalance_law law;
    CHECK_STATUS(spw_imbalance_law_create(64, 8, 4, 6.0, &law), SPW_ECONFIG);
    CHECK_STATUS(spw_imbalance_law_create(8, 2, 8, 4.5, &law),
                 SPW_ECONFIG); /* two different experts a token */
    CHECK_STATUS(spw_imbalance_law_create(64, 8, 1, 1.5, &law), SPW_ECONFIG);
    CHECK_STATUS(spw_imbalance_law_create(64, 8, 3, 1.5, &law), SPW_ECONFIG);
    CHECK_STATUS(spw_imbalance_law_create(64, 8, 8, 0.9, &law), SPW_ECONFIG);
    CHECK_OK(spw_imbalance_law_create(64, 8, 1, 1.0, &law));
    CHECK(law.sigma == 0.0 && law.together == 0.0 && fabs(spw_imbalance_law_at(&law, 64) - 1.0) < 1e-12);
    spw_imbalance_law_destroy(&law);
}

int main(void) {
    test_by_hand();
    test_limit();
    test_properties(64, 8, 8);
    test_properties(8, 2, 4);
    test_properties(160, 6, 20);
    test_properties(16, 1, 16);
    test_placement(1.6);
    test_placement(6.0);
    test_refusals();
    return check_done();
}
