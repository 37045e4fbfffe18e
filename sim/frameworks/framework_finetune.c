/* DeepSpeed's JSON (deepspeedai/DeepSpeed deepspeed/runtime/config.py), and the YAML of Axolotl, TRL and LLaMA-Factory
 * (axolotl-ai-cloud/axolotl 067b021c src/axolotl/utils/schemas, huggingface/trl f2cd5771 trl/trainer/sft_config.py). */
#include "sim/frameworks/rules.h"
#include "sim/frameworks/tuning.h"

#include <string.h>

static const spw_word_pair yes_no[] = {
    {"true", "true"}, {"false", "false"}, {"auto", "true"}, {"full", "true"}, {NULL, NULL}};

static const spw_word_pair bf16_words[] = {{"true", "true"},
                                           {"false", "false"},
                                           {"auto", "true"},
                                           {"full", "full"},
                                           {NULL, NULL}},
                           mixed_words[] = {{"no", "no"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {NULL, NULL}},
                           checkpoints[] = {{"true", "true"},       {"false", "false"},
                                            {"offload", "offload"}, {"offload_disk", "offload"},
                                            {"unsloth", "offload"}, {NULL, NULL}},
                           turned[] = {{"true", "false"}, {"false", "true"}, {NULL, NULL}};

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
    {.theirs = "model", .ours = "@model_name", .alias = true},
    {.theirs = "sequence_len", .ours = "batch.sequence_length"},
    {.theirs = "max_length", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "max_seq_length", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "cutoff_len", .ours = "batch.sequence_length", .alias = true},
    {.theirs = "micro_batch_size", .ours = "@micro_batch"},
    {.theirs = "per_device_train_batch_size", .ours = "@micro_batch", .alias = true},
    {.theirs = "gradient_accumulation_steps", .ours = "@accumulation"},
    {.theirs = "bf16", .ours = "@bf16", .values = bf16_words},
    {.theirs = "bfloat16", .ours = "@bf16", .values = bf16_words, .alias = true},
    {.theirs = "fp16", .ours = "@fp16", .values = yes_no},
    {.theirs = "pure_bf16", .ours = "@pure", .values = yes_no},
    {.theirs = "mixed_precision",
     .ours = "@mixed",
     .values = mixed_words,
     .why = "of mixed precision bf16 and fp16 are modelled; fp8 is planned in bf16"},
    {.theirs = "distributed_type"},
    {.theirs = "compute_environment"},
    {.theirs = "loss_type", .ours = "@loss_type"},
    {.theirs = "disable_gradient_checkpointing", .ours = "@checkpoint", .values = turned, .alias = true},
    {.theirs = "torch_dtype", .ours = "@dtype"},
    {.theirs = "dtype", .ours = "@dtype", .alias = true},
    {.theirs = "load_in_4bit", .why = SPW_TUNING_LOW_BITS, .less = true},
    {.theirs = "load_in_8bit", .why = SPW_TUNING_LOW_BITS, .less = true},
    {.theirs = "quantization_bit", .why = SPW_TUNING_LOW_BITS, .less = true},
    {.theirs = "bnb_4bit_*"},
    {.theirs = "use_bnb_nested_quant"},
    {.theirs = "gradient_checkpointing", .ours = "@checkpoint", .values = checkpoints},
    {.theirs = "gradient_checkpointing_kwargs*"},
    {.theirs = "activation_offloading",
     .why = "activations in the host's memory are not modelled under these schemes"},
    {.theirs = "adapter", .ours = "@adapter"},
    {.theirs = "finetuning_type", .ours = "@adapter", .alias = true},
    {.theirs = "tuner_type", .ours = "@adapter", .alias = true},
    {.theirs = "train_type", .ours = "@adapter", .alias = true},
    {.theirs = "use_peft", .ours = "@peft", .values = yes_no},
    {.theirs = "lora_r", .ours = "@rank"},
    {.theirs = "lora_rank", .ours = "@rank", .alias = true},
    {.theirs = "lora_target_linear", .ours = "@all_linear", .values = yes_no},
    {.theirs = "lora_target_modules", .ours = "@targets"},
    {.theirs = "lora_target", .ours = "@targets", .alias = true},
    {.theirs = "target_modules", .ours = "@targets", .alias = true},
    {.theirs = "lora_target_parameters", .ours = "@expert_targets"},
    {.theirs = "lora_*_kernel"},
    {.theirs = "lora_alpha"},
    {.theirs = "lora_dropout"},
    {.theirs = "lora_model_dir"},
    {.theirs = "lora_modules_to_save",
     .why = "modules that are trained whole beside the adapters are not counted",
     .more = true},
    {.theirs = "peft_use_dora",
     .why = "DoRA's magnitudes and norms of weights are not counted",
     .more = true},
    {.theirs = "use_dora", .why = "DoRA's magnitudes and norms of weights are not counted", .more = true},
    {.theirs = "peft_*"},
    {.theirs = "deepspeed", .ours = "@deepspeed"},
    {.theirs = "fsdp", .ours = "@fsdp"},
    {.theirs = "fsdp_version", .ours = "@fsdp_version"},
    {.theirs = "fsdp_config.fsdp_version", .ours = "@fsdp_version", .alias = true},
    {.theirs = "fsdp_config.version", .ours = "@fsdp_version", .alias = true},
    {.theirs = "fsdp_config.reshard_after_forward", .ours = "@reshard", .values = yes_no},
    {.theirs = "fsdp_config.fsdp_reshard_after_forward", .ours = "@reshard", .values = yes_no, .alias = true},
    {.theirs = "fsdp_config.offload_params", .ours = "@on_host", .values = yes_no},
    {.theirs = "fsdp_config.fsdp_offload_params", .ours = "@on_host", .values = yes_no, .alias = true},
    {.theirs = "fsdp_config.fsdp_sharding_strategy", .ours = "@strategy"},
    {.theirs = "fsdp_config.sharding_strategy", .ours = "@strategy", .alias = true},
    {.theirs = "fsdp_config.activation_checkpointing", .ours = "@fsdp_checkpoint", .values = yes_no},
    {.theirs = "fsdp_config.fsdp_activation_checkpointing",
     .ours = "@fsdp_checkpoint",
     .values = yes_no,
     .alias = true},
    {.theirs = "fsdp_activation_checkpointing", .ours = "@fsdp_checkpoint", .values = yes_no, .alias = true},
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
    {.theirs = "experts_impl", .why = "which kernel computes experts is not told apart"},
    {.theirs = "experts_implementation", .why = "which kernel computes experts is not told apart"},
    {.theirs = "plugins"},
    {.theirs = "liger_fused_linear_cross_entropy", .ours = "@fused_loss", .values = yes_no},
    {.theirs = "use_liger_kernel", .ours = "@liger", .values = yes_no},
    {.theirs = "enable_liger_kernel", .ours = "@liger", .values = yes_no, .alias = true},
    {.theirs = "cut_cross_entropy", .ours = "@cut_loss", .values = yes_no},
    {.theirs = "liger_rms_norm", .ours = "@liger_norm", .values = yes_no},
    {.theirs = "liger_rope", .ours = "@liger_rope", .values = yes_no},
    {.theirs = "liger_glu_activation", .ours = "@liger_glu", .values = yes_no},
    {.theirs = "liger_swiglu", .ours = "@liger_glu", .values = yes_no, .alias = true},
    {.theirs = "liger_cross_entropy",
     .why =
         "Liger's loss writes its gradient over the logits; transformers' own is planned, which needs more",
     .less = true},
    {.theirs = "liger_*",
     .why = "a kernel of Liger's that is not modelled; transformers' own is planned",
     .less = true},
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
    {.theirs = "quantize_moe_experts", .why = SPW_TUNING_LOW_BITS, .less = true},
    {.theirs = "model_quantization_config*"},
    {.theirs = "experimental_skip_move_to_device"},
    {.theirs = "pad_to_*"},
    {.theirs = "use_vllm", .ours = "@serves", .values = yes_no},
    {.theirs = "vllm_mode", .ours = "@serving_mode"},
    {.theirs = "vllm_gpu_memory_utilization", .ours = "@serving_share"},
    {.theirs = "vllm_enable_sleep_mode", .ours = "@serving_sleeps", .values = yes_no},
    {.theirs = "vllm_*"},
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
                                             "tuner_type",
                                             "train_type",
                                             "split_dataset_ratio",
                                             "load_from_cache_file",
                                             NULL};

