/* DeepSpeed's JSON (deepspeedai/DeepSpeed deepspeed/runtime/config.py), and the YAML of Axolotl, TRL and LLaMA-Factory
 * (axolotl-ai-cloud/axolotl 067b021c src/axolotl/utils/schemas, huggingface/trl f2cd5771 trl/trainer/sft_config.py). */
#include "sim/frameworks/rules.h"

#include <stdio.h>
#include <string.h>

static const spw_word_pair yes_no[] = {
    {"true", "true"}, {"false", "false"}, {"auto", "true"}, {"full", "true"}, {NULL, NULL}};

#define LOW_BITS "weights of less than 16 bits are not modelled; bf16 is planned, which needs more memory"

static const spw_framework_row deepspeed_rows[] = {
    {.theirs = "zero_optimization.stage", .ours = "@stage"},
    {.theirs = "zero_optimization.offload_optimizer.device", .ours = "@optimizer_device"},
    {.theirs = "zero_optimization.offload_optimizer.ratio", .ours = "@optimizer_ratio"},
    {.theirs = "zero_optimization.offload_param.device", .ours = "@parameter_device"},
    {.theirs = "zero_optimization.offload_*"},
    {.theirs = "zero_optimization.zero_hpz_partition_size", .ours = "@secondary"},
    {.theirs = "zero_optimization.mics_shard_size", .ours = "@mics"},
    {.theirs = "zero_optimization.*"},
    {.theirs = "train_micro_batch_size_per_gpu", .ours = "@micro_batch"},
    {.theirs = "gradient_accumulation_steps", .ours = "@accumulation"},
    {.theirs = "train_batch_size", .ours = "@global_batch"},
    {.theirs = "bf16.enabled", .ours = "@bf16", .values = yes_no},
    {.theirs = "fp16.enabled", .ours = "@fp16", .values = yes_no},
    {.theirs = "fp16.*"},
    {.theirs = "bf16.*"},
    {.theirs = "communication_data_type", .why = "gradients travel in their own format"},
    {.theirs = "tensor_parallel.autotp_size", .ours = "parallel.tensor"},
    {.theirs = "optimizer.*"},
    {.theirs = "scheduler.*"},
    {.theirs = "comms_logger.*"},
    {.theirs = "flops_profiler.*"},
    {.theirs = "compile.*"},
    {.theirs = "activation_checkpointing.*",
     .why = "how it recomputes; whether it does the model's code says: --remat full"},
    {.theirs = "moe.*", .why = "DeepSpeed's own MoE layers are not modelled", .more = true},
    {.theirs = NULL}};

