#include "sim/command/plan/plan_json.h"

#include "sim/command/plan/plan_brief.h"
#include "sim/command/plan/plan_imbalance.h"
#include "sim/plan/plan_answers.h"
#include "sim/print/json_values.h"
#include "sim/result/result_json.h"

#include <jansson.h>
#include <stdio.h>

static json_t *position(size_t row) { return row != SPW_NO_ROW ? spw_json_count(row) : json_null(); }

static json_t *costs(spw_json *json, const spw_plan_view *v, const spw_result_row *row) {
    if (row == NULL) return json_null();
    const spw_row_cost cost = spw_row_cost_of(row, v->request->job, v->settings->tokens);
    return spw_row_cost_json(json, &cost);
}

static json_t *needs(spw_json *json, const spw_plan_tries *tries) {
    json_t *list = json_array();
    for (size_t i = 0; i < tries->needs; i++) {
        const spw_plan_need *n = &tries->need[i];
        const bool found = n->factor > 0.0;
        json_t *object = json_object();
        spw_json_put(json, object, "point", spw_json_count(n->row));
        spw_json_put(json, object, "option", spw_json_text(n->option));
        spw_json_put(json, object, "factor", found ? spw_json_real(n->factor) : json_null());
        spw_json_put(json, object, "fraction", found ? spw_json_real(n->fraction) : json_null());
        spw_json_put(json, object, "fits", found ? json_boolean(n->fits) : json_null());
        spw_json_put(json, object, "tokens_per_s_per_gpu",
                     found && n->timed ? spw_json_real(n->tokens_per_s_per_gpu) : json_null());
        spw_json_put(json, object, "tokens_per_s_low",
                     found && n->timed ? spw_json_real(n->tokens_per_s_low) : json_null());
        spw_json_put(json, object, "tokens_per_s_high",
                     found && n->timed ? spw_json_real(n->tokens_per_s_high) : json_null());
        spw_json_add(json, list, object);
    }
    return list;
}

static json_t *other_precision(spw_json *json, const spw_plan_other_precision *o) {
    json_t *object = json_object();
    if (o->name == NULL) {
        json_decref(object);
        return json_null();
    }
    spw_json_put(json, object, "precision", spw_json_text(o->name));
    spw_json_put(json, object, "point", spw_json_count(o->row));
    spw_json_put(json, object, "verdict", spw_json_text(spw_verdict_name(o->verdict)));
    spw_json_put(json, object, "bytes", spw_json_count(o->bytes));
    spw_json_put(json, object, "low_bytes", spw_json_count(o->low_bytes));
    spw_json_put(json, object, "high_bytes", spw_json_count(o->high_bytes));
    return object;
}

static json_t *misfits(spw_json *json, const spw_plan_tries *tries) {
    json_t *list = json_array();
    for (size_t i = 0; i < tries->misfits; i++) {
        const spw_plan_misfit_advice *m = &tries->misfit[i];
        json_t *object = json_object();
        spw_json_put(json, object, "point", spw_json_count(m->row));
        spw_json_put(json, object, "state_alone", json_boolean(m->state_alone));
        spw_json_put(json, object, "gpus", m->gpus > 0 ? spw_json_count(m->gpus) : json_null());
        spw_json_put(json, object, "advice", spw_json_text(m->advice));
        spw_json_add(json, list, object);
    }
    return list;
}

/* null where no point differs. */
static json_t *later(spw_json *json, const spw_plan_later *l) {
    if (!l->arena.there) return json_null();
    json_t *object = json_object();
    spw_json_put(json, object, "stack", spw_json_text(l->arena.stack));
    spw_json_put(json, object, "points", spw_json_count(l->points));
    spw_json_put(json, object, "point", spw_json_count(l->row));
    spw_json_put(json, object, "verdict", spw_json_text(spw_verdict_name(l->arena.verdict)));
    spw_json_put(json, object, "bytes", spw_json_count(l->arena.peak_bytes));
    spw_json_put(json, object, "low_bytes", spw_json_count(l->arena.low_bytes));
    spw_json_put(json, object, "high_bytes", spw_json_count(l->arena.high_bytes));
    return object;
}

