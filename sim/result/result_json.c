#include "sim/result/result_json.h"

#include "sim/job/recipe/precision.h"
#include "sim/replay/balance.h"
#include "sim/replay/safe_factor.h"
#include "sim/result/overload_print.h"
#include "sim/result/page_print.h"

#include <math.h>
#include <string.h>

enum { VERSION = 1 };

static json_t *quantiles_json(spw_json *json, const spw_byte_quantiles *q) {
    json_t *object = json_object();
    spw_json_put(json, object, "p50_bytes", spw_json_count(q->p50_bytes));
    spw_json_put(json, object, "p99_bytes", spw_json_count(q->p99_bytes));
    spw_json_put(json, object, "max_bytes", spw_json_count(q->max_bytes));
    return object;
}

static json_t *outcome_json(spw_json *json, const spw_reserved_outcome *o) {
    json_t *object = json_object(), *worst = json_object();
    spw_json_put(json, object, "requested", quantiles_json(json, &o->requested));
    spw_json_put(json, object, "allocated", quantiles_json(json, &o->allocated));
    spw_json_put(json, object, "reserved", quantiles_json(json, &o->reserved));
    spw_json_put(json, object, "at_least", json_boolean(o->failed_steps > 0)); /* allocated and reserved */
    spw_json_put(json, worst, "position", spw_json_count(o->worst_step));
    spw_json_put(json, worst, "rank", spw_json_count(o->worst_rank));
    spw_json_put(json, worst, "stage", spw_json_count(o->worst_stage));
    spw_json_put(json, object, "worst_reserved", worst);
    spw_json_put(json, object, "failed_steps", spw_json_count(o->failed_steps));
    spw_json_put(json, object, "retried_steps", spw_json_count(o->retried_steps));
    spw_json_put(json, object, "retries", spw_json_count(o->retries));
    spw_json_put(json, object, "stranded_bytes", spw_json_count(o->stranded_bytes));
    return object;
}

static json_t *match_json(spw_json *json, const spw_snapshot_match *m) {
    json_t *object = json_object();
    spw_json_put(json, object, "step_allocations", spw_json_count(m->step_births));
    spw_json_put(json, object, "routed_tensors", spw_json_count(m->layer_births));
    spw_json_put(json, object, "routed_tensors_found", spw_json_count(m->layer_matched));
    spw_json_put(json, object, "routed_bytes", spw_json_count(m->layer_bytes));
    spw_json_put(json, object, "routed_bytes_found", spw_json_count(m->matched_bytes));
    return object;
}

/* null: no step runs out */
static json_t *death_json(spw_json *json, const spw_result_row *r) {
    const spw_reserved_death *d = &r->reserved.as_set.death;
    if (!d->there) return json_null();
    json_t *object = json_object();
    spw_json_put(json, object, "step", json_integer(r->death_step));
    spw_json_put(json, object, "rank", spw_json_count(d->rank));
    spw_json_put(json, object, "stage", spw_json_count(d->stage));
    const bool passes = !d->at_start && !d->optimizer;
    spw_json_put(json, object, "micro_batch", passes ? spw_json_count(d->micro_batch) : json_null());
    spw_json_put(json, object, "layer",
                 r->death_layer < 0 || !passes ? json_null() : json_integer(r->death_layer));
    spw_json_put(json, object, "backward", passes ? json_boolean(d->backward) : json_null());
    spw_json_put(json, object, "optimizer", json_boolean(d->optimizer));
    return object;
}

static json_t *allocator_json(spw_json *json, const spw_result_row *r) {
    json_t *object = outcome_json(json, &r->reserved.as_set);
    if (r->reserved.recorded) spw_json_put(json, object, "snapshot", match_json(json, &r->reserved.match));
    spw_json_put(json, object, "reserved_low_bytes", spw_json_real(spw_reserved_low(&r->reserved)));
    spw_json_put(json, object, "reserved_high_bytes", spw_json_real(spw_reserved_high(&r->reserved)));
    spw_json_put(json, object, "processes", spw_json_count(r->reserved.processes));
    spw_json_put(json, object, "followed", spw_json_count(r->reserved.followed));
    spw_json_put(json, object, "runs_out", death_json(json, r));
    spw_json_put(json, object, "with_expandable_segments", outcome_json(json, &r->reserved.expandable));
    spw_json_put(json, object, "advice", spw_json_text(r->advice));
    return object;
}