static const spw_framework_row finetune_rows[] = {
    {.theirs = "base_model", .ours = "@model_name"},
    {.theirs = "model_name_or_path", .ours = "@model_name", .alias = true},
    {.theirs = "sequence_len", .ours = "batch.sequence_length"},
    {.theirs = "max_length", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "max_seq_length", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "cutoff_len", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "micro_batch_size", .ours = "@micro_batch"},
    {.theirs = "per_device_train_batch_size", .ours = "@micro_batch", .alias = true},
    {.theirs = "gradient_accumulation_steps", .ours = "@accumulation"},
    {.theirs = "bf16", .ours = "@bf16", .values = yes_no},
    {.theirs = "fp16", .ours = "@fp16", .values = yes_no},
    {.theirs = "torch_dtype", .ours = "@dtype"},
    {.theirs = "dtype", .ours = "@dtype", .alias = true},
    {.theirs = "load_in_4bit", .why = LOW_BITS, .less = true},
    {.theirs = "load_in_8bit", .why = LOW_BITS, .less = true},
    {.theirs = "quantization_bit", .why = LOW_BITS, .less = true},
    {.theirs = "bnb_4bit_*"},
    {.theirs = "use_bnb_nested_quant"},
    {.theirs = "gradient_checkpointing", .ours = "@checkpoint", .values = yes_no},
    {.theirs = "gradient_checkpointing_kwargs*"},
    {.theirs = "activation_offloading",
     .why = "activations in the host's memory are not modelled under these schemes"},
    {.theirs = "adapter", .ours = "@adapter"},
    {.theirs = "finetuning_type", .ours = "@adapter", .alias = true},
    {.theirs = "use_peft", .ours = "@peft", .values = yes_no},
    {.theirs = "lora_r", .ours = "@rank"},
    {.theirs = "lora_rank", .ours = "@rank", .alias = true},
    {.theirs = "lora_target_linear", .ours = "@all_linear", .values = yes_no},
    {.theirs = "lora_target_modules", .ours = "@targets"},
    {.theirs = "lora_target", .ours = "@targets", .alias = true},
    {.theirs = "lora_target_parameters", .ours = "@expert_targets"},
    {.theirs = "lora_*_kernel"},
    {.theirs = "lora_alpha"},
    {.theirs = "lora_dropout"},
    {.theirs = "lora_model_dir"},
    {.theirs = "peft_*"},
    {.theirs = "deepspeed", .ours = "@deepspeed"},
    {.theirs = "fsdp", .ours = "@fsdp"},
    {.theirs = "fsdp_version", .ours = "@fsdp", .alias = true},
    {.theirs = "fsdp_config.fsdp_version", .ours = "@fsdp", .alias = true},
    {.theirs = "fsdp_config.reshard_after_forward", .ours = "@reshard", .values = yes_no},
    {.theirs = "fsdp_config.fsdp_reshard_after_forward", .ours = "@reshard", .values = yes_no, .alias = true},
    {.theirs = "fsdp_config.offload_params", .ours = "@on_host", .values = yes_no},
    {.theirs = "fsdp_config.fsdp_offload_params", .ours = "@on_host", .values = yes_no, .alias = true},
    {.theirs = "fsdp_config.fsdp_sharding_strategy", .ours = "@strategy"},
    {.theirs = "fsdp_config.sharding_strategy", .ours = "@strategy", .alias = true},
    {.theirs = "fsdp_config.*"},
    {.theirs = "fsdp_*"},
    {.theirs = "dp_shard_size", .ours = "@shard"},
    {.theirs = "dp_replicate_size", .ours = "fsdp2.replicas"},
    {.theirs = "expert_parallel_size", .ours = "parallel.expert"},
    {.theirs = "tensor_parallel_size", .ours = "parallel.tensor"},
    {.theirs = "context_parallel_size", .ours = "parallel.context"},
    {.theirs = "num_processes", .ours = "@gpus"},
    {.theirs = "num_machines"},
    {.theirs = "optimizer", .ours = "@optimizer"},
    {.theirs = "optim", .ours = "@optimizer", .alias = true},
    {.theirs = "use_scattermoe", .ours = "@scattermoe", .values = yes_no},
    {.theirs = "use_sonicmoe", .ours = "@sonicmoe", .values = yes_no},
    {.theirs = "experts_implementation", .why = "which kernel computes experts is not told apart"},
    {.theirs = "plugins"},
    {.theirs = "liger_fused_linear_cross_entropy", .ours = "@fused_loss", .values = yes_no},
    {.theirs = "use_liger_kernel", .ours = "@fused_loss", .values = yes_no, .alias = true},
    {.theirs = "enable_liger_kernel", .ours = "@fused_loss", .values = yes_no, .alias = true},
    {.theirs = "cut_cross_entropy", .ours = "@fused_loss", .values = yes_no, .alias = true},
    {.theirs = "liger_*"},
    {.theirs = "use_kernels"},
    {.theirs = "flash_attention"},
    {.theirs = "attn_implementation", .ours = "@attention"},
    {.theirs = "eager_attention", .ours = "@eager", .values = yes_no},
    {.theirs = "flash_attn"},
    {.theirs = "strict"},
    {.theirs = "model_type"},
    {.theirs = "model_config.*"},
    {.theirs = "sdp_attention"},
    {.theirs = "xformers_attention"},
    {.theirs = "unfrozen_parameters", .why = "parts of the model are frozen"},
    {.theirs = "is_*_derived_model"},
    {.theirs = "shuffle_merged_datasets"},
    {.theirs = "template"},
    {.theirs = "stage"},
    {.theirs = "do_train"},
    {.theirs = "preprocessing_num_workers"},
    {.theirs = "overwrite_*"},
    {.theirs = "plot_loss"},
    {.theirs = "max_samples"},
    {.theirs = "ddp_timeout"},
    {.theirs = "torch_compile", .why = "times and memory are of eager PyTorch"},
    {.theirs = "quantize_moe_experts", .why = LOW_BITS, .less = true},
    {.theirs = "model_quantization_config*"},
    {.theirs = "experimental_skip_move_to_device"},
    {.theirs = "pad_to_*"},
    {.theirs = NULL}};

