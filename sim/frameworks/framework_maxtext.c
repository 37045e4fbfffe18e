/* MaxText: base.yml, its overrides as YAML or on a command line (AI-Hypercomputer/maxtext e591f30c src/maxtext/configs/base.yml,
 * pyconfig.py, max_utils.py). */
#include "sim/frameworks/rules.h"

#include "base/text.h"
#include "sim/job/job.h"
#include "sim/job/recipe/maxtext_settings.h"
#include "sim/print/plural.h"

#include <stdio.h>
#include <string.h>

static const spw_word_pair yes_no[] = {{"true", "true"}, {"false", "false"}, {NULL, NULL}},
                           formats[] = {{"float32", "fp32"},
                                        {"bfloat16", "bf16"},
                                        {"float16", "fp16"},
                                        {NULL, NULL}},
                           optimizers[] = {{"adamw", "adam"}, {"adam_pax", "adam"}, {NULL, NULL}};

static const spw_framework_row rows[] = {
    {.theirs = "model_name", .ours = "@model_name"},
    {.theirs = "override_model_config", .ours = "@override", .values = yes_no},
    {.theirs = "primus.model", .ours = "@model_name", .alias = true},
    {.theirs = "primus.config", .ours = "@primus"},
    {.theirs = "max_target_length", .ours = "batch.sequence_length"},
    {.theirs = "per_device_batch_size", .ours = "@per_device"},
    {.theirs = "gradient_accumulation_steps", .ours = "@accumulation"},
    {.theirs = "num_pipeline_microbatches", .ours = "@pipeline_micro_batches"},
    {.theirs = "ici_fsdp_parallelism", .ours = "@ici_fsdp"},
    {.theirs = "dcn_fsdp_parallelism", .ours = "@dcn_fsdp"},
    {.theirs = "ici_fsdp_transpose_parallelism", .ours = "@ici_fsdp_transpose"},
    {.theirs = "dcn_fsdp_transpose_parallelism", .ours = "@dcn_fsdp_transpose"},
    {.theirs = "ici_data_parallelism", .ours = "@ici_data"},
    {.theirs = "dcn_data_parallelism", .ours = "@dcn_data"},
    {.theirs = "ici_expert_parallelism", .ours = "@ici_expert"},
    {.theirs = "dcn_expert_parallelism", .ours = "@dcn_expert"},
    {.theirs = "ici_tensor_parallelism", .ours = "@ici_tensor"},
    {.theirs = "dcn_tensor_parallelism", .ours = "@dcn_tensor"},
    {.theirs = "ici_context_parallelism", .ours = "@ici_context"},
    {.theirs = "dcn_context_parallelism", .ours = "@dcn_context"},
    {.theirs = "ici_pipeline_parallelism", .ours = "@ici_pipeline"},
    {.theirs = "dcn_pipeline_parallelism", .ours = "@dcn_pipeline"},
    {.theirs = "num_pipeline_repeats", .ours = "@repeats"},
    {.theirs = "num_layers_per_pipeline_stage", .ours = "@stage_layers"},
    {.theirs = "remat_policy", .ours = "@remat"},
    {.theirs = "decoder_layer_input", .ours = "@decoder_layer_input"},
    {.theirs = "query_proj", .ours = "@query_proj"},
    {.theirs = "key_proj", .ours = "@key_proj"},
    {.theirs = "value_proj", .ours = "@value_proj"},
    {.theirs = "kv_proj", .ours = "@kv_proj"},
    {.theirs = "qkv_proj", .ours = "@qkv_proj"},
    {.theirs = "out_proj", .ours = "@out_proj"},
    {.theirs = "context", .ours = "@context"},
    {.theirs = "mlpwi", .ours = "@mlpwi"},
    {.theirs = "mlpwi_0", .ours = "@mlpwi_0"},
    {.theirs = "mlpwi_1", .ours = "@mlpwi_1"},
    {.theirs = "mlpwo", .ours = "@mlpwo"},
    {.theirs = "moe_mlpwi_0", .ours = "@moe_mlpwi_0"},
    {.theirs = "moe_mlpwi_1", .ours = "@moe_mlpwi_1"},
    {.theirs = "moe_mlpwo", .ours = "@moe_mlpwo"},
    {.theirs = "moe_combine", .ours = "@moe_combine"},
    {.theirs = "query_wa_proj", .ours = "@query_wa_proj"},
    {.theirs = "kv_wa_proj", .ours = "@kv_wa_proj"},
    {.theirs = "mla_q", .ours = "@mla_q"},
    {.theirs = "mla_kv", .ours = "@mla_kv"},
    {.theirs = "attention_out", .ours = "@attention_out"},
    {.theirs = "engram", .ours = "@engram"},
    {.theirs = "indexer_cutoff_threshold", .ours = "@indexer_cutoff_threshold"},
    {.theirs = "weight_dtype", .ours = "precision.weights", .values = formats},
    {.theirs = "dtype", .ours = "precision.activations", .values = formats},
    {.theirs = "grad_dtype", .ours = "precision.gradients", .values = formats},
    {.theirs = "mu_dtype", .ours = "precision.optimizer", .values = formats},
    {.theirs = "opt_type",
     .ours = "optimizer_algorithm",
     .values = optimizers,
     .why = "of optimizers adamw is modelled for compiled programs and planned, whose state is the largest"},
    {.theirs = "quantization", .ours = "@quantization"},
    {.theirs = "sparse_matmul", .ours = "@sparse", .values = yes_no},
    {.theirs = "megablox", .ours = "@megablox", .values = yes_no},
    {.theirs = "use_tokamax_gmm", .ours = "@tokamax", .values = yes_no},
    {.theirs = "capacity_factor", .ours = "@capacity"},
    {.theirs = "ragged_buffer_factor", .ours = "@buffer"},
    {.theirs = "use_ring_of_experts", .ours = "@ring", .values = yes_no},
    {.theirs = "use_ragged_sort", .ours = "@ragged_sort", .values = yes_no},
    {.theirs = "num_moe_token_chunks", .ours = "@chunks"},
    {.theirs = "env.XLA_PYTHON_CLIENT_MEM_FRACTION", .ours = "@memory_fraction"},
    {.theirs = "XLA_PYTHON_CLIENT_MEM_FRACTION", .ours = "@memory_fraction", .alias = true},
    {.theirs = "XLA_CLIENT_MEM_FRACTION", .ours = "@memory_fraction", .alias = true},
    {.theirs = "env.XLA_CLIENT_MEM_FRACTION", .ours = "@memory_fraction", .alias = true},
    {.theirs = "env.XLA_FLAGS", .ours = "@xla_flags"},
    {.theirs = "XLA_FLAGS", .ours = "@xla_flags", .alias = true},
    {.theirs = "xla_gpu_enable_latency_hiding_scheduler", .ours = "@xla_hiding"},
    {.theirs = "xla_gpu_enable_while_loop_double_buffering", .ours = "@xla_twice"},
    {.theirs = "xla_gpu_enable_pipelined_all_gather", .ours = "@xla_gathers"},
    {.theirs = "xla_gpu_enable_pipelined_reduce_scatter", .ours = "@xla_scatters"},
    {.theirs = "xla_gpu_enable_pipelined_all_reduce", .ours = "@xla_reduces"},
    {.theirs = "xla_gpu_memory_limit_slop_factor", .ours = "@xla_limit"},
    {.theirs = "xla_disable_hlo_passes", .ours = "@xla_passes"},
    {.theirs = "expert_shard_attention_option", .why = "which axis attention is cut by"},
    {.theirs = "moe_dispatch_no_expert_sharding",
     .why = "the layout of dense's dispatch: see the option layout of the scheme dense"},
    {.theirs = "scan_layers", .ours = "@scan"},
    {.theirs = "*_parallelism"}, /* 1: another value is refused */
    {.theirs = "hardware", .ours = "@hardware", .quiet = true},
    {.theirs = "attention", .ours = "@attention"},
    {.theirs = "pipeline_fsdp_ag_once", .ours = "@gather_once", .values = yes_no},
    {.theirs = "sa_*"},
    {.theirs = "use_iota_embed"},
    {.theirs = "shardy"},
    {.theirs = "base_config"},
    {.theirs = "fused_*"},
    {.theirs = "logits_dot_in_fp32",
     .why = "the head's product in fp32 is not counted: 2 bytes a logit more, and copies of its weights and "
            "input",
     .more = true},
    {.theirs = "float32_*"},
    {.theirs = "jax_cache_dir"},
    {.theirs = "use_random_routing"},
    {.theirs = "enable_nnx"},
    {.theirs = "pure_nnx"},
    {.theirs = "decoder_block"},
    {.theirs = "mlp_activations", .ours = "@activations"},
    {.theirs = "compile_*"},
    /* the model, where it is no preset of theirs */
    {.theirs = "base_num_decoder_layers", .ours = "@layers"},
    {.theirs = "base_emb_dim", .ours = "@hidden"},
    {.theirs = "base_num_query_heads", .ours = "@heads"},
    {.theirs = "base_num_kv_heads", .ours = "@kv_heads"},
    {.theirs = "head_dim", .ours = "@head_dim"},
    {.theirs = "base_mlp_dim", .ours = "@ffn"},
    {.theirs = "base_moe_mlp_dim", .ours = "@expert_ffn"},
    {.theirs = "num_experts", .ours = "@experts"},
    {.theirs = "num_experts_per_tok", .ours = "@top_k"},
    {.theirs = "first_num_dense_layers", .ours = "@first_dense"},
    {.theirs = "vocab_size", .ours = "@vocabulary"},
    {.theirs = SPW_AS_IN_THE_MODEL, .ours = "@query_rank"},
    {.theirs = SPW_AS_IN_THE_MODEL, .ours = "@key_rank"},
    {.theirs = SPW_AS_IN_THE_MODEL, .ours = "@key_dim"},
    {.theirs = SPW_AS_IN_THE_MODEL, .ours = "@rotary_dim"},
    {.theirs = SPW_AS_IN_THE_MODEL, .ours = "@value_dim"},
    {.theirs = NULL}};