static json_t *newest_json(spw_json *json, const spw_newest_arena *a) {
    if (!a->there) return json_null();
    json_t *object = json_object();
    spw_json_put(json, object, "stack", spw_json_text(a->stack));
    spw_json_put(json, object, "verdict", spw_json_text(spw_verdict_name(a->verdict)));
    spw_json_put(json, object, "peak_bytes", spw_json_count(a->peak_bytes));
    spw_json_put(json, object, "low_bytes", spw_json_count(a->low_bytes));
    spw_json_put(json, object, "high_bytes", spw_json_count(a->high_bytes));
    return object;
}

static json_t *stages_json(spw_json *json, const spw_result_row *r) {
    json_t *list = json_array();
    for (size_t s = 0; s < r->stages; s++) {
        const spw_result_stage *stage = &r->stage[s];
        json_t *item = json_object();
        spw_json_put(json, item, "layers", spw_json_count(stage->layers));
        spw_json_put(json, item, "moe_layers", spw_json_count(stage->moe_layers));
        spw_json_put(json, item, "mtp_layers", spw_json_count(stage->predictions));
        spw_json_put(json, item, "embedding", json_boolean(stage->embedding));
        spw_json_put(json, item, "head", json_boolean(stage->head));
        spw_json_put(json, item, "argument_bytes", spw_json_count(stage->argument_bytes));
        spw_json_put(json, item, "peak_bytes", spw_json_count(stage->peak_bytes));
        spw_json_add(json, list, item);
    }
    return list;
}

static json_t *memory_json(spw_json *json, const spw_result_row *r) {
    const spw_footprint *f = &r->footprint;
    json_t *object = json_object(), *worst = json_object(), *components = json_object();
    spw_json_put(json, object, "verdict", spw_json_text(spw_verdict_name(spw_result_verdict(r))));
    spw_json_put(json, object, "surely_fits", json_boolean(r->surely_fits));
    spw_json_put(json, object, "by_newest_stack", newest_json(json, &r->newest));
    spw_json_put(json, object, "kind", spw_json_text(spw_memory_kind_name(r->memory_kind)));
    spw_json_put(json, object, "budget_bytes", spw_json_count(f->budget_bytes));
    spw_json_put(json, object, "outside_bytes", spw_json_real(r->budget.outside));
    spw_json_put(json, object, "outside_low_bytes", spw_json_real(r->budget.outside_low));
    spw_json_put(json, object, "outside_high_bytes", spw_json_real(r->budget.outside_high));
    spw_json_put(json, object, "resident_bytes", spw_json_real(r->budget.resident));
    spw_json_put(json, object, "argument_bytes", spw_json_count(f->argument_bytes));
    spw_json_put(json, object, "temporary_bytes", spw_json_count(f->temporary_bytes));
    spw_json_put(json, object, "peak_bytes", spw_json_count(f->peak_bytes));
    spw_json_put(json, object, "balanced_peak_bytes", spw_json_count(r->balanced_bytes));
    spw_json_put(json, object, "low_bytes", spw_json_count(f->low_bytes));
    spw_json_put(json, object, "high_bytes", spw_json_count(f->high_bytes));
    spw_json_put(json, object, "most_bytes", spw_json_real(r->most_bytes)); /* null: not known */
    spw_json_put(json, object, "p50_bytes", spw_json_count(r->memory.p50_bytes));
    spw_json_put(json, object, "p99_bytes", spw_json_count(r->memory.p99_bytes));
    spw_json_put(json, object, "max_bytes", spw_json_count(r->memory.max_bytes));
    spw_json_put(json, object, "oom_probability", spw_json_real(r->memory.oom_probability));
    spw_json_put(json, object, "oom_low", spw_json_real(r->memory.oom_low));
    spw_json_put(json, object, "oom_high", spw_json_real(r->memory.oom_high));
    spw_json_put(json, object, "allocator", r->reserved.there ? allocator_json(json, r) : json_null());
    spw_json_put(json, worst, "step", json_integer(r->memory.worst_step));
    spw_json_put(json, worst, "layer", json_integer(r->memory.worst_layer));
    spw_json_put(json, worst, "rank", spw_json_count(r->memory.worst_rank));
    spw_json_put(json, object, "worst", worst);
    spw_json_put(json, object, "moment", spw_json_text(spw_moment_name(f->moment)));
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->live[f->moment]) spw_json_put(json, components, c->name, spw_json_count(c->bytes));
    }
    spw_json_put(json, object, "components", components);
    if (r->stages > 0) spw_json_put(json, object, "stages", stages_json(json, r));
    return object;
}