static const spw_framework_default defaults[] = {{"batch.sequence_length", "4096"},
                                                 {"batch.sequences_per_gpu", "1"},
                                                 {"parallel.expert", "1"},
                                                 {NULL, NULL}};

static bool is_auto(spw_draft *d, const char *fact) { return spw_draft_is(d, fact, "auto"); }

/* Behind the model: transformers keeps to eager attention for gpt-oss unless it is told of a kernel. */
static spw_status note_scores(spw_draft *d, bool plain) {
    const char *model = spw_draft_key_value(d, "model"),
               *fact = spw_draft_on(d, "@eager") ? "@eager" : "@attention";
    if (!spw_draft_on(d, "@eager") && !spw_draft_is(d, "@attention", "eager")) return SPW_OK;
    return spw_draft_note_more(d, fact, "attention",
                               plain && model != NULL && strncmp(model, "gpt-oss", strlen("gpt-oss")) == 0
                                   ? "eager attention holds the scores; planned as flash attention (--set "
                                     "attention=unfused)"
                                   : "eager attention holds the scores; planned as flash attention");
}

static spw_status finish(spw_draft *d, const spw_tuner *tuner, bool tuned, bool plain) {
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
    SPW_TRY(spw_compose_tuning_loss(d, tuner, tuned || plain));
    SPW_TRY(spw_compose_model(d));
    SPW_TRY(note_scores(d, plain));

cleanup:
    return status;
}

