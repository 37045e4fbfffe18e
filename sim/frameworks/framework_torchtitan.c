/* torchtitan: TOML and command lines of v0.2, and the names of its newest tree (pytorch/torchtitan v0.2.2 torchtitan/config/job_config.py,
 * b5bcd76c torchtitan/config/configs.py). */
#include "sim/frameworks/rules.h"

#include "sim/job/job.h"
#include "sim/job/job_split.h"

#include <stdio.h>
#include <string.h>

static const spw_word_pair yes_no[] = {{"true", "true"}, {"false", "false"}, {NULL, NULL}},
                           formats[] = {{"float32", "fp32"}, {"bfloat16", "bf16"}, {NULL, NULL}},
                           schedules[] = {{"1F1B", "1F1B"},
                                          {"Interleaved1F1B", "Interleaved1F1B"},
                                          {"GPipe", "GPipe"},
                                          {"LoopedBFS", "LoopedBFS"},
                                          {"InterleavedZeroBubble", "InterleavedZeroBubble"},
                                          {"ZBVZeroBubble", "ZBVZeroBubble"},
                                          {"DualPipeV", "DualPipeV"},
                                          {NULL, NULL}},
                           reshards[] = {{"default", "default"},
                                         {"always", "always"},
                                         {"never", "never"},
                                         {NULL, NULL}};

#define EVENLY "stages are planned with layers shared out evenly"

static const spw_framework_row rows[] = {
    {.theirs = "model.name", .ours = "@family"},
    {.theirs = "model.flavor", .ours = "@flavor"},
    {.theirs = "primus.model", .ours = "@model_name", .alias = true},
    {.theirs = "model.hf_assets_path", .ours = "@model_name"},
    {.theirs = "hf_assets_path", .ours = "@model_name", .alias = true},
    {.theirs = "model.tokenizer_path", .ours = "@model_name", .alias = true},
    {.theirs = "training.seq_len", .ours = "batch.sequence_length"},
    {.theirs = "training.max_context_length", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "training.local_batch_size", .ours = "@local_batch"},
    {.theirs = "training.batch_size", .ours = "@local_batch", .alias = true},
    {.theirs = "training.global_batch_size", .ours = "@global_batch"},
    {.theirs = "training.num_tokens_per_microbatch_per_dp_rank", .ours = "@micro_tokens", .alias = true},
    {.theirs = "training.num_tokens_per_train_step", .ours = "@step_tokens", .alias = true},
    {.theirs = "parallelism.num_pp_microbatches", .ours = "@pipeline_micro_batches", .alias = true},
    {.theirs = "parallelism.pipeline_parallel_microbatch_size", .ours = "@pipeline_micro_size"},
    {.theirs = "experimental.pipeline_parallel_microbatches",
     .ours = "@pipeline_micro_batches",
     .alias = true},
    {.theirs = "training.dtype", .ours = "precision.weights", .values = formats},
    {.theirs = "training.mixed_precision_param", .ours = "@gathered", .values = formats},
    {.theirs = "training.mixed_precision_reduce", .ours = "@reduced"},
    {.theirs = "training.enable_cpu_offload", .ours = "@on_host", .values = yes_no},
    {.theirs = "parallelism.tensor_parallel_degree", .ours = "parallel.tensor"},
    {.theirs = "parallelism.pipeline_parallel_degree", .ours = "parallel.pipeline"},
    {.theirs = "parallelism.context_parallel_degree", .ours = "parallel.context"},
    {.theirs = "parallelism.expert_parallel_degree", .ours = "parallel.expert"},
    {.theirs = "parallelism.expert_tensor_parallel_degree", .ours = "parallel.expert_tensor"},
    {.theirs = "parallelism.data_parallel_replicate_degree", .ours = "fsdp2.replicas"},
    {.theirs = "parallelism.data_parallel_shard_degree", .ours = "@shard"},
    {.theirs = "parallelism.fsdp_reshard_after_forward",
     .ours = "fsdp2.reshard_after_forward",
     .values = reshards},
    {.theirs = "parallelism.enable_sequence_parallel",
     .ours = "parallel.sequence_parallel",
     .values = yes_no},
    {.theirs = "parallelism.pipeline_parallel_schedule", .ours = "@schedule", .values = schedules},
    {.theirs = "parallelism.pipeline_parallel_layers_per_stage", .ours = "@stage_layers"},
    {.theirs = "parallelism.pipeline_parallel_first_stage_less_layers", .why = EVENLY, .more = true},
    {.theirs = "parallelism.pipeline_parallel_last_stage_less_layers", .why = EVENLY, .more = true},
    {.theirs = "parallelism.module_fqns_per_model_part*", .why = EVENLY, .more = true},
    {.theirs = "parallelism.expert_parallel_comm_backend", .ours = "@backend"},
    {.theirs = "parallelism.enable_async_tensor_parallel",
     .why = "hidden behind work or not, it is not told apart"},
    {.theirs = "activation_checkpoint.mode", .ours = "@checkpoint"},
    {.theirs = "activation_checkpoint.selective_ac_option", .ours = "@selective"},
    {.theirs = "activation_checkpoint.*"},
    {.theirs = "parallelism.context_parallel_*"},
    {.theirs = "parallelism.disable_loss_parallel",
     .why = "the loss is planned in parallel over tensor",
     .more = true},
    {.theirs = "parallelism.enable_fsdp_symm_mem"},
    {.theirs = "parallelism.spmd_backend"},
    {.theirs = "parallelism.enable_compiled_autograd"},
    {.theirs = "parallelism.pipeline_parallel_schedule_csv"},
    {.theirs = "model.converters", .ours = "@converters"},
    {.theirs = "quantize.*", .why = "which products are cast, and with which scales, is not told apart"},
    {.theirs = "float8.*", .why = "which products are cast, and with which scales, is not told apart"},
    {.theirs = "mx.*", .why = "which products are cast, and with which scales, is not told apart"},
    {.theirs = "primus_turbo.*", .why = "which kernel computes it is not told apart"},
    {.theirs = "compile.*", .why = "times and memory are of eager PyTorch"},
    {.theirs = "optimizer.*"},
    {.theirs = "lr_scheduler.*"},
    {.theirs = "training.*"},
    {.theirs = "model.*"},
    {.theirs = "validation.*"},
    {.theirs = "memory_estimation.*"},
    {.theirs = "fault_tolerance.*"},
    {.theirs = "module"},
    {.theirs = "config"},
    {.theirs = "nproc_per_node", .ours = "@gpus_per_node"},
    {.theirs = "nnodes", .ours = "@nodes"},
    {.theirs = "ntasks_per_node", .ours = "@gpus_per_node", .alias = true},
    {.theirs = "gpus_per_node", .ours = "@gpus_per_node", .alias = true},
    {.theirs = "nodes", .ours = "@nodes", .alias = true},
    {.theirs = NULL}};