static const char *const deepspeed_marks[] = {"zero_optimization.stage",
                                              "train_micro_batch_size_per_gpu",
                                              "train_batch_size",
                                              "bf16.enabled",
                                              "fp16.enabled",
                                              "zero_optimization.offload_optimizer.device",
                                              NULL};
static const char *const finetune_marks[] = {"base_model",
                                             "model_name_or_path",
                                             "per_device_train_batch_size",
                                             "sequence_len",
                                             "adapter",
                                             "lora_r",
                                             "cutoff_len",
                                             "finetuning_type",
                                             "fsdp_config.fsdp_version",
                                             "datasets.0.path",
                                             "gradient_checkpointing",
                                             "max_length",
                                             NULL};

static const spw_framework_default defaults[] = {{"batch.sequence_length", "4096"},
                                                 {"batch.sequences_per_gpu", "1"},
                                                 {"parallel.expert", "1"},
                                                 {NULL, NULL}};
/* sft_config.py: max_length 1024; transformers: a batch of 8 a device. Axolotl has no defaults of these. */
static const spw_framework_default tuning_defaults[] = {{"batch.sequence_length", "1024"},
                                                        {"batch.sequences_per_gpu", "8"},
                                                        {"parallel.expert", "1"},
                                                        {NULL, NULL}};

static bool is_auto(spw_draft *d, const char *fact) { return spw_draft_is(d, fact, "auto"); }

static spw_status compose_batch(spw_draft *d) {
    size_t accumulation = 1, global = 0;
    spw_status status = SPW_OK;
    if (!is_auto(d, "@micro_batch")) SPW_TRY(spw_draft_count(d, "@micro_batch", 1, 0, &d->micro_batch));
    if (!is_auto(d, "@accumulation")) SPW_TRY(spw_draft_count(d, "@accumulation", 1, 1, &accumulation));
    if (!is_auto(d, "@global_batch")) SPW_TRY(spw_draft_count(d, "@global_batch", 1, 0, &global));
    if (global > 0) SPW_TRY(spw_draft_put_count(d, "batch.global_batch", global, "@global_batch"));
    if (global == 0 && d->micro_batch > 0)
        SPW_TRY(
            spw_draft_put_count(d, "batch.sequences_per_gpu", d->micro_batch * accumulation, "@micro_batch"));
    if (d->micro_batch == 0 && accumulation > 1)
        SPW_TRY(spw_draft_put_count(d, "batch.micro_batches", accumulation, "@accumulation"));

cleanup:
    return status;
}

/* What scheme transformers has tensor by tensor: no DeepSpeed, no expert parallelism, no kernels that take the experts' place, and
 * adapters beside attention alone. */
static bool is_plain_transformers(spw_draft *d) {
    const char *expert = spw_draft_key_value(d, "parallel.expert"),
               *targets = spw_draft_key_value(d, "finetune.lora_targets");
    return spw_draft_fact(d, "@deepspeed") == NULL && !spw_draft_on(d, "@scattermoe") &&
           !spw_draft_on(d, "@sonicmoe") && (expert == NULL || strcmp(expert, "1") == 0) &&
           (targets == NULL || strcmp(targets, "attention") == 0);
}

static spw_status put_sharded(spw_draft *d, const char *fact, bool keeps, bool on_host) {
    if (spw_draft_key_value(d, "finetune.lora_rank") != NULL && !is_plain_transformers(d)) {
        const spw_status noted = spw_draft_note_fact(
            d, SPW_NOTE_LACKS, fact,
            "adapters beside sharded weights are not modelled; weights are planned whole, which needs more");
        return noted == SPW_OK ? spw_draft_put(d, "optimizer", "distributed", fact) : noted;
    }
    spw_status status = spw_draft_put(d, "optimizer", "sharded", fact);
    if (status == SPW_OK)
        status = spw_draft_put(d, "fsdp2.reshard_after_forward", keeps ? "never" : "always", fact);
    if (status == SPW_OK && on_host) status = spw_draft_put(d, "fsdp2.state", "host", fact);
    return status;
}

