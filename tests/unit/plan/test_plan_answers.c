/* Which point of a plan is chosen when points are equal: less memory, then the order of the plan. Points here are made by
 * hand; what they mean to a user is held by tests/oracle/plan/plan_oracle.py. */
#include "sim/job/job.h"
#include "sim/plan/plan_answers.h"
#include "sim/plan/plan_points.h"

#include "sim/result/row_cost.h"

#include "tests/unit/check.h"

#include <math.h>
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

static const spw_job_allocator allocator = {.expandable_segments = false};

static spw_result made(const point *points, size_t count) {
    spw_result result = {0};
    for (size_t i = 0; i < count; i++) {
        spw_result_row *row = NULL;
        CHECK_OK(spw_result_append(&result, &row));
        (void)snprintf(row->scheme.text, sizeof row->scheme.text, "%s", points[i].scheme);
        row->timed = points[i].speed > 0.0;
        row->time.tokens_per_s_per_gpu = points[i].speed;
        if (row->timed) row->time.step_s = row->time.low_s = row->time.high_s = 1.0 / points[i].speed;
        row->memory.max_bytes = points[i].bytes;
        row->footprint.budget_bytes = BUDGET;
        row->footprint.high_bytes = points[i].high > 0 ? points[i].high : points[i].bytes;
        row->sequences = points[i].sequences;
        row->expert = points[i].expert;
        row->drops.assignments = 100;
        row->drops.dropped = points[i].dropped;
        row->memory_kind = SPW_MEMORY_ARENA;
        spw_result_row_judge(row, &allocator);
    }
    return result;
}

/* The position of the fastest point that drops nothing, -1 for none. */
static int fastest(const spw_result *result, bool surely) {
    const spw_result_row *row = spw_result_fastest(result, 0.0, surely);
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
    CHECK(fastest_of((point[]){slow, wide}, 2, false) == 0);
    CHECK(fastest_of((point[]){slow, wide}, 2, true) == 0); /* its interval reaches over the budget */
    CHECK(fastest_of((point[]){wide, more, less}, 3, true) == 2);
}

/* What may be dropped is a share of the assignments; drops of which only the least is known are drops. */
static void test_drops(void) {
    const point slow = {"a", 10, 100, 0, 1, 8, 0}, some = {"b", 20, 100, 0, 1, 8, 1},
                many = {"c", 30, 100, 0, 1, 8, 40};
    spw_result result = made((point[]){slow, some, many}, 3);
    CHECK(spw_result_fastest(&result, 0.0, false) == &result.row[0]);
    CHECK(spw_result_fastest(&result, 0.009, false) == &result.row[0]);
    CHECK(spw_result_fastest(&result, 0.01, false) == &result.row[1]);
    CHECK(spw_result_fastest(&result, 0.399, false) == &result.row[1]);
    CHECK(spw_result_fastest(&result, 1.0, false) == &result.row[2]);
    CHECK(spw_result_fastest_of(&result, "c") == &result.row[2] &&
          spw_result_fastest_of(&result, "d") == NULL);
    result.row[0].drops.at_least = true;
    CHECK(spw_result_fastest(&result, 0.0, false) == NULL);
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
    CHECK_OK(spw_result_answer(&result, 0.01));
    for (size_t i = 0; i < count; i++) CHECK(result.answers.front[i] == want[i]);
    spw_result_clear(&result);
}

static void test_front(void) {
    const point a = {"a", 20, 400, 0, 1, 8, 0}, twin = {"b", 20, 400, 0, 2, 8, 0},
                slower = {"c", 19, 400, 0, 1, 8, 0}, larger = {"d", 20, 401, 0, 1, 8, 0},
                drops = {"e", 20, 400, 0, 1, 8, 1}, faster = {"f", 21, 401, 0, 1, 8, 0},
                untimed = {"g", 0, 300, 0, 1, 8, 0}, tight = {"h", 30, 400, 1100, 1, 8, 0},
                equal = {"i", 30, 400, 0, 1, 8, 0}, wider = {"j", 30, 401, 1100, 1, 8, 0};
    expect_front((point[]){a, twin}, 2, (bool[]){true, true}); /* neither beats its equal */
    expect_front((point[]){slower, a}, 2, (bool[]){false, true});
    expect_front((point[]){a, larger}, 2, (bool[]){true, false});
    expect_front((point[]){drops, a}, 2, (bool[]){false, true});
    expect_front((point[]){a, faster}, 2, (bool[]){true, true});
    expect_front((point[]){a, untimed}, 2, (bool[]){true, true}); /* they are not compared */
    expect_front((point[]){tight, larger}, 2,
                 (bool[]){true, true}); /* faster and smaller, but it may not fit */
    expect_front((point[]){equal, tight, wider}, 3, (bool[]){true, false, false}); /* it surely fits */
}