static const char *const marks[] = {"per_device_batch_size",
                                    "ici_fsdp_parallelism",
                                    "ici_expert_parallelism",
                                    "max_target_length",
                                    "remat_policy",
                                    "base_emb_dim",
                                    "megablox",
                                    "sparse_matmul",
                                    "dcn_data_parallelism",
                                    "model_name",
                                    "base_output_directory",
                                    "ici_tensor_parallelism",
                                    NULL};

/* base.yml: max_target_length 2048, dtype bfloat16, weight_dtype float32, remat full. */
static const spw_framework_default defaults[] = {
    {"batch.sequence_length", "2048"}, {"remat", "full"}, {"batch.sequences_per_gpu", "12"}, {NULL, NULL}};

/* --- Forward --- */

/* Settings of base.yml that a job has no key for (sim/job/recipe/maxtext_settings.h). */
static const char *known(const char *name, const char *value, int *kind) {
    static const int kinds[] = {[SPW_MAXTEXT_NONE] = SPW_NOTE_QUIET,
                                [SPW_MAXTEXT_DATA] = SPW_NOTE_LACKS,
                                [SPW_MAXTEXT_REFUSED] = SPW_NOTE_MORE,
                                [SPW_MAXTEXT_LESS] = SPW_NOTE_LACKS};
    const spw_maxtext_setting *s = spw_maxtext_setting_find(name, strlen(name), value, strlen(value));
    if (s == NULL) return NULL;
    *kind = kinds[s->effect];
    return s->note;
}