static const char *const marks[] = {"training.local_batch_size",
                                    "training.seq_len",
                                    "parallelism.tensor_parallel_degree",
                                    "parallelism.expert_parallel_degree",
                                    "parallelism.data_parallel_shard_degree",
                                    "training.batch_size",
                                    "activation_checkpoint.mode",
                                    "parallelism.pipeline_parallel_degree",
                                    "model.flavor",
                                    "training.dtype",
                                    "training.max_context_length",
                                    "training.num_tokens_per_microbatch_per_dp_rank",
                                    "parallelism.context_parallel_degree",
                                    NULL};

/* Defaults of job_config.py. */
static const spw_framework_default defaults[] = {
    {"batch.sequence_length", "2048"}, {"batch.sequences_per_gpu", "8"}, {NULL, NULL}};

/* model.name and model.flavor: the trees of torchtitan/models. 16B of deepseek_v3 has every size of DeepSeek-V2-Lite. */
static const struct {
    const char *family, *flavor, *preset;
} flavors[] = {{"deepseek_v3", "671B", "deepseek-v3"},     {"deepseek_v3", "236B", "deepseek-v2"},
               {"deepseek_v3", "16B", "deepseek-v2-lite"}, {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
               {"qwen3", "235B-A22B", "qwen3-235b-a22b"},  {"gpt_oss", "20b", "gpt-oss-20b"},
               {"gpt_oss", "120b", "gpt-oss-120b"},        {"llama4", "17bx16e", "llama-4-scout"},
               {"llama4", "17bx128e", "llama-4-maverick"}};
enum { FLAVORS = sizeof flavors / sizeof *flavors };

static spw_status compose_family(spw_draft *d) {
    const char *family = spw_draft_fact(d, "@family"), *flavor = spw_draft_fact(d, "@flavor");
    if (family == NULL || flavor == NULL) return spw_compose_model(d);
    for (size_t i = 0; i < FLAVORS; i++)
        if (strcmp(flavors[i].family, family) == 0 && strcmp(flavors[i].flavor, flavor) == 0) {
            (void)spw_draft_fact(d, "@model_name");
            return spw_draft_put(d, "model", flavors[i].preset, "@flavor");
        }
    (void)spw_draft_fact(d, "@model_name");
    return spw_draft_note_fact(d, SPW_NOTE_LACKS, "@flavor", "no preset is this model: give --model NAME");
}

/* A rank's batch in a step: local batches, accumulated up to the global one. */
static spw_status compose_batch(spw_draft *d) {
    size_t local = 0, global = 0, pieces = 0, size = 1, stages = 1, length = 0, tokens = 0, step = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "parallel.pipeline", 1, 1, &stages));
    SPW_TRY(spw_draft_count(d, "@local_batch", 1, 0, &local));
    if (!spw_draft_is(d, "@global_batch", "-1")) SPW_TRY(spw_draft_count(d, "@global_batch", 1, 0, &global));
    SPW_TRY(spw_draft_count(d, "@pipeline_micro_batches", 1, 0, &pieces));
    SPW_TRY(spw_draft_count(d, "@pipeline_micro_size", 1, 1, &size));
    SPW_TRY(spw_draft_count(d, "batch.sequence_length", 1, 2048, &length));
    SPW_TRY(spw_draft_count(d, "@micro_tokens", 1, 0, &tokens));
    if (!spw_draft_is(d, "@step_tokens", "-1")) SPW_TRY(spw_draft_count(d, "@step_tokens", 1, 0, &step));
    if (tokens > 0 && tokens % length == 0) d->micro_batch = tokens / length;
    if (tokens > 0 && tokens % length != 0)
        SPW_TRY(
            spw_draft_note_fact(d, SPW_NOTE_LACKS, "@micro_tokens", "no multiple of the sequence length"));
    if (local == 0 && d->micro_batch > 0) local = d->micro_batch * (stages > 1 && pieces > 0 ? pieces : 1);
    if (local == 0) local = 8;
    if (step > 0) global = step / length;
    if (d->micro_batch == 0) d->micro_batch = stages > 1 ? (pieces > 0 ? local / pieces : size) : local;
    if (global > 0)
        SPW_TRY(spw_draft_put_count(d, "batch.global_batch", global, "@global_batch"));
    else
        SPW_TRY(spw_draft_put_count(d, "batch.sequences_per_gpu", local, "@local_batch"));
    if (d->micro_batch == 0) d->micro_batch = 1;

