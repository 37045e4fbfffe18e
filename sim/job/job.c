#include "sim/job/job.h"

#include "sim/job/grid.h"
#include "sim/job/job_groups.h"
#include "sim/job/recipe/remat_modules.h"

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

#define FUSION_ROW(name, field, text) \
    { \
        .key = (name), .kind = SPW_SETTING_CHOICE, SPW_SETTING_CHOICE_OF(spw_job, field, spw_fusion), \
        .choices = fusions, .fallback = "auto", .help = (text) \
    }

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

static const spw_choice algorithms[] = {{"adam", false}, {"muon", true}, {NULL, 0}};
static const spw_choice muon_layouts[] = {{"packed", false}, {"ping_pong", true}, {NULL, 0}};
static const spw_choice library_limits[] = {{"check", true}, {"ignore", false}, {NULL, 0}};

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
    GROUP_ROW("parallel", spw_job_parallel_rows, NULL, "how the GPUs are split; the product is all of them",
              NULL),
    GROUP_ROW("batch", spw_job_batch_rows, NULL, "what one GPU works on in a step", NULL),
    GROUP_ROW("finetune", spw_job_finetune_rows, "{}", "what is trained of the model", NULL),
    GROUP_ROW("precision", spw_job_precision_rows, "{}",
              "number formats, or one word for all: framework (its own defaults), mixed (products in bf16, "
              "state in fp32), bf16, fp32",
              "precision"),
    GROUP_ROW("fsdp2", spw_job_fsdp2_rows, "{}", "how PyTorch's FSDP2 gathers weights", NULL),
    GROUP_ROW("allocator", spw_job_allocator_rows, "{}",
              "PyTorch's caching allocator, as PYTORCH_CUDA_ALLOC_CONF sets it", NULL),
    GROUP_ROW("resident", spw_job_resident_rows, "{}", "what stays on a GPU beside the training process",
              NULL),
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
    FLAG_ROW("store_param_remainders", megatron.remainders,
             "Megatron-Core's precision-aware optimizer: of an fp32 master weight the 16 bits that its bf16 "
             "weight lacks, from the first step on"),
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
     .help = "Megatron-Core's modules whose inputs wait in the host's memory: some of core_attn, attn_proj, "
             "expert_fc1, "
             "moe_act"},
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
