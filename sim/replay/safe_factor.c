#include "sim/replay/safe_factor.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/job/job.h"
#include "sim/replay/smallest_factor.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/schemes/selection.h"
#include "sim/statistics/overflow_rate.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RATES = 3, FOUND = 2 * RATES };
static const double rates[RATES] = {0.0, 0.001, 0.01};

/* What was found for a number of steps that may overflow. */
typedef struct found {
    size_t overflows;
    double factor;
    spw_result_drops drops;
} found;

typedef struct search {
    const spw_replay_request *request; /* of one batch */
    const spw_scheme *scheme;
    spw_factor_kind kind;
    found found[FOUND];
    size_t count;
    spw_progress *progress;
    size_t *done; /* of the worst routing and the rates of every scheme and batch */
} search;

static spw_status find(search *s, size_t overflows, const found **out) {
    const spw_factor_limit limit = {INFINITY, overflows};
    for (size_t i = 0; i < s->count; i++) {
        *out = &s->found[i];
        if ((*out)->overflows == overflows) return SPW_OK;
    }
    found *f = &s->found[s->count++];
    f->overflows = overflows;
    *out = f;
    return spw_smallest_factor(s->request, s->scheme, s->kind, limit, &f->factor, &f->drops);
}

/* The row of a replay with the factor, with all that the request asks of memory and time. */
static spw_status replay_with(const search *s, double factor, spw_scheme *scheme, spw_result *result) {
    spw_replay_request request = *s->request;
    bool has = false;
    const spw_status status = spw_scheme_with_factor(s->scheme, s->kind, factor, scheme, &has);
    if (status != SPW_OK) return status;
    request.scheme = scheme;
    request.schemes = request.splits = 1;
    request.allocator = false;
    request.skips_lost_tokens = true;
    request.newest = NULL;
    request.sink = (spw_replay_sink){.state = NULL};
    return spw_replay_run(&request, result);
}

static spw_status fill(search *s, spw_safe_factor *a) {
    const size_t allowed = (size_t)floor(a->rate * (double)a->steps),
                 assured = spw_overflows_allowed(a->rate, a->steps);
    const found *f = NULL;
    spw_result result = {.rows = 0};
    spw_scheme scheme;
    spw_status status = SPW_OK;
    SPW_TRY(find(s, allowed, &f));
    a->factor = f->factor;
    if (!(f->factor > 0.0)) return SPW_OK;
    a->overflows = f->drops.dropping_steps;
    a->upper = spw_overflow_upper_limit(a->overflows, a->steps);
    if (f->drops.dropping_assignments > 0)
        a->dropped = (double)f->drops.dropped / (double)f->drops.dropping_assignments;
    a->worst = f->drops.worst_fraction;
    if (assured != SPW_OVERFLOWS_NONE) {
        SPW_TRY(find(s, assured, &f));
        a->assured = f->factor;
    }
    SPW_TRY(replay_with(s, a->factor, &scheme, &result));
    (void)snprintf(a->scheme, sizeof a->scheme, "%s", scheme.text);
    a->peak_bytes = result.row[0].memory.max_bytes;
    a->step_s = result.row[0].timed ? result.row[0].time.step_s : 0.0;
    a->again_s = a->step_s * (1.0 + (double)a->overflows / (double)a->steps);

cleanup:
    spw_result_clear(&result);
    return status;
}

/* With which no routing overflows. */
static double worst_factor(const search *s, const spw_layer_shape *shape) {
    const spw_replay_request *q = s->request;
    const spw_scheme_type *type = s->scheme->type;
    const spw_point point = spw_point_of(q->job, s->scheme, q->job->sequences_per_gpu[0]);
    spw_page_pool pool;
    if (s->kind == SPW_FACTOR_PAGES && type->memory.pool(s->scheme, &point.shape, &pool))
        return spw_pool_worst_factor(&pool);
    return ceil(type->routing.worst_factor(s->scheme, shape) * 1000.0 - 1e-6) / 1000.0;
}

