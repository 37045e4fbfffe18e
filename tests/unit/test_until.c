/* Bisection for the severity at which a point turns bad: made-up plans whose answer is known, also where more is not worse. */
#include "sim/replay/until.h"

#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>

enum { POINTS = 6, BUDGET = 1000 };

typedef struct made {
    size_t plans;
    bool fails, changes;
} made;

static spw_status plan(void *state, double x, spw_result *result) {
    made *m = state;
    const double bytes[POINTS] = {
        900.0 + 100.0 * x,                       /* bad beyond 1 */
        900.0,                                   /* never, does not follow */
        900.0 + 10.0 * x,                        /* never, follows */
        1001.0 + x,                              /* always */
        x > 2.9 && x < 5.1 ? 1100.0 : 900.0 + x, /* bad from 2.9 on, good again from 5.1 on */
        950.0 + 50.0 * x / 3.3,                  /* bad beyond 3.3 */
    };
    if (m->fails && m->plans == 5) return spw_fail(SPW_EIO, "made to fail");
    for (size_t i = 0; i < POINTS; i++) {
        spw_result_row *row = NULL;
        CHECK_OK(spw_result_append(result, &row));
        row->sequences = m->changes && m->plans == 3 ? 2 : 1;
        row->memory.max_bytes = (uint64_t)ceil(bytes[i]);
        row->footprint.peak_bytes = row->memory.max_bytes;
        row->footprint.budget_bytes = BUDGET;
        row->timed = i != 1;
        row->balanced.step_s = 1.0;
        row->time.step_s = 1.0 + x / (double)(i + 1);
    }
    m->plans++;
    return SPW_OK;
}

static void test_memory(void) {
    made m = {.plans = 0};
    const spw_until_request request = {.plan = plan, .state = &m, .low = 0.0, .high = 8.0};
    spw_until_outcome o;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(o.plans == m.plans && o.plans <= 9 + 3 * 7 && o.first.rows == POINTS);
    const double step = 8.0 / 1024;
    CHECK(o.answer[0].kind == SPW_UNTIL_FOUND && o.answer[0].good <= 1.0 && o.answer[0].bad > 1.0);
    CHECK(fabs(o.answer[0].bad - o.answer[0].good - step) < 1e-12);
    CHECK(o.answer[0].monotone && o.answer[0].follows && o.answer[0].value_low == 900.0);
    CHECK(o.answer[1].kind == SPW_UNTIL_NEVER && !o.answer[1].follows && o.answer[1].good == 8.0);
    CHECK(o.answer[2].kind == SPW_UNTIL_NEVER && o.answer[2].follows && isnan(o.answer[2].bad));
    CHECK(o.answer[3].kind == SPW_UNTIL_ALWAYS && o.answer[3].bad == 0.0 && o.answer[3].monotone);
    CHECK(o.answer[4].kind == SPW_UNTIL_FOUND && !o.answer[4].monotone && o.answer[4].good_again == 8.0);
    CHECK(o.answer[4].good <= 2.9 && o.answer[4].bad > 2.9 - step && o.answer[4].bad <= 2.9 + step);
    CHECK(o.answer[5].good <= 3.3 && o.answer[5].bad > 3.3 &&
          o.answer[5].bad - o.answer[5].good < 1.01 * step);
    spw_until_clear(&o);
}

static void test_step(void) {
    made m = {.plans = 0};
    const spw_until_request request = {.plan = plan, .state = &m, .low = 0.0, .high = 1.0, .factor = 1.1};
    spw_until_outcome o;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(o.answer[0].good <= 0.1 && o.answer[0].bad > 0.1 && o.answer[0].value_bad > 1.1);
    CHECK(o.answer[1].kind == SPW_UNTIL_UNTIMED);
    CHECK(o.answer[5].good <= 0.6 && o.answer[5].bad > 0.6);
    spw_until_clear(&o);
}

static void test_failures(void) {
    made fails = {.fails = true}, changes = {.changes = true};
    spw_until_request request = {.plan = plan, .state = &fails, .low = 0.0, .high = 8.0};
    spw_until_outcome o;
    CHECK_STATUS(spw_until_find(&request, &o), SPW_EIO);
    spw_until_clear(&o);
    request.state = &changes;
    CHECK_STATUS(spw_until_find(&request, &o), SPW_ECONFIG);
    spw_until_clear(&o);
}

int main(void) {
    test_memory();
    test_step();
    test_failures();
    return check_done();
}