cleanup:
    return status;
}

/* torchtitan/components/quantization: float8 (torchao's dynamic scales) or mx, of linear layers, of experts or both. */
static spw_status compose_recipe(spw_draft *d) {
    const char *converters = spw_draft_fact(d, "@converters");
    if (converters == NULL) return SPW_OK;
    const bool mx = strstr(converters, "mx") != NULL, experts = strstr(converters, "grouped_mm") != NULL;
    if (!mx && strstr(converters, "float8") == NULL)
        return strpbrk(converters, "abcdefghijklmnopqrstuvwxyz") == NULL
                   ? SPW_OK
                   : spw_draft_note_fact(d, SPW_NOTE_LACKS, "@converters",
                                         "no quantization that is modelled");
    const spw_status status =
        spw_draft_put(d, "precision.recipe", mx ? "mxfp8" : "tensorwise", "@converters");
    if (status != SPW_OK || experts) return status;
    return spw_draft_note_more(d, "@converters", "precision.recipe",
                               "planned with the experts' products in fp8 too");
}

/* By operations where selective_ac_option says so; else every second layer, or as many as it says, is a checkpoint. */
static spw_status compose_checkpoint(spw_draft *d, bool others) {
    const char *mode = spw_draft_fact(d, "@checkpoint"), *option = spw_draft_fact(d, "@selective");
    const bool said = mode != NULL, none = said && strcmp(mode, "none") == 0,
               selective = said && strcmp(mode, "selective") == 0,
               operations = selective && option != NULL && strcmp(option, "op") == 0,
               kept = operations && !others;
    const char *more = NULL;
    if (kept)
        more = "planned as its newest tree keeps operations; of DeepSeek-V3 and Llama 4 v0.2 keeps what "
               "arrives from other "
               "ranks as well, which needs more";
    else if (operations)
        more = "operations that are kept are described for the all-to-all dispatcher without recipes; full "
               "is planned, "
               "which needs less (at most: --remat none)";
    else if (said && !none && strcmp(mode, "full") != 0)
        more = "checkpoints of some layers and a budget of memory are not modelled; full is planned, which "
               "needs less (at "
               "most: --remat none)";
    const spw_status status = more != NULL ? spw_draft_note_more(d, "@checkpoint", "remat", more) : SPW_OK;
    if (status != SPW_OK) return status;
    return spw_draft_put(d, "remat", none ? "none" : kept ? "selective_op" : "full", "@checkpoint");
}

