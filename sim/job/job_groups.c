#include "sim/job/job_groups.h"

#include "sim/job/recipe/precision_fill.h"

static const spw_choice master_bytes[] = {
    {"auto", SPW_MASTER_AUTO}, {"none", 0}, {"bf16", 2}, {"fp32", 4}, {NULL, 0}};
static const spw_choice recipes[] = {{"none", SPW_FP8_NONE},
                                     {"delayed", SPW_FP8_DELAYED},
                                     {"tensorwise", SPW_FP8_TENSORWISE},
                                     {"blockwise", SPW_FP8_BLOCKWISE},
                                     {"mxfp8", SPW_FP8_MXFP8},
                                     {"nvfp4", SPW_FP4_NVFP4},
                                     {"mxfp4", SPW_FP4_MXFP4},
                                     {NULL, 0}};
#define PRECISION_ROW(field, text) \
    { \
        .key = #field, .kind = SPW_SETTING_CHOICE, SPW_SETTING_CHOICE_OF(spw_job, precision.field, size_t), \
        .choices = spw_precision_formats, .fallback = "auto", .help = (text) \
    }
#define SCHEDULE_CHOICE(name, text) {text, SPW_SCHEDULE_##name},
static const spw_choice schedules[] = {SPW_SCHEDULE_LIST(SCHEDULE_CHOICE){NULL, 0}};
#undef SCHEDULE_CHOICE
const spw_setting spw_job_parallel_rows[] = {
    COUNT_ROW("expert", expert, 0, MOST_RANKS, NULL,
              "GPUs that share the experts of a layer; 0 for as many of a node as divide them"),
    NAMED_ROW("fsdp", fsdp, 0, MOST_RANKS, "0",
              "GPUs over which the state is sharded, beside expert; 0 for what is left", "fsdp"),
    NAMED_ROW("pipeline", pipeline, 1, SPW_MODEL_MAX_LAYERS, "1", "pipeline stages", "pipeline"),
    NAMED_ROW("tensor", tensor, 1, 1024, "1", "GPUs that share one matrix of attention, embedding and head",
              "tensor"),
    NAMED_ROW("context", context, 1, 1024, "1", "GPUs that share the tokens of one sequence in attention",
              "context"),
    NAMED_ROW("expert_tensor", expert_tensor, 0, 1024, "0",
              "GPUs that share the matrices of one expert; 0 for as many as tensor, as Megatron-Core does",
              "expert-tensor"),
    NAMED_ROW(
        "data", data, 0, MOST_RANKS, "0",
        "replicas of attention, each with sequences of its own; 0 for what tensor, context and pipeline "
        "leave",
        "data"),
    {.key = "sequence_parallel",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, sequence_parallel, bool),
     .fallback = "true",
     .help = "with tensor: what is not sharded is cut along the sequence, which MoE training asks for"},
    NAMED_ROW(
        "virtual_stages", virtual_stages, 0, SPW_MODEL_MAX_LAYERS, "0",
        "blocks of layers of one pipeline stage; more than 1 interleaves them; 0: one, but in MaxText's "
        "loop one a layer",
        "virtual-stages"),
    {.key = "schedule",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, schedule, spw_schedule),
     .choices = schedules,
     .fallback = "1F1B",
     .help = "order of a pipeline's passes, as torchtitan calls it; 1F1B is interleaved where there are "
             "virtual_stages; the last six are refused, with what is nearest"},
    COUNT_ROW("decoder_first_pipeline_num_layers", stage_layout.first, 0, SPW_MODEL_MAX_LAYERS, "0",
              "layers of the first pipeline stage, as Megatron-Core calls it; 0: not said"),
    COUNT_ROW("decoder_last_pipeline_num_layers", stage_layout.last, 0, SPW_MODEL_MAX_LAYERS, "0",
              "layers of the last pipeline stage; 0: not said"),
    {.key = "account_for_embedding_in_pipeline_split",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, stage_layout.embedding, bool),
     .fallback = "false",
     .help = "the embedding counts as a layer when layers are shared out over stages"},
    {.key = "account_for_loss_in_pipeline_split",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, stage_layout.loss, bool),
     .fallback = "false",
     .help = "head and loss count as a layer when layers are shared out over stages"},
    COUNT_ROW(
        "mtp_num_layers", stage_layout.behind, 0, 16, "0",
        "layers of multi-token prediction behind the last block, as Megatron-Core has them without a layout"),
    {.key = "pipeline_model_parallel_layout",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_job, stage_layout.text, SPW_LAYOUT_TEXT),
     .fallback = "",
     .help = "what is in every block, in the letters of Megatron-Core (docs/schemes.md, section 7.9)"},
    {.key = NULL}};
