#include "sim/plan/until.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/job/job.h"
#include "sim/replay/result_answers.h"

#include <math.h>
#include <string.h>

enum { INTERVALS = 8, HALVINGS = 7, MOST_PLANS = 4096 };

/* How a value stands to its budget; each is worse than the one before. */
typedef enum grade { SURE, GOOD, BAD, SURELY_BAD, GRADES } grade;

/* One plan: the values of all questions and points at a severity. */
typedef struct sample {
    double severity;
    spw_until_value *value; /* [questions][points] NAN without a time */
    double *drops;          /* [points] share of the assignments */
    spw_until_place *place; /* [points] */
} sample;

static void sample_clear(sample *s) {
    spw_free(s->value);
    spw_free(s->drops);
    spw_free(s->place);
}

typedef struct search {
    const spw_until_request *request;
    spw_until_outcome *out;
    sample *sample; /* [samples], rising */
    size_t samples;
    spw_progress progress;
} search;

/* --- One value --- */

static spw_until_value memory_of(const spw_result_row *row) {
    const double live = (double)row->memory.max_bytes,
                 reserved = row->reserved.there ? (double)row->reserved.as_set.reserved.max_bytes : 0.0;
    return (spw_until_value){
        .value = fmax(live, reserved), /* what a step that ran out had reserved is not all it needs */
        .low = row->memory_kind == SPW_MEMORY_ARENA ? (double)row->footprint.low_bytes : live,
        .high = row->most_bytes,
        .budget = (double)row->footprint.budget_bytes,
        .bad = !spw_point_fits(row)};
}

spw_until_value spw_until_value_of(const spw_result_row *row, double factor) {
    if (!(factor > 0.0)) return memory_of(row);
    const spw_ratio ratio = spw_result_row_ratio(row);
    if (!row->timed) return (spw_until_value){NAN, NAN, NAN, factor, false};
    return (spw_until_value){.value = ratio.value,
                             .low = ratio.low,
                             .high = ratio.high,
                             .budget = factor,
                             .bad = row->time.step_s > factor * row->balanced.step_s};
}

bool spw_until_is_sure(const spw_until_value *v) { return !v->bad && v->high <= v->budget; }

static grade grade_of(const spw_until_value *v) {
    if (v->bad) return v->low > v->budget ? SURELY_BAD : BAD;
    return spw_until_is_sure(v) ? SURE : GOOD;
}

static spw_until_place place_of(const spw_result_row *row) {
    const spw_stage *stage = &row->footprint.stage;
    spw_until_place place = {.stage = stage->index,
                             .stages = stage->stages,
                             .rank = row->reserved.there ? row->reserved.as_set.worst_rank
                                                         : row->memory.worst_rank,
                             .layer = row->memory.worst_layer,
                             .step = row->memory.worst_step};
    (void)spw_result_death_text(row, place.death);
    return place;
}

/* --- Plans --- */

static spw_status same_points(const spw_result *a, const spw_result *b, double severity) {
    bool same = a->rows == b->rows;
    for (size_t i = 0; i < a->rows && same; i++)
        same = strcmp(a->row[i].scheme.text, b->row[i].scheme.text) == 0 &&
               a->row[i].expert == b->row[i].expert && a->row[i].sequences == b->row[i].sequences;
    return same ? SPW_OK : spw_fail(SPW_ECONFIG, "at %g other points can be than at the low end", severity);
}

static spw_status fill(const spw_until_request *q, const spw_result *result, sample *out) {
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(result->rows * q->questions, &out->value));
    SPW_TRY(SPW_ALLOC(result->rows, &out->drops));
    SPW_TRY(SPW_ALLOC(result->rows, &out->place));
    for (size_t i = 0; i < result->rows; i++) {
        const spw_result_row *row = &result->row[i];
        for (size_t k = 0; k < q->questions; k++)
            out->value[k * result->rows + i] = spw_until_value_of(row, q->factor[k]);
        out->drops[i] = row->drops.fraction;
        out->place[i] = place_of(row);
    }

