#include "sim/job/job.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/job/common_names.h"
#include "sim/job/grid.h"
#include "sim/job/job_check.h"
#include "sim/job/job_override.h"
#include "sim/job/job_software.h"
#include "sim/job/job_split.h"
#include "sim/job/recipe/precision_fill.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/job/trainer.h"
#include "sim/machine/stack_defaults.h"
#include "sim/read/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const spw_choice optimizers[] = {{"sharded", SPW_OPTIMIZER_SHARDED},
                                        {"distributed", SPW_OPTIMIZER_DISTRIBUTED},
                                        {"replicated", SPW_OPTIMIZER_REPLICATED},
                                        {"auto", SPW_OPTIMIZER_AUTO},
                                        {NULL, 0}};
const char *spw_optimizer_name(spw_optimizer_kind optimizer) { return optimizers[optimizer].name; }

double spw_job_price(const spw_job *job) {
    return job->price_per_gpu_hour > 0.0 ? job->price_per_gpu_hour : job->cluster.price_per_gpu_hour.value;
}

size_t spw_job_micro_batches(const spw_job *job) { return job->micro_batches > 0 ? job->micro_batches : 1; }

size_t spw_job_rounds(const spw_job *job) {
    const size_t pieces = spw_job_micro_batches(job);
    return job->pipeline > 0 && pieces > job->pipeline ? pieces / job->pipeline : 1;
}

size_t spw_job_gpus(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.expert_tensor * g.expert * g.expert_data * g.pipeline;
}

/* --- Keys --- */

enum { MOST_RANKS = 65536, MOST_GPUS = 1 << 20, MOST_MICRO_BATCHES = 65536, MOST_SEQUENCES = 1 << 26 };

static const spw_choice master_bytes[] = {
    {"auto", SPW_MASTER_AUTO}, {"none", 0}, {"bf16", 2}, {"fp32", 4}, {NULL, 0}};
static const spw_choice attention_cores[] = {{"flash", SPW_ATTENTION_FLASH},
                                             {"unfused", SPW_ATTENTION_UNFUSED},
                                             {"sdpa", SPW_ATTENTION_SDPA},
                                             {NULL, 0}};

static const spw_choice graphs[] = {{"none", SPW_GRAPH_NONE},
                                    {"local", SPW_GRAPH_LOCAL},
                                    {"transformer_engine", SPW_GRAPH_TRANSFORMER_ENGINE},
                                    {"full_iteration", SPW_GRAPH_FULL_ITERATION},
                                    {NULL, 0}};
const char *spw_cuda_graph_name(spw_cuda_graph graph) { return graphs[graph].name; }

static const spw_choice fusions[] = {
    {"auto", SPW_FUSION_AUTO}, {"true", SPW_FUSION_ON}, {"false", SPW_FUSION_OFF}, {NULL, 0}};
static const spw_choice gradient_fusions[] = {{"auto", SPW_FUSION_AUTO},
                                              {"true", SPW_FUSION_ON},
                                              {"false", SPW_FUSION_OFF},
                                              {"layers", SPW_FUSION_LAYERS},
                                              {NULL, 0}};

static const spw_choice losses[] = {{"auto", SPW_CROSS_ENTROPY_AUTO},
                                    {"unfused", SPW_CROSS_ENTROPY_UNFUSED},
                                    {"native", SPW_CROSS_ENTROPY_NATIVE},
                                    {"te", SPW_CROSS_ENTROPY_TE},
                                    {"te_in_place", SPW_CROSS_ENTROPY_TE_IN_PLACE},
                                    {"te_2_20", SPW_CROSS_ENTROPY_TE_2_20},
                                    {"chunked", SPW_CROSS_ENTROPY_CHUNKED},
                                    {"fused", SPW_CROSS_ENTROPY_FUSED},
                                    {NULL, 0}};

static const spw_choice recipes[] = {{"none", SPW_FP8_NONE},
                                     {"delayed", SPW_FP8_DELAYED},
                                     {"tensorwise", SPW_FP8_TENSORWISE},
                                     {"blockwise", SPW_FP8_BLOCKWISE},
                                     {"mxfp8", SPW_FP8_MXFP8},
                                     {"nvfp4", SPW_FP4_NVFP4},
                                     {"mxfp4", SPW_FP4_MXFP4},
                                     {NULL, 0}};

