#include "sim/replay/result_json.h"

#include "sim/memory/advice.h"
#include "sim/memory/optimizer_state.h"
#include "sim/replay/result_sources.h"
#include "sim/time/step_traffic.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { VERSION = 1 };

/* Text from a file may not be UTF-8; what is not becomes '?', never an error. */
static json_t *text(const char *value) {
    json_t *json = json_string(value);
    if (json != NULL) return json;
    char plain[1024];
    spw_plain_text(value, plain, sizeof plain);
    return json_string(plain);
}

static json_t *count(uint64_t value) {
    return json_integer(value < INT64_MAX ? (json_int_t)value : (json_int_t)INT64_MAX);
}

/* Steals the values; a NULL value marks `object` as failed by leaving the key out, which the caller checks
 * once. */
static void put(json_t *object, const char *key, json_t *value) {
    (void)json_object_set_new(object, key, value);
}

static json_t *precision_json(const spw_job *job) {
    const spw_precision *p = &job->precision;
    const size_t master = spw_master_bytes(job);
    json_t *object = json_object();
    const struct {
        const char *key;
        size_t bytes;
    } fields[] = {{"weights", p->weights},
                  {"gradients", p->gradients},
                  {"optimizer", p->optimizer},
                  {"activations", p->activations}};
    for (size_t i = 0; i < 4; i++) {
        const char *name = fields[i].bytes == 4 ? "fp32" : fields[i].bytes == 2 ? "bf16" : "fp8";
        put(object, fields[i].key, text(name));
    }
    put(object, "master", text(master == 4 ? "fp32" : master == 2 ? "bf16" : "none"));
    return object;
}

static json_t *range(size_t begin, size_t end) {
    json_t *array = json_array();
    (void)json_array_append_new(array, count(begin));
    (void)json_array_append_new(array, count(end));
    return array;
}

static json_t *allocator_settings_json(const spw_job_allocator *a) {
    json_t *object = json_object();
    put(object, "expandable_segments", json_boolean(a->expandable_segments));
    put(object, "max_split_size_mb", count(a->max_split_size_mb));
    put(object, "garbage_collection_threshold", json_real(a->garbage_collection_threshold));
    put(object, "per_process_memory_fraction", json_real(a->per_process_memory_fraction));
    put(object, "roundup_power2_divisions", count(a->roundup_power2_divisions));
    return object;
}

static json_t *settings_json(const spw_run_settings *s) {
    const spw_job *job = s->job;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    json_t *object = json_object(), *parallel = json_object(), *batch = json_object(), *sizes = json_array();
    json_t *schemes = json_array();
    put(object, "command", text(s->command));
    put(object, "job_file", s->job_path != NULL ? text(s->job_path) : json_null());
    put(object, "trace_file", s->trace_path != NULL ? text(s->trace_path) : json_null());
    put(object, "steps", range(s->step_begin, s->step_end));
    put(object, "layers", range(s->layer_begin, s->layer_end));
    put(object, "seed", count(s->seed));
    put(object, "stack", s->stack != NULL ? text(s->stack) : json_null());
    put(object, "model", text(job->model.name));
    put(object, "cluster", text(job->cluster.name));
    put(parallel, "expert", count(job->expert));
    put(parallel, "fsdp", count(job->fsdp));
    put(parallel, "pipeline", count(job->pipeline));
    put(parallel, "tensor", count(job->tensor));
    put(parallel, "virtual_stages", count(pipeline.chunks));
    put(object, "parallel", parallel);
    for (size_t i = 0; i < job->batches; i++)
        (void)json_array_append_new(sizes, count(job->sequences_per_gpu[i]));
    put(batch, "sequences_per_gpu", sizes);
    put(batch, "sequence_length", count(job->sequence_length));
    put(batch, "micro_batches", count(pipeline.micro_batches));
    put(object, "batch", batch);
    put(object, "precision", precision_json(job));
    put(object, "remat", text(spw_remat_name(job->remat)));
    put(object, "optimizer", text(spw_optimizer_name(job->optimizer)));
    put(object, "model_part", text(spw_model_part_name(job->part)));
    put(object, "model_layers", count(job->model.layers));
    put(object, "allocator", allocator_settings_json(&job->allocator));
    put(object, "memory_fraction", json_real(job->memory_fraction));
    put(object, "hbm_gib", json_real(job->cluster.hbm_gib.value));
    for (size_t i = 0; i < job->schemes; i++) (void)json_array_append_new(schemes, text(job->scheme[i]));
    put(object, "schemes", schemes);
    return object;
}

