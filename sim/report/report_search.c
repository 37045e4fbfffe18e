#include "base/memory.h"
#include "sim/report/report_fields.h"
#include "sim/report/report_take.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 16 };

/* What every point says. */
static const char *const sizes[] = {
    "gpus",       "expert_parallel", "fsdp",          "pipeline",          "tensor",
    "context",    "virtual_stages",  "micro_batches", "sequences_per_gpu", "step_tokens",
    "peak_bytes", "low_bytes",       "high_bytes",    "budget_bytes",      "drop_fraction"};
/* What it says where it has a time, and null else. */
static const char *const times[] = {
    "step_s",           "step_s_low",        "step_s_high",   "tokens_per_s_per_gpu",
    "tokens_per_s_low", "tokens_per_s_high", "tokens_per_day"};

static spw_status check_number(json_t *object, const char *where, const char *key) {
    double value = 0.0;
    const spw_field_number number = {key, &value, SPW_FIELD_LARGEST};
    return spw_field_numbers(object, where, &number, 1);
}

static bool is_timed(const json_t *point) { return json_is_number(json_object_get(point, "step_s")); }

static spw_status check_point(json_t *point, const char *where) {
    static const char *const texts[] = {"scheme", "remat", "verdict", "options"};
    const char *text = NULL;
    spw_report_cost cost;
    spw_status status = SPW_OK;
    if (!json_is_object(point)) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: must be an object", where));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        SPW_TRY(spw_field_text(point, where, texts[i], &text));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) SPW_TRY(check_number(point, where, sizes[i]));
    for (size_t i = 0; i < sizeof times / sizeof *times && is_timed(point); i++)
        SPW_TRY(check_number(point, where, times[i]));
    SPW_TRY(spw_report_take_cost(json_object_get(point, "cost"), &cost));

cleanup:
    return status;
}

static spw_status take_plan(json_t *plan, spw_report *out) {
    const char *format = json_string_value(json_object_get(plan, "format"));
    if (format == NULL || strcmp(format, "spillway-result") != 0)
        return spw_fail(SPW_EFORMAT, "plans: must be plans, of format spillway-result");
    char *text = json_dumps(plan, JSON_ENCODE_ANY);
    if (text == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate the plan of a point");
    const spw_status status = spw_report_take_summary(out, text, strlen(text), NULL);
    free(text);
    if (status == SPW_OK && !out->planned)
        return spw_fail(SPW_EFORMAT, "plans: must be plans, and one is a replay");
    return status == SPW_EFORMAT ? spw_fail_within(status, "plans") : status;
}

static spw_status take_plans(spw_report *r) {
    json_t *plans = json_object_get(r->root, "plans"), *plan = NULL;
    size_t i = 0;
    spw_status status = SPW_OK;
    if (!json_is_array(plans) || json_array_size(plans) > MOST_POINTS)
        SPW_TRY(
            spw_fail(SPW_EFORMAT,
                     "plans: must be a list of at most %d; a search of an earlier version has none: search "
                     "again",
                     (int)MOST_POINTS));
    SPW_TRY(SPW_ALLOC(json_array_size(plans) + 1, &r->point));
    json_array_foreach(plans, i, plan) {
        spw_report *point = &r->point[r->points++];
        *point = (spw_report){.drop_most = json_number_value(json_object_get(r->root, "drop_at_most"))};
        SPW_TRY(take_plan(plan, point));
    }

cleanup:
    return status;
}

spw_status spw_report_take_search(spw_report *r) {
    static const char *const others[] = {"best", "best_sure", "with_more_gpus"};
    json_t *front = json_object_get(r->root, "front"), *point = NULL, *fates = NULL;
    const char *text = NULL;
    size_t i = 0;
    spw_status status = SPW_OK;
    if (json_integer_value(json_object_get(r->root, "format_version")) != 2)
        SPW_TRY(spw_fail(SPW_EFORMAT, "must say format spillway-search, format_version 2: search again"));
    r->searched = true;
    SPW_TRY(spw_field_text(r->root, "search", "model", &r->model));
    SPW_TRY(spw_field_text(r->root, "search", "cluster", &r->cluster));
    SPW_TRY(spw_field_text(r->root, "search", "routing", &text));
    SPW_TRY(check_number(r->root, "search", "points"));
    SPW_TRY(check_number(r->root, "search", "drop_at_most"));
    SPW_TRY(spw_field_object(r->root, "search", "fates", &fates));
    if (!json_is_array(front)) SPW_TRY(spw_fail(SPW_EFORMAT, "front: must be a list"));
    json_array_foreach(front, i, point) SPW_TRY(check_point(point, "front"));
    for (i = 0; i < sizeof others / sizeof *others; i++) {
        point = json_object_get(r->root, others[i]);
        if (point != NULL && !json_is_null(point)) SPW_TRY(check_point(point, others[i]));
    }
    SPW_TRY(take_plans(r));

cleanup:
    return status;
}
