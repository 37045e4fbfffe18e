/* Tables and bars of pages from answers made here: every figure of a point stands once, in its row or in what all points share; what is
 * drawn of a bar lies inside of what it is a part of. */
#include "sim/report/charts/chart.h"
#include "sim/report/report_found.h"
#include "sim/report/report_page.h"
#include "sim/result/doubt_parts.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { POINTS = 3, PLACES = 10, ALWAYS = 8, KEYS = PLACES + ALWAYS };

/* How a point says it: the split and the batch, one column each where points differ; then what is a column of its own wherever a point
 * has it. */
static const char *const keys[KEYS] = {"gpus",
                                       "expert_parallel",
                                       "fsdp",
                                       "pipeline",
                                       "tensor",
                                       "context",
                                       "expert_tensor",
                                       "virtual_stages",
                                       "micro_batches",
                                       "sequences_per_gpu",
                                       "peak_bytes",
                                       "step_tokens",
                                       "step_s",
                                       "tokens_per_s_per_gpu",
                                       "faster_than_next",
                                       "tokens_per_day",
                                       "days",
                                       "gpu_hours"};
static const char *const headings[KEYS] = {"GPUs",
                                           "EP",
                                           "FSDP",
                                           "PP",
                                           "TP",
                                           "CP",
                                           "ETP",
                                           "VPP",
                                           "micro-batches",
                                           "seq/GPU",
                                           "GiB",
                                           "tokens a step",
                                           "step s",
                                           "tokens/s a GPU",
                                           "faster",
                                           "tokens a day",
                                           "days",
                                           "GPU-hours"};
static bool in_cost(size_t key) {
    return strcmp(keys[key], "days") == 0 || strcmp(keys[key], "gpu_hours") == 0;
}

static char *page_of(json_t *front) {
    char *text = NULL;
    size_t length = 0;
    json_t *root = json_pack("{s:O}", "front", front);
    FILE *out = open_memstream(&text, &length);
    CHECK(root != NULL && out != NULL);
    spw_report_write_front(root, out);
    CHECK(fclose(out) == 0);
    json_decref(root);
    return text;
}

static size_t times(const char *text, const char *end, const char *what) {
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL && at < end; at += strlen(what)) found++;
    return found;
}

/* value[point][key], NAN: the point does not say it. */
static void check_front(const double value[POINTS][KEYS], size_t points) {
    json_t *front = json_array();
    for (size_t p = 0; p < points; p++) {
        json_t *point = json_pack("{s:s, s:s, s:b}", "scheme", "gmm", "remat", "full", "surely_fits", 1),
               *cost = json_object();
        for (size_t k = 0; k < KEYS; k++)
            if (!isnan(value[p][k]))
                CHECK(json_object_set_new(in_cost(k) ? cost : point, keys[k], json_real(value[p][k])) == 0);
        CHECK(json_object_set_new(point, "cost", cost) == 0 && json_array_append_new(front, point) == 0);
    }
    char *text = page_of(front);
    const char *table = strstr(text, "<table"), *end = text + strlen(text), *body = strstr(text, "<tbody>");
    CHECK(table != NULL && body != NULL);
    for (size_t k = 0; table != NULL && k < KEYS; k++) {
        bool differ = false, some = false;
        char heading[64];
        for (size_t p = 0; p < points; p++) {
            const double a = value[p][k], b = value[0][k];
            some = some || !isnan(a);
            differ = differ || isnan(a) != isnan(b) || (!isnan(a) && fabs(a - b) > 0.0);
        }
        const bool column = points == 1 || differ || (k >= PLACES && some);
        (void)snprintf(heading, sizeof heading, ">%s</th>", headings[k]);
        CHECK(times(table, end, heading) == (column ? 1 : 0));
        for (size_t p = 0; p < points; p++) {
            char data[64];
            size_t same = 0;
            if (isnan(value[p][k])) continue;
            for (size_t q = 0; q < points; q++)
                same += value[q][k] <= value[p][k] && value[q][k] >= value[p][k];
            (void)snprintf(data, sizeof data, "<data value=\"%.17g\">", value[p][k]);
            CHECK(times(table, end, data) == (column ? same : 0));
            CHECK(times(text, table, data) == (column ? 0 : 1));
        }
    }
    free(text);
    json_decref(front);
}

