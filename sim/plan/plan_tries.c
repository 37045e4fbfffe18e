#include "sim/plan/plan_tries.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/precision.h"
#include "sim/replay/replay.h"
#include "sim/replay/smallest_factor.h"
#include "traces/generate/made_trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

spw_status spw_plan_share_routing(const spw_plan_request *q, spw_token_store **out) {
    bool searched = false;
    for (size_t i = 0; i < q->schemes; i++) {
        const char *factor = spw_scheme_factor_name(&q->scheme[i], SPW_FACTOR_ROWS);
        searched = searched || (factor != NULL && spw_scheme_option_value(&q->scheme[i], factor) > 0.0);
    }
    *out = NULL;
    if (!searched || spw_trace_made_tokens(q->trace) == 0) return SPW_OK;
    return spw_token_store_create(out);
}

/* --- Drops --- */

static spw_status try_factor(const spw_plan_request *q, const spw_job *job, const spw_result_row *row,
                             const spw_factor_answer *answer, spw_plan_need *out) {
    spw_result with = {.rows = 0};
    spw_scheme scheme;
    bool has = false, there = false;
    spw_status status = SPW_OK;
    out->option = answer->option;
    out->factor = answer->factor;
    out->fraction = answer->fraction;
    if (!(out->factor > 0.0)) return SPW_OK;
    SPW_TRY(spw_scheme_with_factor(&row->scheme, SPW_FACTOR_ROWS, out->factor, &scheme, &has));
    SPW_TRY(spw_plan_replay_point(q, job, &scheme, false, false, &with, &there));
    if (!there) goto cleanup;
    out->fits = spw_point_fits(&with.row[0]);
    out->timed = with.row[0].timed;
    out->tokens_per_s_per_gpu = with.row[0].time.tokens_per_s_per_gpu;
    out->tokens_per_s_low = with.row[0].tokens_per_s_low;
    out->tokens_per_s_high = with.row[0].tokens_per_s_high;
    out->bytes = with.row[0].memory.max_bytes;

cleanup:
    spw_result_clear(&with);
    return status;
}

static spw_status find_need(const spw_plan_request *q, const spw_result *result, const spw_result_row *row,
                            double most, spw_plan_need *out) {
    spw_result found = {.rows = 0};
    spw_job *job = NULL;
    spw_status status = SPW_OK;
    *out = (spw_plan_need){.row = (size_t)(row - result->row)};
    SPW_TRY(SPW_ALLOC(1, &job));
    spw_plan_point_job(q, row, job);
    const spw_replay_request request = spw_plan_point_request(q, job, &row->scheme);
    SPW_TRY(spw_smallest_factors(&request, most, &found));
    if (found.factors == 1) SPW_TRY(try_factor(q, job, row, &found.factor[0], out));

cleanup:
    spw_result_clear(&found);
    spw_free(job);
    return status;
}

/* Of the schemes that would be the fastest if drops did not count. */
static spw_status find_needs(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const double most = result->answers.drop_most;
    const spw_result_row *fastest = spw_result_row_at(result, result->answers.fastest);
    spw_status status = SPW_OK;
    for (size_t s = 0; s < q->schemes && status == SPW_OK; s++) {
        const spw_result_row *row = spw_result_fastest_of(result, q->scheme[s].text);
        if (row == NULL || row->drops.fraction <= most) continue;
        if (fastest != NULL && row->time.tokens_per_s_per_gpu <= fastest->time.tokens_per_s_per_gpu) continue;
        status = find_need(q, result, row, most, &out->need[out->needs++]);
    }
    return status;
}

static spw_status find_break_even(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const spw_result_row *row = spw_result_row_at(result, result->answers.fastest_dropless);
    spw_result with = {.rows = 0};
    spw_job *job = NULL;
    spw_scheme dense;
    char text[SPW_SCHEME_TEXT];
    bool there = false;
    spw_status status = SPW_OK;
    out->break_even_factor = row != NULL ? spw_plan_break_even_factor(q, row) : NAN;
    out->break_even_fraction = NAN;
    if (row == NULL || !isfinite(out->break_even_factor)) return SPW_OK;
    (void)snprintf(text, sizeof text, "dense:capacity_factor=%.6f", out->break_even_factor);
    SPW_TRY(SPW_ALLOC(1, &job));
    spw_plan_point_job(q, row, job);
    SPW_TRY(spw_scheme_parse(text, &dense));
    SPW_TRY(spw_plan_replay_point(q, job, &dense, false, false, &with, &there));
    if (there) out->break_even_fraction = with.row[0].drops.fraction;

cleanup:
    spw_result_clear(&with);
    spw_free(job);
    return status;
}

/* Of the fastest point, or else of the one that needs least. */
static spw_status try_precision(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    const spw_result_answers *a = &result->answers;
    const size_t i = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    const spw_result_row *row = spw_result_row_at(result, i);
    spw_result with = {.rows = 0};
    spw_job *job = NULL;
    bool there = false;
    const char *name = NULL;
    spw_status status = SPW_OK;
    if (row == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(2, &job));
    spw_plan_point_job(q, row, job);
    name = spw_precision_other(job, job + 1);
    if (name == NULL || spw_job_check(job + 1) != SPW_OK) goto cleanup;
    SPW_TRY(spw_plan_replay_point(q, job + 1, &row->scheme, true, !row->footprint.follows_routing, &with,
                                  &there));
    if (!there) goto cleanup;
    const spw_result_row *other = &with.row[0];
    out->other = (spw_plan_other_precision){.name = name,
                                            .row = i,
                                            .verdict = spw_result_verdict(other),
                                            .bytes = other->memory.max_bytes,
                                            .low_bytes = other->footprint.low_bytes,
                                            .high_bytes = other->footprint.high_bytes,
                                            .live_alone = spw_point_is_live_alone(other)};

cleanup:
    spw_result_clear(&with);
    spw_free(job);
    return status;
}

spw_status spw_plan_try(const spw_plan_request *q, const spw_result *result, spw_plan_tries *out) {
    spw_status status = SPW_OK;
    *out = (spw_plan_tries){.break_even_factor = NAN, .break_even_fraction = NAN};
    SPW_TRY(find_needs(q, result, out));
    if (!q->brief) SPW_TRY(find_break_even(q, result, out));
    if (!q->brief) SPW_TRY(try_precision(q, result, out));
    SPW_TRY(spw_plan_later_find(q, result, &out->later));
    for (size_t s = 0; s < q->schemes; s++) {
        const spw_result_row *row = spw_plan_misfit(result, q->scheme[s].text, q->job->expert);
        if (row != NULL) SPW_TRY(spw_plan_advise(q, result, row, &out->misfit[out->misfits++]));
    }

cleanup:
    return status;
}
