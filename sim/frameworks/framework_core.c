/* Frameworks that train through Megatron-Core and call some settings otherwise: ms-swift (modelscope/ms-swift 3602360a
 * swift/megatron/arguments/megatron_args.py), NeMo (NVIDIA/NeMo 8cfedd72 examples/nlp/language_modeling/conf/megatron_gpt_config.yaml,
 * nemo/collections/llm) and verl (volcengine/verl b178a3cd verl/trainer/config). */
#include "sim/frameworks/rules.h"

#include <stdio.h>
#include <string.h>

static const spw_word_pair yes_no[] = {{"true", "true"}, {"false", "false"}, {NULL, NULL}};

#define BESIDE "what else a rank holds for it, such as a second model, is not counted"

/* --- ms-swift --- */

static const spw_framework_row swift_rows[] = {
    {.theirs = "model", .ours = "@model_name"},
    {.theirs = "load", .ours = "@model_name", .alias = true},
    {.theirs = "mcore_model", .ours = "@model_name", .alias = true},
    {.theirs = "max_length", .ours = "batch.sequence_length"},
    {.theirs = "tuner_type", .ours = "@adapter"},
    {.theirs = "train_type", .ours = "@adapter", .alias = true},
    {.theirs = "lora_rank", .ours = "@rank"},
    {.theirs = "target_modules", .ours = "@targets"},
    {.theirs = "target_regex", .ours = "@targets", .alias = true},
    {.theirs = "modules_to_save",
     .why = "modules that are trained whole beside the adapters are not counted",
     .more = true},
    {.theirs = "env.NPROC_PER_NODE", .ours = "@gpus_per_node"},
    {.theirs = "rlhf_type", .why = BESIDE, .more = true},
    {.theirs = "teacher_model", .why = BESIDE, .more = true},
    {.theirs = "vllm_*"},
    {.theirs = "lora_*"},
    {.theirs = "save_safetensors"},
    {.theirs = "load_safetensors"},
    {.theirs = "merge_lora"},
    {.theirs = "split_dataset_ratio"},
    {.theirs = "padding_free"},
    {.theirs = "model_author"},
    {.theirs = "model_name"},
    {.theirs = "model_type"},
    {.theirs = "template*"},
    {.theirs = "system"},
    {.theirs = "loss_scale*"},
    {.theirs = "add_*_prefix"},
    {.theirs = "use_hf"},
    {.theirs = "torch_dtype"},
    {.theirs = "freeze_*"},
    {.theirs = "*_pixels"},
    {.theirs = NULL}};

/* The first of them say that it is Megatron's, and not transformers' trainer. */
enum { SWIFT_NEEDS = 6 };
static const char *const swift_marks[] = {"tensor_model_parallel_size",
                                          "pipeline_model_parallel_size",
                                          "micro_batch_size",
                                          "global_batch_size",
                                          "expert_model_parallel_size",
                                          "moe_token_dispatcher_type",
                                          "save_safetensors",
                                          "load_safetensors",
                                          "split_dataset_ratio",
                                          "load_from_cache_file",
                                          "tuner_type",
                                          "train_type",
                                          "mcore_model",
                                          "mcore_adapter",
                                          "max_length",
                                          NULL};
static const spw_framework_default swift_silent[] = {{"@bf16", "true"},
                                                     {"@distributed", "true"},
                                                     {"@dispatcher", "alltoall"},
                                                     {"@loss_fusion", "true"},
                                                     {"@recompute", "selective"},
                                                     {"@micro_batch", "1"},
                                                     {NULL, NULL}},
                                   swift_defaults[] = {{"parallel.expert", "1"},
                                                       {"parallel.expert_tensor", "1"},
                                                       {"batch.global_batch", "16"},
                                                       {"batch.sequence_length", "4096"},
                                                       {NULL, NULL}};

/* Whether one of the words stands in `said`; where nothing is said, all do. */
static bool says_any(const char *said, const char *const *word) {
    while (said != NULL && *word != NULL && strstr(said, *word) == NULL) word++;
    return said == NULL || *word != NULL;
}