/* per_device_batch_size counts every GPU; a job counts the GPUs that share sequences once. */
static spw_status compose_batch(spw_draft *d, size_t sharers, size_t stages) {
    const char *text = spw_draft_fact(d, "@per_device");
    size_t accumulation = 1, micro = stages;
    char *end = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@accumulation", 1, 1, &accumulation));
    if (!spw_draft_is(d, "@pipeline_micro_batches", "-1"))
        SPW_TRY(spw_draft_count(d, "@pipeline_micro_batches", 1, stages, &micro));
    if (stages > 1 && micro % stages != 0)
        SPW_TRY(spw_fail(SPW_ECONFIG,
                         "%s: num_pipeline_microbatches %zu: MaxText refuses micro-batches that are no "
                         "multiple of its %zu pipeline stages; write %zu, or -1, which is %zu",
                         d->where, micro, stages, (micro / stages + 1) * stages, stages));
    SPW_TRY(
        spw_draft_put_count(d, "batch.micro_batches", stages > 1 ? micro : accumulation, "@accumulation"));
    if (stages > 1 && accumulation > 1)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@accumulation",
                                    "accumulation around a pipeline; its batches are planned as one"));
    if (text == NULL) goto cleanup;
    const double sequences = spw_text_number(text, &end) * (double)(accumulation * sharers * stages);
    if (end == text || *end != '\0' || !(sequences >= 1.0 && sequences <= 1048576.0) ||
        sequences != (double)(size_t)sequences)
        SPW_TRY(spw_fail(SPW_ECONFIG,
                         "%s: per_device_batch_size %.20s: with %zu GPU%s a sequence these are %.4g "
                         "sequences; a whole number "
                         "of 1 or more is planned",
                         d->where, text, sharers * stages, spw_plural(sharers * stages), sequences));
    const size_t shared = ((size_t)sequences / micro + 1) * micro; /* the next number that is shared evenly */
    if (stages > 1 && (size_t)sequences % micro != 0)
        SPW_TRY(
            spw_fail(SPW_ECONFIG,
                     "%s: per_device_batch_size %.20s: with %zu GPUs a sequence these are %zu, which the %zu "
                     "micro-batches of the pipeline do not share evenly; write %.4g",
                     d->where, text, sharers * stages, (size_t)sequences, micro,
                     (double)shared / (double)(accumulation * sharers * stages)));
    SPW_TRY(spw_draft_put_count(d, "batch.sequences_per_gpu", (size_t)sequences, "@per_device"));