static spw_status advise(search *s, spw_result *result) {
    const spw_replay_request *q = s->request;
    const spw_layer_shape shape = spw_layer_shape_of(q->job, q->job->sequences_per_gpu[0]);
    const double worst = worst_factor(s, &shape);
    const bool weights = spw_trace_get_info(q->trace)->has_weights;
    spw_result of_worst = {.rows = 0};
    spw_scheme scheme;
    char note[SPW_BY_POSITION_TEXT];
    spw_status status = SPW_OK;
    SPW_TRY(replay_with(s, worst, &scheme, &of_worst));
    spw_progress_update(s->progress, ++*s->done);
    for (size_t i = 0; i < result->rows && spw_selection_note(&scheme, weights, note); i++)
        if (strcmp(result->row[i].scheme.text, s->scheme->text) == 0)
            spw_assume(&result->row[i].assumptions, "--advise: %s", note);
    for (size_t i = 0; i < RATES; i++) {
        spw_safe_factor *a = NULL;
        SPW_TRY(spw_result_append_safe(result, &a));
        *a = (spw_safe_factor){.sequences = q->job->sequences_per_gpu[0],
                               .steps = of_worst.row[0].steps,
                               .option = spw_scheme_factor_name(s->scheme, s->kind),
                               .rate = rates[i],
                               .steps_needed = spw_overflow_steps_needed(rates[i]),
                               .worst_factor = worst,
                               .worst_bytes = of_worst.row[0].memory.max_bytes};
        (void)snprintf(a->scheme, sizeof a->scheme, "%s", s->scheme->text);
        SPW_TRY(fill(s, a));
        spw_progress_update(s->progress, ++*s->done);
    }

cleanup:
    spw_result_clear(&of_worst);
    return status;
}

/* Was a scheme that differs in the factor alone among those before? */
static bool is_repeated(const spw_replay_request *request, size_t i, spw_factor_kind kind) {
    spw_scheme a, b;
    bool has = false;
    if (spw_scheme_with_factor(&request->scheme[i], kind, 1.0, &a, &has) != SPW_OK) return false;
    for (size_t before = 0; before < i; before++) {
        if (spw_scheme_with_factor(&request->scheme[before], kind, 1.0, &b, &has) == SPW_OK && has &&
            strcmp(a.text, b.text) == 0)
            return true;
    }
    return false;
}

/* Is there advice on a scheme's factor of this kind? */
static bool is_asked(const spw_replay_request *request, size_t scheme, spw_factor_kind kind) {
    return spw_scheme_factor_name(&request->scheme[scheme], kind) != NULL &&
           !is_repeated(request, scheme, kind);
}

spw_status spw_safe_factors(const spw_replay_request *request, spw_result *result) {
    spw_job *job = NULL;
    spw_status status = SPW_ALLOC(1, &job);
    size_t asked = 0, done = 0;
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < request->schemes * SPW_FACTOR_KINDS; i++)
        asked += is_asked(request, i / SPW_FACTOR_KINDS, (spw_factor_kind)(i % SPW_FACTOR_KINDS));
    spw_progress progress =
        spw_progress_begin("advise", "factors", asked * request->job->batches * (1 + RATES));
    for (size_t b = 0; b < request->job->batches; b++) {
        const spw_replay_request one = spw_replay_of_batch(request, b, job);
        for (size_t i = 0; i < request->schemes * SPW_FACTOR_KINDS; i++) {
            const size_t at = i / SPW_FACTOR_KINDS;
            search s = {.request = &one,
                        .scheme = &request->scheme[at],
                        .kind = (spw_factor_kind)(i % SPW_FACTOR_KINDS),
                        .progress = &progress,
                        .done = &done};
            if (!is_asked(request, at, s.kind)) continue;
            SPW_TRY(advise(&s, result));
        }
    }
    if (result->safes == 0)
        status = spw_fail(SPW_ECONFIG,
                          "--advise: no scheme of the job has a factor; one like dense:capacity_factor=1, "
                          "ring:buffer_factor=1 or hybrid-ep:budget=1 would be right");

cleanup:
    spw_progress_end(&progress);
    spw_free(job);
    return status;
}
