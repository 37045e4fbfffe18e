#include "sim/job/grid.h"
#include "sim/job/job_json.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/replicas.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/result/result_json.h"
#include "sim/weights/fsdp2.h"
#include "traces/trace.h"

static json_t *precision_json(spw_json *json, const spw_job *job) {
    const size_t master = spw_master_bytes(job);
    json_t *object = json_object();
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++)
        spw_json_put(json, object, spw_precision_kind(i),
                     spw_json_text(spw_precision_name(&job->precision, i)));
    if (job->precision.recipe != SPW_FP8_NONE) {
        spw_json_put(json, object, "recipe", spw_json_text(spw_fp8_recipe_name(job->precision.recipe)));
        spw_json_put(json, object, "fp8_param_gather", json_boolean(job->precision.fp8_param_gather));
    }
    spw_json_put(json, object, "master", spw_json_text(master == 4 ? "fp32" : master == 2 ? "bf16" : "none"));
    return object;
}

static json_t *range(spw_json *json, size_t begin, size_t end) {
    json_t *array = json_array();
    spw_json_add(json, array, spw_json_count(begin));
    spw_json_add(json, array, spw_json_count(end));
    return array;
}

static json_t *allocator_settings_json(spw_json *json, const spw_job_allocator *a) {
    json_t *object = json_object();
    spw_json_put(json, object, "expandable_segments", json_boolean(a->expandable_segments));
    spw_json_put(json, object, "max_split_size_mb", spw_json_count(a->max_split_size_mb));
    spw_json_put(json, object, "garbage_collection_threshold",
                 spw_json_real(a->garbage_collection_threshold));
    spw_json_put(json, object, "per_process_memory_fraction", spw_json_real(a->per_process_memory_fraction));
    spw_json_put(json, object, "roundup_power2_divisions", spw_json_count(a->roundup_power2_divisions));
    return object;
}

/* As --set takes them; the batches stand under "batch". */
static json_t *overrides_json(spw_json *json, const spw_run_settings *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->overrides; i++) {
        json_t *pair = json_object();
        spw_json_put(json, pair, "key", spw_json_text(s->override[i].key));
        spw_json_put(json, pair, "value", spw_json_text(s->override[i].value));
        spw_json_add(json, list, pair);
    }
    return list;
}

static json_t *positive_json(double value) { return value > 0.0 ? spw_json_real(value) : json_null(); }

/* Under any of its schemes. */
static bool has_fsdp2(const spw_job *job) {
    bool has = spw_state_law_of(job)->by_units;
    for (size_t i = 0; i < job->schemes && !has; i++) {
        spw_scheme scheme;
        has = spw_scheme_parse(job->scheme[i], &scheme) == SPW_OK && spw_fsdp2_is_default(job, &scheme);
    }
    return has;
}

static json_t *fsdp2_json(spw_json *json, const spw_job *job) {
    json_t *object = json_object();
    static const char *const policies[] = {[SPW_RESHARD_OFF] = "off",
                                           [SPW_RESHARD_ALWAYS] = "always",
                                           [SPW_RESHARD_NEVER] = "never",
                                           [SPW_RESHARD_DEFAULT] = "default"};
    spw_json_put(json, object, "reshard_after_forward", spw_json_text(policies[job->fsdp2.reshard]));
    spw_json_put(json, object, "prefetch", spw_json_count(job->fsdp2.prefetch));
    spw_json_put(json, object, "replicas", spw_json_count(spw_fsdp2_copies(job)));
    spw_json_put(json, object, "gathered_bytes", spw_json_count(spw_fsdp2_gathered_bytes(job)));
    spw_json_put(json, object, "state", spw_json_text(job->fsdp2.on_host ? "host" : "gpu"));
    return object;
}

