#include "sim/memory/compiled/newest_arena.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/software.h"
#include "sim/memory/compiled/compiled_footprint.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/live/footprint.h"

#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

spw_status spw_newest_stack_read(const spw_job *job, const spw_scheme *scheme, size_t schemes,
                                 spw_software *software, const spw_stack **out) {
    *out = NULL;
    if (!spw_schemes_have_programs(scheme, schemes) || job->part != SPW_PART_WHOLE ||
        job->cluster.gpu_generation == SPW_GPU_NONE)
        return SPW_OK;
    const spw_status status = spw_software_newest(job, true, false, software);
    if (status == SPW_OK) *out = &software->stack;
    return status;
}

spw_status spw_newest_arena_of(const spw_stack *stack, const spw_job *job, const spw_scheme *scheme,
                               size_t sequences, spw_newest_arena *out) {
    char outside[SPW_OUTSIDE_TEXT];
    spw_footprint *f = NULL;
    spw_status status = SPW_OK;
    *out = (spw_newest_arena){.there = false};
    spw_scheme settled = *scheme;
    if (stack == NULL || job->part != SPW_PART_WHOLE || !spw_compiled_footprint_covers(job, scheme) ||
        spw_compiled_layout_settle(stack, &settled) != SPW_OK)
        return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &f));
    SPW_TRY(spw_compiled_footprint_compute(stack, job, scheme, sequences, f, outside));
    *out = (spw_newest_arena){.there = true,
                              .verdict = spw_interval_verdict((double)f->peak_bytes, (double)f->high_bytes,
                                                              (double)f->budget_bytes),
                              .peak_bytes = f->peak_bytes,
                              .low_bytes = f->low_bytes,
                              .high_bytes = f->high_bytes,
                              .budget_bytes = f->budget_bytes};
    (void)snprintf(out->stack, sizeof out->stack, "%s", stack->name);

cleanup:
    spw_free(f);
    return status;
}

static bool is_sure(const spw_newest_arena *a) {
    return spw_verdict_is_sure(a->verdict, (double)a->high_bytes, (double)a->budget_bytes);
}

bool spw_newest_arena_differs(const spw_newest_arena *a, spw_verdict live) {
    return a->there && (a->verdict != live || (a->verdict != SPW_VERDICT_OOM && !is_sure(a)));
}

const char *spw_newest_arena_text(const spw_newest_arena *a, char out[SPW_NEWEST_TEXT]) {
    const char *const says = spw_verdict_sentence(a->verdict, is_sure(a));
    (void)snprintf(out, SPW_NEWEST_TEXT, "%s: %.1f GiB (%.1f to %.1f) of %.1f", says,
                   (double)a->peak_bytes / GIB, (double)a->low_bytes / GIB, (double)a->high_bytes / GIB,
                   (double)a->budget_bytes / GIB);
    return out;
}
