#include "sim/plan/plan_later.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/machine/stack.h"

#include <string.h>

/* The last by name of those that take their times from the assumed stack. */
static spw_status find_stack(const spw_stack *assumed, spw_stack *out, bool *there) {
    const char *last = NULL;
    spw_status status = SPW_OK;
    for (const char *const *name = spw_stack_presets(); *name != NULL && status == SPW_OK; name++) {
        status = spw_stack_read(*name, NULL, out);
        if (status == SPW_OK && strcmp(out->times, assumed->name) == 0 &&
            (last == NULL || strcmp(*name, last) > 0))
            last = *name;
    }
    *there = last != NULL;
    return status == SPW_OK && last != NULL ? spw_stack_read(last, NULL, out) : status;
}

static spw_status ask(const spw_plan_request *q, const spw_stack *later, const spw_result_row *row,
                      spw_job *job, spw_newest_arena *out, bool *differs) {
    *out = (spw_newest_arena){.there = false};
    *differs = false;
    if (row->memory_kind != SPW_MEMORY_ARENA) return SPW_OK;
    *job = *q->job;
    job->expert = row->expert;
    job->fsdp = row->fsdp;
    job->batches = 1;
    job->sequences_per_gpu[0] = row->sequences;
    const spw_status status = spw_newest_arena_of(later, job, &row->scheme, row->sequences, out);
    *differs = status == SPW_OK && out->there &&
               (out->peak_bytes < row->footprint.low_bytes || out->peak_bytes > row->footprint.high_bytes);
    return status == SPW_ECONFIG ? SPW_OK : status;
}

spw_status spw_plan_later_find(const spw_plan_request *q, const spw_result *result, spw_plan_later *out) {
    const spw_result_answers *a = &result->answers;
    const size_t answer = a->fastest != SPW_NO_ROW ? a->fastest : a->least_memory;
    spw_stack *later = NULL;
    spw_job *job = NULL;
    bool there = false;
    spw_status status = SPW_OK;
    *out = (spw_plan_later){.row = SPW_NO_ROW};
    if (q->stack == NULL || !q->stack_assumed) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &later));
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(find_stack(q->stack, later, &there));
    for (size_t i = 0; there && i < result->rows; i++) {
        spw_newest_arena arena;
        bool differs = false;
        SPW_TRY(ask(q, later, &result->row[i], job, &arena, &differs));
        out->points += differs;
        if (!differs || (out->arena.there && i != answer)) continue;
        out->arena = arena;
        out->row = i;
    }

cleanup:
    spw_free(job);
    spw_free(later);
    return status;
}
