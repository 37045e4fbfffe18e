#include "sim/replay/plan_answers.h"

#include <math.h>
#include <string.h>

bool spw_point_fits(const spw_result_row *row) { return spw_result_verdict(row) != SPW_VERDICT_OOM; }

bool spw_point_surely_fits(const spw_result_row *row) {
    if (row->reserved.there) return spw_point_fits(row) && row->reserved.as_set.retried_steps == 0;
    return spw_point_fits(row) && row->footprint.high_bytes <= row->footprint.budget_bytes;
}

bool spw_point_is_live_alone(const spw_result_row *row) {
    return row->memory_kind == SPW_MEMORY_LIVE && !row->reserved.there;
}

bool spw_point_outside_fit(const spw_result_row *row) {
    return row->memory_outside[0] != '\0' || (row->timed && row->time.outside[0] != '\0');
}

bool spw_point_drops(const spw_result_row *row) { return row->drops.dropped > 0 || row->drops.at_least; }

double spw_point_drop_fraction(const spw_result_row *row) {
    return row->drops.assignments > 0 ? (double)row->drops.dropped / (double)row->drops.assignments : 0.0;
}

static double speed(const spw_result_row *row) { return row->timed ? row->time.tokens_per_s_per_gpu : 0.0; }

static bool drops_at_most(const spw_result_row *row, double most) {
    return most > 0.0 ? spw_point_drop_fraction(row) <= most : !spw_point_drops(row);
}

static bool is_faster(const spw_result_row *row, const spw_result_row *best) {
    return best == NULL || speed(row) > speed(best) ||
           (speed(row) >= speed(best) && row->memory.max_bytes < best->memory.max_bytes);
}

const spw_result_row *spw_plan_fastest(const spw_result *result, double most, bool surely) {
    const spw_result_row *best = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (!row->timed || !spw_point_fits(row) || !drops_at_most(row, most)) continue;
        if (surely && !spw_point_surely_fits(row)) continue;
        if (is_faster(row, best)) best = row;
    }
    return best;
}

const spw_result_row *spw_plan_fastest_of(const spw_result *result, const char *scheme) {
    const spw_result_row *best = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (strcmp(row->scheme.text, scheme) != 0 || !row->timed || !spw_point_fits(row)) continue;
        if (is_faster(row, best)) best = row;
    }
    return best;
}

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

/* At least as good in everything, and better in something. */
static bool beats(const spw_result_row *a, const spw_result_row *b) {
    const double drops_a = spw_point_drop_fraction(a), drops_b = spw_point_drop_fraction(b);
    if (a->timed != b->timed || a->memory_kind != b->memory_kind) return false;
    if (a->memory.max_bytes > b->memory.max_bytes || speed(a) < speed(b) || drops_a > drops_b) return false;
    return a->memory.max_bytes < b->memory.max_bytes || speed(a) > speed(b) || drops_a < drops_b;
}

void spw_plan_front(const spw_result *result, bool *front) {
    for (size_t i = 0; i < result->rows; i++) {
        front[i] = spw_point_fits(&result->row[i]);
        for (size_t j = 0; j < result->rows && front[i]; j++)
            front[i] = !(spw_point_fits(&result->row[j]) && beats(&result->row[j], &result->row[i]));
    }
}

spw_plan_cost spw_plan_cost_of(const spw_result_row *row, double gpus, double tokens) {
    static const double DAY = 86400.0, HOUR = 3600.0;
    if (!row->timed) return (spw_plan_cost){NAN, NAN, NAN};
    const double rate = speed(row) * gpus;
    return (spw_plan_cost){rate * DAY, gpus * tokens / rate / HOUR, tokens / rate / DAY};
}

spw_plan_change spw_plan_change_of(const spw_result *result, const spw_result_row *row, double hbm_bytes) {
    spw_plan_change change = {SPW_CHANGE_NONE, (double)row->memory.max_bytes / hbm_bytes, NULL};
    if (spw_point_fits(row)) return change;
    change.kind = SPW_CHANGE_EXPANDABLE;
    if (row->reserved.there && row->reserved.expandable.failed_steps == 0) return change;
    change.kind = SPW_CHANGE_FRACTION;
    if (!row->reserved.there && change.fraction <= SPW_MOST_FRACTION) return change;
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