/* ZeRO: 1 shares out the optimizer's state, 2 gradients as well, 3 weights too. */
static spw_status compose_zero(spw_draft *d, size_t stage, const char *fact) {
    const bool host = spw_draft_is(d, "@optimizer_device", "cpu"),
               weights = spw_draft_is(d, "@parameter_device", "cpu");
    const char *ratio = spw_draft_fact(d, "@optimizer_ratio");
    spw_status status = SPW_OK;
    if (stage == 3) SPW_TRY(put_sharded(d, fact, false, host && weights));
    if (stage < 3) SPW_TRY(spw_draft_put(d, "optimizer", stage == 0 ? "replicated" : "distributed", fact));
    if (stage == 2)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, fact,
                                    "gradients are planned whole, as under stage 1; sharded they need less"));
    if (stage == 3 && spw_draft_fact(d, "@mics") != NULL && !spw_draft_is(d, "@mics", "-1"))
        SPW_TRY(spw_draft_note_more(d, "@mics", "fsdp2.replicas",
                                    "the state is shared by so many GPUs alone, and planned as by all: say "
                                    "--set fsdp2.replicas=GPUs over it"));
    if (stage == 3 && spw_draft_fact(d, "@secondary") != NULL && !spw_draft_is(d, "@secondary", "1"))
        SPW_TRY(spw_draft_note_more(d, "@secondary", NULL,
                                    "a second copy of the weights, shared by so many GPUs, is not counted"));
    if (host && stage > 0 && stage < 3)
        SPW_TRY(spw_draft_put(d, "optimizer_on_host", ratio != NULL ? ratio : "1", "@optimizer_device"));
    if (stage == 3 && host != weights)
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, host ? "@optimizer_device" : "@parameter_device",
            "a part of the state on the host is not modelled under stage 3; all is planned on the GPU"));

cleanup:
    return status;
}

static spw_status compose_formats(spw_draft *d) {
    const char *dtype = spw_draft_fact(d, "@dtype");
    const bool fp16 = spw_draft_on(d, "@fp16") && !spw_draft_on(d, "@bf16");
    spw_status status = SPW_OK;
    (void)spw_draft_fact(d, "@bf16");
    if (fp16) SPW_TRY(spw_draft_put(d, "precision.activations", "fp16", "@fp16"));
    if (dtype != NULL && strcmp(dtype, "bfloat16") == 0)
        SPW_TRY(spw_draft_put(d, "precision.weights", "bf16", "@dtype"));
    if (dtype != NULL && strcmp(dtype, "float32") == 0)
        SPW_TRY(spw_draft_put(d, "precision.weights", "fp32", "@dtype"));

cleanup:
    return status;
}

/* A fused loss never holds all logits; transformers' own does, in fp32. */
static spw_status compose_loss(spw_draft *d, bool own) {
    if (spw_draft_on(d, "@fused_loss")) return spw_draft_put(d, "cross_entropy", "fused", "@fused_loss");
    spw_status status = spw_draft_put(d, "cross_entropy", own ? "unfused" : "chunked", NULL);
    if (own && status == SPW_OK)
        return spw_draft_note_text(d, SPW_NOTE_ASSUMED, "cross_entropy: unfused",
                                   "transformers' own loss, which holds the logits of all tokens in fp32");
    const size_t before = d->notes;
    if (status == SPW_OK)
        status =
            spw_draft_note_text(d, SPW_NOTE_MORE, "cross_entropy: chunked",
                                "the loss is planned for an eighth of the tokens at a time, as torchtitan's; "
                                "transformers' own holds the logits of all of them in fp32, and "
                                "use_liger_kernel: true none (--set cross_entropy=fused)");
    if (status == SPW_OK) d->note[before].key = "cross_entropy";
    return status;
}

