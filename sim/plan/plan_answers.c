#include "sim/plan/plan_answers.h"

#include <math.h>
#include <string.h>

static double speed(const spw_result_row *row) { return row->timed ? row->time.tokens_per_s_per_gpu : 0.0; }

const spw_result_row *spw_plan_misfit(const spw_result *result, const char *scheme, size_t expert) {
    const spw_result_row *least = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *r = &result->row[i];
        if (strcmp(r->scheme.text, scheme) != 0 || spw_point_fits(r)) continue;
        if (least == NULL || r->sequences < least->sequences ||
            (r->sequences == least->sequences && r->expert == expert))
            least = r;
    }
    return least;
}

spw_plan_change spw_plan_change_of(const spw_result *result, const spw_result_row *row, double hbm_bytes) {
    spw_plan_change change = {SPW_CHANGE_NONE,
                              ((double)row->memory.max_bytes + row->budget.resident) / hbm_bytes, NULL};
    if (spw_point_fits(row)) return change;
    change.kind = SPW_CHANGE_EXPANDABLE;
    if (row->reserved.there && row->reserved.expandable.failed_steps == 0) return change;
    change.kind = SPW_CHANGE_FRACTION;
    if (!row->reserved.there && !row->budget.listed && change.fraction <= SPW_MOST_FRACTION) return change;
    const spw_result_row *fewer = NULL, *split = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *other = &result->row[i];
        if (strcmp(other->scheme.text, row->scheme.text) != 0 || !spw_point_fits(other)) continue;
        if (other->sequences == row->sequences && (split == NULL || speed(other) > speed(split)))
            split = other;
        if (other->expert == row->expert && other->sequences < row->sequences &&
            (fewer == NULL || other->sequences > fewer->sequences))
            fewer = other;
    }
    change.to = split != NULL ? split : fewer;
    change.kind = split != NULL   ? SPW_CHANGE_SPLIT
                  : fewer != NULL ? SPW_CHANGE_SEQUENCES
                                  : SPW_CHANGE_IMPOSSIBLE;
    return change;
}