static json_t *finetune_json(spw_json *json, const spw_job *job) {
    const spw_trained_work work = spw_trained_work_of(&job->model, &job->finetune, job->sequence_length);
    json_t *object = json_object();
    spw_json_put(json, object, "frozen", spw_json_text(spw_frozen_name(job->finetune.frozen)));
    spw_json_put(json, object, "lora_rank", spw_json_count(job->finetune.lora_rank));
    spw_json_put(json, object, "parameters_trained", spw_json_real(work.parameters));
    spw_json_put(json, object, "flops_per_token", spw_json_real(work.finetuning));
    spw_json_put(json, object, "flops_per_token_of_all", spw_json_real(work.full));
    return object;
}

static json_t *parallel_json(spw_json *json, const spw_job *job) {
    const spw_grid grid = spw_grid_of(job);
    const spw_pipeline pipeline = spw_pipeline_of(job);
    json_t *parallel = json_object();
    spw_json_put(json, parallel, "expert", spw_json_count(job->expert));
    spw_json_put(json, parallel, "fsdp", spw_json_count(job->fsdp));
    spw_json_put(json, parallel, "pipeline", spw_json_count(job->pipeline));
    spw_json_put(json, parallel, "tensor", spw_json_count(grid.tensor));
    spw_json_put(json, parallel, "context", spw_json_count(grid.context));
    spw_json_put(json, parallel, "expert_tensor", spw_json_count(grid.expert_tensor));
    spw_json_put(json, parallel, "data", spw_json_count(grid.data));
    spw_json_put(json, parallel, "virtual_stages", spw_json_count(pipeline.chunks));
    if (spw_job_replicas(job) > 1)
        spw_json_put(json, parallel, "mesh_replicas", spw_json_count(spw_job_replicas(job)));
    return parallel;
}

static json_t *batch_json(spw_json *json, const spw_job *job) {
    json_t *batch = json_object(), *sizes = json_array();
    for (size_t i = 0; i < job->batches; i++)
        spw_json_add(json, sizes, spw_json_count(job->sequences_per_gpu[i]));
    spw_json_put(json, batch, "sequences_per_gpu", sizes);
    spw_json_put(json, batch, "global_batch",
                 job->global_batch > 0 ? spw_json_count(job->global_batch) : json_null());
    spw_json_put(json, batch, "sequence_length", spw_json_count(job->sequence_length));
    spw_json_put(json, batch, "micro_batches", spw_json_count(spw_pipeline_of(job).micro_batches));
    return batch;
}

/* What of a framework's file is in no figure. */
static void put_uncounted(spw_json *json, json_t *object, const spw_job *job) {
    if (job->more[0] != '\0') spw_json_put(json, object, "may_need_more", spw_json_text(job->more));
    if (job->less[0] != '\0') spw_json_put(json, object, "needs_less", spw_json_text(job->less));
}