/* Adapters of rank 8 beside all linears, unless it is said; PEFT's layers of Megatron-Core are by its own names, or by a checkpoint's. */
static spw_status compose_adapters(spw_draft *d) {
    static const char *const experts[] = {"fc1",       "fc2",        "gate_proj", "up_proj",
                                          "down_proj", "all-linear", NULL},
                             *const attention[] = {"qkv",      "linear_proj", "q_proj",     "o_proj",
                                                   "linear_q", "linear_kv",   "all-linear", NULL};
    const char *said = spw_draft_fact(d, "@targets");
    const bool of_experts = says_any(said, experts), of_attention = says_any(said, attention);
    size_t rank = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@rank", 1, 8, &rank));
    if (!spw_draft_is(d, "@adapter", "lora") && !spw_draft_is(d, "@adapter", "lora_llm")) return SPW_OK;
    SPW_TRY(spw_draft_put(d, "finetune.frozen", "base", "@adapter"));
    SPW_TRY(spw_draft_put_count(d, "finetune.lora_rank", rank, "@rank"));
    SPW_TRY(spw_draft_put(d, "finetune.lora_targets",
                          !of_experts    ? "attention"
                          : of_attention ? "both"
                                         : "experts",
                          "@targets"));

cleanup:
    return status;
}

static spw_status compose_swift(spw_draft *d) {
    const spw_status status = compose_adapters(d);
    return status == SPW_OK ? spw_compose_megatron(d) : status;
}

/* --- NeMo --- */

static const spw_word_pair
    activations[] =
        {{"swiglu", "true"},        {"fast-swiglu", "true"}, {"geglu", "true"}, {"fast-geglu", "true"},
         {"reglu", "true"},         {"fast-reglu", "true"},  {"gelu", "false"}, {"openai-gelu", "false"},
         {"squared-relu", "false"}, {"relu", "false"},       {NULL, NULL}},
    precisions[] = {{"bf16", "true"}, {"bf16-mixed", "true"}, {"bf16-true", "true"}, {NULL, NULL}},
    optimizers[] = {{"distributed_fused_adam", "true"},
                    {"mcore_distributed_optim", "true"},
                    {"fused_adam", "false"},
                    {"adamw", "false"},
                    {"adam", "false"},
                    {NULL, NULL}},
    fp8_words[] = {
        {"true", "hybrid"}, {"hybrid", "hybrid"}, {"e4m3", "e4m3"}, {"false", "false"}, {NULL, NULL}};

static const spw_framework_row nemo_rows[] = {
    {.theirs = "factory", .ours = "@model_name"},
    {.theirs = "devices", .ours = "@gpus_per_node"},
    {.theirs = "num_nodes", .ours = "@nodes"},
    {.theirs = "precision",
     .ours = "@bf16",
     .values = precisions,
     .why = "of precisions bf16 is read; it is planned",
     .more = true},
    {.theirs = "encoder_seq_length", .ours = "batch.sequence_length"},
    {.theirs = "activation",
     .ours = "@gated",
     .values = activations,
     .why = "of activations gated and plain ones are read"},
    {.theirs = "bias", .ours = "@biases", .values = yes_no},
    {.theirs = "name", .ours = "@distributed", .values = optimizers},
    {.theirs = "activations_checkpoint_granularity", .ours = "@recompute"},
    {.theirs = "activations_checkpoint_method", .ours = "@recompute_method"},
    {.theirs = "activations_checkpoint_num_layers", .ours = "@recompute_layers"},
    {.theirs = "fp8", .ours = "@fp8", .values = fp8_words},
    {.theirs = "num_moe_experts", .ours = "@experts"},
    {.theirs = "ub_tp_comm_overlap", .why = "buffers of the overlap are not counted", .more = true},
    {.theirs = "ddp.grad_reduce_in_fp32", .ours = "@gradients_fp32", .values = yes_no},
    {.theirs = "ddp.overlap_grad_reduce", .ours = "@overlap_gradients", .values = yes_no},
    {.theirs = "ddp.overlap_param_gather", .ours = "@overlap_gathers", .values = yes_no},
    {.theirs = "overlap_grad_sync", .ours = "@overlap_gradients", .values = yes_no},
    {.theirs = "overlap_param_sync", .ours = "@overlap_gathers", .values = yes_no},
    {.theirs = "peft.peft_scheme",
     .why = "adapters of NeMo are not read: --lora-rank N --set finetune.frozen=base"},
    {.theirs = "exp_manager.*"},
    {.theirs = "tokenizer.*"},
    {.theirs = "data.*"},
    {.theirs = "data_*"},
    {.theirs = "optim.*"},
    {.theirs = "sched.*"},
    {.theirs = "trainer.*"},
    {.theirs = "run.*"},
    {.theirs = "resume.*"},
    {.theirs = "log.*"},
    {.theirs = "nsys_profile.*"},
    {.theirs = "megatron_amp_O2"},
    {.theirs = "transformer_engine"},
    {.theirs = "mcore_gpt"},
    {.theirs = "native_amp_*"},
    {.theirs = "limit_*_batches"},
    {.theirs = "max_epochs"},
    {.theirs = "accelerator"},
    {.theirs = "val_check_interval"},
    {.theirs = NULL}};