static json_t *trace_json(const spw_run_settings *s) {
    const spw_trace_info *t = s->trace;
    if (t == NULL) return json_null();
    json_t *object = json_object();
    put(object, "file", text(s->trace_path));
    put(object, "model", text(t->model_name));
    put(object, "source", text(t->source));
    put(object, "license", text(t->license));
    put(object, "content", text(t->content));
    put(object, "synthetic", json_boolean(t->synthetic));
    put(object, "steps", count(t->steps));
    put(object, "layers", count(t->layers));
    put(object, "tokens", count(t->tokens));
    put(object, "experts", count(t->experts));
    put(object, "top_k", count(t->top_k));
    put(object, "source_ranks", count(t->ranks));
    return object;
}

static json_t *quantiles_json(const spw_byte_quantiles *q) {
    json_t *object = json_object();
    put(object, "p50_bytes", count(q->p50_bytes));
    put(object, "p99_bytes", count(q->p99_bytes));
    put(object, "max_bytes", count(q->max_bytes));
    return object;
}

static json_t *outcome_json(const spw_reserved_outcome *o) {
    json_t *object = json_object(), *worst = json_object();
    put(object, "requested", quantiles_json(&o->requested));
    put(object, "allocated", quantiles_json(&o->allocated));
    put(object, "reserved", quantiles_json(&o->reserved));
    put(object, "at_least", json_boolean(o->failed_steps > 0)); /* allocated and reserved */
    put(worst, "position", count(o->worst_step));
    put(worst, "rank", count(o->worst_rank));
    put(object, "worst_reserved", worst);
    put(object, "failed_steps", count(o->failed_steps));
    put(object, "retried_steps", count(o->retried_steps));
    put(object, "retries", count(o->retries));
    put(object, "stranded_bytes", count(o->stranded_bytes));
    return object;
}

static json_t *allocator_json(const spw_result_row *r) {
    char advice[SPW_ADVICE_TEXT];
    json_t *object = outcome_json(&r->reserved.as_set);
    put(object, "with_expandable_segments", outcome_json(&r->reserved.expandable));
    spw_advice(&r->reserved, advice);
    put(object, "advice", text(advice));
    return object;
}

static json_t *memory_json(const spw_result_row *r) {
    const spw_footprint *f = &r->footprint;
    json_t *object = json_object(), *worst = json_object(), *components = json_object();
    put(object, "verdict", text(spw_verdict_name(spw_result_verdict(r))));
    put(object, "kind", text(spw_memory_kind_name(r->memory_kind)));
    put(object, "budget_bytes", count(f->budget_bytes));
    put(object, "argument_bytes", count(f->argument_bytes));
    put(object, "temporary_bytes", count(f->temporary_bytes));
    put(object, "peak_bytes", count(f->peak_bytes));
    put(object, "low_bytes", count(f->low_bytes));
    put(object, "high_bytes", count(f->high_bytes));
    put(object, "p50_bytes", count(r->memory.p50_bytes));
    put(object, "p99_bytes", count(r->memory.p99_bytes));
    put(object, "max_bytes", count(r->memory.max_bytes));
    put(object, "oom_probability", json_real(r->memory.oom_probability));
    put(object, "oom_low", json_real(r->memory.oom_low));
    put(object, "oom_high", json_real(r->memory.oom_high));
    put(object, "allocator", r->reserved.there ? allocator_json(r) : json_null());
    put(worst, "step", json_integer(r->memory.worst_step));
    put(worst, "layer", json_integer(r->memory.worst_layer));
    put(worst, "rank", count(r->memory.worst_rank));
    put(object, "worst", worst);
    put(object, "moment", text(spw_moment_name(f->moment)));
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        if (c->live[f->moment]) put(components, c->name, count(c->bytes));
    }
    put(object, "components", components);
    return object;
}