static void put_levels(spw_json *json, json_t *object, const spw_level_bytes *b, const spw_cluster *cluster) {
    json_t *levels = json_array();
    for (size_t i = 0; i < b->count; i++) {
        json_t *level = json_object();
        spw_json_put(json, level, "level", spw_json_text(spw_level_bytes_name(cluster, i)));
        spw_json_put(json, level, "max_port_bytes", spw_json_count(b->most[i]));
        spw_json_put(json, level, "seconds", spw_json_real(spw_level_bytes_seconds(b, cluster, i)));
        spw_json_add(json, levels, level);
    }
    spw_json_put(json, object, "levels", levels);
    spw_json_put(json, object, "slowest_level",
                 spw_json_text(spw_level_bytes_name(cluster, spw_level_bytes_slowest(b, cluster))));
}

/* Of generated routing: without a draw. */
static json_t *expected_json(spw_json *json, const spw_expected_routing *e) {
    json_t *object = json_object();
    spw_json_put(json, object, "rows_mean", spw_json_real(e->rows_mean));
    spw_json_put(json, object, "rows_sd", spw_json_real(e->rows_deviation));
    spw_json_put(json, object, "rows_fullest", spw_json_real(e->rows_fullest));
    spw_json_put(json, object, "other_ranks", spw_json_real(e->other_ranks));
    spw_json_put(json, object, "other_nodes",
                 spw_json_real(e->other_nodes)); /* null: groups straddle nodes */
    return object;
}

static json_t *traffic_json(spw_json *json, const spw_result_row *r, const spw_cluster *cluster) {
    const spw_result_traffic *t = &r->traffic;
    json_t *object = json_object(), *components = json_object();
    for (int p = 0; p < SPW_PURPOSES; p++) {
        if (t->purpose_said[p])
            spw_json_put(json, components, spw_purpose_name((spw_purpose)p),
                         spw_json_real(t->purpose_bytes[p]));
    }
    spw_json_put(json, object, "dispatch_bytes_per_gpu", spw_json_real(t->dispatch_bytes_per_gpu));
    spw_json_put(json, object, "combine_bytes_per_gpu", spw_json_real(t->combine_bytes_per_gpu));
    spw_json_put(json, object, "step_bytes_per_gpu", spw_json_real(t->step_bytes_per_gpu));
    spw_json_put(json, object, "whole_step_bytes_per_gpu", spw_json_real(t->whole_step_bytes));
    spw_json_put(json, object, "components", components);
    spw_json_put(json, object, "intra_node_bytes", spw_json_real(t->intra_node_bytes));
    spw_json_put(json, object, "inter_node_bytes", spw_json_real(t->inter_node_bytes));
    spw_json_put(json, object, "max_link_bytes", spw_json_count(t->max_link_bytes));
    spw_json_put(json, object, "rows_max", spw_json_count(t->rows_max));
    spw_json_put(json, object, "rows_mean", spw_json_real(t->rows_mean));
    if (r->expected.there) spw_json_put(json, object, "expected", expected_json(json, &r->expected));
    if (t->levels.count > 0) put_levels(json, object, &t->levels, cluster);
    return object;
}

static json_t *drops_json(spw_json *json, const spw_result_row *r) {
    const spw_result_drops *d = &r->drops;
    json_t *object = json_object();
    spw_json_put(json, object, "assignments", spw_json_count(d->assignments));
    spw_json_put(json, object, "dropped", spw_json_count(d->dropped));
    spw_json_put(json, object, "fraction", spw_json_real(d->fraction));
    spw_json_put(json, object, "balanced_fraction", spw_json_real(r->balanced_drops));
    spw_json_put(json, object, "worst_fraction", spw_json_real(d->worst_fraction));
    spw_json_put(json, object, "worst_step", json_integer(d->worst_step));
    if (r->expected.there && isfinite(r->expected.drop_fraction)) {
        spw_json_put(json, object, "expected_fraction", spw_json_real(r->expected.drop_fraction));
        spw_json_put(json, object, "expected_sd", spw_json_real(r->expected.drop_deviation));
    }
    if (d->at_least)
        spw_json_put(json, object, "at_least", json_true()); /* dropped, fraction: of a stated imbalance */
    spw_json_put(json, object, "tokens_fully_dropped",
                 d->lost_unknown ? json_null() : spw_json_count(d->tokens_fully_dropped));
    return object;
}

