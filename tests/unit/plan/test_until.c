/* Bisection for the severity at which a point turns bad: made-up plans whose answer is known, also where more is not worse. */
#include "sim/job/job.h"
#include "sim/plan/until.h"
#include "sim/replay/result_answers.h"

#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>

enum { POINTS = 6, BUDGET = 1000 };

static const spw_job_allocator usual = {.expandable_segments = false};

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
        row->memory_kind = SPW_MEMORY_ARENA;
        row->footprint.low_bytes = row->memory.max_bytes - 20;
        row->footprint.high_bytes = row->memory.max_bytes + 20;
        row->ratio_width = 0.02;
        row->memory.worst_rank = i;
        row->timed = i != 1;
        row->balanced.step_s = 1.0;
        row->time.step_s = 1.0 + x / (double)(i + 1);
        spw_result_row_judge(row, &usual);
        row->reserved.there = i == 2; /* less than what lives, on another rank */
        row->reserved.as_set.worst_rank = 40;
        row->drops.fraction = 0.001 * x;
    }
    m->plans++;
    return SPW_OK;
}

static void test_memory(void) {
    made m = {.plans = 0};
    const double factor = 0.0;
    const spw_until_request request = {
        .plan = plan, .state = &m, .low = 0.0, .high = 8.0, .today = 9.5, .factor = &factor, .questions = 1};
    spw_until_outcome o;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(o.plans == m.plans && o.plans <= 10 + 3 * 3 * 7 && o.first.rows == POINTS);
    const double step = 8.0 / 1024;
    CHECK(o.answer[0].kind == SPW_UNTIL_FOUND && o.answer[0].good <= 1.0 && o.answer[0].bad > 1.0);
    CHECK(fabs(o.answer[0].bad - o.answer[0].good - step) < 1e-12);
    /* 20 bytes either way are 0.2 of the severity */
    CHECK(o.answer[0].sure <= 0.8 && o.answer[0].sure > 0.8 - 1.01 * step);
    CHECK(o.answer[0].surely_bad > 1.2 && o.answer[0].surely_bad < 1.2 + 1.01 * step);
    CHECK(o.answer[0].at_good.high == o.answer[0].at_good.value + 20.0);
    CHECK(fabs(o.answer[0].drops_good - 0.001 * o.answer[0].good) < 1e-15);
    CHECK(isnan(o.answer[3].sure) && o.answer[3].at_low.low == 981.0);
    CHECK(isnan(o.answer[3].surely_bad) && isnan(o.answer[2].surely_bad) && o.answer[2].sure == 8.0);
    CHECK(o.answer[5].place.rank == 5 && o.answer[2].place.rank == 40);
    CHECK(o.answer[0].at_today.value == 1850.0 && o.answer[0].at_today.high == 1870.0 &&
          o.answer[0].at_today.bad);
    CHECK(o.answer[0].monotone && o.answer[0].follows && o.answer[0].at_low.value == 900.0);
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
    const double factor[] = {0.0, 1.1, 1.5};
    const spw_until_request request = {
        .plan = plan, .state = &m, .low = 0.0, .high = 1.0, .today = NAN, .factor = factor, .questions = 3};
    spw_until_outcome o;
    CHECK_OK(spw_until_find(&request, &o));
    const spw_until_answer *a = o.answer + POINTS, *more = a + POINTS; /* question by question */
    const double step = 1.0 / 1024;
    CHECK(o.plans == m.plans && isnan(a[0].at_today.value));
    CHECK(a[0].good <= 0.1 && a[0].bad > 0.1 && a[0].at_bad.value > 1.1 && a[0].at_bad.budget == 1.1);
    CHECK(a[1].kind == SPW_UNTIL_UNTIMED);
    CHECK(a[5].good <= 0.6 && a[5].bad > 0.6);
    /* (1 + x) exp(0.02) <= 1.1, and (1 + x) exp(-0.02) > 1.1 */
    CHECK(a[0].sure <= 1.1 / exp(0.02) - 1.0 && a[0].sure > 1.1 / exp(0.02) - 1.0 - 1.01 * step);
    CHECK(a[0].surely_bad > 1.1 * exp(0.02) - 1.0 && a[0].surely_bad < 1.1 * exp(0.02) - 1.0 + 1.01 * step);
    CHECK(more[0].good <= 0.5 && more[0].bad > 0.5 && o.answer[3].kind == SPW_UNTIL_ALWAYS);
    spw_until_clear(&o);
}