/* DeepSpeed recomputes what the model's code tells it to, and transformers nothing unless asked; TRL and LLaMA-Factory ask. */
static spw_status assume_remat(spw_draft *d, const spw_tuner *tuner) {
    const bool full = tuner != NULL && tuner->checkpoints;
    char why[SPW_NOTE_WHY];
    (void)snprintf(why, sizeof why,
                   "%s's own, as the file has no gradient_checkpointing; without it: --remat none",
                   tuner != NULL ? tuner->name : "");
    const spw_status status = spw_draft_put(d, "remat", full ? "full" : "none", NULL);
    return status != SPW_OK ? status
           : full           ? spw_draft_note_text(d, SPW_NOTE_ASSUMED, "remat: full", why)
                            : spw_draft_note_text(d, SPW_NOTE_ASSUMED, "remat: none",
                                                  "the file has no gradient_checkpointing; with it: --remat full");
}

spw_status spw_compose_deepspeed(spw_draft *d) {
    size_t stage = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@stage", 0, 0, &stage));
    if (stage > 3)
        SPW_TRY(spw_fail(SPW_ECONFIG, "%s: zero_optimization.stage %zu; there are 0 to 3", d->where, stage));
    SPW_TRY(spw_tuning_compose_batch(d));
    SPW_TRY(spw_tuning_compose_zero(d, stage, "@stage"));
    SPW_TRY(spw_compose_tuning_formats(d, NULL));
    SPW_TRY(assume_remat(d, NULL));
    SPW_TRY(finish(d, NULL, false, false));

cleanup:
    return status;
}

/* PyTorch's strategies by name, in whatever case and among other words, or by number. */
static bool says(const char *strategy, const char *name, const char *number) {
    return strcasestr(strategy, name) != NULL || (strlen(strategy) == 1 && strcmp(strategy, number) == 0 &&
                                                  number[0] != '2'); /* 2 is FSDP's version too */
}

/* Who says that there is FSDP: a fact; NULL: nobody. */
static const char *fsdp_fact(spw_draft *d) {
    return spw_draft_fact(d, "@fsdp_version") != NULL ? "@fsdp_version"
           : spw_draft_fact(d, "@fsdp") != NULL       ? "@fsdp"
                                                      : NULL;
}

/* FSDP1 (torch 2.11 torch/distributed/fsdp/_flat_param.py, _unshard_param_utils.py): a layer's parameters are one flat one, which is
 * gathered into one buffer that they are views of, where FSDP2 has a buffer and copies; its blocks wait for other streams to be done.
 * accelerate takes it where no version is said (utils/constants.py, FSDP_VERSION). */
static spw_status note_version(spw_draft *d, const char *fact) {
    if (spw_draft_is(d, "@fsdp_version", "1"))
        return spw_draft_note_more(
            d, fact, NULL,
            "FSDP1 is planned as FSDP2: its flat parameters are gathered without a second copy, which needs "
            "less, but its blocks are freed later, which may need more; fsdp_version: 2 is what is counted");
    if (spw_draft_fact(d, "@fsdp_version") != NULL) return SPW_OK;
    return spw_draft_note_text(d, SPW_NOTE_ASSUMED, "fsdp_version: 2",
                               "planned so; accelerate takes FSDP1 where no version is said, which is not "
                               "modelled");
}

