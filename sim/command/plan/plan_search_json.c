#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/command/plan/plan_search_plans.h"
#include "sim/command/plan/plan_search_proof.h"
#include "sim/command/plan/plan_search_table.h"
#include "sim/job/recipe/precision.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/print/json_values.h"
#include "sim/result/result_json.h"

#include <jansson.h>

/* As of a row of a plan. */
static json_t *outside_json(spw_json *json, const spw_search_reasons *all,
                            const spw_search_outside *outside) {
    json_t *list = json_array();
    for (size_t i = 0; i < outside->count; i++) {
        const spw_outside_item *item = &all->item[outside->reason[i]];
        spw_json_add(json, list, json_pack("{s:s, s:s}", "of", item->of, "feature", item->feature));
    }
    return list;
}

/* Of the cells of its row, and what no table has. */
static json_t *point_json(spw_json *json, const spw_search_view *v, const spw_search_outcome *of,
                          const spw_search_point *p) {
    json_t *o = json_object();
    spw_table *t = NULL;
    char options[SPW_SEARCH_OPTIONS_TEXT], layout[SPW_LAYOUT_TEXT];
    json->failed = json->failed || spw_table_create(NULL, &t) != SPW_OK;
    if (t == NULL) return o;
    spw_search_row(t, v, &of->front, p, "", false);
    spw_search_options_text(v, p, options);
    spw_table_put(t,
                  "scheme,gpus,expert_parallel,fsdp,pipeline,tensor,context,expert_tensor,virtual_stages,"
                  "micro_batches,sequences_per_gpu,remat,memory_kind,verdict,surely_fits",
                  json, o);
    spw_json_put(json, o, "reserved_bytes",
                 p->reserved_bytes > 0.0 ? spw_json_real(p->reserved_bytes) : json_null());
    spw_table_put(t, "peak_bytes,low_bytes,high_bytes,budget_bytes", json, o);
    spw_json_put(json, o, "outside_bytes", spw_json_real(p->budget.outside));
    spw_json_put(json, o, "outside_low_bytes", spw_json_real(p->budget.outside_low));
    spw_json_put(json, o, "outside_high_bytes", spw_json_real(p->budget.outside_high));
    spw_table_put(t, "drop_fraction", json, o);
    spw_json_put(json, o, "drops_at_least", json_boolean(p->drops.at_least));
    spw_table_put(t, "balanced_drop_fraction,balanced_peak_bytes", json, o);
    spw_json_put(json, o, "worst_drop_fraction", spw_json_real(p->drops.worst_fraction));
    spw_table_put(t, "step_tokens", json, o);
    spw_json_put(json, o, "outside_fit", outside_json(json, &of->reasons, &p->outside));
    spw_table_put(t,
                  "step_s,low_s:step_s_low,high_s:step_s_high,tokens_per_s_per_gpu,tokens_per_s_low,"
                  "tokens_per_s_high,balanced_step_s,balanced_tokens_per_s_per_gpu,tokens_per_day",
                  json, o);
    const spw_search_point *next = spw_search_front_next(&of->front, p, &(double){0.0});
    spw_json_put(json, o, "next",
                 next != NULL ? spw_json_count((size_t)(next - of->front.point)) : json_null());
    spw_table_put(t, "faster_than_next", json, o);
    const spw_row_cost cost = spw_search_cost(v, p);
    spw_json_put(json, o, "cost", p->timed ? spw_row_cost_json(json, &cost) : json_null());
    spw_json_put(json, o, "assumed_layout",
                 spw_search_layout(v, p, layout) ? spw_json_text(layout) : json_null());
    spw_json_put(json, o, "options", spw_json_text(options));
    spw_table_destroy(t);
    return o;
}

static json_t *point_or_null(spw_json *json, const spw_search_view *v, bool there,
                             const spw_search_point *p) {
    return there ? point_json(json, v, v->outcome, p) : json_null();
}

static json_t *space_json(spw_json *json, const spw_search_view *v) {
    const spw_search_space *s = v->request->space;
    json_t *o = json_object(), *batches = json_array(), *schemes = json_array();
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        json_t *list = json_array();
        char text[SPW_REMAT_TEXT];
        for (size_t i = 0; i < s->values[d]; i++)
            spw_json_add(json, list,
                         d == SPW_SEARCH_REMAT ? spw_json_text(spw_search_value_text(d, s->value[d][i], text))
                                               : spw_json_count(s->value[d][i]));
        spw_json_put(json, o, spw_search_dimension_name(d), list);
    }
    for (size_t i = 0; i < s->base->batches; i++)
        spw_json_add(json, batches, spw_json_count(s->base->sequences_per_gpu[i]));
    for (size_t i = 0; i < v->request->plan->schemes; i++)
        spw_json_add(json, schemes, spw_json_text(v->request->plan->scheme[i].text));
    spw_json_put(json, o, "sequences-per-gpu", batches);
    spw_json_put(json, o, "scheme", schemes);
    return o;
}