json_t *spw_doubts_json(spw_json *json, const spw_timeline *time) {
    json_t *object = json_object();
    for (size_t i = 0; i < SPW_TIMELINE_DOUBTS && time->doubt_name != NULL && time->step_s > 0.0; i++)
        if (time->doubt_s[i] > 0.0)
            spw_json_put(json, object, time->doubt_name[i], spw_json_real(time->doubt_s[i] / time->step_s));
    return object;
}

/* Null where exchanges stay in a node. */
static json_t *between_nodes_json(spw_json *json, const spw_between_nodes *b) {
    if (b->nodes == 0) return json_null();
    json_t *object = json_object();
    spw_json_put(json, object, "nodes", spw_json_count(b->nodes));
    spw_json_put(json, object, "rails", spw_json_count(b->rails));
    spw_json_put(json, object, "once_a_node", json_boolean(b->once));
    spw_json_put(json, object, "nic_bytes", spw_json_real(b->nic_bytes));
    spw_json_put(json, object, "seconds", spw_json_real(b->seconds));
    spw_json_put(json, object, "half_width", spw_json_real(b->half_width));
    return object;
}

/* Seconds that the step waits for, by component; null without a time model of the scheme. */
static json_t *time_json(spw_json *json, const spw_result_row *r) {
    const spw_timeline *time = &r->time;
    const spw_ratio ratio = spw_result_row_ratio(r);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"step_s", time->step_s},
                   {"low_s", time->low_s},
                   {"high_s", time->high_s},
                   {"tokens_per_s_per_gpu", time->tokens_per_s_per_gpu},
                   {"tokens_per_s_low", r->tokens_per_s_low},
                   {"tokens_per_s_high", r->tokens_per_s_high},
                   {"balanced_step_s", r->balanced.step_s},
                   {"balanced_low_s", r->balanced.low_s},
                   {"balanced_high_s", r->balanced.high_s},
                   {"balanced_tokens_per_s_per_gpu", spw_result_balanced(r).tokens_per_s_per_gpu},
                   {"over_balanced", ratio.value},
                   {"over_balanced_low", ratio.low},
                   {"over_balanced_high", ratio.high},
                   {"aligned_step_s", r->aligned.step_s},
                   {"aligned_low_s", r->aligned.low_s},
                   {"aligned_high_s", r->aligned.high_s},
                   {"worst_step_s", r->worst.step_s},
                   {"worst_low_s", r->worst.low_s},
                   {"worst_high_s", r->worst.high_s}};
    json_t *object = json_object(), *components = r->timed ? json_object() : json_null();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        spw_json_put(json, object, numbers[i].key, r->timed ? spw_json_real(numbers[i].value) : json_null());
    spw_json_put(json, object, "worst_step", r->timed ? json_integer(r->worst_time_step) : json_null());
    for (size_t i = 0; i < time->components && r->timed; i++) {
        const spw_time_component *c = &time->component[i];
        json_t *part = json_object();
        spw_json_put(json, part, "seconds", spw_json_real(c->seconds));
        spw_json_put(json, part, "exposed_s", spw_json_real(c->exposed_s));
        spw_json_put(json, components, c->name, part);
    }
    spw_json_put(json, object, "components", components);
    spw_json_put(json, object, "doubts", r->timed ? spw_doubts_json(json, time) : json_null());
    spw_json_put(json, object, "between_nodes", between_nodes_json(json, &time->between_nodes));
    return object;
}

json_t *spw_row_cost_json(spw_json *json, const spw_row_cost *cost) {
    spw_named_cost list[SPW_ROW_COSTS];
    json_t *object = json_object();
    spw_row_cost_list(cost, list);
    for (size_t i = 0; i < SPW_ROW_COSTS; i++) {
        spw_json_put(json, object, list[i].name, spw_json_real(list[i].figure.value));
        spw_json_put(json, object, list[i].low, spw_json_real(list[i].figure.low));
        spw_json_put(json, object, list[i].high, spw_json_real(list[i].figure.high));
    }
    return object;
}