#define NAMED_ROW(name, field, low, high, preset, text, word) \
    { \
        .key = (name), .kind = SPW_SETTING_COUNT, SPW_SETTING_OF(spw_job, field, size_t), .minimum = (low), \
        .maximum = (high), .fallback = (preset), .help = (text), .option = (word) \
    }
#define COUNT_ROW(name, field, low, high, preset, text) NAMED_ROW(name, field, low, high, preset, text, NULL)
#define PRECISION_ROW(field, text) \
    { \
        .key = #field, .kind = SPW_SETTING_CHOICE, SPW_SETTING_CHOICE_OF(spw_job, precision.field, size_t), \
        .choices = spw_precision_formats, .fallback = "auto", .help = (text) \
    }

#define FLAG_ROW(name, field, text) \
    { \
        .key = (name), .kind = SPW_SETTING_FLAG, SPW_SETTING_OF(spw_job, field, bool), .fallback = "false", \
        .help = (text) \
    }
#define FUSION_ROW(name, field, text) \
    { \
        .key = (name), .kind = SPW_SETTING_CHOICE, SPW_SETTING_CHOICE_OF(spw_job, field, spw_fusion), \
        .choices = fusions, .fallback = "auto", .help = (text) \
    }

#define SCHEDULE_CHOICE(name, text) {text, SPW_SCHEDULE_##name},
static const spw_choice schedules[] = {SPW_SCHEDULE_LIST(SCHEDULE_CHOICE){NULL, 0}};
#undef SCHEDULE_CHOICE

