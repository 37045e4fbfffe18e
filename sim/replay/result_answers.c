#include "sim/replay/result_answers.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/machine/stack_defaults.h"
#include "sim/memory/allocator/allocator_share.h"
#include "sim/memory/step/advice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool spw_point_fits(const spw_result_row *row) { return spw_result_verdict(row) != SPW_VERDICT_OOM; }

bool spw_point_is_live_alone(const spw_result_row *row) {
    return row->memory_kind == SPW_MEMORY_LIVE && !row->reserved.there;
}

bool spw_point_drops(const spw_result_row *row) { return row->drops.dropped > 0 || row->drops.at_least; }

double spw_result_drop_fraction(const spw_result_drops *d) {
    return d->assignments > 0 ? (double)d->dropped / (double)d->assignments : 0.0;
}

static double most_bytes(const spw_result_row *row, const spw_job_allocator *allocator) {
    const double live = (double)row->memory.max_bytes, state = (double)row->footprint.argument_bytes;
    const double usual = spw_allocator_share(allocator),
                 share = row->unlisted != NULL ? fmin(usual, spw_default_hf_allocator_share.value) : usual,
                 by_share = state + fmax(live - state, 0.0) * share;
    if (row->reserved.there) /* a replay of components knows nothing of the streams that a list has */
        return fmax(row->unlisted != NULL ? by_share : live, spw_reserved_high(&row->reserved));
    if (row->memory_kind == SPW_MEMORY_ARENA) return (double)row->footprint.high_bytes;
    const spw_scheme_type *type = row->scheme.type;
    if (type != NULL && spw_scheme_needs_stack(type))
        return row->newest.there ? (double)row->newest.high_bytes : INFINITY;
    return by_share;
}

void spw_result_row_judge(spw_result_row *row, const spw_job_allocator *allocator) {
    spw_result_drops *d = &row->drops;
    d->fraction = spw_result_drop_fraction(d);
    row->most_bytes = most_bytes(row, allocator) + (double)spw_device_budget_doubt(&row->budget);
    row->surely_fits =
        spw_verdict_is_sure(spw_result_verdict(row), row->most_bytes, (double)row->footprint.budget_bytes);
}

static double speed(const spw_result_row *row) { return row->timed ? row->time.tokens_per_s_per_gpu : 0.0; }

/* Below 0: a is the better row. */
static int compare(const spw_result_row *a, const spw_result_row *b) {
    if (a->timed != b->timed) return a->timed ? -1 : 1;
    if (a->surely_fits != b->surely_fits) return a->surely_fits ? -1 : 1;
    if (speed(a) > speed(b) || speed(a) < speed(b)) return speed(a) > speed(b) ? -1 : 1;
    if (!a->timed && a->sequences != b->sequences) return a->sequences > b->sequences ? -1 : 1;
    if (a->memory.max_bytes != b->memory.max_bytes) return a->memory.max_bytes < b->memory.max_bytes ? -1 : 1;
    return (a->drops.fraction > b->drops.fraction) - (a->drops.fraction < b->drops.fraction);
}

static bool drops_at_most(const spw_result_row *row, double most) {
    return most > 0.0 ? row->drops.fraction <= most : !spw_point_drops(row);
}

/* May it be called fastest? */
static bool may_win(const spw_result_row *row, double most) {
    return row->timed && spw_point_fits(row) && drops_at_most(row, most);
}

const spw_result_row *spw_result_fastest(const spw_result *result, double most, bool surely) {
    const spw_result_row *best = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (!may_win(row, most) || (surely && !row->surely_fits)) continue;
        if (best == NULL || compare(row, best) < 0) best = row;
    }
    return best;
}

/* The fastest but `best` of the rows that could be in its place. */
static const spw_result_row *next_to(const spw_result *result, const spw_result_row *best, double most) {
    const spw_result_row *next = NULL;
    for (size_t i = 0; i < result->rows && best != NULL; i++) {
        const spw_result_row *row = &result->row[i];
        if (row == best || !may_win(row, most) || speed(row) > speed(best)) continue;
        if (next == NULL || speed(row) > speed(next)) next = row;
    }
    return next;
}