/* vLLM in the processes that train (huggingface/trl trl/trainer/grpo_config.py): it keeps its share of the GPU through a step unless
 * it sleeps. */
static spw_status compose_serving(spw_draft *d) {
    const char *mode = spw_draft_fact(d, "@serving_mode"), *share = spw_draft_fact(d, "@serving_share");
    const bool sleeps = spw_draft_on(d, "@serving_sleeps");
    spw_status status = SPW_OK;
    if (!spw_draft_on(d, "@serves") || (mode != NULL && strcmp(mode, "server") == 0)) return SPW_OK;
    if (sleeps)
        return spw_draft_note_more(d, "@serving_sleeps", "resident.gib",
                                   "vLLM sleeps through the step; its context and graphs stay and are not "
                                   "counted: say --set resident.gib=N, which its log has");
    SPW_TRY(spw_draft_put(d, "resident.share", share != NULL ? share : "0.3",
                          share != NULL ? "@serving_share" : "@serves"));
    SPW_TRY(spw_draft_put(d, "resident.name", "vLLM", "@serves"));
    if (mode == NULL)
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "vllm_mode: colocate",
                                    "vLLM on the GPUs that train; elsewhere: --set resident.share=0"));
    if (share == NULL)
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "resident.share: 0.3",
                                    "TRL's own vllm_gpu_memory_utilization, as the file does not say"));

cleanup:
    return status;
}

/* A file of DeepSpeed that is named is not opened; its usual name says the stage. */
static spw_status compose_sharing(spw_draft *d) {
    const char *deepspeed = spw_draft_fact(d, "@deepspeed"), *fsdp = fsdp_fact(d),
               *shard = spw_draft_fact(d, "@shard"), *strategy = spw_draft_fact(d, "@strategy");
    const char *zero = deepspeed != NULL ? strstr(deepspeed, "zero") : NULL;
    const size_t stage = zero != NULL && zero[4] >= '0' && zero[4] <= '3' ? (size_t)(zero[4] - '0') : 3;
    if (strategy == NULL && spw_draft_fact(d, "@fsdp") != NULL) strategy = spw_draft_fact(d, "@fsdp");
    if (strategy == NULL) strategy = "";
    const bool keeps = spw_draft_is(d, "@reshard", "false") || says(strategy, "shard_grad_op", "2") ||
                       says(strategy, "_zero2", "5"),
               whole = says(strategy, "no_shard", "3"), on_host = spw_draft_on(d, "@on_host");
    spw_status status = SPW_OK;
    if (deepspeed != NULL) {
        SPW_TRY(spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@deepspeed",
            "that file is not opened: its stage is taken from its name; spillway job FILE.json says more"));
        SPW_TRY(spw_tuning_compose_zero(d, stage, "@deepspeed"));
        if (stage == 3 && (zero == NULL || zero[4] != '3'))
            SPW_TRY(spw_draft_note_more(d, "@deepspeed", "optimizer",
                                        "its name says no stage; planned as stage 3, which needs least"));
    } else if (whole) {
        SPW_TRY(spw_draft_put(d, "optimizer", "replicated", fsdp));
    } else if (fsdp != NULL || shard != NULL) {
        SPW_TRY(spw_tuning_put_sharded(d, fsdp != NULL ? fsdp : "@shard", keeps, on_host));
        if (fsdp != NULL) SPW_TRY(note_version(d, fsdp));
        if (says(strategy, "hybrid_shard", "4") || says(strategy, "_zero2", "5"))
            SPW_TRY(spw_draft_note_more(
                d, spw_draft_fact(d, "@strategy") != NULL ? "@strategy" : fsdp, "fsdp2.replicas",
                "every node holds all state; planned as shared by all GPUs: say --set "
                "fsdp2.replicas=NODES"));
    } else {
        SPW_TRY(spw_draft_put(d, "optimizer", "replicated", NULL));
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "optimizer: replicated",
                                    "the file names neither FSDP nor DeepSpeed; where accelerate's own file "
                                    "has FSDP: --optimizer sharded"));
    }

cleanup:
    return status;
}