static const spw_setting parallel_rows[] = {
    COUNT_ROW("expert", expert, 0, MOST_RANKS, NULL,
              "GPUs that share the experts of a layer; 0 for as many of a node as divide them"),
    NAMED_ROW("fsdp", fsdp, 0, MOST_RANKS, NULL,
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

static const spw_setting batch_rows[] = {
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

static const spw_setting precision_rows[] = {
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

static const spw_choice parts[] = {
    {"whole", SPW_PART_WHOLE}, {"expert_layers", SPW_PART_EXPERT_LAYERS}, {NULL, 0}};

const char *spw_model_part_name(spw_model_part part) { return parts[part].name; }
spw_status spw_job_is_whole(const spw_job *job, const char *what) {
    if (job->part == SPW_PART_WHOLE) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "%s: speaks of whole models, but the job has model_part: %s; leave the key out, or ask "
                    "without %s",
                    what, spw_model_part_name(job->part), what);
}

static const spw_setting allocator_rows[] = {
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

static const spw_setting resident_rows[] = {
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
static const spw_setting finetune_rows[] = {
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
static const spw_choice algorithms[] = {{"adam", false}, {"muon", true}, {NULL, 0}};
static const spw_choice muon_layouts[] = {{"packed", false}, {"ping_pong", true}, {NULL, 0}};
static const spw_choice library_limits[] = {{"check", true}, {"ignore", false}, {NULL, 0}};
static const spw_choice places[] = {{"gpu", false}, {"host", true}, {NULL, 0}};

static const spw_setting fsdp2_rows[] = {
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

#define GROUP_ROW(name, table, preset, text, word) \
    { \
        .key = (name), .kind = SPW_SETTING_GROUP, SPW_SETTING_SAME_GROUP(spw_job), .fields = (table), \
        .fallback = (preset), .help = (text), .option = (word) \
    }

static const spw_setting rows[] = {
    {.key = "model",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_job, model_text, SPW_JOB_NAME),
     .help = "a preset, or the path of a Hugging Face config.json",
     .option = "model"},
    {.key = "cluster",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_job, cluster_text, SPW_JOB_NAME),
     .help = "a preset, one of another size as in h200-32x8 or h200:8x32, or the path of a YAML file",
     .option = "cluster"},
    {.key = "gpus",
     .kind = SPW_SETTING_COUNT,
     SPW_SETTING_OF(spw_job, gpus, size_t),
     .minimum = 0,
     .maximum = MOST_GPUS,
     .fallback = "0",
     .help = "GPUs in all, in whole nodes of the cluster's or a part of one; 0 for the cluster's own number",
     .option = "gpus"},
    GROUP_ROW("parallel", parallel_rows, NULL, "how the GPUs are split; the product is all of them", NULL),
    GROUP_ROW("batch", batch_rows, NULL, "what one GPU works on in a step", NULL),
    GROUP_ROW("finetune", finetune_rows, "{}", "what is trained of the model", NULL),
    GROUP_ROW("precision", precision_rows, "{}",
              "number formats, or one word for all: framework (its own defaults), mixed (products in bf16, "
              "state in fp32), bf16, fp32",
              "precision"),
    GROUP_ROW("fsdp2", fsdp2_rows, "{}", "how PyTorch's FSDP2 gathers weights", NULL),
    GROUP_ROW("allocator", allocator_rows, "{}",
              "PyTorch's caching allocator, as PYTORCH_CUDA_ALLOC_CONF sets it", NULL),
    GROUP_ROW("resident", resident_rows, "{}", "what stays on a GPU beside the training process", NULL),
    {.key = "model_part",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, part, spw_model_part),
     .choices = parts,
     .fallback = "whole",
     .help = "expert_layers: bare MoE layers, without attention and optimizer"},
    {.key = "layers",
     .kind = SPW_SETTING_COUNT,
     SPW_SETTING_OF(spw_job, layers, size_t),
     .minimum = 0,
     .maximum = SPW_MODEL_MAX_LAYERS,
     .fallback = "0",
     .help = "how many bare layers; 0 for as many as the model has MoE layers"},
    {.key = "remat",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, remat, spw_remat),
     .choices = spw_remat_choices,
     .parts = spw_remat_modules_list,
     .join = spw_remat_join,
     .fallback = "full",
     .help = "what the backward pass computes again instead of keeping it",
     .option = "remat"},
    {.key = "attention",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, attention, spw_attention_core),
     .choices = attention_cores,
     .fallback = "flash",
     .help = "unfused: Megatron-Core without TransformerEngine, whose scores [heads, S, S] are held; sdpa: "
             "modules of one's own in TransformerEngine's place, with PyTorch's flash attention"},
    {.key = "cross_entropy",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, cross_entropy, spw_cross_entropy),
     .choices = losses,
     .fallback = "auto",
     .help = "the loss: Megatron-Core's own, its native fusion, TransformerEngine's of 2.18, before it or "
             "from 2.20 on, "
             "torchtitan's; auto: that of the scheme's framework; fused: logits and their gradient alone"},
    {.key = "cuda_graph_impl",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, cuda_graph, spw_cuda_graph),
     .choices = graphs,
     .fallback = "none",
     .help = "Megatron-Core's CUDA graphs: of parts of a layer (local, transformer_engine), or of a whole "
             "iteration, which needs rows whose number the host does not read"},
    {.key = "overlap_moe_expert_parallel_comm",
     .kind = SPW_SETTING_FLAG,
     SPW_SETTING_OF(spw_job, overlap_exchanges, bool),
     .fallback = "false",
     .help = "Megatron-Core: exchanges of a micro-batch's rows behind the work of another one"},
    FLAG_ROW("delay_wgrad_compute", megatron.delay_weight_gradients,
             "Megatron-Core, with overlap_moe_expert_parallel_comm: gradients of weights behind exchanges, "
             "apart from those of inputs"),
    FLAG_ROW("overlap_grad_reduce", megatron.overlap_gradients,
             "Megatron-Core: sums of gradients behind the last micro-batch's backward pass"),
    FLAG_ROW("overlap_param_gather", megatron.overlap_gathers,
             "Megatron-Core, with overlap_grad_reduce and optimizer: distributed: gathers of weights behind "
             "the first micro-batch's forward pass"),
    FLAG_ROW("moe_shared_expert_overlap", megatron.overlap_shared,
             "Megatron-Core: shared experts beside the exchanges of their layer"),
    FUSION_ROW("moe_permute_fusion", megatron.permute,
               "TransformerEngine's permutation of rows, or PyTorch's; auto: as the stack's runs had it"),
    FUSION_ROW("moe_router_fusion", megatron.router,
               "TransformerEngine's scores and choice of the router, or PyTorch's; auto: as the stack's runs "
               "had it"),
    FUSION_ROW("apply_rope_fusion", megatron.rope,
               "TransformerEngine's rotation of queries and keys, or PyTorch's; auto: as the stack's runs "
               "had it"),
    FUSION_ROW("use_fused_mhc", megatron.streams,
               "Megatron-Core's fused kernels of residual streams, which keep no fp32 copy of them; auto: on "
               "Blackwell"),
    COUNT_ROW("mhc_recompute_layer_num", megatron.streams_group, 0, SPW_MODEL_MAX_LAYERS, "0",
              "with mhc in remat: layers whose streams are made again at once; 0: all of a stage's chunk"),
    {.key = "gradient_accumulation_fusion",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, megatron.weight_gradients, spw_fusion),
     .choices = gradient_fusions,
     .fallback = "auto",
     .help = "Megatron-Core: products add gradients of weights to main_grad themselves; false: these are "
             "tensors until they are added; layers: all but the head's, where Apex is not installed; auto: "
             "true"},
    FLAG_ROW("use_transformer_engine_op_fuser", megatron.fused_experts,
             "Megatron-Core: experts as one fused operation of TransformerEngine, with recipe mxfp8"),
    {.key = "megatron_core_release",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_job, megatron.release, SPW_RELEASE_TEXT),
     .fallback = "",
     .help = "release of Megatron-Core, as in 0.17 or core_r0.17.0: what it has not is refused"},
    FLAG_ROW("untuned_release", megatron.untuned,
             "Megatron-Core: a run without what recipes made for speed set: the interval of its time reaches "
             "further to the slow side"),
    {.key = "optimizer",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, optimizer, spw_optimizer_kind),
     .choices = optimizers,
     .fallback = "auto",
     .help = "what is kept once over all replicas: everything, the optimizer's state (Megatron), or nothing; "
             "auto: "
             "sharded, and distributed of a plan without a job's file whose schemes are Megatron-Core's",
     .option = "optimizer"},
    COUNT_ROW("optimizer_instances", optimizer_instances, 1, MOST_RANKS, "1",
              "Megatron's --num-distributed-optimizer-instances, with optimizer: distributed: groups of "
              "replicas that each hold "
              "the optimizer's state once; gradients are summed over them"),
    {.key = "optimizer_algorithm",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, muon, bool),
     .choices = algorithms,
     .fallback = "adam",
     .help = "muon: Megatron-Core's Muon or dist_muon: one moment of the matrices of layers, Adam's two of "
             "all else"},
    {.key = "muon_layout",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, muon_ping_pong, bool),
     .choices = muon_layouts,
     .fallback = "packed",
     .help =
         "Muon with optimizer: distributed: packed, Megatron-Core from core_r0.18 on, in buffers padded to "
         "whole matrices; ping_pong, dist_muon of core_r0.16 and 0.17, or --no-use-layer-wise-param-layout"},
    {.key = "optimizer_on_host",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, optimizer_on_host, double),
     .minimum = 0,
     .maximum = 1,
     .fallback = "0",
     .help = "Megatron's optimizer: share of its state, and of the work on it, that is the host's"},
    {.key = "offload_modules",
     .kind = SPW_SETTING_TEXTS,
     SPW_SETTING_TEXTS_OF(spw_job, offload.text, SPW_OFFLOAD_TEXT, SPW_OFFLOAD_MOST, offload.texts),
     .fallback = "",
     .help = "Megatron-Core's modules whose inputs wait in the host's memory: expert_fc1, moe_act or both"},
    {.key = "library_limits",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_job, library_limits, bool),
     .choices = library_limits,
     .fallback = "check",
     .help =
         "sizes that DeepEP and HybridEP do not take (docs/schemes.md, section 4.9): refused, or not asked"},
    {.key = "memory_fraction",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, memory_fraction, double),
     .minimum = 0,
     .maximum = 1,
     .fallback = "0",
     .help = "share of the device memory that the program may take; 0: all but what is known to lie outside "
             "of transformers' allocator, 0.93 of other schemes",
     .option = "memory-fraction"},
    {.key = "price_per_gpu_hour",
     .kind = SPW_SETTING_REAL,
     SPW_SETTING_OF(spw_job, price_per_gpu_hour, double),
     .minimum = 0,
     .maximum = 1e6,
     .fallback = "0",
     .help = "price of one GPU for an hour, in any currency; 0: the cluster's, if it has one",
     .option = "price"},
    {.key = "schemes",
     .kind = SPW_SETTING_TEXTS,
     SPW_SETTING_TEXTS_OF(spw_job, scheme, SPW_SCHEME_TEXT, SPW_JOB_MAX_SCHEMES, schemes),
     .fallback = "",
     .help = "execution schemes to compare, such as gmm or dense:capacity_factor=1.25"},
    {.key = NULL}};

