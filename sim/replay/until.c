#include "sim/replay/until.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/replay/result_answers.h"

#include <math.h>
#include <string.h>

enum { INTERVALS = 8, HALVINGS = 7, MOST_PLANS = 4096 };

/* One plan: the values of all points at a severity. */
typedef struct sample {
    double severity;
    double *value; /* [points] NAN without a time */
    double *drops; /* [points] share of the assignments */
    bool *bad;     /* [points] */
} sample;

static void sample_clear(sample *s) {
    spw_free(s->value);
    spw_free(s->drops);
    spw_free(s->bad);
}

typedef struct search {
    const spw_until_request *request;
    spw_until_outcome *out;
    sample *sample; /* [samples], rising */
    size_t samples;
    spw_progress progress;
} search;

static double value_of(const spw_until_request *q, const spw_result_row *row) {
    if (q->factor > 0.0) return row->timed ? row->time.step_s / row->balanced.step_s : NAN;
    return (double)(row->reserved.there ? row->reserved.as_set.reserved.max_bytes : row->memory.max_bytes);
}

static bool is_bad(const spw_until_request *q, const spw_result_row *row) {
    if (q->factor > 0.0) return row->timed && row->time.step_s > q->factor * row->balanced.step_s;
    return !spw_point_fits(row);
}

static spw_status same_points(const spw_result *a, const spw_result *b, double severity) {
    bool same = a->rows == b->rows;
    for (size_t i = 0; i < a->rows && same; i++)
        same = strcmp(a->row[i].scheme.text, b->row[i].scheme.text) == 0 &&
               a->row[i].expert == b->row[i].expert && a->row[i].sequences == b->row[i].sequences;
    return same ? SPW_OK : spw_fail(SPW_ECONFIG, "at %g other points can be than at the low end", severity);
}

/* Makes the plan of a severity unless it was made; `*at` is its place. */
static spw_status look(search *s, double severity, size_t *at) {
    spw_result result = {.rows = 0};
    sample made = {.severity = severity, .value = NULL};
    spw_status status = SPW_OK;
    size_t place = 0;
    while (place < s->samples && s->sample[place].severity < severity) place++;
    *at = place;
    if (place < s->samples && s->sample[place].severity == severity) return SPW_OK;
    if (s->samples == MOST_PLANS) return spw_fail(SPW_EARG, "more than %d plans", (int)MOST_PLANS);
    SPW_TRY(s->request->plan(s->request->state, severity, &result));
    if (s->samples > 0) SPW_TRY(same_points(&s->out->first, &result, severity));
    SPW_TRY(SPW_ALLOC(result.rows, &made.value));
    SPW_TRY(SPW_ALLOC(result.rows, &made.drops));
    SPW_TRY(SPW_ALLOC(result.rows, &made.bad));
    for (size_t i = 0; i < result.rows; i++) {
        made.value[i] = value_of(s->request, &result.row[i]);
        made.drops[i] = result.row[i].drops.fraction;
        made.bad[i] = is_bad(s->request, &result.row[i]);
    }
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

/* Halves the first interval of a point whose lower end is good and whose upper end is not, down to a 1024th of the range. */
static spw_status halve(search *s, size_t point) {
    const double least = (s->request->high - s->request->low) / (INTERVALS << HALVINGS);
    spw_status status = SPW_OK;
    for (;;) {
        size_t bad = 0, at = 0;
        while (bad < s->samples && !s->sample[bad].bad[point]) bad++;
        if (bad == 0 || bad == s->samples) return SPW_OK;
        if (s->sample[bad].severity - s->sample[bad - 1].severity <= least * (1.0 + 1e-9)) return SPW_OK;
        SPW_TRY(look(s, 0.5 * (s->sample[bad - 1].severity + s->sample[bad].severity), &at));
    }

cleanup:
    return status;
}

static void judge(const search *s, size_t point, spw_until_answer *out) {
    static const double TOLERANCE = 0.01;
    double most = -INFINITY;
    size_t bad = 0;
    *out =
        (spw_until_answer){.kind = SPW_UNTIL_FOUND, .monotone = true, .value_low = s->sample[0].value[point]};
    while (bad < s->samples && !s->sample[bad].bad[point]) bad++;
    for (size_t i = 0; i < s->samples; i++) {
        const double value = s->sample[i].value[point];
        if (i > bad && !s->sample[i].bad[point]) out->good_again = s->sample[i].severity;
        if (value < most * (1.0 - TOLERANCE) && !(s->request->factor == 0.0 && s->sample[i].bad[point]))
            out->monotone = false; /* what was held when an allocation failed is no need */
        if (fabs(value - out->value_low) > 1e-9 * out->value_low) out->follows = true;
        most = fmax(most, value);
    }
    out->monotone = out->monotone && out->good_again == 0.0;
    if (isnan(out->value_low)) {
        out->kind = SPW_UNTIL_UNTIMED;
    } else if (bad == 0) {
        out->kind = SPW_UNTIL_ALWAYS;
        out->bad = s->sample[0].severity;
        out->value_bad = s->sample[0].value[point];
    } else {
        const sample *good = &s->sample[bad - 1];
        if (bad == s->samples) out->kind = SPW_UNTIL_NEVER;
        out->good = good->severity;
        out->value_good = good->value[point];
        out->drops_good = good->drops[point];
        out->bad = bad < s->samples ? s->sample[bad].severity : NAN;
        out->value_bad = bad < s->samples ? s->sample[bad].value[point] : NAN;
    }
}

spw_status spw_until_find(const spw_until_request *request, spw_until_outcome *out) {
    search s = {.request = request, .out = out};
    spw_status status = SPW_OK;
    size_t at = 0;
    *out = (spw_until_outcome){.plans = 0};
    s.progress = spw_progress_begin("plans", "plans", INTERVALS + 1 + HALVINGS);
    SPW_TRY(SPW_ALLOC(MOST_PLANS, &s.sample));
    for (int i = 0; i <= INTERVALS; i++)
        SPW_TRY(look(&s, request->low + (request->high - request->low) * i / INTERVALS, &at));
    for (size_t point = 0; point < out->first.rows; point++) SPW_TRY(halve(&s, point));
    SPW_TRY(SPW_ALLOC(out->first.rows, &out->answer));
    for (size_t point = 0; point < out->first.rows; point++) judge(&s, point, &out->answer[point]);
    out->plans = s.samples;

cleanup:
    spw_progress_end(&s.progress);
    for (size_t i = 0; i < s.samples; i++) sample_clear(&s.sample[i]);
    spw_free(s.sample);
    return status;
}

void spw_until_clear(spw_until_outcome *outcome) {
    spw_result_clear(&outcome->first);
    spw_free(outcome->answer);
    *outcome = (spw_until_outcome){.plans = 0};
}