static void test_failures(void) {
    made fails = {.fails = true}, changes = {.changes = true};
    const double factor = 0.0;
    spw_until_request request = {.plan = plan,
                                 .state = &fails,
                                 .low = 0.0,
                                 .high = 8.0,
                                 .today = NAN,
                                 .factor = &factor,
                                 .questions = 1};
    spw_until_outcome o;
    CHECK_STATUS(spw_until_find(&request, &o), SPW_EIO);
    spw_until_clear(&o);
    request.state = &changes;
    CHECK_STATUS(spw_until_find(&request, &o), SPW_ECONFIG);
    spw_until_clear(&o);
}

/* All is far over the budget at the low end: one plan; a fall is told with its ends. */
static spw_status plan_out(void *state, double x, spw_result *result) {
    made *m = state;
    for (size_t i = 0; i < 2; i++) {
        spw_result_row *row = NULL;
        CHECK_OK(spw_result_append(result, &row));
        row->sequences = 1;
        row->memory.max_bytes = row->footprint.peak_bytes =
            m->changes ? (uint64_t)(900.0 - 10.0 * fabs(x - 3.0)) : BUDGET + 50;
        row->footprint.low_bytes = row->footprint.high_bytes = row->memory.max_bytes;
        row->footprint.budget_bytes = BUDGET;
        row->memory_kind = SPW_MEMORY_ARENA;
        if (i == 1 && m->fails) row->footprint.low_bytes = BUDGET; /* it may fit */
    }
    m->plans++;
    return SPW_OK;
}

static void test_once(void) {
    made all = {.plans = 0}, unsure = {.fails = true}, falls = {.changes = true};
    const double factors[] = {0.0, 1.5}; /* no point has a time, of which nothing can be said */
    spw_until_request request = {.plan = plan_out,
                                 .state = &all,
                                 .low = 0.0,
                                 .high = 8.0,
                                 .today = NAN,
                                 .factor = factors,
                                 .questions = 2};
    spw_until_outcome o;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(o.once && o.plans == 1 && all.plans == 1 && o.answer[0].kind == SPW_UNTIL_ALWAYS);
    CHECK(o.answer[1].surely_bad == 0.0 && o.answer[2].kind == SPW_UNTIL_UNTIMED);
    spw_until_clear(&o);
    request.state = &unsure;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(!o.once && o.plans == 9);
    spw_until_clear(&o);
    request.state = &falls;
    CHECK_OK(spw_until_find(&request, &o));
    CHECK(!o.answer[0].monotone && o.answer[0].good_again == 0.0);
    CHECK(o.answer[0].fall.from == 3.0 && o.answer[0].fall.to == 8.0);
    CHECK(o.answer[0].fall.value_from == 900.0 && o.answer[0].fall.value_to == 850.0);
    spw_until_clear(&o);
}

static spw_until_value value_of(spw_result_row *row, const spw_job_allocator *allocator) {
    spw_result_row_judge(row, allocator);
    const spw_until_value v = spw_until_value_of(row, 0.0);
    CHECK(row->surely_fits == spw_until_is_sure(&v)); /* plan and --until say the same */
    return v;
}