cleanup:
    return status;
}

/* Of a severity beside the search: its place among the others says nothing there. */
static spw_status look_today(search *s) {
    spw_result result = {.rows = 0};
    sample made = {.severity = s->request->today, .value = NULL};
    spw_status status = SPW_OK;
    if (isnan(s->request->today)) return SPW_OK;
    SPW_TRY(s->request->plan(s->request->state, s->request->today, &result));
    SPW_TRY(same_points(&s->out->first, &result, s->request->today));
    SPW_TRY(fill(s->request, &result, &made));
    s->out->today = made.value;
    made.value = NULL;

cleanup:
    sample_clear(&made);
    spw_result_clear(&result);
    return status;
}

/* Makes the plan of a severity unless it was made. */
static spw_status look(search *s, double severity) {
    spw_result result = {.rows = 0};
    sample made = {.severity = severity, .value = NULL};
    spw_status status = SPW_OK;
    size_t place = 0;
    while (place < s->samples && s->sample[place].severity < severity) place++;
    if (place < s->samples && s->sample[place].severity == severity) return SPW_OK;
    if (s->samples == MOST_PLANS) return spw_fail(SPW_EARG, "more than %d plans", (int)MOST_PLANS);
    SPW_TRY(s->request->plan(s->request->state, severity, &result));
    if (s->samples > 0) SPW_TRY(same_points(&s->out->first, &result, severity));
    SPW_TRY(fill(s->request, &result, &made));
    memmove(s->sample + place + 1, s->sample + place, (s->samples - place) * sizeof *s->sample);
    s->sample[place] = made;
    made = (sample){.value = NULL};
    if (s->samples++ == 0) {
        s->out->first = result;
        result = (spw_result){.rows = 0};
    }
    spw_progress_update(&s->progress, s->samples);

cleanup:
    sample_clear(&made);
    spw_result_clear(&result);
    return status;
}

/* The first sample whose grade is at least `least`; `samples` where there is none. */
static size_t first_of(const search *s, size_t cell, grade least) {
    size_t at = 0;
    while (at < s->samples && grade_of(&s->sample[at].value[cell]) < least) at++;
    return at;
}

/* How many plans halve `gap` to `width`: as many are still to come. */
static void expect(search *s, double gap, double width) {
    const size_t all = s->samples + (size_t)ceil(log2(gap / width) - 1e-9);
    if (all > s->progress.total) s->progress.total = all;
}

/* Halves the interval below the first sample of that grade, down to a 1024th of the range. */
static spw_status halve(search *s, size_t cell, grade least) {
    const double width = (s->request->high - s->request->low) / (INTERVALS << HALVINGS);
    spw_status status = SPW_OK;
    for (;;) {
        const size_t at = first_of(s, cell, least);
        if (at == 0 || at == s->samples) return SPW_OK;
        const double gap = s->sample[at].severity - s->sample[at - 1].severity;
        if (gap <= width * (1.0 + 1e-9)) return SPW_OK;
        expect(s, gap, width);
        SPW_TRY(look(s, 0.5 * (s->sample[at - 1].severity + s->sample[at].severity)));
    }

cleanup:
    return status;
}

/* Is nothing left to be found, as every point is surely bad at the low end already? */
static bool is_out_at_once(const search *s, size_t cells) {
    size_t out = 0;
    for (size_t cell = 0; cell < cells; cell++) {
        const spw_until_value *v = &s->sample[0].value[cell];
        if (isnan(v->value)) continue;
        if (grade_of(v) < SURELY_BAD) return false;
        out++;
    }
    return out > 0;
}

/* --- The answer --- */