/* `want`: positions, best first. */
static void expect_order(const point *points, size_t count, const size_t *want, size_t fits, size_t least) {
    spw_result result = made(points, count);
    CHECK_OK(spw_result_answer(&result, 0.01));
    CHECK(result.answers.fits == fits && result.answers.least_memory == least);
    for (size_t i = 0; i < fits && i < result.answers.fits; i++) CHECK(result.answers.order[i] == want[i]);
    spw_result_clear(&result);
}

static void test_order(void) {
    const point slow = {"a", 10, 100, 0, 1, 8, 0}, fast = {"b", 20, 500, 0, 2, 8, 0},
                small = {"c", 20, 400, 0, 4, 8, 0}, twin = {"d", 20, 400, 0, 1, 8, 50},
                large = {"e", 90, 1001, 0, 1, 8, 0}, untimed = {"f", 0, 10, 0, 1, 8, 0},
                batch = {"g", 0, 90, 0, 2, 8, 0}, lighter = {"h", 0, 80, 0, 2, 8, 0},
                larger = {"i", 0, 2000, 0, 1, 8, 0};
    expect_order((point[]){slow, fast, small, twin, large}, 5, (size_t[]){2, 3, 1, 0}, 4, 0);
    expect_order((point[]){untimed, slow, batch, lighter}, 4, (size_t[]){1, 3, 2, 0}, 4, 0);
    expect_order((point[]){larger, large}, 2, NULL, 0, 1); /* nothing fits: least of all */
    expect_order((point[]){untimed, untimed}, 2, (size_t[]){0, 1}, 2, 0);
    spw_result result = made((point[]){slow, twin, fast}, 3);
    CHECK_OK(spw_result_answer(&result, 0.01));
    CHECK(result.answers.fastest == 2 && result.answers.fastest_whatever_drops == 1);
    CHECK(result.answers.next == 0 &&
          fabs(result.answers.next_chance - 1.0) < 1e-12); /* without a doubt, not d: it drops */
    spw_result_clear(&result);
    result = made((point[]){untimed}, 1);
    CHECK_OK(spw_result_answer(&result, 0.01));
    CHECK(result.answers.next == SPW_NO_ROW && isnan(result.answers.next_chance));
    CHECK(result.answers.fastest == SPW_NO_ROW && spw_result_row_at(&result, SPW_NO_ROW) == NULL);
    spw_result_clear(&result);
}