static const char *const nemo_sections[] = {"trainer.strategy", "trainer", "model.config",
                                            "model.optim",      "model",   "data",
                                            "optim.config",     "optim",   NULL};
static const char *const nemo_marks[] = {"trainer.devices",
                                         "trainer.num_nodes",
                                         "trainer.precision",
                                         "trainer.strategy.tensor_model_parallel_size",
                                         "trainer.strategy.pipeline_model_parallel_size",
                                         "trainer.strategy.expert_model_parallel_size",
                                         "model.encoder_seq_length",
                                         "model.micro_batch_size",
                                         "model.global_batch_size",
                                         "model.config.num_layers",
                                         "data.micro_batch_size",
                                         "data.global_batch_size",
                                         "data.seq_length",
                                         "exp_manager.name",
                                         "factory",
                                         NULL};
static const spw_framework_default nemo_silent[] = {{"@bf16", "true"},
                                                    {"@distributed", "true"},
                                                    {"@dispatcher", "alltoall"},
                                                    {NULL, NULL}},
                                   nemo_defaults[] = {{"parallel.expert", "1"},
                                                      {"batch.sequence_length", "4096"},
                                                      {NULL, NULL}};

/* --- verl --- */

#define ACTOR "actor_rollout_ref.actor."
#define ROLLOUT "actor_rollout_ref.rollout."

static const spw_framework_row verl_rows[] = {
    {.theirs = "actor_rollout_ref.model.path", .ours = "@model_name"},
    {.theirs = "actor_rollout_ref.model.lora_rank", .ours = "@rank"},
    {.theirs = "actor_rollout_ref.model.lora.rank", .ours = "@rank", .alias = true},
    {.theirs = "actor_rollout_ref.model.target_modules", .ours = "@targets"},
    {.theirs = "actor_rollout_ref.model.*"},
    {.theirs = "data.max_prompt_length", .ours = "@prompt"},
    {.theirs = "data.max_response_length", .ours = "@response"},
    {.theirs = "data.*"},
    {.theirs = ACTOR "strategy", .ours = "@strategy"},
    {.theirs = ACTOR "ppo_mini_batch_size", .ours = "@mini_batch"},
    {.theirs = ACTOR "ppo_micro_batch_size_per_gpu", .ours = "@micro_batch"},
    {.theirs = ACTOR "use_dynamic_bsz", .ours = "@dynamic", .values = yes_no},
    {.theirs = ACTOR "ppo_max_token_len_per_gpu", .ours = "@most_tokens"},
    {.theirs = ACTOR "megatron.param_offload"},
    {.theirs = ACTOR "megatron.grad_offload"},
    {.theirs = ACTOR "megatron.optimizer_offload"},
    {.theirs = ACTOR "*"},
    {.theirs = ROLLOUT "n", .ours = "@responses"},
    {.theirs = ROLLOUT "gpu_memory_utilization",
     .why = "the engine of rollouts sleeps through the update; what stays of it is not counted: say --set "
            "resident.gib=N, which its log has",
     .ours = "resident.gib",
     .values = (const spw_word_pair[]){{NULL, NULL}},
     .more = true},
    {.theirs = ROLLOUT "*"},
    {.theirs = "actor_rollout_ref.ref.*"},
    {.theirs = "critic.model.path", .why = BESIDE, .more = true},
    {.theirs = "critic.*"},
    {.theirs = "reward_model.model.path", .why = BESIDE, .more = true},
    {.theirs = "reward_model.*"},
    {.theirs = "algorithm.*"},
    {.theirs = "trainer.n_gpus_per_node", .ours = "@gpus_per_node"},
    {.theirs = "trainer.nnodes", .ours = "@nodes"},
    {.theirs = "trainer.*"},
    {.theirs = NULL}};

static const char *const verl_sections[] = {ACTOR "megatron.override_transformer_config",
                                            ACTOR "optim.override_optimizer_config", ACTOR "megatron", NULL};