static spw_status finish(spw_draft *d, bool tuned, bool plain) {
    const char *scheme = plain                            ? "transformers"
                         : spw_draft_on(d, "@scattermoe") ? "scattermoe"
                         : spw_draft_on(d, "@sonicmoe")   ? "sonicmoe"
                         : tuned                          ? "megatron-alltoall"
                                                          : "torchtitan";
    char what[64];
    spw_status status = SPW_OK;
    (void)snprintf(what, sizeof what, "schemes: [%s]", scheme);
    SPW_TRY(spw_draft_put(d, "schemes", scheme, NULL));
    SPW_TRY(spw_draft_note_text(
        d, SPW_NOTE_ASSUMED, what,
        plain ? "experts by grouped products, transformers' default; each GPU has all of them"
              : "the nearest that is modelled; the file does not say how experts are computed"));
    SPW_TRY(compose_loss(d, tuned || plain));
    if (spw_draft_is(d, "@attention", "eager") || spw_draft_on(d, "@eager"))
        SPW_TRY(spw_draft_note_more(d, spw_draft_on(d, "@eager") ? "@eager" : "@attention", "attention",
                                    "eager attention holds the scores; planned as flash attention"));
    SPW_TRY(spw_compose_model(d));

cleanup:
    return status;
}

/* DeepSpeed recomputes what the model's code tells it to, and transformers nothing unless asked. */
static spw_status assume_remat(spw_draft *d) {
    const spw_status status = spw_draft_put(d, "remat", "none", NULL);
    return status == SPW_OK
               ? spw_draft_note_text(d, SPW_NOTE_ASSUMED, "remat: none",
                                     "the file has no gradient_checkpointing; with it: --remat full")
               : status;
}

spw_status spw_compose_deepspeed(spw_draft *d) {
    size_t stage = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@stage", 0, 0, &stage));
    if (stage > 3)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: zero_optimization.stage %zu; there are 0 to 3", d->where, stage));
    SPW_TRY(compose_batch(d));
    SPW_TRY(compose_zero(d, stage, "@stage"));
    SPW_TRY(compose_formats(d));
    SPW_TRY(assume_remat(d));
    SPW_TRY(finish(d, false, false));

cleanup:
    return status;
}

/* Adapters beside attention, experts, or both. */
static spw_status compose_adapter(spw_draft *d, bool *tuned) {
    const char *adapter = spw_draft_fact(d, "@adapter"), *targets = spw_draft_fact(d, "@targets"),
               *experts = spw_draft_fact(d, "@expert_targets");
    const bool lora = spw_draft_on(d, "@peft") || (adapter != NULL && strstr(adapter, "lora") != NULL),
               all = spw_draft_on(d, "@all_linear") || (targets != NULL && strncmp(targets, "all", 3) == 0);
    const bool on_experts = all || experts != NULL ||
                            (targets != NULL && (strstr(targets, "up_proj") || strstr(targets, "w1") ||
                                                 strstr(targets, "experts")));
    size_t rank = 0;
    spw_status status = spw_draft_count(d, "@rank", 1, 16, &rank);
    *tuned = lora;
    if (status != SPW_OK || !lora) return status;
    SPW_TRY(spw_draft_put(d, "finetune.frozen", "base", "@adapter"));
    SPW_TRY(spw_draft_put_count(d, "finetune.lora_rank", rank, "@rank"));
    SPW_TRY(spw_draft_put(d, "finetune.lora_targets", on_experts ? "both" : "attention", "@targets"));
    if (adapter != NULL && strcmp(adapter, "qlora") == 0)
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@adapter", LOW_BITS));

cleanup:
    return status;
}

/* PyTorch's strategies by name, in whatever case and among other words, or by number. */
static bool says(const char *strategy, const char *name, const char *number) {
    return strcasestr(strategy, name) != NULL || (strlen(strategy) == 1 && strcmp(strategy, number) == 0 &&
                                                  number[0] != '2'); /* 2 is FSDP's version too */
}