/* What must be live, with what an allocator adds at most: of what is not state 3.16 times, or 1.04 in expandable segments. */
static void test_live(void) {
    spw_scheme scheme;
    spw_job_allocator allocator = {.expandable_segments = false};
    spw_result_row row = {.memory_kind = SPW_MEMORY_LIVE};
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    row.scheme = scheme;
    row.memory.max_bytes = row.footprint.peak_bytes = 500;
    row.footprint.argument_bytes = 300;
    row.footprint.budget_bytes = 900;
    spw_until_value v = value_of(&row, &allocator);
    CHECK(!v.bad && v.value == 500.0 && v.low == 500.0 && fabs(v.high - 932.0) < 1e-9 &&
          !spw_until_is_sure(&v));
    allocator.expandable_segments = true;
    v = value_of(&row, &allocator);
    CHECK(fabs(v.high - 508.0) < 1e-9 && spw_until_is_sure(&v));
    allocator.max_split_size_mb = 512; /* took all there was */
    v = value_of(&row, &allocator);
    CHECK(isinf(v.high) && !spw_until_is_sure(&v));
    row.reserved.there = true;
    row.reserved.as_set.reserved.max_bytes = 890;
    v = value_of(&row, &allocator);
    CHECK(v.value == 890.0 && v.low == 500.0 && fabs(v.high - 943.4) < 1e-9 && !spw_until_is_sure(&v));
    row.reserved.as_set.retried_steps = 1;
    v = value_of(&row, &allocator);
    CHECK(!v.bad && isinf(v.high));
    CHECK_OK(spw_scheme_parse("gmm", &scheme)); /* nobody said what a compiler adds */
    row = (spw_result_row){.memory_kind = SPW_MEMORY_LIVE, .scheme = scheme};
    v = value_of(&row, &allocator);
    CHECK(isinf(v.high));
    row.newest.there = true, row.newest.high_bytes = 7;
    v = value_of(&row, &allocator);
    CHECK(v.high == 7.0);
}

/* What two routings of a job share cancels in their ratio; the first's own doubt does not. */
static void test_ratio(void) {
    const spw_timeline even = {.step_s = 2.0, .doubt_s = {0.1, 0.4}},
                       uneven = {.step_s = 4.0, .doubt_s = {0.2, 0.4, 0.04}};
    CHECK(fabs(spw_timeline_ratio_width(&uneven, &even) - (0.05 + 0.1 + 0.01)) < 1e-12);
    CHECK(fabs(spw_timeline_ratio_width(&even, &even) - 0.05) < 1e-12);
}

/* Chances of a normal law, from a table: 1 half width is 1.645 deviations, 95.0 %. */
static void test_faster(void) {
    spw_timeline a = {.step_s = 1.0, .tokens_per_s_per_gpu = exp(0.1), .pair_width = 0.1},
                 b = {.step_s = 1.0, .tokens_per_s_per_gpu = 1.0, .pair_width = 0.05};
    CHECK(fabs(spw_timeline_faster(&a, &b) - 0.95) < 1e-9);
    CHECK(fabs(spw_timeline_faster(&b, &a) - 0.05) < 1e-9);
    a.doubt_s[0] = 7.0, b.doubt_s[0] = 3.0; /* of routings: in pair_width */
    a.doubt_s[2] = b.doubt_s[2] = 0.5;      /* of both alike */
    CHECK(fabs(spw_timeline_faster(&a, &b) - 0.95) < 1e-9);
    a.doubt_s[2] = 0.6; /* 0.1 / 0.2 of a half width: 0.8224 deviations */
    CHECK(fabs(spw_timeline_faster(&a, &b) - 0.79458) < 1e-5);
    b.pair_width = 0.0; /* hypot(0.24, 0.32) + 0.1: 0.2 half widths, 0.32897 deviations */
    a.doubt_s[0] = 0.24, b.doubt_s[0] = 0.32;
    CHECK(fabs(spw_timeline_faster(&a, &b) - 0.62891) < 1e-5);
    a.doubt_s[0] = a.doubt_s[2] = b.doubt_s[0] = b.doubt_s[2] = 0.0;
    CHECK(spw_timeline_faster(&a, &b) == 1.0 && spw_timeline_faster(&b, &a) == 0.0);
    CHECK(spw_timeline_faster(&a, &a) == 0.5);
    b.step_s = 0.0;
    CHECK(isnan(spw_timeline_faster(&a, &b)));
}

int main(void) {
    test_live();
    test_ratio();
    test_faster();
    test_memory();
    test_step();
    test_once();
    test_failures();
    return check_done();
}