/* What a sentence says, of both answers: does it fit, and does it surely? */
static void test_sentences(void) {
    const struct {
        uint64_t bytes;
        double most;
        const char *sentence;
    } of[] = {{900, 900, "surely fits"},
              {900, 1001, "may not fit"},
              {960, 1000, "is tight, and surely fits"},
              {960, INFINITY, "is tight, and may not fit"},
              {1001, 1001, "does not fit"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const spw_verdict verdict = spw_footprint_verdict(of[i].bytes, BUDGET);
        const bool surely = spw_verdict_is_sure(verdict, of[i].most, BUDGET);
        CHECK(strcmp(spw_verdict_sentence(verdict, surely), of[i].sentence) == 0);
    }
}

/* Of equal speed or not, what surely fits is before what need not. */
static void test_sure_first(void) {
    const point wide = {"a", 20, 900, 1100, 1, 8, 0}, sure = {"b", 10, 500, 510, 1, 8, 0};
    spw_result result = made((point[]){wide, sure}, 2);
    CHECK_OK(spw_result_answer(&result, 0.01));
    CHECK(result.answers.fastest == 1 && result.answers.fastest_sure == 1 &&
          spw_result_answers_row(&result.answers, 0) == 1);
    CHECK(spw_result_fastest_tight(&result, 0.01) == &result.row[0]);
    CHECK(result.answers.next == SPW_NO_ROW); /* what is faster is not the next */
    spw_result_clear(&result);
}

/* One point of 600 live bytes, of which so many are state. */
static spw_result made_live(const char *scheme, uint64_t state) {
    spw_result result = made((point[]){{"a", 10, 600, 0, 1, 8, 0}}, 1);
    CHECK_OK(spw_scheme_parse(scheme, &result.row[0].scheme));
    result.row[0].memory_kind = SPW_MEMORY_LIVE;
    result.row[0].footprint.argument_bytes = state;
    return result;
}

/* A lower bound fits surely with what an allocator adds at most: 3.16 times what is not state. */
static void test_lower_bound(void) {
    spw_result result = made_live("megatron-alltoall", 415);
    spw_result_row *row = result.row;
    spw_result_row_judge(row, &allocator);
    CHECK(fabs(row->most_bytes - (415 + 3.16 * 185)) < 1e-9 && row->surely_fits);
    row->footprint.argument_bytes = 400; /* 400 + 632 */
    spw_result_row_judge(row, &allocator);
    CHECK(spw_point_fits(row) && !row->surely_fits);
    spw_result_clear(&result);
}

/* An allocator's word counts, not the interval; a step that had to give memory back is not sure. */
static void test_surely(void) {
    const point wide = {"a", 10, 900, 1100, 1, 8, 0}, tight = {"b", 10, 990, 1000, 1, 8, 0};
    spw_result result = made((point[]){wide, tight}, 2);
    spw_result_row *row = result.row;
    CHECK(!row[0].surely_fits && row[1].surely_fits && spw_result_verdict(&row[1]) == SPW_VERDICT_FITS &&
          spw_result_verdict(&row[0]) == SPW_VERDICT_TIGHT);
    row[0].reserved.there = true;
    row[0].reserved.limit_bytes = BUDGET;
    spw_result_row_judge(&row[0], &allocator);
    CHECK(row[0].surely_fits);
    row[0].reserved.as_set.reserved.max_bytes = 944; /* 1000.64 with 6 % of doubt */
    spw_result_row_judge(&row[0], &allocator);
    CHECK(!row[0].surely_fits && spw_result_verdict(&row[0]) == SPW_VERDICT_TIGHT);
    row[0].reserved.as_set.reserved.max_bytes = 943;
    spw_result_row_judge(&row[0], &allocator);
    CHECK(row[0].surely_fits && spw_result_verdict(&row[0]) == SPW_VERDICT_FITS);
    row[0].budget = (spw_device_budget){.outside = 50, .outside_low = 40, .outside_high = 51, .listed = true};
    spw_result_row_judge(&row[0], &allocator); /* 999.58, and 1 more outside than is planned */
    CHECK(!row[0].surely_fits && fabs(row[0].most_bytes - 1.06 * 943 - 1) < 1e-6 && spw_point_fits(&row[0]));
    row[0].budget.outside_high = row[0].budget.outside;
    row[0].reserved.as_set.retried_steps = 1;
    spw_result_row_judge(&row[0], &allocator);
    CHECK(!row[0].surely_fits && spw_point_fits(&row[0]));
    spw_result_clear(&result);
}

/* A replay of what no list of tensors describes counts for what it found, and for no less than the share of live bytes. */
static void test_unlisted(void) {
    spw_result result = made_live("transformers", 100); /* 100 + 1.7 x 500 */
    spw_result_row *row = result.row;
    row->reserved.there = true;
    row->reserved.limit_bytes = BUDGET;
    row->reserved.as_set.reserved.max_bytes = 650;
    spw_result_row_judge(row, &allocator);
    CHECK(row->surely_fits);
    row->unlisted = "a loss in pieces";
    spw_result_row_judge(row, &allocator);
    CHECK(fabs(row->most_bytes - 950) < 1e-9 && row->surely_fits);
    row->memory.max_bytes = 640; /* 100 + 1.7 x 540 */
    spw_result_row_judge(row, &allocator);
    CHECK(fabs(row->most_bytes - 1018) < 1e-9 && !row->surely_fits && spw_point_fits(row));
    row->footprint.argument_bytes = 400; /* 400 + 1.7 x 240: of both, the most */
    row->reserved.as_set.reserved.max_bytes = 900;
    spw_result_row_judge(row, &allocator);
    CHECK(fabs(row->most_bytes - 1.06 * 900) < 1e-6 && row->surely_fits);
    spw_result_clear(&result);
}

/* A larger share of the GPU is no way out where a table says what lies outside; what is resident stays beside it. */
static void test_share(void) {
    spw_result result = made((point[]){{"a", 10, 1040, 1040, 1, 8, 0}}, 1);
    spw_result_row *row = result.row;
    CHECK(!spw_point_fits(row));
    spw_plan_change change = spw_plan_change_of(&result, row, 1100);
    CHECK(change.kind == SPW_CHANGE_FRACTION && fabs(change.fraction - 1040.0 / 1100.0) < 1e-12);
    row->budget.resident = 40;
    change = spw_plan_change_of(&result, row, 1200);
    CHECK(change.kind == SPW_CHANGE_FRACTION && fabs(change.fraction - 1080.0 / 1200.0) < 1e-12);
    row->budget.listed = true;
    CHECK(spw_plan_change_of(&result, row, 1200).kind == SPW_CHANGE_IMPOSSIBLE);
    spw_result_clear(&result);
}

static void test_outside(void) {
    spw_outside_fit list = {.count = 0};
    spw_outside_fit_add(&list, "memory", "");
    CHECK(list.count == 0);
    spw_outside_fit_add(&list, "memory",
                        "model not in the fitted tables; attention, head: counted, not fitted");
    spw_outside_fit_add(&list, "time", "pipelines");
    CHECK(list.count == 3 && strcmp(list.item[1].feature, "attention, head: counted, not fitted") == 0);
    CHECK(strcmp(list.item[2].of, "time") == 0 && strcmp(list.item[2].feature, "pipelines") == 0);
    char words[2 * SPW_OUTSIDE_FEATURE] = ""; /* too long: cut between words, and said so */
    for (size_t i = 0; i + 5 < sizeof words; i += 5) memcpy(words + i, "word ", 6);
    list.count = 2;
    spw_outside_fit_add(&list, "time", words);
    const char *cut = list.item[2].feature;
    CHECK(strlen(cut) > SPW_OUTSIDE_FEATURE - 10 && strcmp(cut + strlen(cut) - 8, "word ...") == 0);
    for (int i = 0; i < SPW_OUTSIDE_ITEMS; i++) spw_outside_fit_add(&list, "time", "more");
    CHECK(list.count == SPW_OUTSIDE_ITEMS);
}

/* Two GPUs at 100 tokens/s each, between 50 and 200: pencil and paper. */
static void test_cost(void) {
    static spw_job job;
    spw_result_row row = {.timed = true, .tokens_per_s_low = 50.0, .tokens_per_s_high = 200.0};
    row.time.tokens_per_s_per_gpu = 100.0;
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    job.expert = 2, job.fsdp = job.pipeline = job.tensor = 1;
    job.sequence_length = 4096;
    job.cluster.bf16_flops.value = 1e15;
    spw_row_cost cost = spw_row_cost_of(&row, &job, 200.0 * 86400.0);
    CHECK(cost.days.value == 1.0 && cost.days.low == 0.5 && cost.days.high == 2.0);
    CHECK(cost.gpu_hours.value == 48.0 && cost.gpu_hours.low == 24.0 && cost.gpu_hours.high == 96.0);
    CHECK(cost.tokens_per_day.low == 100.0 * 86400.0 && cost.tokens_per_day.high == 400.0 * 86400.0);
    CHECK(isnan(cost.money.value));
    job.cluster.price_per_gpu_hour.value = 2.0;
    cost = spw_row_cost_of(&row, &job, 200.0 * 86400.0);
    CHECK(cost.money.value == 96.0 && cost.money.low == 48.0 && cost.money.high == 192.0);
    job.price_per_gpu_hour = 3.0; /* the job's before the cluster's */
    CHECK(spw_row_cost_of(&row, &job, 200.0 * 86400.0).money.value == 144.0);
    /* Mixtral 8x7B, layer by layer: q and out 4096 x 4096, k and v 4096 x 1024, 2 experts of 3 matrices 4096 x 14336, a
     * router 4096 x 8, two norms; a head of 32000 and a last norm; scores of 32 heads of 128 over half the sequence, twice. */
    const double layer =
                     2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 2.0 * 3 * 4096 * 14336 + 4096.0 * 8 + 2 * 4096,
                 active = 32 * layer + 32000.0 * 4096 + 4096, scores = 32.0 * 4096 * 32 * 256,
                 training = 3.0 * (2.0 * active + scores);
    CHECK(fabs(cost.flops_per_s_per_gpu.value / (100.0 * training) - 1.0) < 1e-12);
    CHECK(fabs(cost.mfu.value / (100.0 * training / 1e15) - 1.0) < 1e-12);
    CHECK(fabs(cost.mfu.high / cost.mfu.low - 4.0) < 1e-12);
    CHECK(isnan(spw_row_cost_of(&row, &job, 0.0).days.value) &&
          spw_row_cost_of(&row, &job, 0.0).mfu.value > 0.0);
    job.part = SPW_PART_EXPERT_LAYERS;
    CHECK(isnan(spw_row_cost_of(&row, &job, 0.0).mfu.value));
    row.timed = false;
    CHECK(isnan(spw_row_cost_of(&row, &job, 0.0).tokens_per_day.value));
}

/* `all` sizes divide the GPUs of a stage and the experts, and one GPU with all experts is among them. */
static void test_splits(void) {
    const spw_job job = {.expert = 4, .fsdp = 9, .model.experts = 24};
    const size_t want[] = {1, 2, 3, 4, 6, 12};
    size_t split[SPW_PLAN_SPLITS];
    const size_t splits = spw_plan_all_splits(&job, split);
    CHECK(splits == sizeof want / sizeof *want && memcmp(split, want, sizeof want) == 0);
}

int main(void) {
    test_splits();
    test_order();
    test_sentences();
    test_lower_bound();
    test_sure_first();
    test_surely();
    test_unlisted();
    test_share();
    test_outside();
    test_cost();
    test_fastest();
    test_drops();
    test_misfit();
    test_front();
    return check_done();
}