static json_t *assumed_json(spw_json *json, const spw_search_view *v) {
    json_t *list = json_array();
    char precision[SPW_PRECISION_TEXT], share[SPW_SHARE_TEXT];
    const spw_plan_request *plan = v->request->plan;
    const char *state = spw_search_state_note(v), *loss = NULL;
    if (state != NULL) spw_json_add(json, list, spw_json_text(state));
    if (spw_precision_assumed(v->request->plan->job, precision))
        spw_json_add(json, list, spw_json_text(precision));
    if (spw_search_share_note(v, share)) spw_json_add(json, list, spw_json_text(share));
    for (size_t i = 0; i < plan->schemes && loss == NULL; i++)
        loss = spw_cross_entropy_note(plan->job, &plan->scheme[i]);
    if (loss != NULL) spw_json_add(json, list, spw_json_text(loss));
    return list;
}

/* What is printed beside the figures. */
static void put_words(spw_json *json, const spw_search_view *v, json_t *o) {
    const spw_job *job = v->request->plan->job;
    json_t *doubts = json_array(), *absent = json_array();
    char text[SPW_SEARCH_ABSENT_TEXT], precision[SPW_PRECISION_TEXT];
    const char *hint = spw_search_hint(v);
    spw_precision_line(job, precision);
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (job->model.doubt[i][0] != '\0') spw_json_add(json, doubts, spw_json_text(job->model.doubt[i]));
    for (int misfits = 0; misfits < 2; misfits++) {
        for (size_t i = 0; i < v->request->plan->schemes; i++) {
            bool misfit = false;
            if (spw_search_absent_text(v, i, &misfit, text) && misfit == (misfits == 1))
                spw_json_add(json, absent, spw_json_text(text));
        }
    }
    spw_json_put(json, o, "precision", spw_json_text(precision));
    spw_json_put(json, o, "precision_hint",
                 spw_precision_hint(job) != NULL ? spw_json_text(spw_precision_hint(job)) : json_null());
    spw_json_put(json, o, "model_doubts", doubts);
    if (job->more[0] != '\0') spw_json_put(json, o, "may_need_more", spw_json_text(job->more));
    if (job->less[0] != '\0') spw_json_put(json, o, "needs_less", spw_json_text(job->less));
    spw_json_put(json, o, "hint", hint != NULL ? spw_json_text(hint) : json_null());
    spw_json_put(json, o, "tokens_unsaid",
                 json_boolean(v->request->cost_tokens > 0.0 && v->origin->settings->tokens_unsaid));
    spw_json_put(json, o, "beside", spw_plan_beside_json(v->request->plan));
    spw_json_put(json, o, "schemes_without", absent);
    spw_json_put(json, o, "nothing",
                 v->outcome->front.found ? json_null() : spw_json_text(spw_search_nothing_text(v, text)));
    spw_json_put(json, o, "gpus", spw_json_count(spw_job_gpus(job)));
    spw_json_put(json, o, "sequence_length", spw_json_count(job->sequence_length));
    const spw_plan_request *plan = v->request->plan;
    spw_json_put(json, o, "budget_bytes",
                 spw_json_count(spw_device_budget_span(job, plan->scheme, plan->schemes).most));
    spw_json_put(json, o, "price_per_gpu_hour",
                 spw_job_price(job) > 0.0 ? spw_json_real(spw_job_price(job)) : json_null());
}

/* How many points there are of every fate, and how many of each scheme fit, and were left out. */
static void put_counts(spw_json *json, const spw_search_view *v, json_t *fates, json_t *fits,
                       json_t *left_out) {
    const spw_search_outcome *found = v->outcome;
    for (int i = 0; i < SPW_SEARCH_FATES; i++)
        spw_json_put(json, fates, spw_search_fate_key((spw_search_fate)i), spw_json_count(found->fate[i]));
    for (size_t i = 0; i < v->request->plan->schemes; i++)
        spw_json_put(json, fits, v->request->plan->scheme[i].text, spw_json_count(found->fits[i]));
    for (size_t i = 0; i < v->request->plan->schemes; i++)
        spw_json_put(json, left_out, v->request->plan->scheme[i].text,
                     spw_json_count(found->beaten[i] + found->left_out[i]));
}