/* The exchanges as replayed; the other collectives of the step as they follow from the job. */
static json_t *step_json(const spw_result_row *r, const spw_job *job, double *whole) {
    spw_step_traffic step;
    spw_job split = *job;
    json_t *components = json_object();
    split.expert = r->expert;
    split.fsdp = r->fsdp;
    if (job->part == SPW_PART_EXPERT_LAYERS) { /* its weights stay where they are, and it has no optimizer */
        put(components, spw_purpose_name(SPW_PURPOSE_EXCHANGE), json_real(r->traffic.step_bytes_per_gpu));
        *whole = r->traffic.step_bytes_per_gpu;
        return components;
    }
    const spw_status status = spw_step_traffic_of(&split, &r->scheme, r->sequences,
                                                  &spw_step_stacks[SPW_STEP_STACK_CUDA_OLD], &step);
    *whole = status == SPW_OK ? 0.0 : INFINITY;
    for (int p = 0; p < SPW_PURPOSES && status == SPW_OK; p++) {
        const double bytes = p == SPW_PURPOSE_EXCHANGE ? r->traffic.step_bytes_per_gpu
                                                       : spw_step_purpose_wire_bytes(&step, (spw_purpose)p);
        put(components, spw_purpose_name((spw_purpose)p), json_real(bytes));
        *whole += bytes;
    }
    return components;
}

static json_t *traffic_json(const spw_result_row *r, const spw_job *job) {
    const spw_result_traffic *t = &r->traffic;
    double whole = 0.0;
    json_t *object = json_object(), *components = step_json(r, job, &whole);
    put(object, "dispatch_bytes_per_gpu", json_real(t->dispatch_bytes_per_gpu));
    put(object, "combine_bytes_per_gpu", json_real(t->combine_bytes_per_gpu));
    put(object, "step_bytes_per_gpu", json_real(t->step_bytes_per_gpu));
    put(object, "whole_step_bytes_per_gpu", isfinite(whole) ? json_real(whole) : json_null());
    put(object, "components", components);
    put(object, "intra_node_bytes", json_real(t->intra_node_bytes));
    put(object, "inter_node_bytes", json_real(t->inter_node_bytes));
    put(object, "max_link_bytes", count(t->max_link_bytes));
    put(object, "rows_max", count(t->rows_max));
    put(object, "rows_mean", json_real(t->rows_mean));
    return object;
}

static json_t *drops_json(const spw_result_drops *d) {
    json_t *object = json_object();
    put(object, "assignments", count(d->assignments));
    put(object, "dropped", count(d->dropped));
    put(object, "fraction",
        json_real(d->assignments > 0 ? (double)d->dropped / (double)d->assignments : 0.0));
    if (d->at_least) put(object, "at_least", json_true()); /* dropped, fraction: of a stated imbalance */
    put(object, "tokens_fully_dropped", d->lost_unknown ? json_null() : count(d->tokens_fully_dropped));
    return object;
}

/* Seconds that the step waits for, by component; null without a time model of the scheme. */
static json_t *time_json(const spw_result_row *r) {
    static const char *const keys[] = {"step_s", "tokens_per_s_per_gpu", "balanced_step_s", "components"};
    json_t *object = json_object(), *components = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !r->timed; i++) put(object, keys[i], json_null());
    if (!r->timed) return object;
    put(object, "step_s", json_real(r->time.step_s));
    put(object, "low_s", json_real(r->time.low_s));
    put(object, "high_s", json_real(r->time.high_s));
    put(object, "tokens_per_s_per_gpu", json_real(r->time.tokens_per_s_per_gpu));
    put(object, "balanced_step_s", json_real(r->balanced_step_s));
    components = json_object();
    for (size_t i = 0; i < r->time.components; i++) {
        const spw_time_component *c = &r->time.component[i];
        json_t *part = json_object();
        put(part, "seconds", json_real(c->seconds));
        put(part, "exposed_s", json_real(c->exposed_s));
        put(components, c->name, part);
    }
    put(object, "components", components);
    return object;
}