static void judge_order(const search *s, size_t cell, bool memory, size_t bad, spw_until_answer *out) {
    static const double TOLERANCE = 0.01;
    double most = -INFINITY, most_at = NAN, deepest = 1.0 - TOLERANCE;
    for (size_t i = 0; i < s->samples; i++) {
        const spw_until_value *v = &s->sample[i].value[cell];
        const double severity = s->sample[i].severity;
        if (i > bad && !v->bad) out->good_again = severity;
        if (v->value < most * deepest && !(memory && v->bad)) {
            deepest = v->value / most; /* what was held when an allocation failed is no need */
            out->fall.from = most_at, out->fall.to = severity;
            out->fall.value_from = most, out->fall.value_to = v->value;
        }
        if (fabs(v->value - out->at_low.value) > 1e-9 * out->at_low.value) out->follows = true;
        if (v->value > most) most = v->value, most_at = severity;
    }
    out->monotone = isnan(out->fall.from) && out->good_again == 0.0;
}

static void judge(const search *s, size_t question, size_t point, spw_until_answer *out) {
    const size_t cell = question * s->out->first.rows + point, bad = first_of(s, cell, BAD),
                 unsure = first_of(s, cell, GOOD), worst = first_of(s, cell, SURELY_BAD);
    const sample *low = &s->sample[0], *good = bad > 0 ? &s->sample[bad - 1] : low,
                 *first = bad < s->samples ? &s->sample[bad] : low;
    *out =
        (spw_until_answer){.kind = bad == 0            ? SPW_UNTIL_ALWAYS
                                   : bad == s->samples ? SPW_UNTIL_NEVER
                                                       : SPW_UNTIL_FOUND,
                           .good = bad > 0 ? good->severity : NAN,
                           .bad = bad < s->samples ? first->severity : NAN,
                           .sure = unsure > 0 ? s->sample[unsure - 1].severity : NAN,
                           .surely_bad = worst < s->samples ? s->sample[worst].severity : NAN,
                           .at_low = low->value[cell],
                           .at_good = good->value[cell],
                           .at_bad = first->value[cell],
                           .at_today = s->out->today != NULL ? s->out->today[cell]
                                                             : (spw_until_value){NAN, NAN, NAN, NAN, false},
                           .drops_good = good->drops[point],
                           .place = bad < s->samples ? first->place[point] : good->place[point],
                           .fall = {NAN, NAN, NAN, NAN}};
    if (isnan(out->at_low.value)) out->kind = SPW_UNTIL_UNTIMED;
    judge_order(s, cell, !(s->request->factor[question] > 0.0), bad, out);
}

spw_status spw_until_find(const spw_until_request *request, spw_until_outcome *out) {
    search s = {.request = request, .out = out};
    spw_status status = SPW_OK;
    size_t cells = 0;
    *out = (spw_until_outcome){.plans = 0};
    s.progress = spw_progress_begin("plans", "plans", INTERVALS + 1 + HALVINGS);
    SPW_TRY(SPW_ALLOC(MOST_PLANS, &s.sample));
    SPW_TRY(look(&s, request->low));
    cells = request->questions * out->first.rows;
    out->once = is_out_at_once(&s, cells);
    for (int i = 1; i <= INTERVALS && !out->once; i++)
        SPW_TRY(look(&s, request->low + (request->high - request->low) * i / INTERVALS));
    SPW_TRY(look_today(&s));
    for (size_t cell = 0; cell < cells; cell++)
        for (int least = GOOD; least < GRADES; least++) SPW_TRY(halve(&s, cell, (grade)least));
    SPW_TRY(SPW_ALLOC(cells, &out->answer));
    for (size_t cell = 0; cell < cells; cell++)
        judge(&s, cell / out->first.rows, cell % out->first.rows, &out->answer[cell]);
    out->plans = s.samples + (isnan(request->today) ? 0 : 1);

cleanup:
    spw_progress_end(&s.progress);
    for (size_t i = 0; i < s.samples; i++) sample_clear(&s.sample[i]);
    spw_free(s.sample);
    return status;
}

void spw_until_clear(spw_until_outcome *outcome) {
    spw_result_clear(&outcome->first);
    spw_free(outcome->answer);
    spw_free(outcome->today);
    *outcome = (spw_until_outcome){.plans = 0};
}