static json_t *outside_json(spw_json *json, const spw_outside_fit *outside) {
    json_t *list = json_array();
    for (size_t i = 0; i < outside->count; i++) {
        json_t *item = json_object();
        spw_json_put(json, item, "of", spw_json_text(outside->item[i].of));
        spw_json_put(json, item, "feature", spw_json_text(outside->item[i].feature));
        spw_json_add(json, list, item);
    }
    return list;
}

static json_t *row_json(spw_json *json, const spw_result_row *r, const spw_run_settings *settings) {
    const spw_job *job = settings->job;
    const spw_row_cost cost = spw_row_cost_of(r, job, settings->tokens);
    json_t *object = json_object(), *steps = json_object(), *assumptions = json_array();
    spw_json_put(json, object, "scheme", spw_json_text(r->scheme.text));
    spw_json_put(json, object, "model", spw_json_text(job->model.name));
    spw_json_put(json, object, "cluster", spw_json_text(job->cluster.name));
    spw_json_put(json, object, "expert_parallel", spw_json_count(r->expert));
    spw_json_put(json, object, "fsdp", spw_json_count(r->fsdp));
    spw_json_put(json, object, "pipeline", spw_json_count(job->pipeline));
    spw_json_put(json, object, "sequences_per_gpu", spw_json_count(r->sequences));
    spw_json_put(json, object, "sequence_length", spw_json_count(job->sequence_length));
    spw_json_put(json, object, "remat", spw_json_text(spw_remat_name(job->remat)));
    spw_json_put(json, steps, "first", json_integer(r->first_step));
    spw_json_put(json, steps, "last", json_integer(r->last_step));
    spw_json_put(json, steps, "count", spw_json_count(r->steps));
    spw_json_put(json, object, "steps", steps);
    spw_json_put(json, object, "layers", spw_json_count(r->layers));
    spw_json_put(json, object, "memory", memory_json(json, r));
    spw_json_put(json, object, "traffic", traffic_json(json, r, &job->cluster));
    spw_json_put(json, object, "drops", drops_json(json, r));
    spw_json_put(json, object, "time", time_json(json, r));
    spw_json_put(json, object, "why_no_time", spw_json_text(r->no_time));
    spw_json_put(json, object, "cost", spw_row_cost_json(json, &cost));
    spw_json_put(json, object, "outside_fit", outside_json(json, &r->outside_fit));
    if (r->overload.ranks > 0) spw_json_put(json, object, "overload", spw_overload_json(json, r));
    if (r->pages.there) spw_json_put(json, object, "page_pool", spw_page_run_json(json, r));
    spw_json_put(json, object, "evidence", spw_json_text(spw_match_name(r->match)));
    for (size_t i = 0; i < r->assumptions.count; i++)
        spw_json_add(json, assumptions, spw_json_text(r->assumptions.text[i]));
    spw_json_put(json, object, "assumptions", assumptions);
    return object;
}

static json_t *factors_json(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->factors; i++) {
        const spw_factor_answer *a = &result->factor[i];
        json_t *object = json_object();
        spw_json_put(json, object, "scheme", spw_json_text(a->scheme));
        spw_json_put(json, object, "sequences_per_gpu", spw_json_count(a->sequences));
        spw_json_put(json, object, "option", spw_json_text(a->option));
        spw_json_put(json, object, "drop_at_most", spw_json_real(a->most));
        spw_json_put(json, object, "factor", a->factor > 0.0 ? spw_json_real(a->factor) : json_null());
        spw_json_put(json, object, "fraction", spw_json_real(a->fraction));
        spw_json_add(json, list, object);
    }
    return list;
}

static json_t *batches_json(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->batches; i++) {
        const spw_batch_answer *a = &result->batch[i];
        json_t *object = json_object();
        spw_json_put(json, object, "scheme", spw_json_text(a->scheme));
        spw_json_put(json, object, "fits_at", spw_json_real(a->at));
        spw_json_put(json, object, "sequences_per_gpu", spw_json_count(a->largest));
        spw_json_put(json, object, "at_least", json_boolean(a->at_least));
        spw_json_put(json, object, "live_alone", json_boolean(a->live));
        spw_json_put(json, object, "steps", spw_json_count(a->steps));
        spw_json_put(json, object, "oom_probability", spw_json_real(a->oom.value));
        spw_json_put(json, object, "oom_low", spw_json_real(a->oom.low));
        spw_json_put(json, object, "oom_high", spw_json_real(a->oom.high));
        spw_json_add(json, list, object);
    }
    return list;
}