static const char *const verl_marks[] = {"actor_rollout_ref.model.path",
                                         ACTOR "ppo_mini_batch_size",
                                         ACTOR "ppo_micro_batch_size_per_gpu",
                                         ACTOR "megatron.tensor_model_parallel_size",
                                         ACTOR "megatron.pipeline_model_parallel_size",
                                         ACTOR "megatron.expert_model_parallel_size",
                                         ROLLOUT "n",
                                         ROLLOUT "gpu_memory_utilization",
                                         "trainer.n_gpus_per_node",
                                         "data.max_prompt_length",
                                         NULL};
static const spw_framework_default verl_silent[] = {
    {"@bf16", "true"},           {"@distributed", "true"},
    {"@dispatcher", "alltoall"}, {"@sequence_parallel", "true"},
    {"@recompute", "full"},      {NULL, NULL}};

static bool has_megatron(const spw_draft *d) {
    for (size_t i = 0; i < d->entries.count; i++)
        if (strstr(d->entries.entry[i].name, ACTOR "megatron.") != NULL) return true;
    return false;
}

/* An update of the actor: responses of so many prompts, each as long as prompt and response may be. Where micro-batches are made by tokens,
 * they have as many whole sequences as fit. */
static spw_status compose_verl(spw_draft *d) {
    size_t prompt = 0, response = 0, mini = 0, responses = 1, tokens = 0;
    spw_status status = SPW_OK;
    if (!has_megatron(d))
        return spw_fail(SPW_ECONFIG,
                        "%s: of verl's actors those of Megatron are read (actor_rollout_ref.actor.megatron); "
                        "nearest to its "
                        "FSDP: --model NAME --scheme transformers --optimizer sharded",
                        d->where);
    SPW_TRY(spw_draft_count(d, "@prompt", 1, 512, &prompt));
    SPW_TRY(spw_draft_count(d, "@response", 1, 512, &response));
    SPW_TRY(spw_draft_count(d, "@mini_batch", 1, 0, &mini));
    SPW_TRY(spw_draft_count(d, "@responses", 1, 1, &responses));
    SPW_TRY(spw_draft_count(d, "@most_tokens", 1, 0, &tokens));
    SPW_TRY(spw_draft_put_count(d, "batch.sequence_length", prompt + response, "@response"));
    if (mini > 0) SPW_TRY(spw_draft_put_count(d, "batch.global_batch", mini * responses, "@mini_batch"));
    SPW_TRY(spw_compose_megatron(d));
    if (spw_draft_on(d, "@dynamic") && tokens > 0) {
        d->micro_batch = tokens > prompt + response ? tokens / (prompt + response) : 1;
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "micro-batches of whole sequences",
                                    "shorter ones are packed, up to as many tokens"));
    }
    (void)spw_draft_fact(d, "@strategy");
    if (spw_draft_fact(d, "@rank") != NULL && !spw_draft_is(d, "@rank", "0"))
        SPW_TRY(spw_draft_note_less(d, "@rank",
                                    "adapters of verl's are not read; all weights are planned as trained"));

cleanup:
    return status;
}

const spw_framework spw_framework_swift = {
    .name = "swift",
    .title = "ms-swift",
    .source = "modelscope/ms-swift 3602360a swift/megatron/arguments/megatron_args.py",
    .rows = {swift_rows, spw_framework_megatron_rows},
    .marks = swift_marks,
    .needs = SWIFT_NEEDS,
    .silent = swift_silent,
    .defaults = swift_defaults,
    .compose = compose_swift};
const spw_framework spw_framework_nemo = {
    .name = "nemo",
    .title = "NeMo",
    .source = "NVIDIA/NeMo 8cfedd72 examples/nlp/language_modeling/conf/megatron_gpt_config.yaml",
    .rows = {nemo_rows, spw_framework_megatron_rows},
    .sections = nemo_sections,
    .marks = nemo_marks,
    .silent = nemo_silent,
    .defaults = nemo_defaults,
    .compose = spw_compose_megatron};
const spw_framework spw_framework_verl = {
    .name = "verl",
    .title = "verl",
    .source = "volcengine/verl b178a3cd verl/trainer/config/ppo_megatron_trainer.yaml",
    .rows = {verl_rows, spw_framework_megatron_rows},
    .sections = verl_sections,
    .marks = verl_marks,
    .silent = verl_silent,
    .defaults = nemo_defaults,
    .compose = compose_verl};