const spw_setting *spw_job_settings(void) { return rows; }

/* --- Reading --- */

/* A layout says how many blocks a stage has, unless the job does, and whether there is multi-token prediction. */
static void fill_layout(spw_job *job) {
    const size_t blocks = job->stage_layout.blocks;
    if (job->virtual_stages == 0 && blocks > 0 && blocks % job->pipeline == 0)
        job->virtual_stages = blocks / job->pipeline;
    if (job->stage_layout.behind > 0) job->model.mtp_layers = job->stage_layout.behind;
    if (job->stage_layout.predictions > 0) spw_model_count_mtp(&job->model);
}

/* As many as the sequences of a rank make. */
static spw_status fill_micro_batches(size_t micro_batch, spw_job *job) {
    const size_t sequences = job->sequences_per_gpu[0];
    if (micro_batch == 0) return SPW_OK;
    if (sequences % micro_batch != 0)
        return spw_fail(
            SPW_ECONFIG,
            "micro-batches of %zu do not divide the %zu sequences of a rank; change one of them, as by "
            "--global-batch or --sequences-per-gpu",
            micro_batch, sequences);
    job->micro_batches = sequences / micro_batch;
    return SPW_OK;
}

/* The option that says the batch, which is what does not divide; the file's line where none does. */
static const char *batch_key(const spw_job_place *at) {
    static const char *const keys[] = {"batch.sequences_per_gpu", "batch.global_batch"};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < at->overrides; i++)
            if (strcmp(at->override[i].key, keys[k]) == 0) return keys[k];
    return "batch.micro_batches";
}