static spw_status compose_state(spw_draft *d) {
    const char *backend = spw_draft_fact(d, "@backend"), *gathered = spw_draft_fact(d, "@gathered");
    const char *converters = spw_draft_fact(d, "@converters");
    const bool casts =
        converters != NULL && (strstr(converters, "mx") != NULL || strstr(converters, "float8") != NULL);
    const bool hybrid = backend != NULL && strcmp(backend, "hybridep") == 0,
               async = backend != NULL && strcmp(backend, "minimal_async_ep") == 0;
    size_t shard = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_put(d, "optimizer", "sharded", NULL));
    SPW_TRY(spw_draft_put(d, "precision.weights", "fp32", NULL));
    SPW_TRY(spw_draft_put(d, "precision.activations",
                          gathered != NULL && strcmp(gathered, "fp32") == 0 ? "fp32" : "bf16", "@gathered"));
    SPW_TRY(spw_draft_put(d, "schemes",
                          hybrid  ? "torchtitan-hybridep"
                          : async ? "torchtitan-async"
                                  : "torchtitan",
                          "@backend"));
    if (backend != NULL && !hybrid && !async && strcmp(backend, "standard") != 0)
        SPW_TRY(spw_draft_note_more(d, "@backend", "schemes",
                                    "planned as the all-to-all dispatcher, without buffers of its own"));
    SPW_TRY(compose_recipe(d));
    SPW_TRY(compose_checkpoint(d, hybrid || async || casts));
    if (spw_draft_on(d, "@on_host")) SPW_TRY(spw_draft_put(d, "fsdp2.state", "host", "@on_host"));
    if (!spw_draft_is(d, "@shard", "-1")) SPW_TRY(spw_draft_count(d, "@shard", 1, 0, &shard));
    (void)spw_draft_fact(d, "@reduced");
    if (shard > 0) { /* GPUs of a group that holds the state once: a mesh of another size is refused */
        size_t copies = 1, tensor = 1, context = 1, stages = 1;
        SPW_TRY(spw_draft_count(d, "fsdp2.replicas", 1, 1, &copies));
        SPW_TRY(spw_draft_count(d, "parallel.tensor", 1, 1, &tensor));
        SPW_TRY(spw_draft_count(d, "parallel.context", 1, 1, &context));
        SPW_TRY(spw_draft_count(d, "parallel.pipeline", 1, 1, &stages));
        d->devices = shard * copies * tensor * context * stages;
    }

cleanup:
    return status;
}

static spw_status compose_schedule(spw_draft *d) {
    const char *schedule = spw_draft_fact(d, "@schedule");
    size_t stages = 1;
    spw_status status = spw_draft_count(d, "parallel.pipeline", 1, 1, &stages);
    if (status != SPW_OK || stages == 1 || schedule == NULL) return status;
    status = spw_draft_put(d, "parallel.schedule", schedule, "@schedule");
    if (status == SPW_OK && strcmp(schedule, "Interleaved1F1B") ==
                                0) /* two stages a rank unless layers_per_stage says otherwise */
        status = spw_draft_put_count(d, "parallel.virtual_stages", 2, "@schedule");
    return status;
}

/* torchtitan refuses other GPUs than its axes make up (torchtitan/distributed/parallel_dims.py _validate); weights shared by more of them
 * would be counted too small. */
static spw_status settle(const spw_draft *d, const spw_cluster *cluster, size_t nodes, size_t gpus,
                         spw_settled *out) {
    (void)out;
    if (d->devices == 0 || d->devices == nodes * gpus) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "%s: data_parallel_shard_degree and the other degrees make up %zu GPUs, and %s has %zu; "
                    "give a cluster of %zu, --gpus %zu, or -1 for the shard degree in the file",
                    d->where, d->devices, cluster->name, nodes * gpus, d->devices, d->devices);
}