static void test_front(void) {
    uint64_t state = 7;
    for (int seed = 0; seed < 40; seed++) {
        double value[POINTS][KEYS];
        for (size_t k = 0; k < KEYS; k++) {
            const size_t how = random_below(&state, 4); /* all alike twice, all different, not said */
            for (size_t p = 0; p < POINTS; p++) {
                const double of = 1000.0 * (double)(k + 1) + (how == 2 ? (double)p : 0.0);
                value[p][k] = how == 3 ? NAN : strcmp(keys[k], "faster_than_next") == 0 ? 1e-4 * of : of;
            }
        }
        check_front(value, POINTS);
        check_front(value, 1);
    }
}

/* Nothing is certain: 99 % is the most that is said. */
static void test_faster(void) {
    json_t *front =
        json_pack("[{s:s,s:f,s:f},{s:s,s:f,s:f}]", "scheme", "gmm", "gpus", 8.0, "faster_than_next", 1.0,
                  "scheme", "gmm", "gpus", 16.0, "faster_than_next", 0.614);
    char *text = page_of(front);
    CHECK(strstr(text, "\">99&nbsp;%") != NULL && strstr(text, "\">61&nbsp;%") != NULL &&
          strstr(text, "100&nbsp;%") == NULL);
    free(text);
    json_decref(front);
}

/* --- The best point in words --- */

static char *found_of(json_t *best) {
    char *text = NULL;
    size_t length = 0;
    spw_report report = {.model = "m", .cluster = "h100-1x8", .remat = "full"};
    report.root = json_pack("{s:O, s:f}", "best", best, "points", 2.0);
    FILE *out = open_memstream(&text, &length);
    CHECK(report.root != NULL && out != NULL);
    spw_report_write_found(&report, "found.json", out);
    CHECK(fclose(out) == 0);
    json_decref(report.root);
    return text;
}

