/* Which point of a plan is chosen when points are equal: less memory, then the order of the plan. Points here are made by
 * hand; what they mean to a user is held by tests/oracle/plan_oracle.py. */
#include "sim/replay/plan_answers.h"

#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

enum { BUDGET = 1000 };

typedef struct point {
    const char *scheme;
    double speed; /* 0: no time */
    uint64_t bytes, high;
    size_t sequences, expert;
    uint64_t dropped; /* of 100 */
} point;

static spw_result made(const point *points, size_t count) {
    spw_result result = {0};
    for (size_t i = 0; i < count; i++) {
        spw_result_row *row = NULL;
        CHECK_OK(spw_result_append(&result, &row));
        (void)snprintf(row->scheme.text, sizeof row->scheme.text, "%s", points[i].scheme);
        row->timed = points[i].speed > 0.0;
        row->time.tokens_per_s_per_gpu = points[i].speed;
        row->memory.max_bytes = points[i].bytes;
        row->footprint.budget_bytes = BUDGET;
        row->footprint.high_bytes = points[i].high > 0 ? points[i].high : points[i].bytes;
        row->sequences = points[i].sequences;
        row->expert = points[i].expert;
        row->drops.assignments = 100;
        row->drops.dropped = points[i].dropped;
    }
    return result;
}

/* The position of the fastest point that drops nothing, -1 for none. */
static int fastest(const spw_result *result, bool surely) {
    const spw_result_row *row = spw_plan_fastest(result, 0.0, surely);
    return row == NULL ? -1 : (int)(row - result->row);
}

static int fastest_of(const point *points, size_t count, bool surely) {
    spw_result result = made(points, count);
    const int found = fastest(&result, surely);
    spw_result_clear(&result);
    return found;
}

static void test_fastest(void) {
    const point slow = {"a", 10, 100, 0, 1, 8, 0}, more = {"b", 20, 500, 0, 2, 8, 0},
                less = {"c", 20, 400, 0, 4, 8, 0}, same = {"d", 20, 400, 0, 1, 8, 0},
                tight = {"e", 30, 990, 0, 1, 8, 0}, wide = {"f", 30, 900, 1100, 1, 8, 0},
                large = {"g", 90, 1001, 0, 1, 8, 0}, drops = {"h", 80, 10, 0, 1, 8, 3},
                untimed = {"i", 0, 10, 0, 1, 8, 0};
    CHECK(fastest_of((point[]){slow, more}, 2, false) == 1);
    CHECK(fastest_of((point[]){more, slow}, 2, false) == 0);
    CHECK(fastest_of((point[]){more, less}, 2, false) == 1); /* equal speed: less memory, in either order */
    CHECK(fastest_of((point[]){less, more}, 2, false) == 0);
    CHECK(fastest_of((point[]){less, same}, 2, false) ==
          0); /* equal in both: the first, whatever the batch */
    CHECK(fastest_of((point[]){same, less}, 2, false) == 0);
    CHECK(fastest_of((point[]){slow, more, same, less, slow}, 5, false) == 2);
    CHECK(fastest_of((point[]){large, drops, untimed, slow}, 4, false) == 3);
    CHECK(fastest_of((point[]){large, drops, untimed}, 3, false) == -1);
    CHECK(fastest_of((point[]){slow, tight}, 2, false) == 1);
    CHECK(fastest_of((point[]){slow, wide}, 2, false) == 1);
    CHECK(fastest_of((point[]){slow, wide}, 2, true) == 0); /* its interval reaches over the budget */
    CHECK(fastest_of((point[]){wide, more, less}, 3, true) == 2);
}

/* What may be dropped is a share of the assignments; drops of which only the least is known are drops. */
static void test_drops(void) {
    const point slow = {"a", 10, 100, 0, 1, 8, 0}, some = {"b", 20, 100, 0, 1, 8, 1},
                many = {"c", 30, 100, 0, 1, 8, 40};
    spw_result result = made((point[]){slow, some, many}, 3);
    CHECK(spw_plan_fastest(&result, 0.0, false) == &result.row[0]);
    CHECK(spw_plan_fastest(&result, 0.009, false) == &result.row[0]);
    CHECK(spw_plan_fastest(&result, 0.01, false) == &result.row[1]);
    CHECK(spw_plan_fastest(&result, 0.399, false) == &result.row[1]);
    CHECK(spw_plan_fastest(&result, 1.0, false) == &result.row[2]);
    CHECK(spw_plan_fastest_of(&result, "c") == &result.row[2] && spw_plan_fastest_of(&result, "d") == NULL);
    result.row[0].drops.at_least = true;
    CHECK(spw_plan_fastest(&result, 0.0, false) == NULL);
    spw_result_clear(&result);
}

static void test_misfit(void) {
    const point fits = {"a", 10, 100, 0, 1, 8, 0}, four = {"a", 10, 1001, 0, 4, 8, 0},
                two = {"a", 10, 1001, 0, 2, 16, 0}, own = {"a", 10, 1001, 0, 2, 8, 0},
                other = {"b", 10, 1001, 0, 1, 8, 0};
    spw_result result = made((point[]){fits, four, two, own, other}, 5);
    CHECK(spw_plan_misfit(&result, "a", 8) == &result.row[3]);
    CHECK(spw_plan_misfit(&result, "a", 4) == &result.row[2]);
    CHECK(spw_plan_misfit(&result, "b", 8) == &result.row[4] && spw_plan_misfit(&result, "c", 8) == NULL);
    spw_result_clear(&result);
}

static void expect_front(const point *points, size_t count, const bool *want) {
    spw_result result = made(points, count);
    bool front[8] = {false};
    spw_plan_front(&result, front);
    for (size_t i = 0; i < count; i++) CHECK(front[i] == want[i]);
    spw_result_clear(&result);
}

static void test_front(void) {
    const point a = {"a", 20, 400, 0, 1, 8, 0}, twin = {"b", 20, 400, 0, 2, 8, 0},
                slower = {"c", 19, 400, 0, 1, 8, 0}, larger = {"d", 20, 401, 0, 1, 8, 0},
                drops = {"e", 20, 400, 0, 1, 8, 1}, faster = {"f", 21, 401, 0, 1, 8, 0},
                untimed = {"g", 0, 300, 0, 1, 8, 0};
    expect_front((point[]){a, twin}, 2, (bool[]){true, true}); /* neither beats its equal */
    expect_front((point[]){slower, a}, 2, (bool[]){false, true});
    expect_front((point[]){a, larger}, 2, (bool[]){true, false});
    expect_front((point[]){drops, a}, 2, (bool[]){false, true});
    expect_front((point[]){a, faster}, 2, (bool[]){true, true});
    expect_front((point[]){a, untimed}, 2, (bool[]){true, true}); /* they are not compared */
}

int main(void) {
    test_fastest();
    test_drops();
    test_misfit();
    test_front();
    return check_done();
}
