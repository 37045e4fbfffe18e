/* Overload factors with pencil and paper; the brute force over tokens is tests/oracle/replay/overload_oracle.py. */
#include "sim/replay/overload.h"

#include "tests/unit/check.h"

#include <math.h>

static bool near(double got, double want) { return fabs(got - want) < 1e-12; }

/* Two groups of two ranks, two layers, one micro-batch:
 *   group 0: layer 0 has 6 2 (mean 4), layer 1 has 1 7 (mean 4); group 1: 3 3 and 2 6.
 * F: 1.5, 1.75, 1, 1.5. Layer by layer group 0 waits for 6 + 7 of 8, group 1 for 3 + 6 of 7. Rank sums 7 9 and 5 9. */
static void test_one_stage(void) {
    const spw_overload_shape shape = {4, 2, 2, NULL, {1, 1, 1}};
    const uint64_t rows[2][2][2] = {{{6, 2}, {3, 3}}, {{1, 7}, {2, 6}}};
    double factor[SPW_OVERLOADS];
    spw_overload o;
    spw_overload_run run = {.steps = 0};
    CHECK_OK(spw_overload_create(&shape, &o));
    spw_overload_begin(&o);
    for (size_t l = 0; l < 2; l++) {
        for (size_t g = 0; g < 2; g++) spw_overload_add(&o, l, 0, 2 * g, rows[l][g]);
    }
    spw_overload_end(&o, factor);
    CHECK(near(factor[SPW_OVERLOAD_MAX], 1.75));
    CHECK(near(factor[SPW_OVERLOAD_AVERAGE], (1.5 + 1.75 + 1.0 + 1.5) / 4.0));
    CHECK(near(factor[SPW_OVERLOAD_CUMULATIVE], 9.0 / 7.0));
    CHECK(near(factor[SPW_OVERLOAD_BY_LAYER], 13.0 / 8.0));
    CHECK(near(factor[SPW_OVERLOAD_RANK], 9.0 / 7.0));
    CHECK(near(spw_overload_step_layer(&o, 1).average, 1.625) &&
          near(spw_overload_step_layer(&o, 1).max, 1.75));
    spw_overload_run_add(&run, factor, 30);
    spw_overload_begin(&o); /* the other rank is busy: over the run the two make up for each other */
    spw_overload_add(&o, 0, 0, 0, (const uint64_t[]){9, 7});
    spw_overload_add(&o, 0, 0, 2, (const uint64_t[]){9, 5});
    spw_overload_end(&o, factor);
    spw_overload_run_add(&run, factor, 31);
    CHECK(near(factor[SPW_OVERLOAD_MAX], 9.0 / 7.0) &&
          near(factor[SPW_OVERLOAD_AVERAGE], (9.0 / 8.0 + 9.0 / 7.0) / 2.0));
    CHECK(near(spw_overload_run_rank(&o), 1.0));
    spw_overload_begin(&o); /* a step without rows says nothing */
    spw_overload_end(&o, factor);
    spw_overload_run_add(&run, factor, 32);
    CHECK(run.steps == 2 && near(factor[SPW_OVERLOAD_MAX], 0.0));
    spw_overload_run_finish(&run);
    CHECK(near(run.mean[SPW_OVERLOAD_MAX], (1.75 + 9.0 / 7.0) / 2.0) &&
          run.worst_step[SPW_OVERLOAD_MAX] == 30);
    CHECK(near(spw_overload_run_layer(&o, 0).max, 1.5));
    spw_overload_destroy(&o);
}

/* One group of two ranks, one layer that is recorded four times over (micro-batches): 3 1, 4 0, 0 4, 1 3 rows. One after the
 * other, nothing is kept beyond one micro-batch: the worst is 4 of 2. */
static void test_micro_batches(void) {
    static const uint64_t rows[4][2] = {{3, 1}, {4, 0}, {0, 4}, {1, 3}};
    const spw_overload_shape shape = {2, 2, 1, NULL, {1, 1, 4}};
    double factor[SPW_OVERLOADS];
    spw_overload o;
    CHECK_OK(spw_overload_create(&shape, &o));
    spw_overload_begin(&o);
    for (size_t m = 0; m < 4; m++) spw_overload_add(&o, 0, m, 0, rows[m]);
    spw_overload_end(&o, factor);
    CHECK(near(factor[SPW_OVERLOAD_CUMULATIVE], 2.0));
    CHECK(near(factor[SPW_OVERLOAD_BY_LAYER], 14.0 / 8.0) && near(factor[SPW_OVERLOAD_RANK], 1.0));
    spw_overload_destroy(&o);
}

int main(void) {
    test_one_stage();
    test_micro_batches();
    return check_done();
}