static const char *folder_of(const spw_job_place *at, const char *key) {
    for (size_t i = 0; i < at->overrides; i++)
        if (strcmp(at->override[i].key, key) == 0) return NULL;
    return at->folder;
}

/* Where a failure about a key is to be mended: line of the file, or the option. Without a file the options of the key's group,
 * or all of them where none is. */
static const char *place_of(const spw_job_place *at, const spw_settings *settings, const char *key,
                            char out[SPW_SETTINGS_PLACE]) {
    const size_t group = strcspn(key, ".");
    bool of_group = false;
    (void)spw_settings_place(settings, key, out);
    if (!at->bare || strncmp(out, at->where, strlen(at->where)) != 0) return out;
    for (size_t i = 0; i < at->overrides; i++)
        of_group = of_group || strncmp(at->override[i].key, key, group) == 0;
    out[0] = '\0';
    for (size_t i = 0; i < at->overrides; i++) {
        const size_t used = strlen(out);
        if (of_group && strncmp(at->override[i].key, key, group) != 0) continue;
        if (at->override[i].label[0] == '\0') continue;
        (void)snprintf(out + used, SPW_SETTINGS_PLACE - used, "%s%s", used > 0 ? ", " : "",
                       at->override[i].label);
    }
    return out;
}

/* Two options that say how many GPUs there are, "--cluster h100:8x4 --gpus 64": what the second did. */
static void say_resized(const spw_job_place *at, size_t whole, spw_job *job) {
    const spw_job_override *cluster = NULL, *gpus = NULL;
    for (size_t i = 0; i < at->overrides; i++) {
        if (strcmp(at->override[i].key, "cluster") == 0) cluster = &at->override[i];
        if (strcmp(at->override[i].key, "gpus") == 0) gpus = &at->override[i];
    }
    const size_t used = strlen(job->implied);
    if (cluster == NULL || gpus == NULL || strchr(cluster->value, ':') == NULL || whole == job->gpus) return;
    (void)snprintf(job->implied + used, sizeof job->implied - used,
                   "%s%.60s counts, and the %zu GPUs of %.60s do not", used > 0 ? "; " : "", gpus->label,
                   whole, cluster->label);
}