/* What whoever's file it is takes for a sequence and a batch, which is of one micro-batch: a step has as many as are accumulated. */
static spw_status assume_sizes(spw_draft *d, const spw_tuner *tuner) {
    size_t accumulation = 1;
    char sequences[24];
    const struct {
        const char *key, *value;
    } sizes[] = {{"batch.sequence_length", tuner->length}, {"batch.sequences_per_gpu", sequences}};
    char what[SPW_DRAFT_KEY + 16], why[SPW_NOTE_WHY];
    spw_status status =
        is_auto(d, "@accumulation") ? SPW_OK : spw_draft_count(d, "@accumulation", 1, 1, &accumulation);
    (void)snprintf(sequences, sizeof sequences, "%zu", tuner->sequences * accumulation);
    (void)snprintf(why, sizeof why, "%s's own, as the file does not say", tuner->name);
    for (size_t i = 0; i < 2 && status == SPW_OK; i++) {
        if (spw_draft_key_value(d, sizes[i].key) != NULL ||
            (i == 1 && spw_draft_key_value(d, "batch.global_batch") != NULL))
            continue;
        (void)snprintf(what, sizeof what, "%s: %s", sizes[i].key, sizes[i].value);
        status = spw_draft_put(d, sizes[i].key, sizes[i].value, NULL);
        if (status == SPW_OK) status = spw_draft_note_text(d, SPW_NOTE_ASSUMED, what, why);
    }
    return spw_draft_key_value(d, "parallel.expert") == NULL && status == SPW_OK
               ? spw_draft_put(d, "parallel.expert", "1", NULL)
               : status;
}

/* Planned is Adam; others have fewer moments, or smaller ones. */
static spw_status note_optimizer(spw_draft *d, const char *optimizer) {
    if (optimizer == NULL) return SPW_OK;
    const bool small = strstr(optimizer, "8bit") != NULL || strstr(optimizer, "4bit") != NULL ||
                       strstr(optimizer, "fp8") != NULL;
    if (!small && strstr(optimizer, "adam") == optimizer && strstr(optimizer, "mini") == NULL) return SPW_OK;
    return spw_draft_note_less(
        d, "@optimizer",
        small ? "moments of 4 or 8 bits are not modelled; they are planned in the optimizer's format"
              : "of optimizers Adam is modelled; AdamW is planned, with two moments of every trained "
                "parameter");
}

/* FSDP's own checkpointing is of every wrapped layer, as gradient_checkpointing's. */
static spw_status compose_remat(spw_draft *d, const spw_tuner *tuner) {
    const bool fsdp = spw_draft_on(d, "@fsdp_checkpoint"), hosted = spw_draft_is(d, "@checkpoint", "offload"),
               own = spw_draft_on(d, "@checkpoint") || hosted;
    if (hosted) {
        const spw_status status = spw_draft_note_less(
            d, "@checkpoint",
            "inputs of layers go to the host, whose copies are not timed; they are planned on the GPU");
        if (status != SPW_OK) return status;
    }
    if (fsdp || own) return spw_draft_put(d, "remat", "full", fsdp ? "@fsdp_checkpoint" : "@checkpoint");
    if (spw_draft_fact(d, "@checkpoint") != NULL) return spw_draft_put(d, "remat", "none", "@checkpoint");
    return assume_remat(d, tuner);
}

spw_status spw_compose_finetune(spw_draft *d) {
    const char *optimizer = spw_draft_fact(d, "@optimizer");
    const spw_tuner *tuner = spw_tuner_of(d);
    bool tuned = false;
    spw_status status = SPW_OK;
    d->title = tuner->name;
    SPW_TRY(spw_compose_gpus(d));
    SPW_TRY(spw_tuning_compose_batch(d));
    SPW_TRY(spw_compose_adapter(d, tuner, &tuned));
    SPW_TRY(compose_sharing(d));
    SPW_TRY(spw_compose_tuning_formats(d, tuner));
    SPW_TRY(assume_sizes(d, tuner));
    SPW_TRY(compose_remat(d, tuner));
    SPW_TRY(note_optimizer(d, optimizer));
    SPW_TRY(compose_serving(d));
    SPW_TRY(finish(d, tuner, tuned, spw_tuning_is_plain(d)));

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
    .title = "Axolotl, TRL, LLaMA-Factory or Accelerate",
    .source = "axolotl-ai-cloud/axolotl 067b021c src/axolotl/utils/schemas; huggingface/trl f2cd5771; "
              "hiyouga/LLaMA-Factory ff6d4d12; huggingface/accelerate 16cb6eb8; huggingface/peft 0.21.2",
    .rows = {finetune_rows},
    .marks = finetune_marks,
    .compose = spw_compose_finetune};