const spw_setting spw_job_batch_rows[] = {
    {.key = "sequences_per_gpu",
     .kind = SPW_SETTING_COUNTS,
     SPW_SETTING_COUNTS_OF(spw_job, sequences_per_gpu, SPW_JOB_MAX_BATCHES, batches),
     .minimum = 1,
     .maximum = 1 << 20,
     .fallback = "",
     .help =
         "sequences of one GPU in one step, or of the tensor x context GPUs that share them; a list plans "
         "each; this or global_batch is given"},
    NAMED_ROW(
        "global_batch", global_batch, 0, MOST_SEQUENCES, "0",
        "sequences of all GPUs in one step, as Megatron's global_batch_size; 0: sequences_per_gpu says it",
        "global-batch"),
    NAMED_ROW("sequence_length", sequence_length, 1, 1 << 24, NULL, "tokens of one sequence",
              "sequence-length"),
    NAMED_ROW("micro_batches", micro_batches, 1, MOST_MICRO_BATCHES, "1",
              "parts in which a GPU works on its sequences, one after the other", "micro-batches"),
    {.key = NULL}};
const spw_setting spw_job_precision_rows[] = {
    PRECISION_ROW(weights, "weights as they are kept; auto: fp32 where the optimizer is sharded, as MaxText "
                           "and torchtitan do, bf16 under Megatron-Core's (distributed, replicated) and of "
                           "bare layers"),
    PRECISION_ROW(gradients, "gradients; auto: as the weights where the optimizer is sharded, else fp32, or "
                             "fp16 beside fp16 weights"),
    PRECISION_ROW(optimizer, "each of the two moments of Adam; auto: as the weights where the optimizer is "
                             "sharded, else fp32"),
    PRECISION_ROW(activations, "activations, what is exchanged, and weights in products; auto: bf16"),
    {.key = "master",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, master_bytes, size_t),
     .choices = master_bytes,
     .fallback = "auto",
     .help = "a second copy of the weights in the optimizer; auto: fp32 "
             "unless the optimizer is sharded or the weights are fp32"},
    {.key = "recipe",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, precision.recipe, spw_fp8_recipe),
     .choices = recipes,
     .fallback = "none",
     .help = "fp8 or fp4 products by TransformerEngine under "
             "Megatron-Core, as its --fp8-recipe or --fp4-recipe; all else in bf16"},
    {.key = "fp8_param_gather",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, precision.fp8_param_gather, bool),
     .fallback = "false",
     .help = "with a recipe: weights of linear layers are fp8 or fp4 "
             "themselves, as by Megatron's --fp8-param-gather and --fp4-param-gather"},
    {.key = NULL}};
const spw_setting spw_job_allocator_rows[] = {
    {.key = "expandable_segments",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, allocator.expandable_segments, bool),
     .fallback = "false",
     .help = "one range of addresses that grows, instead of segments"},
    COUNT_ROW("max_split_size_mb", allocator.max_split_size_mb, 0, 1 << 24, "0",
              "MiB from which on blocks are not split; above 20, or 0 for no limit"),
    {.key = "garbage_collection_threshold",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, allocator.garbage_collection_threshold, double),
     .minimum = 0,
     .maximum = 0.999,
     .fallback = "0",
     .help = "share of per_process_memory_fraction above which old free segments go back; 0 for never"},
    {.key = "per_process_memory_fraction",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, allocator.per_process_memory_fraction, double),
     .minimum = 0,
     .maximum = 1,
     .fallback = "0",
     .help = "share of the GPU's memory that the process may reserve (set_per_process_memory_fraction); 0: "
             "none was set"},
    COUNT_ROW("roundup_power2_divisions", allocator.roundup_power2_divisions, 0, 64, "0",
              "sizes between two powers of two, a power of two itself; 0 for multiples of 512 B"),
    {.key = NULL}};