/* What was written on the command line, so that it can be written again. */
static json_t *arguments(spw_json *json, const spw_plan_view *v) {
    json_t *list = json_array();
    spw_json_add(json, list, spw_json_text("plan"));
    for (size_t i = 0; i < v->arguments; i++) spw_json_add(json, list, spw_json_text(v->argument[i]));
    return list;
}

/* The settings are the job's; the split that a reader takes from them is that of the point the plan answers with. */
static void put_split(spw_json *json, const spw_plan_view *v, json_t *settings) {
    const size_t fastest = v->result->answers.fastest;
    const spw_result_row *row = spw_result_row_at(v->result, fastest != SPW_NO_ROW ? fastest : 0);
    json_t *parallel = json_object_get(settings, "parallel");
    if (row == NULL || parallel == NULL) return;
    spw_json_put(json, parallel, "expert", json_integer((json_int_t)row->expert));
    spw_json_put(json, parallel, "fsdp", json_integer((json_int_t)row->fsdp));
}

json_t *spw_plan_json(spw_json *json, const spw_plan_view *v) {
    const spw_result_answers *a = &v->result->answers;
    json_t *object = spw_result_json(json, v->result, v->settings), *plan = json_object();
    spw_json_put(json, json_object_get(object, "settings"), "arguments", arguments(json, v));
    put_split(json, v, json_object_get(object, "settings"));
    spw_json_put(json, plan, "front",
                 json_incref(json_object_get(json_object_get(object, "answers"), "front")));
    spw_json_put(json, plan, "fastest", position(a->fastest));
    spw_json_put(json, plan, "next", position(a->next));
    spw_json_put(json, plan, "fastest_faster_than_next", spw_json_real(a->next_chance));
    spw_json_put(json, plan, "fastest_dropless", position(a->fastest_dropless));
    spw_json_put(json, plan, "fastest_sure", position(a->fastest_sure));
    spw_json_put(json, plan, "fastest_dropless_sure", position(a->fastest_dropless_sure));
    spw_json_put(json, plan, "break_even_capacity_factor", spw_json_real(v->tries->break_even_factor));
    spw_json_put(json, plan, "break_even_drop_fraction", spw_json_real(v->tries->break_even_fraction));
    spw_json_put(json, plan, "drop_at_most", spw_json_real(a->drop_most));
    spw_json_put(json, plan, "fastest_whatever_drops", position(a->fastest_whatever_drops));
    spw_json_put(json, plan, "drops_too_much", needs(json, v->tries));
    spw_json_put(json, plan, "does_not_fit", misfits(json, v->tries));
    spw_json_put(json, plan, "other_precision", other_precision(json, &v->tries->other));
    spw_json_put(json, plan, "later_release", later(json, &v->tries->later));
    spw_json_put(json, plan, "other_schemes", spw_plan_others_json(json, v->others));
    spw_json_put(json, plan, "tokens",
                 v->settings->tokens > 0.0 ? json_real(v->settings->tokens) : json_null());
    spw_json_put(json, plan, "tokens_unsaid",
                 json_boolean(v->settings->tokens > 0.0 && v->settings->tokens_unsaid));
    spw_json_put(json, plan, "beside", spw_plan_beside_json(v->request));
    spw_json_put(json, plan, "fastest_cost", costs(json, v, spw_result_row_at(v->result, a->fastest)));
    spw_json_put(json, plan, "fastest_dropless_cost",
                 costs(json, v, spw_result_row_at(v->result, a->fastest_dropless)));
    spw_json_put(json, plan, "imbalance", spw_stated_json(json, v->request->imbalance));
    if (v->result->refusals > 0)
        spw_json_put(json, plan, "refused", spw_result_refusals_json(json, v->result));
    spw_json_put(json, object, "plan", plan);
    return object;
}

spw_status spw_plan_print_json(const spw_plan_view *v, FILE *out) {
    spw_json writer = {.failed = false}, *json = &writer;
    json_t *object = spw_plan_json(json, v);
    return spw_json_print(json, object, JSON_INDENT(1), "the plan", out);
}