static json_t *position_json(size_t row) { return row != SPW_NO_ROW ? spw_json_count(row) : json_null(); }

static json_t *answers_json(spw_json *json, const spw_result *result) {
    const spw_result_answers *a = &result->answers;
    if (!a->there) return json_null();
    json_t *object = json_object(), *order = json_array(), *front = json_array();
    for (size_t i = 0; i < a->fits; i++) {
        spw_json_add(json, order, spw_json_count(a->order[i]));
        const size_t row = spw_result_answers_row(a, i);
        if (a->front[row]) spw_json_add(json, front, spw_json_count(row));
    }
    spw_json_put(json, object, "drop_at_most", spw_json_real(a->drop_most));
    spw_json_put(json, object, "fastest", position_json(a->fastest));
    spw_json_put(json, object, "fastest_sure", position_json(a->fastest_sure));
    spw_json_put(json, object, "fastest_dropless", position_json(a->fastest_dropless));
    spw_json_put(json, object, "fastest_dropless_sure", position_json(a->fastest_dropless_sure));
    spw_json_put(json, object, "fastest_whatever_drops", position_json(a->fastest_whatever_drops));
    spw_json_put(json, object, "least_memory", position_json(a->least_memory));
    spw_json_put(json, object, "order", order);
    spw_json_put(json, object, "front", front);
    return object;
}

json_t *spw_result_refusals_json(spw_json *json, const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->refusals; i++) {
        const spw_refusal *r = &result->refusal[i];
        spw_json_add(json, list,
                     json_pack("{s:s, s:I, s:I, s:s}", "scheme", r->scheme, "expert_parallel",
                               (json_int_t)r->expert, "sequences_per_gpu", (json_int_t)r->sequences, "reason",
                               r->reason));
    }
    return list;
}

json_t *spw_result_json(spw_json *json, const spw_result *result, const spw_run_settings *settings) {
    json_t *object = json_object(), *rows = json_array();
    char precision[SPW_PRECISION_TEXT];
    spw_json_put(json, object, "format", spw_json_text("spillway-result"));
    spw_json_put(json, object, "version", spw_json_count(VERSION));
    spw_json_put(json, object, "settings", spw_run_settings_json(json, settings));
    spw_json_put(json, object, "trace", spw_run_trace_json(json, settings));
    spw_json_put(json, object, "precision_note",
                 spw_precision_note(settings->job, precision) ? spw_json_text(precision) : json_null());
    spw_json_put(json, object, "sources", spw_result_sources_json(json, result, settings));
    for (size_t i = 0; i < result->rows; i++)
        spw_json_add(json, rows, row_json(json, &result->row[i], settings));
    spw_json_put(json, object, "rows", rows);
    spw_json_put(json, object, "answers", answers_json(json, result));
    if (result->refusals > 0 && strcmp(settings->command, "replay") == 0) /* a plan has its own */
        spw_json_put(json, object, "refused", spw_result_refusals_json(json, result));
    if (result->factors > 0) spw_json_put(json, object, "smallest_factors", factors_json(json, result));
    if (result->batches > 0) spw_json_put(json, object, "largest_batches", batches_json(json, result));
    spw_result_put_timeline(json, object, result, settings);
    if (result->balance.rows > 0) spw_json_put(json, object, "balance", spw_balance_json(json, result));
    if (result->safes > 0) spw_json_put(json, object, "safe_factors", spw_safe_factors_json(json, result));
    return object;
}

spw_status spw_result_print_json(const spw_result *result, const spw_run_settings *settings, FILE *out) {
    spw_json json = {.failed = false};
    return spw_json_print(&json, spw_result_json(&json, result, settings), JSON_INDENT(1), "the result", out);
}

spw_status spw_run_settings_text(const spw_run_settings *settings, char **out) {
    spw_json json = {.failed = false};
    return spw_json_string(&json, spw_run_settings_json(&json, settings), JSON_COMPACT, "the job's settings",
                           out);
}