const spw_result_row *spw_result_fastest_tight(const spw_result *result, double most) {
    const spw_result_row *best = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (!may_win(row, most) || row->surely_fits) continue;
        if (best == NULL || compare(row, best) < 0) best = row;
    }
    return best;
}

const spw_result_row *spw_result_fastest_of(const spw_result *result, const char *scheme) {
    const spw_result_row *best = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (strcmp(row->scheme.text, scheme) != 0 || !row->timed || !spw_point_fits(row)) continue;
        if (best == NULL || compare(row, best) < 0) best = row;
    }
    return best;
}

/* At least as good in everything, and better in something. What may not fit, or may drop more, is not as good as what surely does not. */
static bool beats(const spw_result_row *a, const spw_result_row *b) {
    const double drops_a = a->drops.fraction, drops_b = b->drops.fraction;
    if (a->timed != b->timed || a->memory_kind != b->memory_kind) return false;
    if ((b->surely_fits && !a->surely_fits) || (a->drops.at_least && !b->drops.at_least)) return false;
    if (a->memory.max_bytes > b->memory.max_bytes || speed(a) < speed(b) || drops_a > drops_b) return false;
    return a->memory.max_bytes < b->memory.max_bytes || speed(a) > speed(b) || drops_a < drops_b ||
           (a->surely_fits && !b->surely_fits);
}

static void find_front(spw_result *result) {
    bool *front = result->answers.front;
    for (size_t i = 0; i < result->rows; i++) {
        front[i] = spw_point_fits(&result->row[i]);
        for (size_t j = 0; j < result->rows && front[i]; j++)
            front[i] = !(spw_point_fits(&result->row[j]) && beats(&result->row[j], &result->row[i]));
    }
}

static int best_first(const void *a, const void *b, void *rows) {
    const spw_result_row *row = rows;
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const int order = compare(&row[x], &row[y]);
    return order != 0 ? order : (x > y) - (x < y);
}

size_t spw_result_answers_row(const spw_result_answers *a, size_t place) {
    if (a->lead == SPW_NO_ROW || place > a->lead) return a->order[place];
    return a->order[place == 0 ? a->lead : place - 1];
}

static size_t position(const spw_result *result, const spw_result_row *row) {
    return row != NULL ? (size_t)(row - result->row) : SPW_NO_ROW;
}

static size_t least_memory(const spw_result *result) {
    const spw_result_row *least = NULL;
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        if (result->answers.fits > 0 && !spw_point_fits(row)) continue;
        if (least == NULL || row->memory.max_bytes < least->memory.max_bytes) least = row;
    }
    return position(result, least);
}

spw_status spw_result_answer(spw_result *result, double drop_most) {
    spw_result_answers *a = &result->answers;
    spw_status status = SPW_OK;
    if (result->rows == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(result->rows, &a->order));
    SPW_TRY(SPW_ALLOC(result->rows, &a->front));
    for (size_t i = 0; i < result->rows; i++)
        if (spw_point_fits(&result->row[i])) a->order[a->fits++] = i;
    qsort_r(a->order, a->fits, sizeof *a->order, best_first, result->row);
    find_front(result);
    a->there = true;
    a->drop_most = drop_most;
    a->fastest = position(result, spw_result_fastest(result, drop_most, false));
    a->lead = SPW_NO_ROW;
    for (size_t i = 0; i < a->fits && a->lead == SPW_NO_ROW; i++)
        if (a->order[i] == a->fastest) a->lead = i;
    a->fastest_sure = position(result, spw_result_fastest(result, drop_most, true));
    a->fastest_dropless = position(result, spw_result_fastest(result, 0.0, false));
    a->fastest_dropless_sure = position(result, spw_result_fastest(result, 0.0, true));
    a->fastest_whatever_drops = position(result, spw_result_fastest(result, 1.0, false));
    a->least_memory = least_memory(result);
    const spw_result_row *best = spw_result_row_at(result, a->fastest),
                         *next = next_to(result, best, drop_most);
    a->next = position(result, next);
    a->next_chance = next != NULL ? spw_timeline_faster(&best->time, &next->time) : NAN;

cleanup:
    return status;
}

const spw_result_row *spw_result_row_at(const spw_result *result, size_t row) {
    return row < result->rows ? &result->row[row] : NULL;
}