/* What it drops in the mean of the steps, and in the worst one where that is more; a least share is said as one. */
static void test_drops(void) {
    static const struct {
        double share, worst;
        int least;
        const char *says, *not_said;
    } rows[] = {{0.0, 0.0, 0, "it drops nothing", "worst step"},
                {0.01, 0.03, 0, "(3.00&nbsp;% in the worst step)", "at least"},
                {0.01, 0.01, 0, "of the assignments", "worst step"},
                {0.01, NAN, 1, "it drops at least ", "worst step"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *best = json_pack("{s:s, s:s, s:f, s:f, s:b}", "scheme", "gmm", "remat", "full", "gpus", 8.0,
                                 "drop_fraction", rows[i].share, "drops_at_least", rows[i].least);
        if (!isnan(rows[i].worst))
            CHECK(json_object_set_new(best, "worst_drop_fraction", json_real(rows[i].worst)) == 0);
        char *text = found_of(best);
        CHECK(strstr(text, rows[i].says) != NULL && strstr(text, rows[i].not_said) == NULL);
        free(text);
        json_decref(best);
    }
}

/* A point that is not balanced: how fast, how large and how full it would be if it were; nothing of one that is. */
static void test_balanced(void) {
    static const struct {
        double speed, bytes, drops;
        bool said;
    } rows[] = {{100.0, 1e9, 0.01, false},
                {101.0, 1e9, 0.01, true},
                {100.0, 2e9, 0.01, true},
                {100.0, 1e9, 0.0, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *best = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "scheme", "gmm",
                                 "remat", "full", "gpus", 8.0, "step_s", 1.0, "tokens_per_s_per_gpu", 100.0,
                                 "peak_bytes", 1e9, "drop_fraction", 0.01, "balanced_tokens_per_s_per_gpu",
                                 rows[i].speed, "balanced_step_s", 1.0, "balanced_peak_bytes", rows[i].bytes,
                                 "balanced_drop_fraction", rows[i].drops);
        char *text = found_of(best);
        CHECK((strstr(text, "With balanced routing: ") != NULL) == rows[i].said);
        free(text);
        json_decref(best);
    }
}

/* --- Bars --- */

static double width_of(const char *bar, const char *class) {
    char head[64];
    (void)snprintf(head, sizeof head, "class=\"%s\"", class);
    const char *at = strstr(bar, head), *width = at != NULL ? strstr(at, "width=\"") : NULL;
    return width != NULL ? strtod(width + 7, NULL) : 0.0;
}

/* State that is larger than what is held at the most (a file may say so) ends with it; else the two are as long as their bytes. */
static void test_bars(void) {
    static const struct { double held, argument; } bars[] = {{60, 20}, {60, 60}, {40, 55}};
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) {
        spw_report_row row = {.scheme = "gmm",
                              .kind = "arena",
                              .evidence = "",
                              .moment = "",
                              .advice = "",
                              .slowest_level = "",
                              .sequences = 1,
                              .expert = 8,
                              .fsdp = 1,
                              .surely_fits = true};
        spw_report report = {.row = &row, .rows = 1};
        char *text = NULL;
        size_t length = 0;
        row.held = (spw_report_quantiles){.p50 = bars[i].held * GIB, .most = bars[i].held * GIB};
        row.argument = bars[i].argument * GIB, row.budget = 72 * GIB;
        row.peak = row.low = row.high = row.held.most;
        FILE *out = open_memstream(&text, &length);
        CHECK(out != NULL);
        CHECK_OK(spw_chart_memory_bars(&report, out));
        CHECK(fclose(out) == 0);
        const char *bar = strstr(text, "<svg");
        const double held = bar != NULL ? width_of(bar, "held") : 0.0,
                     state = bar != NULL ? width_of(bar, "state") : 0.0;
        CHECK(held > 0.0 && fabs(state / held - fmin(bars[i].argument / bars[i].held, 1.0)) < 1e-3);
        free(text);
    }
}

/* Of an interval made here: parts add up to the high end, and what one end has alone is named. */
static void test_interval(void) {
    const double step = 2.0, low = step * 0.9 * exp(-0.3) * 0.97, high = step * 1.1 * exp(0.3 + 0.1) * 1.25;
    spw_doubt_parts parts;
    spw_doubt_parts_begin(step, low, high, &parts);
    spw_doubt_parts_add(&parts, "routing", 0.1);
    spw_doubt_parts_add(&parts, "between_nodes", 0.2);
    spw_doubt_parts_add(&parts, "untuned_release", 0.1);
    spw_doubt_parts_add(&parts, "tensor_collectives", 0.1);
    spw_doubt_parts_add(&parts, "hidden_or_whole", 0.2);
    spw_doubt_parts_add(&parts, "host", 0.0);
    spw_doubt_parts_end(&parts);
    double slow = 0.0;
    CHECK(parts.count == 7);
    for (size_t i = 0; i < parts.count; i++) {
        CHECK(parts.part[i].text[0] != '\0');
        slow += parts.part[i].fast ? 0.0 : parts.part[i].width;
    }
    CHECK(fabs(slow - log(high / step)) < 1e-12);
    CHECK(strcmp(parts.part[5].name, "slow_end") == 0 && strcmp(parts.part[6].name, "fast_end") == 0);
    CHECK(fabs(parts.part[5].width - log(1.25 / 1.2)) < 1e-12);
    CHECK(fabs(parts.part[6].width + log(0.97)) < 1e-12);
    CHECK(spw_doubt_text("no such cause")[0] == '\0');
}

int main(void) {
    test_interval();
    test_front();
    test_faster();
    test_drops();
    test_balanced();
    test_bars();
    return check_done();
}
