#include "sim/command/plan_flags.h"

#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/frameworks/flags.h"
#include "sim/input/job.h"
#include "sim/replay/result_answers.h"

#include <stdint.h>
#include <string.h>

spw_status spw_plan_flags_find(const char *name, const spw_framework **out) {
    *out = spw_framework_find(name, strlen(name));
    if (*out != NULL && (*out)->express != NULL) return spw_command_lines_at(SIZE_MAX);
    return spw_fail(SPW_EARG, "--flags %s: write megatron, bridge, primus, maxtext or torchtitan", name);
}

spw_status spw_plan_flags_print(const spw_framework *framework, const spw_job *job, const spw_result *result,
                                FILE *out) {
    const spw_result_answers *a = &result->answers;
    const spw_result_row *row = spw_result_row_at(result, a->fastest);
    spw_job *point = NULL;
    spw_status status = SPW_OK;
    if (result->rows == 0)
        return spw_fail(SPW_ECONFIG, "--flags: no point can be, so there is none to print");
    if (row == NULL && a->fits > 0) row = spw_result_row_at(result, a->order[0]);
    if (row == NULL) row = &result->row[0];
    SPW_TRY(SPW_ALLOC(1, &point));
    *point = *job;
    point->expert = row->expert;
    point->fsdp = row->fsdp;
    point->batches = 1;
    point->sequences_per_gpu[0] = row->sequences;
    SPW_TRY(spw_flags_print(framework, point, &row->scheme, out));

cleanup:
    spw_free(point);
    return status;
}
