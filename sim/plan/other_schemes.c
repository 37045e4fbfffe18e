#include "sim/plan/other_schemes.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/job_software.h"
#include "sim/job/trainer.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/plan/search_front.h"
#include "sim/replay/result_answers.h"
#include "sim/schemes/point.h"

#include <math.h>
#include <string.h>

enum { MOST_TRIED = 16 };

typedef struct tried {
    spw_scheme scheme;
    spw_ratio times;
} tried;

/* Is the scheme, with whatever options, one of the plan's? */
static bool is_planned(const spw_plan_request *q, const spw_scheme *scheme) {
    for (size_t i = 0; i < q->schemes; i++)
        if (q->scheme[i].type == scheme->type) return true;
    return false;
}

/* A scheme that is written so, of the same framework, and not there yet. */
static void other_schemes_add(const spw_plan_request *q, const spw_other_point *p, const char *text,
                              tried *list, size_t *count) {
    spw_scheme *scheme = &list[*count].scheme;
    if (*count == MOST_TRIED || spw_scheme_parse(text, scheme) != SPW_OK ||
        spw_scheme_settle(p->job, scheme) != SPW_OK)
        return;
    if (scheme->type->trainer != p->scheme->type->trainer || is_planned(q, scheme)) return;
    for (size_t i = 0; i < *count; i++)
        if (list[i].scheme.type == scheme->type) return;
    const spw_point point = spw_point_of(p->job, scheme, p->job->sequences_per_gpu[0]);
    if (spw_scheme_is_unknown_alone(scheme, &point.shape)) return;
    if (q->stack != NULL && spw_grid_is_plain(p->job) &&
        spw_compiled_layout_settle(q->stack, scheme) != SPW_OK)
        return;
    ++*count;
}

static size_t list_schemes(const spw_plan_request *q, const spw_other_point *p, tried *list) {
    size_t count = 0;
    const char *text = NULL;
    for (size_t i = 0; (text = spw_job_scheme_assumed(i)) != NULL; i++)
        other_schemes_add(q, p, text, list, &count);
    const char *const *name = spw_scheme_trainer(p->scheme)->schemes;
    for (; *name != NULL; name++) other_schemes_add(q, p, *name, list, &count);
    return count;
}

static spw_ratio ratio_of(const spw_pace *of, const spw_pace *than) {
    const double value = of->tokens_per_s_per_gpu / than->tokens_per_s_per_gpu,
                 width = spw_pace_ratio_width(of, than);
    return (spw_ratio){value, value * exp(-width), value * exp(width)};
}

static bool is_worth_it(const spw_ratio *times) {
    return times->low > 1.0 || times->value >= SPW_OTHER_LEAST;
}

/* Of two that are alike the one that is listed first stays: it is the smaller change. */
static bool is_faster(const tried *a, const tried *b) {
    return a->times.value > b->times.value * SPW_SEARCH_EQUAL_SPEED;
}

/* Speed alone: what is no faster goes. */
static spw_status time_one(const spw_plan_request *q, const spw_other_point *p, tried *one, bool *keep) {
    spw_plan_request plan = *q;
    spw_result with = {.rows = 0};
    bool there = false;
    plan.allocator = false;
    *keep = false;
    const spw_status status = spw_plan_replay_point(&plan, p->job, &one->scheme, false, false, &with, &there);
    const spw_result_row *row = there ? &with.row[0] : NULL;
    if (status == SPW_OK && there && row->timed && spw_point_fits(row) &&
        row->drops.fraction <= p->drop_most) {
        const spw_pace pace = spw_timeline_pace(&row->time);
        one->times = ratio_of(&pace, &p->pace);
        *keep = is_worth_it(&one->times);
    }
    spw_result_clear(&with);
    return status;
}

/* As a plan would say it. */
static spw_status judge(const spw_plan_request *q, const spw_other_point *p, const tried *one,
                        spw_other_schemes *out) {
    spw_result with = {.rows = 0};
    bool there = false;
    const spw_status status = spw_plan_replay_point(q, p->job, &one->scheme, false, false, &with, &there);
    const spw_result_row *row = there ? &with.row[0] : NULL;
    if (status == SPW_OK && there && spw_point_fits(row))
        out->item[out->count++] = (spw_other_scheme){.scheme = one->scheme,
                                                     .times = one->times,
                                                     .sure = one->times.low > 1.0,
                                                     .tokens_per_s_per_gpu = row->time.tokens_per_s_per_gpu,
                                                     .surely_fits = row->surely_fits,
                                                     .outside_fit = row->outside_fit.count > 0};
    spw_result_clear(&with);
    return status;
}

spw_status spw_other_schemes_find(const spw_plan_request *q, const spw_other_point *p,
                                  spw_other_schemes *out) {
    tried list[MOST_TRIED];
    size_t kept = 0, first = 0; /* first: of those that were named */
    spw_status status = SPW_OK;
    *out = (spw_other_schemes){.count = 0};
    if (!(p->pace.tokens_per_s_per_gpu > 0.0)) return SPW_OK;
    const size_t count = list_schemes(q, p, list);
    for (size_t i = 0; i < count; i++) {
        bool keep = false;
        SPW_TRY(time_one(q, p, &list[i], &keep));
        if (!keep) continue;
        const tried one = list[i];
        size_t at = kept++;
        for (; at > 0 && is_faster(&one, &list[at - 1]); at--) list[at] = list[at - 1];
        list[at] = one;
    }
    for (size_t i = 0; i < kept && out->count < SPW_OTHER_SCHEMES; i++)
        if (out->count == 0 || is_faster(&list[first], &list[i])) {
            SPW_TRY(judge(q, p, &list[i], out));
            if (out->count == 1) first = i;
        }

cleanup:
    return status;
}