static void put_fates(spw_json *json, const spw_search_outcome *found, json_t *fates, json_t *o) {
    spw_json_put(json, o, "points", spw_json_count(found->points));
    spw_json_put(json, o, "points_looked_at", spw_json_count(spw_search_looked_at(found)));
    spw_json_put(json, o, "fates", fates);
    spw_json_put(json, o, "certificate", spw_search_proof_json(json, found));
}

spw_status spw_search_print_json(const spw_search_view *v, FILE *out) {
    const spw_search_outcome *found = v->outcome;
    const spw_search_front *f = &found->front;
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *plans = NULL;
    const spw_status status = spw_search_plans(json, v, &plans);
    if (status != SPW_OK) return status;
    char intervals[SPW_SEARCH_INTERVALS_TEXT];
    json_t *o = json_object(), *front = json_array(), *fates = json_object(), *fits = json_object(),
           *left_out = json_object();
    for (size_t i = 0; i < f->points; i++)
        spw_json_add(json, front, point_json(json, v, found, &f->point[i]));
    put_counts(json, v, fates, fits, left_out);
    spw_json_put(json, o, "format", spw_json_text("spillway-search"));
    spw_json_put(json, o, "format_version", spw_json_count(2));
    spw_json_put(json, o, "model", spw_json_text(v->request->plan->job->model.name));
    spw_json_put(json, o, "cluster", spw_json_text(v->request->plan->job->cluster.name));
    spw_json_put(json, o, "routing", spw_json_text(v->origin->routing));
    spw_json_put(json, o, "software", spw_json_text(v->origin->settings->stack));
    const char *far = v->origin->settings->stack_distance;
    spw_json_put(json, o, "software_distance", far[0] != '\0' ? spw_json_text(far) : json_null());
    spw_json_put(json, o, "assumed", assumed_json(json, v));
    put_words(json, v, o);
    spw_json_put(json, o, "drop_at_most", spw_json_real(v->request->drop_most));
    spw_json_put(json, o, "imbalance",
                 v->request->plan->imbalance != NULL
                     ? spw_json_real(v->request->plan->imbalance->max_over_mean)
                     : json_null());
    spw_json_put(json, o, "imbalance_law", spw_stated_json(json, v->request->plan->imbalance));
    spw_json_put(json, o, "gpus_at_most", v->gpus_most > 0 ? spw_json_count(v->gpus_most) : json_null());
    spw_json_put(json, o, "tokens_per_day",
                 v->request->tokens_per_day > 0.0 ? spw_json_real(v->request->tokens_per_day) : json_null());
    spw_json_put(json, o, "global_batch_at_most",
                 v->request->most_step_tokens > 0 ? spw_json_count(v->request->most_step_tokens)
                                                  : json_null());
    const size_t all = v->request->space->base->global_batch;
    spw_json_put(json, o, "global_batch", all > 0 ? spw_json_count(all) : json_null());
    spw_json_put(json, o, "tokens",
                 v->request->cost_tokens > 0.0 ? spw_json_real(v->request->cost_tokens) : json_null());
    spw_json_put(json, o, "space", space_json(json, v));
    spw_json_put(json, o, "best", point_or_null(json, v, f->found, &f->best));
    spw_json_put(json, o, "best_sure", point_or_null(json, v, f->found_sure, &f->best_sure));
    spw_json_put(json, o, "front", front);
    spw_json_put(json, o, "intervals", spw_json_text(spw_search_intervals_text(v, intervals)));
    spw_json_put(json, o, "front_lost", spw_json_count(f->lost));
    put_fates(json, found, fates, o);
    spw_json_put(json, o, "too_slow_tokens_per_day_at_most",
                 found->nearest.slow_day_most > 0.0 ? spw_json_real(found->nearest.slow_day_most)
                                                    : json_null());
    spw_json_put(json, o, "good_points", fits);
    spw_json_put(json, o, "left_out_points", left_out);
    spw_json_put(json, o, "tried_gpus", spw_json_count(v->tried_gpus));
    spw_json_put(json, o, "with_more_gpus",
                 v->larger != NULL ? point_json(json, v, v->larger, &v->larger->front.best) : json_null());
    spw_json_put(json, o, "other_schemes", spw_plan_others_json(json, v->others));
    spw_json_put(json, o, "plans", plans);
    return spw_json_print(json, o, JSON_INDENT(1), "the search", out);
}