cleanup:
    return status;
}

/* Delayed scaling of flax's Fp8DotGeneral, on NVIDIA's GPUs and on AMD's. */
static spw_status compose_recipe(spw_draft *d, bool sparse) {
    static const char *const delayed[] = {"fp8", "fp8_gpu", "nanoo_fp8", "fp8_nanoo"};
    const char *said = spw_draft_fact(d, "@quantization");
    if (said == NULL || said[0] == '\0') return SPW_OK;
    for (size_t i = 0; i < sizeof delayed / sizeof *delayed && !sparse; i++)
        if (strcmp(said, delayed[i]) == 0)
            return spw_draft_put(d, "precision.recipe", "delayed", "@quantization");
    return spw_draft_note_fact(
        d, SPW_NOTE_LACKS, "@quantization",
        "modelled are fp8 and nanoo_fp8 of capacity-factor layers (sparse_matmul false); bf16 is planned, "
        "which takes longer");
}

static spw_status compose_scheme(spw_draft *d) {
    const char *capacity = spw_draft_fact(d, "@capacity"), *buffer = spw_draft_fact(d, "@buffer"),
               *chunks = spw_draft_fact(d, "@chunks");
    const bool sparse = !spw_draft_is(d, "@sparse", "false"),
               megablox = !spw_draft_is(d, "@megablox", "false") || spw_draft_on(d, "@tokamax"),
               ring = spw_draft_on(d, "@ring"), chunked = chunks != NULL && strcmp(chunks, "1") != 0,
               sorted = spw_draft_on(d, "@ragged_sort");
    const bool limited = capacity != NULL && capacity[0] != '-' && strcmp(capacity, "0") != 0;
    char scheme[SPW_SCHEME_TEXT] = "";
    const spw_status recipe = compose_recipe(d, sparse);
    if (recipe != SPW_OK) return recipe;
    if (!sparse && !limited)
        return spw_fail(SPW_ECONFIG,
                        "%s: sparse_matmul false without a capacity_factor computes all experts for all "
                        "tokens, which is not "
                        "modelled; add --scheme dense:capacity_factor=F, or take another file",
                        d->where);
    if (chunked && !(sparse && ring))
        return spw_fail(
            SPW_ECONFIG,
            "%s: MaxText refuses num_moe_token_chunks %.20s without use_ring_of_experts; nearest: "
            "num_moe_token_chunks 1, or use_ring_of_experts true",
            d->where, chunks);
    if (!sparse) {
        (void)snprintf(scheme, sizeof scheme, "dense:capacity_factor=%.20s", capacity);
    } else {
        const char *kind = ring ? (megablox ? "ring" : "ragged-ring") : megablox ? "gmm" : "ragged";
        int used = snprintf(scheme, sizeof scheme, "%s", kind);
        if (buffer != NULL && buffer[0] != '-')
            used += snprintf(scheme + used, sizeof scheme - (size_t)used, ":buffer_factor=%.20s", buffer);
        const bool more = strchr(scheme, ':') != NULL;
        if (ring && megablox && sorted)
            used +=
                snprintf(scheme + used, sizeof scheme - (size_t)used, "%sragged_sort=true", more ? "," : ":");
        if (ring && megablox && chunked)
            (void)snprintf(scheme + used, sizeof scheme - (size_t)used, "%stoken_chunks=%.10s",
                           more || sorted ? "," : ":", chunks);
    }
    return spw_draft_put_text(d, "schemes", scheme, "@sparse");
}