/* A file of DeepSpeed that is named is not opened; its usual name says the stage. */
static spw_status compose_sharing(spw_draft *d) {
    const char *deepspeed = spw_draft_fact(d, "@deepspeed"), *fsdp = spw_draft_fact(d, "@fsdp"),
               *shard = spw_draft_fact(d, "@shard"), *strategy = spw_draft_fact(d, "@strategy");
    const char *zero = deepspeed != NULL ? strstr(deepspeed, "zero") : NULL;
    const size_t stage = zero != NULL && zero[4] >= '0' && zero[4] <= '3' ? (size_t)(zero[4] - '0') : 3;
    if (strategy == NULL) strategy = fsdp != NULL ? fsdp : "";
    const bool keeps = spw_draft_is(d, "@reshard", "false") || says(strategy, "shard_grad_op", "2") ||
                       says(strategy, "_zero2", "5"),
               whole = says(strategy, "no_shard", "3"), on_host = spw_draft_on(d, "@on_host");
    spw_status status = SPW_OK;
    if (deepspeed != NULL) {
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@deepspeed",
            "that file is not opened: its stage is taken from its name; spillway job FILE.json says more"));
        SPW_TRY(compose_zero(d, stage, "@deepspeed"));
        if (stage == 3 && (zero == NULL || zero[4] != '3'))
            SPW_TRY(spw_draft_note_more(d, "@deepspeed", "optimizer",
                                        "its name says no stage; planned as stage 3, which needs least"));
    } else if (whole) {
        SPW_TRY(spw_draft_put(d, "optimizer", "replicated", "@fsdp"));
    } else if (fsdp != NULL || shard != NULL) {
        SPW_TRY(put_sharded(d, fsdp != NULL ? "@fsdp" : "@shard", keeps, on_host));
        if (says(strategy, "hybrid_shard", "4") || says(strategy, "_zero2", "5"))
            SPW_TRY(spw_draft_note_more(
                d, spw_draft_fact(d, "@strategy") != NULL ? "@strategy" : "@fsdp", "fsdp2.replicas",
                "every node holds all state; planned as shared by all GPUs: say --set "
                "fsdp2.replicas=NODES"));
    } else {
        SPW_TRY(spw_draft_put(d, "optimizer", "replicated", NULL));
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "optimizer: replicated",
                                    "the file names neither FSDP nor DeepSpeed"));
    }

cleanup:
    return status;
}

spw_status spw_compose_finetune(spw_draft *d) {
    const char *optimizer = spw_draft_fact(d, "@optimizer");
    bool tuned = false;
    spw_status status = SPW_OK;
    SPW_TRY(spw_compose_gpus(d));
    SPW_TRY(compose_batch(d));
    SPW_TRY(compose_adapter(d, &tuned));
    SPW_TRY(compose_sharing(d));
    SPW_TRY(compose_formats(d));
    if (spw_draft_on(d, "@checkpoint"))
        SPW_TRY(spw_draft_put(d, "remat", "full", "@checkpoint"));
    else if (spw_draft_fact(d, "@checkpoint") != NULL)
        SPW_TRY(spw_draft_put(d, "remat", "none", "@checkpoint"));
    else
        SPW_TRY(assume_remat(d));
    if (optimizer != NULL && strstr(optimizer, "8bit") != NULL) {
        const size_t before = d->notes;
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@optimizer",
            "moments of 8 bits are not modelled; they are planned in the optimizer's format"));
        if (d->notes > before) d->note[before].less = true;
    }
    SPW_TRY(finish(d, tuned, is_plain_transformers(d)));

cleanup:
    return status;
}

const spw_framework spw_framework_deepspeed = {.name = "deepspeed",
                                               .title = "DeepSpeed",
                                               .source = "deepspeedai/DeepSpeed deepspeed/runtime/config.py",
                                               .rows = {deepspeed_rows},
                                               .marks = deepspeed_marks,
                                               .defaults = defaults,
                                               .compose = spw_compose_deepspeed};
const spw_framework spw_framework_finetune = {
    .name = "finetune",
    .title = "Axolotl or TRL",
    .source = "axolotl-ai-cloud/axolotl 067b021c src/axolotl/utils/schemas; huggingface/trl f2cd5771",
    .rows = {finetune_rows},
    .marks = finetune_marks,
    .defaults = tuning_defaults,
    .compose = spw_compose_finetune};