json_t *spw_run_settings_json(spw_json *json, const spw_run_settings *s) {
    const spw_job *job = s->job;
    json_t *object = json_object(), *schemes = json_array();
    spw_json_put(json, object, "command", spw_json_text(s->command));
    spw_json_put(json, object, "job_file", s->job_path != NULL ? spw_json_text(s->job_path) : json_null());
    spw_json_put(json, object, "trace_file",
                 s->trace_path != NULL ? spw_json_text(s->trace_path) : json_null());
    spw_json_put(json, object, "steps", range(json, s->step_begin, s->step_end));
    spw_json_put(json, object, "layers", range(json, s->layer_begin, s->layer_end));
    spw_json_put(json, object, "seed", spw_json_count(s->seed));
    spw_json_put(json, object, "stack", s->stack != NULL ? spw_json_text(s->stack) : json_null());
    spw_json_put(json, object, "model", spw_json_text(job->model.name));
    spw_json_put(json, object, "cluster", spw_json_text(job->cluster.name));
    spw_json_put(json, object, "parallel", parallel_json(json, job));
    spw_json_put(json, object, "batch", batch_json(json, job));
    spw_json_put(json, object, "precision", precision_json(json, job));
    if (!spw_finetune_is_whole(&job->finetune))
        spw_json_put(json, object, "finetune", finetune_json(json, job));
    spw_json_put(json, object, "remat", spw_json_text(spw_remat_name(job->remat)));
    if (job->attention != SPW_ATTENTION_FLASH)
        spw_json_put(json, object, "attention",
                     spw_json_text(job->attention == SPW_ATTENTION_SDPA ? "sdpa" : "unfused"));
    if (job->cross_entropy != SPW_CROSS_ENTROPY_AUTO)
        spw_json_put(json, object, "cross_entropy",
                     spw_json_text(spw_cross_entropy_name(job->cross_entropy)));
    spw_json_put(json, object, "optimizer", spw_json_text(spw_optimizer_name(job->optimizer)));
    if (has_fsdp2(job)) spw_json_put(json, object, "fsdp2", fsdp2_json(json, job));
    if (job->muon) spw_json_put(json, object, "optimizer_algorithm", spw_json_text("muon"));
    if (job->muon_ping_pong) spw_json_put(json, object, "muon_layout", spw_json_text("ping_pong"));
    if (job->optimizer_on_host > 0.0)
        spw_json_put(json, object, "optimizer_on_host", spw_json_real(job->optimizer_on_host));
    if (job->offload.modules != 0)
        spw_json_put(json, object, "offload_modules", spw_json_text(spw_offload_name(&job->offload)));
    spw_json_put(json, object, "model_part", spw_json_text(spw_model_part_name(job->part)));
    spw_json_put(json, object, "model_layers", spw_json_count(job->model.layers));
    spw_json_put(json, object, "parameters_total", spw_json_count(spw_model_parameters(&job->model).total));
    spw_json_put(json, object, "parameters_active", spw_json_count(spw_model_parameters(&job->model).active));
    spw_json_put(json, object, "allocator", allocator_settings_json(json, &job->allocator));
    spw_json_put(json, object, "memory_fraction",
                 spw_job_lists_outside(job) ? json_null() : spw_json_real(job->memory_fraction));
    spw_json_put(json, object, "gpus_per_node", spw_json_count(job->cluster.gpus_per_node));
    spw_json_put(json, object, "hbm_gib", spw_json_real(job->cluster.hbm_gib.value));
    for (size_t i = 0; i < job->schemes; i++) spw_json_add(json, schemes, spw_json_text(job->scheme[i]));
    spw_json_put(json, object, "schemes", schemes);
    spw_json_put(json, object, "price_per_gpu_hour", positive_json(spw_job_price(job)));
    spw_json_put(json, object, "tokens", positive_json(s->tokens));
    if (s->balancer != NULL) spw_json_put(json, object, "balancer", spw_json_text(s->balancer));
    put_uncounted(json, object, job);
    spw_json_put(json, object, "job", spw_job_json(json, job));
    if (s->overrides > 0) spw_json_put(json, object, "set", overrides_json(json, s));
    return object;
}

json_t *spw_run_trace_json(spw_json *json, const spw_run_settings *s) {
    const spw_trace_info *t = s->trace;
    if (t == NULL) return json_null();
    json_t *object = json_object();
    spw_json_put(json, object, "file", spw_json_text(s->trace_path));
    spw_json_put(json, object, "model", spw_json_text(t->model_name));
    spw_json_put(json, object, "source", spw_json_text(t->source));
    spw_json_put(json, object, "license", spw_json_text(t->license));
    spw_json_put(json, object, "content", spw_json_text(t->content));
    spw_json_put(json, object, "synthetic", json_boolean(t->synthetic));
    spw_json_put(json, object, "steps", spw_json_count(t->steps));
    spw_json_put(json, object, "layers", spw_json_count(t->layers));
    spw_json_put(json, object, "tokens", spw_json_count(t->tokens));
    spw_json_put(json, object, "experts", spw_json_count(t->experts));
    spw_json_put(json, object, "top_k", spw_json_count(t->top_k));
    spw_json_put(json, object, "source_ranks", spw_json_count(t->ranks));
    return object;
}