/* XLA_CLIENT_MEM_FRACTION, which may be written as .75. */
static spw_status compose_fraction(spw_draft *d) {
    const char *said = spw_draft_fact(d, "@memory_fraction");
    char text[32], *end = NULL;
    if (said == NULL || said[0] == '\0') return SPW_OK;
    const double share = spw_text_number(said, &end);
    if (end == said || *end != '\0' || !(share >= 0.001 && share <= 1.0))
        return spw_fail(SPW_ECONFIG,
                        "%s: XLA_PYTHON_CLIENT_MEM_FRACTION %.20s: no share in [0.001, 1]; write .75, as is "
                        "JAX's own",
                        d->where, said);
    (void)snprintf(text, sizeof text, "%.15g", share);
    return spw_draft_put(d, "memory_fraction", text, "@memory_fraction");
}

spw_status spw_compose_maxtext(spw_draft *d) {
    size_t sharers = 1, stages = 1, repeats = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_compose_maxtext_mesh(d, &sharers, &stages));
    SPW_TRY(compose_batch(d, sharers, stages));
    if (!spw_draft_is(d, "@repeats", "-1")) SPW_TRY(spw_draft_count(d, "@repeats", 1, 0, &repeats));
    if (repeats > 0 && stages > 1)
        SPW_TRY(spw_draft_put_count(d, "parallel.virtual_stages", repeats, "@repeats"));
    if (spw_draft_fact(d, "@primus") != NULL) /* its pre_trainer.yaml: weight_dtype bfloat16 */
        SPW_TRY(spw_draft_put(d, "precision.weights", "bf16", "@primus"));
    SPW_TRY(spw_draft_put(d, "precision.weights", "fp32", NULL));
    SPW_TRY(spw_draft_put(d, "precision.activations", "bf16", NULL));
    SPW_TRY(spw_draft_put(d, "optimizer", "sharded", NULL));
    if (spw_draft_is(d, "@scan", "false"))
        SPW_TRY(spw_draft_note_more(d, "@scan", NULL, "layers are planned in one loop, scan_layers true"));
    if (spw_draft_is(d, "@attention", "dot_product"))
        SPW_TRY(
            spw_draft_note_more(d, "@attention", NULL, "it holds the scores; planned as flash attention"));
    if (spw_draft_on(d, "@gather_once"))
        SPW_TRY(spw_draft_note_more(d, "@gather_once", NULL,
                                    "weights of a stage that stay gathered are not counted"));
    SPW_TRY(spw_compose_maxtext_remat(d));
    SPW_TRY(spw_compose_xla_flags(d));
    SPW_TRY(compose_fraction(d));
    SPW_TRY(compose_scheme(d));
    SPW_TRY(spw_draft_on(d, "@override") ? spw_compose_model(d) : spw_compose_named_model(d));

cleanup:
    return status;
}

/* --- Back --- */

/* Its names of models, src/maxtext/configs/models, where a preset is called otherwise. */
static const spw_word_pair models[] = {{"deepseek2-16b", "deepseek-v2-lite"},
                                       {"deepseek2-236b", "deepseek-v2"},
                                       {"deepseek3-671b", "deepseek-v3"},
                                       {"deepseek3.2-671b", "deepseek-v3.2"},
                                       {"kimi-k2-1t", "kimi-k2"},
                                       {"qwen3-480b-a35b", "qwen3-coder-480b-a35b"},
                                       {"llama4-17b-16e", "llama-4-scout"},
                                       {"llama4-17b-128e", "llama-4-maverick"},
                                       {NULL, NULL}};

static const char *model_of(const char *preset) {
    for (const spw_word_pair *pair = models; pair->theirs != NULL; pair++)
        if (strcmp(pair->ours, preset) == 0) return pair->theirs;
    return preset;
}