spw_status spw_compose_torchtitan(spw_draft *d) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_compose_gpus(d));
    SPW_TRY(spw_draft_put(d, "parallel.expert", "1", NULL));
    SPW_TRY(compose_batch(d));
    SPW_TRY(compose_state(d));
    SPW_TRY(compose_schedule(d));
    SPW_TRY(compose_family(d));

cleanup:
    return status;
}

spw_status spw_express_torchtitan(spw_flag_draft *f) {
    const spw_job *job = f->job;
    const char *backend = strcmp(f->scheme->type->name, "torchtitan") == 0            ? NULL
                          : strcmp(f->scheme->type->name, "torchtitan-hybridep") == 0 ? "hybridep"
                                                                                      : "minimal_async_ep";
    const size_t local = job->sequences_per_gpu[0];
    spw_status status = SPW_OK;
    if (strncmp(f->scheme->type->name, "torchtitan", strlen("torchtitan")) != 0)
        return spw_fail(SPW_ECONFIG,
                        "--flags torchtitan: it has no scheme %s; name torchtitan, torchtitan-hybridep or "
                        "torchtitan-async",
                        f->scheme->type->name);
    SPW_TRY(spw_flags_say_count(f, "@nodes", job->cluster.nodes));
    SPW_TRY(spw_flags_say_count(f, "@gpus_per_node", job->cluster.gpus_per_node));
    for (size_t i = 0; i < FLAVORS; i++) {
        if (strcmp(flavors[i].preset, job->model_text) != 0) continue;
        SPW_TRY(spw_flags_say(f, "@family", flavors[i].family));
        SPW_TRY(spw_flags_say(f, "@flavor", flavors[i].flavor));
        break;
    }
    if (job->pipeline > 1 && local % job->micro_batches == 0) {
        SPW_TRY(spw_flags_say_count(f, "@local_batch", local));
        SPW_TRY(spw_flags_say_count(f, "@pipeline_micro_size", local / job->micro_batches));
    } else {
        SPW_TRY(spw_flags_say_count(f, "@local_batch", local / job->micro_batches));
        if (job->micro_batches > 1)
            SPW_TRY(spw_flags_say_count(f, "@global_batch", local * spw_job_batch_ranks(job)));
    }
    if (backend != NULL) SPW_TRY(spw_flags_say(f, "@backend", backend));
    SPW_TRY(spw_flags_say(f, "@checkpoint",
                          job->remat == SPW_REMAT_NONE           ? "none"
                          : job->remat == SPW_REMAT_SELECTIVE_OP ? "selective"
                                                                 : "full"));
    if (job->remat == SPW_REMAT_SELECTIVE_OP) SPW_TRY(spw_flags_say(f, "@selective", "op"));
    if (job->precision.recipe == SPW_FP8_MXFP8)
        SPW_TRY(spw_flags_say(f, "@converters", "quantize.linear.mx,quantize.grouped_mm.mx"));
    if (job->precision.recipe == SPW_FP8_TENSORWISE)
        SPW_TRY(spw_flags_say(f, "@converters", "quantize.linear.float8,quantize.grouped_mm.float8"));
    if (job->fsdp2.on_host) SPW_TRY(spw_flags_say(f, "@on_host", "true"));
    if (job->pipeline > 1)
        SPW_TRY(spw_flags_say(f, "@schedule", job->virtual_stages > 1 ? "Interleaved1F1B" : "1F1B"));

cleanup:
    return status;
}

static const char *const yours[] = {
    "--node-rank N --rdzv-endpoint HOST:PORT (torchrun, of each node)",
    "--model.hf_assets_path PATH (its tokenizer) --training.dataset NAME --training.steps N", NULL};

const spw_framework spw_framework_torchtitan = {
    .name = "torchtitan",
    .title = "torchtitan",
    .source =
        "pytorch/torchtitan v0.2.2 torchtitan/config/job_config.py; b5bcd76c torchtitan/config/configs.py",
    .rows = {rows},
    .marks = marks,
    .defaults = defaults,
    .compose = spw_compose_torchtitan,
    .settle = settle,
    .express = spw_express_torchtitan,
    .yours = yours,
    .print = SPW_PRINT_DOTTED};