static json_t *row_json(const spw_result_row *r, const spw_job *job) {
    json_t *object = json_object(), *steps = json_object(), *assumptions = json_array();
    put(object, "scheme", text(r->scheme.text));
    put(object, "model", text(job->model.name));
    put(object, "cluster", text(job->cluster.name));
    put(object, "expert_parallel", count(r->expert));
    put(object, "fsdp", count(r->fsdp));
    put(object, "pipeline", count(job->pipeline));
    put(object, "sequences_per_gpu", count(r->sequences));
    put(object, "sequence_length", count(job->sequence_length));
    put(object, "remat", text(spw_remat_name(job->remat)));
    put(steps, "first", json_integer(r->first_step));
    put(steps, "last", json_integer(r->last_step));
    put(steps, "count", count(r->steps));
    put(object, "steps", steps);
    put(object, "layers", count(r->layers));
    put(object, "memory", memory_json(r));
    put(object, "traffic", traffic_json(r, job));
    put(object, "drops", drops_json(&r->drops));
    put(object, "time", time_json(r));
    put(object, "evidence", text(spw_match_name(r->match)));
    for (size_t i = 0; i < r->assumptions.count; i++)
        (void)json_array_append_new(assumptions, text(r->assumptions.text[i]));
    put(object, "assumptions", assumptions);
    return object;
}

static json_t *factors_json(const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->factors; i++) {
        const spw_factor_answer *a = &result->factor[i];
        json_t *object = json_object();
        put(object, "scheme", text(a->scheme));
        put(object, "sequences_per_gpu", count(a->sequences));
        put(object, "option", text(a->option));
        put(object, "drop_at_most", json_real(a->most));
        put(object, "factor", a->factor > 0.0 ? json_real(a->factor) : json_null());
        put(object, "fraction", json_real(a->fraction));
        (void)json_array_append_new(list, object);
    }
    return list;
}

static json_t *batches_json(const spw_result *result) {
    json_t *list = json_array();
    for (size_t i = 0; i < result->batches; i++) {
        const spw_batch_answer *a = &result->batch[i];
        json_t *object = json_object();
        put(object, "scheme", text(a->scheme));
        put(object, "fits_at", json_real(a->at));
        put(object, "sequences_per_gpu", count(a->largest));
        put(object, "at_least", json_boolean(a->at_least));
        put(object, "steps", count(a->steps));
        put(object, "oom_probability", json_real(a->oom.value));
        put(object, "oom_low", json_real(a->oom.low));
        put(object, "oom_high", json_real(a->oom.high));
        (void)json_array_append_new(list, object);
    }
    return list;
}

json_t *spw_result_json(const spw_result *result, const spw_run_settings *settings) {
    json_t *object = json_object(), *rows = json_array();
    put(object, "format", text("spillway-result"));
    put(object, "version", count(VERSION));
    put(object, "settings", settings_json(settings));
    put(object, "trace", trace_json(settings));
    put(object, "sources", spw_result_sources_json(result, settings));
    for (size_t i = 0; i < result->rows; i++)
        (void)json_array_append_new(rows, row_json(&result->row[i], settings->job));
    put(object, "rows", rows);
    if (result->factors > 0) put(object, "smallest_factors", factors_json(result));
    if (result->batches > 0) put(object, "largest_batches", batches_json(result));
    return object;
}

spw_status spw_result_print_json(const spw_result *result, const spw_run_settings *settings, FILE *out) {
    json_t *object = spw_result_json(result, settings);
    const bool whole = json_array_size(json_object_get(object, "rows")) == result->rows;
    const bool written = whole && json_dumpf(object, out, JSON_INDENT(1)) == 0 && fputc('\n', out) != EOF;
    json_decref(object);
    return written ? SPW_OK : spw_fail(SPW_EIO, "the result cannot be written as JSON");
}

spw_status spw_run_settings_text(const spw_run_settings *settings, char **out) {
    json_t *object = settings_json(settings);
    *out = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return *out != NULL ? SPW_OK : spw_fail(SPW_ENOMEM, "cannot allocate the text of the settings");
}
