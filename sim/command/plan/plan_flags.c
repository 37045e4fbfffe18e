#include "sim/command/plan/plan_flags.h"

#include "base/memory.h"
#include "sim/command/command.h"
#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_notes.h"
#include "sim/frameworks/flags.h"
#include "sim/job/job.h"
#include "sim/replay/result_answers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

spw_status spw_plan_flags_find(const char *name, const spw_framework **out) {
    *out = spw_framework_find(name, strlen(name));
    if (*out != NULL && (*out)->express != NULL) return spw_command_lines_at(SIZE_MAX);
    return spw_fail(SPW_EARG, "--flags %s: write megatron, bridge, primus, maxtext or torchtitan", name);
}

/* What is to be known of the point before it is run: a line each. */
static void print_doubts(const spw_plan_view *view, const spw_job *job, const spw_result_row *row,
                         FILE *out) {
    const char *why = spw_plan_no_time(view->request, row), *between = "outside the fit: ";
    char point[SPW_PLAN_POINT];
    fprintf(out, "%s: ", spw_plan_point_text(row, point));
    spw_plan_print_room(view, row, out);
    fputc('\n', out);
    if (job->more[0] != '\0') fprintf(out, "may need more memory: %s\n", job->more);
    if (job->less[0] != '\0') fprintf(out, "needs less memory than is planned: %s\n", job->less);
    for (size_t i = 0; i < row->outside_fit.count; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again = again || strcmp(row->outside_fit.item[j].feature, row->outside_fit.item[i].feature) == 0;
        if (!again) fprintf(out, "%s%s", between, row->outside_fit.item[i].feature);
        if (!again) between = "; ";
    }
    if (row->outside_fit.count > 0) fputc('\n', out);
    if (why != NULL) fprintf(out, "no time: %s\n", why);
}

spw_status spw_plan_flags_print(const spw_framework *framework, const spw_plan_view *view, FILE *out) {
    const spw_job *job = view->request->job;
    const spw_result *result = view->result;
    const spw_result_answers *a = &result->answers;
    const spw_result_row *row = spw_result_row_at(result, a->fastest);
    spw_job *point = NULL;
    char *doubts = NULL;
    size_t size = 0;
    FILE *text = NULL;
    spw_status status = SPW_OK;
    if (result->rows == 0)
        return spw_fail(SPW_ECONFIG, "--flags: no point can be, so there is none to print");
    spw_plan_print_brief(view, spw_command_notes()); /* whose flags these are */
    if (row == NULL && a->fits > 0) row = spw_result_row_at(result, a->order[0]);
    if (row == NULL) row = &result->row[0];
    SPW_TRY(SPW_ALLOC(1, &point));
    *point = *job;
    point->expert = row->expert;
    point->fsdp = row->fsdp;
    point->batches = 1;
    point->sequences_per_gpu[0] = row->sequences;
    text = open_memstream(&doubts, &size);
    if (text == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a stream"));
    print_doubts(view, job, row, text);
    if (fclose(text) != 0) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot keep the doubts"));
    SPW_TRY(spw_flags_print(framework, point, &row->scheme, doubts, out));

cleanup:
    free(doubts);
    spw_free(point);
    return status;
}
