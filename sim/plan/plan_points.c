#include "sim/plan/plan_points.h"

#include "base/memory.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/replay/replay.h"
#include "sim/replay/replay_time.h"
#include "sim/time/megatron/megatron_load.h"
#include "sim/time/routing_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t spw_plan_all_splits(const spw_job *job, size_t out[SPW_PLAN_SPLITS]) {
    const size_t gpus = job->expert * job->fsdp;
    size_t splits = 0;
    for (size_t expert = 1; expert <= gpus && splits < SPW_PLAN_SPLITS; expert++) {
        if (gpus % expert == 0 && job->model.experts % expert == 0) out[splits++] = expert;
    }
    return splits;
}

static spw_status split_job(const spw_job *job, size_t expert, spw_job *out) {
    const size_t gpus = job->expert * job->fsdp;
    *out = *job;
    if (expert == 0 || gpus % expert != 0)
        return spw_fail(SPW_ECONFIG, "expert-parallel size %zu does not divide the job's %zu GPUs", expert,
                        gpus);
    out->expert = expert;
    out->fsdp = gpus / expert;
    return spw_job_check(out);
}

static spw_replay_request request_of(const spw_plan_request *q, const spw_job *job, size_t splits) {
    return (spw_replay_request){.trace = q->trace,
                                .job = job,
                                .splits = splits,
                                .scheme = q->scheme,
                                .schemes = q->schemes,
                                .step_begin = q->step_begin,
                                .step_end = q->step_end,
                                .layer_begin = q->layer_begin,
                                .layer_end = q->layer_end,
                                .seed = q->seed,
                                .drawn_sequences = 1,
                                .refuses = true,
                                .skips_lost_tokens = true,
                                .imbalance = q->imbalance,
                                .allocator = q->allocator,
                                .every_rank = q->every_rank,
                                .as_set_alone = q->brief,
                                .stack = q->stack,
                                .newest = q->newest,
                                .time_stack = q->time_stack,
                                .megatron = q->megatron,
                                .listed = q->listed,
                                .memory = q->memory,
                                .store = q->store};
}

/* A refusal of every point of a split that cannot be, for the reason that was left. */
static spw_status refuse_split(const spw_plan_request *q, size_t expert, spw_result *result) {
    const size_t batches = q->job->batches;
    char reason[sizeof result->refusal->reason];
    (void)snprintf(reason, sizeof reason, "%s", spw_last_error());
    for (size_t i = 0; i < batches * q->schemes; i++) {
        spw_refusal *refusal = NULL;
        const spw_status status = spw_result_append_refusal(result, &refusal);
        if (status != SPW_OK) return status;
        *refusal = (spw_refusal){.sequences = q->job->sequences_per_gpu[i / q->schemes], .expert = expert};
        memcpy(refusal->scheme, q->scheme[i % q->schemes].text, sizeof refusal->scheme);
        memcpy(refusal->reason, reason, sizeof refusal->reason);
    }
    return SPW_OK;
}

spw_status spw_plan_run(const spw_plan_request *q, spw_result *result) {
    const size_t splits = q->splits > 0 ? q->splits : 1;
    size_t kept = 0;
    spw_status status = SPW_OK;
    spw_job *job = NULL;
    SPW_TRY(SPW_ALLOC(splits, &job));
    for (size_t i = 0; i < splits; i++) {
        const size_t expert = q->splits > 0 ? q->expert[i] : q->job->expert;
        const spw_status split = split_job(q->job, expert, &job[kept]);
        kept += split == SPW_OK;
        if (split == SPW_OK) continue;
        if (split != SPW_ECONFIG || (i + 1 == splits && kept == 0)) SPW_TRY(split);
        SPW_TRY(refuse_split(q, expert, result));
    }
    spw_replay_request request = request_of(q, job, kept);
    request.expects = !q->brief;
    SPW_TRY(spw_replay_run(&request, result));

cleanup:
    spw_free(job);
    return status;
}

spw_replay_request spw_plan_point_request(const spw_plan_request *q, const spw_job *job,
                                          const spw_scheme *scheme) {
    spw_replay_request request = request_of(q, job, 1);
    request.scheme = scheme;
    request.schemes = 1;
    return request;
}

void spw_plan_point_job(const spw_plan_request *q, const spw_result_row *row, spw_job *out) {
    *out = *q->job;
    out->expert = row->expert;
    out->fsdp = row->fsdp;
    out->batches = 1;
    out->sequences_per_gpu[0] = row->sequences;
}

spw_status spw_plan_replay_point(const spw_plan_request *q, const spw_job *job, const spw_scheme *scheme,
                                 bool memory_only, bool one_step, spw_result *out, bool *there) {
    spw_replay_request request = spw_plan_point_request(q, job, scheme);
    if (one_step) request.step_end = request.step_begin + 1;
    if (memory_only) request.time_stack = NULL, request.megatron = NULL, request.listed = false;
    const spw_status status = spw_replay_run(&request, out);
    *there = status == SPW_OK && out->rows == 1;
    return status == SPW_ECONFIG ? SPW_OK : status;
}

const char *spw_plan_no_time(const spw_plan_request *q, const spw_result_row *row) {
    const spw_fits fits = {q->stack, q->time_stack, q->megatron};
    return row->timed ? NULL : spw_why_no_time(q->job, &row->scheme, &fits);
}

double spw_plan_max_over_mean(const spw_result_row *row) {
    const double mean = row->traffic.rows_mean;
    return mean > 0.0 ? (double)row->traffic.rows_max / mean : 0.0;
}

/* Seconds of a step of dense with this factor; NAN when it cannot be said. */
static double dense_step(const spw_plan_request *q, const spw_job *job, size_t sequences, double factor) {
    spw_scheme dense;
    spw_timeline time;
    char text[SPW_SCHEME_TEXT];
    (void)snprintf(text, sizeof text, "dense:capacity_factor=%.6f", factor);
    if (spw_scheme_parse(text, &dense) != SPW_OK) return NAN;
    const spw_time_request request = {
        .stack = q->time_stack, .job = job, .scheme = &dense, .sequences = sequences};
    if (!spw_compiled_time_covers(job, &dense) || spw_compiled_time_predict(&request, &time) != SPW_OK)
        return NAN;
    return time.step_s;
}

double spw_plan_break_even_factor(const spw_plan_request *q, const spw_result_row *row) {
    spw_job job;
    double low = 0.5, high = 16.0;
    if (!row->timed || spw_scheme_program(&row->scheme) == NULL || q->time_stack == NULL ||
        split_job(q->job, row->expert, &job) != SPW_OK)
        return NAN;
    if (!(dense_step(q, &job, row->sequences, low) < row->time.step_s) ||
        !(dense_step(q, &job, row->sequences, high) > row->time.step_s))
        return NAN;
    for (int i = 0; i < 40; i++) {
        const double middle = 0.5 * (low + high);
        *(dense_step(q, &job, row->sequences, middle) < row->time.step_s ? &low : &high) = middle;
    }
    return 0.5 * (low + high);
}