static void fill_fraction(spw_job *job) {
    job->fraction_unsaid = !(job->memory_fraction > 0.0);
    if (job->fraction_unsaid) job->memory_fraction = spw_default_outside_fraction.value;
}

/* Whose adapters they are. */
static void fill_finetune(spw_job *job) {
    bool wraps = job->schemes > 0;
    for (size_t i = 0; i < job->schemes; i++) {
        const spw_trainer_id of = spw_trainer_of_scheme(job->scheme[i]);
        wraps = wraps && of != SPW_TRAINERS && spw_trainer_row(of)->wraps_experts;
    }
    job->finetune.wraps_experts = wraps;
}

spw_status spw_job_parse_at(const spw_job_place *at, const char *text, size_t length, spw_job *out) {
    spw_status status = SPW_OK;
    spw_settings *settings = NULL;
    spw_job *read = NULL;
    spw_implied_sizes implied;
    const char *key = NULL; /* whose line a failure belongs to */
    char place[SPW_SETTINGS_PLACE];
    memset(out, 0, sizeof *out);
    SPW_TRY(spw_settings_open(at->where, text, length, &settings));
    spw_settings_advise(settings, spw_common_key_advice);
    SPW_TRY(SPW_ALLOC(1, &read));
    if (at->given != NULL) spw_settings_hide_lines(settings);
    SPW_TRY(spw_job_given_put(settings, at->given, at->givens));
    SPW_TRY(spw_job_overrides_put(settings, at->override, at->overrides, &implied));
    SPW_TRY(spw_settings_read(settings, rows, read));
    key = "model";
    SPW_TRY(spw_model_read(read->model_text, folder_of(at, key), &read->model));
    if (read->part == SPW_PART_EXPERT_LAYERS) {
        spw_model *model = &read->model;
        if (read->layers > 0) model->moe_layers = read->layers;
        model->layers = model->moe_layers;
        model->other_layers = model->bare_layers = 0;
        for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) model->mixer[k].layers = 0;
    }
    key = "cluster";
    SPW_TRY(spw_cluster_read(read->cluster_text, folder_of(at, key), &read->cluster));
    if (at->bare) spw_job_schemes_fill(read);
    spw_job_optimizer_fill(read, at->bare);
    spw_precision_fill(read);
    fill_finetune(read);
    fill_fraction(read);
    key = "gpus";
    const size_t whole = read->cluster.nodes * read->cluster.gpus_per_node;
    if (read->gpus > 0) SPW_TRY(spw_cluster_resize(&read->cluster, read->gpus));
    SPW_TRY(spw_job_split_fill(read, &key));
    SPW_TRY(spw_job_batch_fill(read, &key));
    key = batch_key(at);
    SPW_TRY(fill_micro_batches(at->micro_batch, read));
    if (!at->bare) spw_job_say_implied(&implied, read);
    say_resized(at, whole, read);
    key = "parallel.pipeline_model_parallel_layout";
    SPW_TRY(spw_stage_layout_parse(&read->stage_layout));
    fill_layout(read);
    key = "offload_modules";
    SPW_TRY(spw_offload_parse(&read->offload));
    SPW_TRY(spw_job_check_key(read, false, &key));
    *out = *read;

cleanup:
    if (status != SPW_OK && key != NULL)
        status = spw_fail(status, "%s: %s", place_of(at, settings, key, place), spw_last_error());
    spw_free(read);
    spw_settings_close(settings);
    return status;
}