const spw_setting spw_job_resident_rows[] = {
    {.key = "gib",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, resident.gib, double),
     .minimum = 0,
     .maximum = 100000,
     .fallback = "0",
     .help = "GiB of every GPU that something else keeps through a training step, such as weights and cache "
             "of a serving engine beside it in RL; the step has what is left"},
    {.key = "share",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, resident.share, double),
     .minimum = 0,
     .maximum = 1,
     .fallback = "0",
     .help = "the same as a share of the GPU, as vLLM's gpu_memory_utilization; added to gib"},
    {.key = "name",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_job, resident.name, SPW_RESIDENT_TEXT),
     .fallback = "",
     .help = "what that is, as answers name it"},
    {.key = NULL}};
static const spw_choice frozen_parts[] = {
    {"none", SPW_FROZEN_NONE}, {"experts", SPW_FROZEN_EXPERTS}, {"base", SPW_FROZEN_BASE}, {NULL, 0}};
static const spw_choice lora_targets[] = {
    {"attention", SPW_LORA_ATTENTION}, {"experts", SPW_LORA_EXPERTS}, {"both", SPW_LORA_BOTH},
    {"linear", SPW_LORA_LINEAR},       {"all", SPW_LORA_ALL},         {NULL, 0}};
const spw_setting spw_job_finetune_rows[] = {
    {.key = "frozen",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, finetune.frozen, spw_frozen),
     .choices = frozen_parts,
     .fallback = "none",
     .help = "weights without gradients and optimizer state: the routed experts', or all of the model's"},
    COUNT_ROW("lora_rank", finetune.lora_rank, 0, 4096, "0", "rank of LoRA adapters; 0 for none"),
    {.key = "lora_targets",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, finetune.lora_targets, spw_lora_targets),
     .choices = lora_targets,
     .fallback = "attention",
     .help = "products that have adapters: the projections of attention, the routed experts' own, or both; "
             "of PEFT alone: "
             "linear, attention and the linears of dense FFNs and shared experts; all, attention, routed "
             "experts and the "
             "router"},
    {.key = NULL}};
static const spw_choice reshards[] = {{"default", SPW_RESHARD_DEFAULT},
                                      {"off", SPW_RESHARD_OFF},
                                      {"always", SPW_RESHARD_ALWAYS},
                                      {"never", SPW_RESHARD_NEVER},
                                      {NULL, 0}};
static const spw_choice gathered_formats[] = {
    {"auto", 0}, {"same", SPW_GATHERED_SAME}, {"bf16", 2}, {"fp32", 4}, {NULL, 0}};
static const spw_choice places[] = {{"gpu", false}, {"host", true}, {NULL, 0}};
const spw_setting spw_job_fsdp2_rows[] = {
    {.key = "reshard_after_forward",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, fsdp2.reshard, spw_reshard),
     .choices = reshards,
     .fallback = "default",
     .help = "schemes of PyTorch with optimizer: sharded: are a layer's weights freed after its forward pass "
             "and gathered again? default: as torchtitan does for its own schemes, off for others; off: the "
             "memory of a layer scan instead of FSDP2"},
    COUNT_ROW("prefetch", fsdp2.prefetch, 0, SPW_MODEL_MAX_LAYERS, "1",
              "layers whose weights are being gathered beside the layer at work, in the backward pass"),
    COUNT_ROW("replicas", fsdp2.replicas, 1, 65536, "1",
              "HSDP: groups of GPUs that each hold the sharded state once; gradients are summed over them"),
    {.key = "gathered",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, fsdp2.gathered, size_t),
     .choices = gathered_formats,
     .fallback = "auto",
     .help = "format in which weights are gathered and used; auto: precision.activations, where weights are "
             "kept in a larger one; same: precision.weights, in which they are sharded"},
    {.key = "state",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, fsdp2.on_host, bool),
     .choices = places,
     .fallback = "gpu",
     .help = "where sharded weights, gradients and optimizer state are kept; host: FSDP2's CPUOffloadPolicy"},
    {.key = NULL}};