static spw_status express_scheme(spw_flag_draft *f) {
    const char *name = f->scheme->type->name;
    const bool ring = strcmp(name, "ring") == 0, ragged_ring = strcmp(name, "ragged-ring") == 0,
               ragged = strcmp(name, "ragged") == 0, dense = strcmp(name, "dense") == 0,
               gmm = strcmp(name, "gmm") == 0;
    spw_status status = SPW_OK;
    if (!ring && !ragged_ring && !ragged && !dense && !gmm)
        return spw_fail(SPW_ECONFIG,
                        "--flags maxtext: base.yml has no setting for scheme %s; name dense, gmm, ragged, "
                        "ring or ragged-ring",
                        name);
    if ((ring || ragged_ring) && spw_scheme_option_value(f->scheme, "buffer_factor") > 0.0 &&
        !spw_scheme_option_is(f->scheme, "ragged_sort", "true"))
        return spw_fail(
            SPW_ECONFIG,
            "--flags maxtext: MaxText refuses ragged_buffer_factor with use_ring_of_experts unless "
            "use_ragged_sort is set; write ring:ragged_sort=true,buffer_factor=%g",
            spw_scheme_option_value(f->scheme, "buffer_factor"));
    if (f->job->precision.recipe == SPW_FP8_DELAYED)
        SPW_TRY(spw_flags_say(f, "@quantization",
                              f->job->cluster.gpu_generation == SPW_GPU_CDNA3
                                  ? "nanoo_fp8"
                                  : "fp8")); /* CDNA 3 has a format of its own */
    SPW_TRY(spw_flags_say(f, "@sparse", dense ? "false" : "true"));
    SPW_TRY(spw_flags_say(f, "@megablox", dense || ragged || ragged_ring ? "false" : "true"));
    if (ring || ragged_ring) SPW_TRY(spw_flags_say(f, "@ring", "true"));
    if (spw_scheme_option_is(f->scheme, "ragged_sort", "true"))
        SPW_TRY(spw_flags_say(f, "@ragged_sort", "true"));
    SPW_TRY(spw_flags_say_option(f, "capacity_factor", "@capacity"));
    SPW_TRY(spw_flags_say_option(f, "buffer_factor", "@buffer"));
    if (spw_scheme_option_value(f->scheme, "token_chunks") > 1.0)
        SPW_TRY(spw_flags_say_option(f, "token_chunks", "@chunks"));

cleanup:
    return status;
}

spw_status spw_express_maxtext(spw_flag_draft *f) {
    const spw_job *job = f->job;
    char text[32];
    spw_status status = SPW_OK;
    const size_t stages = job->pipeline, sharers = job->tensor * job->context * stages;
    const size_t accumulation = stages > 1 ? 1 : job->micro_batches;
    SPW_TRY(spw_flags_say(f, "@model_name", model_of(spw_model_preset_of(job->model_text))));
    (void)snprintf(text, sizeof text, "%.17g",
                   (double)job->sequences_per_gpu[0] / (double)(sharers * accumulation));
    SPW_TRY(spw_flags_say(f, "@per_device", text));
    if (job->cluster.gpu_generation != SPW_GPU_NONE) { /* base.yml's own is tpu */
        SPW_TRY(spw_flags_say(f, "@hardware", "gpu"));
        if (job->attention == SPW_ATTENTION_FLASH) SPW_TRY(spw_flags_say(f, "@attention", "cudnn_flash_te"));
    }
    SPW_TRY(spw_flags_say_count(f, "@accumulation", accumulation));
    SPW_TRY(spw_express_maxtext_mesh(f));
    SPW_TRY(express_scheme(f));
    SPW_TRY(spw_express_maxtext_remat(f));
    (void)snprintf(text, sizeof text, "%.15g", job->memory_fraction); /* JAX's own is another */
    SPW_TRY(spw_flags_say(f, "@memory_fraction", text));
    if (stages > 1) SPW_TRY(spw_flags_say_count(f, "@pipeline_micro_batches", job->micro_batches));
    if (stages > 1 && job->virtual_stages > 0)
        SPW_TRY(spw_flags_say_count(f, "@repeats", job->virtual_stages));

cleanup:
    return status;
}

/* The checks of types.py want a name and a folder. */
static const char *const yours[] = {
    "run_name=NAME base_output_directory=PATH",
    "dataset_type=synthetic (or a data set of yours, with tokenizer_path) steps=N learning_rate=RATE", NULL};

const spw_framework spw_framework_maxtext = {
    .name = "maxtext",
    .title = "MaxText",
    .source = "AI-Hypercomputer/maxtext e591f30c src/maxtext/configs/base.yml",
    .rows = {rows},
    .marks = marks,
    .defaults = defaults,
    .known = known,
    .compose = spw_compose_maxtext,
    .settle = spw_settle_maxtext,
    .express = spw_express_maxtext,
    .yours = yours,
    .print = SPW_PRINT_PAIRS};
