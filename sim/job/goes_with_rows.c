/* Rows are looked at from top to bottom; the first that holds speaks. Sources of what a framework refuses stand with the key that it
 * is about, in docs/schemes.md. */
#include "sim/job/goes_with.h"

#define NO(one, other, key, ...) \
    { SPW_WITH_##one, SPW_WITH_##other, key, __VA_ARGS__ }
#define OF_SCHEME "scheme '{scheme}': "

/* --- Sentences of several rows --- */

static const char
    bare_pipeline[] = "bare layers have no pipeline and no micro-batches; pipeline is {pipeline} and "
                      "micro_batches {micro_batches}, make both 1",
    instances[] = "optimizer_instances {instances}: copies of Megatron-Core's distributed optimizer of whole "
                  "models by Adam; use "
                  "optimizer: distributed, model_part: whole and optimizer_algorithm: adam, or leave it out; "
                  "FSDP2 has fsdp2.replicas",
    ping_pong[] = "muon_layout: ping_pong is of Muon's layer-wise optimizer; add optimizer_algorithm: muon "
                  "and optimizer: distributed, or leave it out",
    muon[] = "muon with finetune, optimizer_on_host or fp8_param_gather is not modelled; leave these out, or "
             "use optimizer_algorithm: adam",
    param_gather[] = "fp8_param_gather needs a recipe and optimizer: distributed, as Megatron-Core does; it "
                     "has recipe {recipe} and optimizer {optimizer}",
    remainders[] =
        "store_param_remainders is of Megatron-Core's distributed optimizer of whole models by "
        "Adam on the GPU, with all weights trained; use optimizer: distributed, model_part: whole "
        "and optimizer_algorithm: adam, and leave finetune and optimizer_on_host out, or leave it out",
    delayed[] = "Megatron-Core refuses recipe delayed with remat {remat}: delayed scaling does not go with "
                "moe_act or layernorm; use "
                "remat: none, full or other modules, or another recipe",
    whole_moe[] = "remat {remat}: moe runs the whole MoE layer again, moe_act and shared_experts with it; "
                  "leave these out, or moe",
    tuned[] = "finetune with recipe {recipe} under remat {remat} is not modelled; use recipe: none and "
              "another remat",
    selective[] = OF_SCHEME "remat selective_op is torchtitan's, of whole models with its all-to-all "
                            "dispatcher; use none or full, or "
                            "schemes: [torchtitan] with model_part: whole",
    operations[] = OF_SCHEME
    "which operations remat selective_op keeps is described for grouped and latent attention in every layer, "
    "without recipes, frozen weights and adapters; use none or full, which bound it",
    unfused[] = OF_SCHEME
    "attention: unfused is described for whole models under Megatron-Core's dispatchers, and for "
    "gpt-oss under transformers; use megatron-alltoall, megatron-allgather or megatron-flex with optimizer: "
    "distributed or replicated, or attention: flash",
    unfused_more[] =
        "attention: unfused is described for activations in bf16 without a recipe, for training of all "
        "weights, and for "
        "remat none, full and the modules of Megatron-Core; use one of these, or attention: flash",
    offload[] =
        "offload_modules {offload} is described for whole models under Megatron-Core's optimizer with "
        "attention: flash; use "
        "optimizer: distributed or replicated and leave finetune and model_part out, or offload_modules: []";

#define CUT_MODEL \
    "tensor {tensor}, context {context} and expert_tensor {expert_tensor} with model '{model}', which has "
#define UNREAD ": how it is split is not modelled; "
#define OF_FSDP2(word) word " is of FSDP2; add fsdp2.reshard_after_forward: always or never, or leave it out"
#define TOLD_FSDP2(word) \
    "fsdp2." word \
    " is of FSDP2, and a job with scheme '{scheme}' and optimizer: {optimizer} has FSDP2 only where " \
    "fsdp2.reshard_after_forward says so; add fsdp2.reshard_after_forward: always (or never), or leave " \
    "fsdp2." word " out"
#define OF_DATA(word) \
    word " is of Megatron-Core's data parallelism of whole models; use optimizer: distributed or " \
         "replicated and model_part: whole, or leave it out"
#define OF_MEGATRON(word) \
    OF_SCHEME word " is a key of Megatron-Core's schemes; leave it out, or use one of them, as --scheme " \
                   "megatron-alltoall"
#define CUT_ADAPTERS(what) \
    "finetune.lora_targets attention with tensor {tensor} and model '{model}': how adapters beside " what \
    " are cut is not modelled; use lora_targets: experts, or tensor 1"
#define OVERLAPS OF_SCHEME "overlap_moe_expert_parallel_comm "

/* Schedules that are refused with everything, each with what differs from the nearest that is modelled. Bubbles:
 * deepseek-ai/DualPipe 89f5de1 README.md; F, B, W: a forward pass, a backward pass, of which W makes the gradients of
 * weights; F&B: the two side by side. */
const spw_pair spw_pairs[] = {
    /* --- Of jobs --- */
    NO(MESH_CUT, OTHER_EXPERT_TENSOR, "parallel.expert_tensor",
       "expert_tensor {expert_tensor} beside tensor {tensor} with sharded weights: MaxText's axis tensor "
       "cuts the experts as well; leave expert_tensor out, or use Megatron-Core's optimizer: distributed or "
       "replicated"),
    NO(VIRTUAL_EVEN, ONE_STAGE, "parallel.virtual_stages",
       "virtual_stages {virtual_stages} without a pipeline; use 1, or a pipeline of 2 or more"),
    NO(SHARED_HEADS, NORM_OF_HEADS, "parallel.tensor",
       "tensor {tensor} with the {heads} key and value heads of model '{model}', which has norms over all "
       "heads together: how several GPUs hold a head's norm is not modelled; use tensor {heads}"),
    NO(SHARED_HEADS, MUON, "optimizer_algorithm",
       "muon with tensor {tensor} and the {heads} key and value heads of model '{model}': Megatron-Core's "
       "Muon refuses queries, keys and values of a part of a head; use tensor {heads} or "
       "optimizer_algorithm: adam"),
    NO(SEQUENCE_TENSOR, NO_SEQUENCE_PARALLEL, "parallel.sequence_parallel",
       "tensor {tensor} without sequence_parallel: Megatron-Core refuses to train MoE layers so; use "
       "sequence_parallel: true"),
    NO(CUT, UNREAD_MIXER, "parallel", CUT_MODEL "{mixer}" UNREAD "make tensor and context 1"),
    NO(MESH_TENSOR, LATENT_EXPERTS, "parallel", CUT_MODEL "latent experts" UNREAD "make tensor 1"),
    NO(MESH_CUT, INDEXER, "parallel", CUT_MODEL "a sparse indexer" UNREAD "make tensor and context 1"),
    NO(CONTEXT, INDEXER, "parallel",
       CUT_MODEL "a sparse indexer: Megatron-Core gathers its keys among context ranks, and how attention "
                 "picks from them there is not modelled; make context 1"),
    NO(MESH_CUT, NORM_OF_HEADS, "parallel",
       CUT_MODEL "norms over all query heads together" UNREAD "make tensor and context 1"),
    NO(EXPERT_TENSOR, EXPERT_BIAS, "parallel", CUT_MODEL "biases of experts" UNREAD "make expert_tensor 1"),
    NO(LOOPED_BFS, ANYTHING, "parallel.schedule",
       "LoopedBFS takes all micro-batches through one block before the next; its order is not described: "
       "GPipe with virtual_stages 1 keeps as many layers in flight"),
    NO(INTERLEAVED_ZB, ANYTHING, "parallel.schedule",
       "InterleavedZeroBubble makes the gradients of weights later than those of inputs, and what they need "
       "waits that long, which is not described: Interleaved1F1B with the same virtual_stages has more "
       "forward passes in flight, nothing that waits, and a longer bubble"),
    NO(ZBV, ANYTHING, "parallel.schedule",
       "ZBVZeroBubble lays two blocks of a stage in a V and makes the gradients of weights later, which is "
       "not described: 1F1B keeps as many layers in flight on its first stage as ZB-V is made to keep on "
       "all, and has a longer bubble"),
    NO(DUAL_PIPE_V, ANYTHING, "parallel.schedule",
       "DualPipeV runs a forward and a backward pass at once over two blocks of a stage in a V, which is not "
       "described: 1F1B keeps half a stage's layers of one micro-batch less on its first stage than "
       "DualPipeV on all, and overlaps no exchange"),
    NO(ZERO_BUBBLE, ANYTHING, "parallel.schedule",
       "ZB1P makes the gradients of weights later than those of inputs, which is not described: 1F1B keeps "
       "as many layers in flight, and its bubble is (PP - 1) (F + B), not (PP - 1) (F + B - 2 W)"),
    NO(DUAL_PIPE, ANYTHING, "parallel.schedule",
       "DualPipe sends micro-batches from both ends, forward beside backward, over stages that hold the "
       "model twice, which is not described: 1F1B has half its weights and one micro-batch less in flight, "
       "and its bubble is (PP - 1) (F + B), not (PP / 2 - 1) (F&B + B - 3 W)"),
    NO(SCHEDULE, ONE_STAGE, "parallel.schedule",
       "a schedule of a job without pipeline stages; leave it out, or make parallel.pipeline 2 or more"),
    NO(INTERLEAVED, NOT_VIRTUAL, "parallel.schedule",
       "Interleaved1F1B has several blocks of layers a stage; add virtual_stages: 2, which torchtitan takes "
       "unless told otherwise"),
    NO(GPIPE, VIRTUAL, "parallel.schedule",
       "GPipe has one block of layers a stage, and virtual_stages is {virtual_stages}; make it 1, or use "
       "Interleaved1F1B"),
    NO(LAYERS, WHOLE, "layers",
       "layers {layers} is for bare layers; add model_part: expert_layers, or leave layers out"),
    NO(BARE, STAGES, "parallel", bare_pipeline),
    NO(BARE, MICRO_BATCHES, "parallel", bare_pipeline),
    NO(BARE, FSDP, "parallel",
       "bare layers are one expert-parallel group; fsdp is {fsdp}, make it 1 and expert {group}"),
    NO(PREFETCH, NO_FSDP2, "fsdp2.prefetch", OF_FSDP2("prefetch {prefetch}")),
    NO(REPLICAS, NO_FSDP2, "fsdp2.replicas", OF_FSDP2("replicas")),
    NO(STATE_ON_HOST, NO_FSDP2, "fsdp2.state", OF_FSDP2("state")),
    NO(GATHERED_OTHER, NO_FSDP2, "fsdp2.gathered", OF_FSDP2("gathered")),
    NO(FSDP2, NOT_SHARDED, "fsdp2.reshard_after_forward",
       "reshard_after_forward is of whole models whose weights are sharded; use optimizer: sharded (it is "
       "{optimizer}) and model_part: whole, or leave it out"),
    NO(OPTIMIZER_ON_HOST, NOT_MEGATRON, "optimizer_on_host",
       "optimizer_on_host is of Megatron-Core's optimizer of whole models; use optimizer: distributed or "
       "replicated and model_part: whole; FSDP2 has fsdp2.state: host"),
    NO(OPTIMIZER_ON_HOST, PARAM_GATHER, "optimizer_on_host",
       "optimizer_on_host with fp8_param_gather: Megatron-Core takes it with recipe delayed alone, and the "
       "copies to and from the host were not read; use fp8_param_gather: false, or leave it out"),
    NO(INSTANCES, NOT_DISTRIBUTED, "optimizer_instances", instances),
    NO(INSTANCES, BARE, "optimizer_instances", instances),
    NO(INSTANCES, MUON, "optimizer_instances", instances),
    NO(PING_PONG, NOT_MUON, "muon_layout", ping_pong),
    NO(PING_PONG, NOT_DISTRIBUTED, "muon_layout", ping_pong),
    NO(MUON, NOT_MEGATRON, "optimizer_algorithm",
       "muon is described for Megatron-Core's whole models; use optimizer: distributed (dist_muon) or "
       "replicated (muon) and model_part: whole; torch.optim.Muon takes no weights of three dimensions, as "
       "torchtitan's experts are"),
    NO(MUON, FINETUNE, "optimizer_algorithm", muon),
    NO(MUON, OPTIMIZER_ON_HOST, "optimizer_algorithm", muon),
    NO(MUON, PARAM_GATHER, "optimizer_algorithm", muon),
    NO(PARAM_GATHER, NO_RECIPE, "precision.fp8_param_gather", param_gather),
    NO(PARAM_GATHER, NOT_DISTRIBUTED, "precision.fp8_param_gather", param_gather),
    NO(RECIPE_CAST, RECIPE_OF_TE, "precision.recipe",
       "recipe {recipe} is TransformerEngine's, with sharded weights it is not modelled; use tensorwise or "
       "mxfp8 (torchtitan), delayed (MaxText), or Megatron-Core's optimizer: distributed"),
    NO(RECIPE_CAST, NOT_CAST, "precision.recipe",
       "recipe {recipe} casts weights and activations of bf16; leave precision.activations at bf16 and "
       "precision.weights at bf16 or fp32"),
    NO(RECIPE_MEGATRON, NOT_BF16, "precision.recipe",
       "recipe {recipe} casts weights and activations of bf16; leave precision.weights and "
       "precision.activations at bf16 (fp8_param_gather makes weights fp8 or fp4)"),
    NO(RECIPE, BARE, "precision.recipe",
       "recipe {recipe} of bare layers is not modelled; use recipe: none, or model_part: whole"),
    NO(DELAYED, REMAT_MOE_ACT, "precision.recipe", delayed),
    NO(DELAYED, REMAT_LAYERNORM, "precision.recipe", delayed),
    NO(MXFP4, PARAM_GATHER, "precision.fp8_param_gather",
       "recipe mxfp4 keeps weights in bf16 (Primus has no weights in MXFP4 for a MoE); leave "
       "fp8_param_gather out"),
    NO(MXFP4, SAID_SPLIT, "parallel",
       "recipe mxfp4 with tensor or expert_tensor above 1: what AMD's TransformerEngine gathers in FP4 was "
       "not read; use 1, or recipe mxfp8"),
    NO(FP4, OFFLOAD_FC1, "offload_modules",
       "offload_modules expert_fc1 with recipe {recipe}: which copies leave the GPU was not read; use "
       "offload_modules: [moe_act], or recipe mxfp8"),
    NO(OVERLAP_GRADIENTS, NOT_MEGATRON, "overlap_grad_reduce", OF_DATA("overlap_grad_reduce")),
    NO(OVERLAP_GATHERS, NOT_MEGATRON, "overlap_param_gather", OF_DATA("overlap_param_gather")),
    NO(OVERLAP_GATHERS, NO_OVERLAP_GRADIENTS, "overlap_param_gather",
       "overlap_param_gather needs overlap_grad_reduce: true, as Megatron-Core does"),
    NO(OVERLAP_GATHERS, NOT_DISTRIBUTED, "overlap_param_gather",
       "overlap_param_gather hides gathers of the distributed optimizer, and optimizer is {optimizer}, which "
       "gathers nothing; use optimizer: distributed, or leave it out"),
    NO(REMAINDERS, NOT_DISTRIBUTED, "store_param_remainders", remainders),
    NO(REMAINDERS, BARE, "store_param_remainders", remainders),
    NO(REMAINDERS, MUON, "store_param_remainders", remainders),
    NO(REMAINDERS, FINETUNE, "store_param_remainders", remainders),
    NO(REMAINDERS, OPTIMIZER_ON_HOST, "store_param_remainders", remainders),
    NO(REMAINDERS, NO_REMAINDERS, "store_param_remainders",
       "store_param_remainders is of fp32 master weights beside bf16 weights; use precision.weights: bf16 "
       "and precision.master: fp32 or auto, or leave it out"),
    NO(REMAINDERS, NOT_DELAYED, "store_param_remainders",
       "store_param_remainders with recipe {recipe}: Megatron-Core keeps whole master weights there; use "
       "recipe: none or delayed, or leave it out"),
    NO(DELAY_WGRAD, NO_OVERLAP, "delay_wgrad_compute",
       "delay_wgrad_compute needs overlap_moe_expert_parallel_comm: true, as Megatron-Core does"),
    NO(OVERLAP_SHARED, OVERLAP, "moe_shared_expert_overlap",
       "moe_shared_expert_overlap does not go with overlap_moe_expert_parallel_comm, as in Megatron-Core; "
       "leave one of them out"),
    NO(OVERLAP_SHARED, REMAT_SHARED, "moe_shared_expert_overlap",
       "moe_shared_expert_overlap does not go with remat shared_experts, as in Megatron-Core; leave one of "
       "them out"),
    NO(FUSED_STREAMS, NO_STREAMS, "use_fused_mhc",
       "use_fused_mhc is of residual streams, which model '{model}' does not have; leave it out"),
    NO(STREAMS_GROUP, NOT_REMAT_MHC, "mhc_recompute_layer_num",
       "mhc_recompute_layer_num needs mhc among the modules of remat, which is {remat}"),
    NO(FUSED_EXPERTS, OFFLOAD_EXPERTS, "use_transformer_engine_op_fuser",
       "use_transformer_engine_op_fuser does not go with offload_modules expert_fc1 or moe_act, as in "
       "Megatron-Core; leave one of them out"),
    NO(OLD_RELEASE, MUON_PACKED, "megatron_core_release",
       "megatron_core_release {release} has no packed layout of Muon, which came with 0.18; write "
       "muon_layout: ping_pong"),
    NO(REMAT_MLA, NO_LATENT_ATTENTION, "remat",
       "remat {remat}: mla_up_proj is of multi-latent attention, which model '{model}' does not have; leave "
       "mla_up_proj out"),
    NO(REMAT_MOE, REMAT_MOE_ACT, "remat", whole_moe),
    NO(REMAT_MOE, REMAT_SHARED, "remat", whole_moe),
    NO(REMAT_MHC, NO_STREAMS, "remat",
       "remat {remat}: mhc is of residual streams, which model '{model}' does not have; leave mhc out"),
    NO(REMAT_MHC, REMAT_MLP, "remat",
       "remat {remat}: mhc does not go with mlp, as in Megatron-Core; leave one of them out"),
    NO(REMAT_LIST, BARE, "remat",
       "remat {remat} of bare layers is not described; use one of none, full, selective, moe_act and moe, or "
       "model_part: whole"),
    NO(FROZEN_BASE, NO_ADAPTERS, "finetune",
       "finetune.frozen base without adapters trains nothing; add lora_rank: 16, or use frozen: experts"),

    /* --- With a scheme --- */
    NO(HYBRIDEP, AMD, NULL,
       OF_SCHEME "HybridEP runs on NVIDIA's GPUs alone (deepseek-ai/DeepEP, branch hybrid-ep; ROCm/DeepEP "
                 "has none), and {cluster} has AMD's; nearest: megatron-flex or primus-syncfree; "
                 "library_limits: ignore plans it all the same"),
    NO(NO_LATENT, LATENT_EXPERTS, NULL,
       OF_SCHEME "model '{model}' has experts whose rows are narrower than the hidden size, and MaxText has "
                 "no such layer; use a scheme of PyTorch such as megatron-alltoall"),
    NO(NO_PLAIN, PLAIN_EXPERTS, NULL,
       OF_SCHEME "model '{model}' has experts of two matrices, without a gate, which are described for "
                 "Megatron-Core's dispatchers megatron-alltoall, megatron-allgather, megatron-flex, "
                 "megatron-syncfree and megatron-ncclep; use one of them"),
    NO(TURNS, GLOBAL_BATCH, NULL,
       "global_batch with {name} and pipeline {pipeline} without micro-batches: in MaxText's pipeline every "
       "device then has sequences; give micro_batches, or sequences_per_gpu"),
    NO(NO_CASTS, RECIPE_CAST, NULL,
       OF_SCHEME "recipe {recipe} with sharded weights is not modelled; tensorwise and mxfp8 are for "
                 "torchtitan, delayed for dense; others need Megatron-Core's optimizer: distributed"),
    NO(NO_FP8, RECIPE_MEGATRON, NULL,
       OF_SCHEME
       "recipe {recipe} is of TransformerEngine under Megatron-Core; what this scheme's own quantization "
       "keeps is not modelled: use megatron-alltoall, megatron-flex or megatron-syncfree, or recipe: none"),
    NO(NO_MESH, MESH, NULL,
       OF_SCHEME "MaxText's mesh axes tensor {tensor} and context {context} are described for dense, gmm, "
                 "ragged, ring and ragged-ring; use one of them, or make both 1"),
    NO(MESH, STAGES, NULL,
       OF_SCHEME "pipeline {pipeline} with MaxText's mesh axes tensor {tensor} and context {context} is not "
                 "described; use pipeline 1, or make both axes 1"),
    NO(MESH, TOKEN_CHUNKS, NULL,
       OF_SCHEME "token_chunks with tensor {tensor} was not read; leave token_chunks out, or make tensor 1"),
    NO(MESH_CONTEXT, NOT_EXCHANGED, NULL,
       OF_SCHEME "how XLA cuts this layout for tensor {tensor} and context {context} is not described; use "
                 "layout=exchange, or make both axes 1"),
    NO(MESH, PEELED, NULL,
       OF_SCHEME "how XLA cuts this layout for tensor {tensor} and context {context} is not described; use "
                 "layout=exchange or layout=gathered, or make both axes 1"),
    NO(MESH_BOTH, CAPACITY, NULL,
       OF_SCHEME "tensor {tensor} and context {context} with a capacity factor are described one at a time; "
                 "make one of them 1, or use gmm, ragged, ring or ragged-ring"),
    NO(SPLIT, NO_SPLITS, NULL,
       OF_SCHEME "tensor {tensor}, context {context} and expert_tensor {expert_tensor} are {splits_words}"),
    NO(SPLIT_EXPERTS, NOT_ALL_TO_ALL, NULL,
       OF_SCHEME
       "expert_tensor {expert_tensor}{unsaid} is described for the all-to-all dispatcher alone; use "
       "megatron-alltoall, or expert_tensor: 1"),
    NO(SPLIT, SHARDED, NULL,
       "tensor {tensor}, context {context} and expert_tensor {expert_tensor} with sharded weights are not "
       "modelled; use Megatron-Core's optimizer: distributed or replicated"),
    NO(POOL, NOT_MXFP8, NULL,
       OF_SCHEME "TransformerEngine marks tensors for the paged stash in its fused MXFP8 experts alone, so "
                 "recipe {recipe} would leave the pages empty; use precision.recipe: mxfp8 on Blackwell, or "
                 "leave stash= away"),
    NO(POOL, EXPERTS_AGAIN, NULL,
       OF_SCHEME "under remat {remat} a MoE layer runs again right before its backward pass, so nothing of "
                 "it waits in the stash; use remat: none or selective, or leave stash= away"),
    NO(POOL, REMAT_MOE_ACT, NULL,
       OF_SCHEME "remat moe_act with the paged stash is done within TransformerEngine's fused experts and "
                 "was not read; use remat: none or selective, or leave stash= away"),
    NO(NO_PREDICTIONS, MTP_NUMBER, NULL,
       OF_SCHEME "mtp_num_layers is of Megatron-Core's and Primus' schemes, which have layers of multi-token "
                 "prediction; leave it out, or use one of them, as --scheme megatron-alltoall"),
    NO(EVEN_STAGES, LAYOUT, NULL,
       OF_SCHEME "MaxText gives every stage equally many layers; use a scheme of PyTorch such as "
                 "megatron-alltoall, or leave the layout of the stages out"),
    NO(NO_STAGES, STAGES, NULL, OF_SCHEME "pipeline {pipeline}, and {stages_words}"),
    NO(NO_GPIPE, GPIPE, NULL,
       OF_SCHEME "GPipe is described for torchtitan's schemes, whose pipelines are PyTorch's; "
                 "Megatron-Core's and MaxText's have another order: leave parallel.schedule out"),
    NO(TUNED, PEFT_TARGETS, NULL,
       OF_SCHEME "finetune.lora_targets linear and all are PEFT's, of scheme transformers; use attention, "
                 "experts or both"),
    NO(TUNED, NOT_FREEZING, NULL,
       OF_SCHEME "finetune (frozen {frozen}, lora_rank {lora_rank}) is described for megatron-alltoall and "
                 "megatron-flex alone, adapters beside a frozen base (finetune.frozen=base) for transformers "
                 "too; use one of them, or leave finetune away"),
    NO(TUNED, NOT_MEGATRON, NULL,
       "finetune is described for whole models under Megatron-Core's optimizer: distributed or replicated; "
       "use one of these, or leave finetune away"),
    NO(TUNED, EXPERT_TENSOR, NULL,
       "finetune with expert_tensor {expert_tensor} is not modelled{unsaid}; use expert_tensor: 1 (tensor "
       "and context may be above 1)"),
    NO(CUT_ADAPTERS, LATENT_ALONE, NULL,
       CUT_ADAPTERS("MLA's down projections, which every GPU holds whole,")),
    NO(CUT_ADAPTERS, SEVERAL_KINDS, NULL, CUT_ADAPTERS("layers of several kinds")),
    NO(TUNED, RECIPE, NULL, tuned),
    NO(TUNED, REMAT_FINE, NULL, tuned),
    NO(FSDP2_UNSAID, PREFETCH, NULL, TOLD_FSDP2("prefetch")),
    NO(FSDP2_UNSAID, REPLICAS, NULL, TOLD_FSDP2("replicas")),
    NO(FSDP2_UNSAID, GATHERED, NULL, TOLD_FSDP2("gathered")),
    NO(FSDP2_UNSAID, STATE_ON_HOST, NULL, TOLD_FSDP2("state")),
    NO(OWN_GATHERS, FSDP2_UNITS, NULL,
       OF_SCHEME "FSDP2 is PyTorch's, and MaxText's program gathers weights by its layer scan; use a scheme "
                 "of PyTorch such as torchtitan, or fsdp2.reshard_after_forward: off"),
    NO(NOT_SELECTING, SELECTIVE_OP, NULL, selective),
    NO(SELECTIVE_OP, BARE, NULL, selective),
    NO(UNREAD_OPERATIONS, SELECTIVE_OP, NULL, operations),
    NO(SELECTIVE_OP, RECIPE, NULL, operations),
    NO(SELECTIVE_OP, FINETUNE, NULL, operations),
    NO(UNFUSED, NO_SPLITS, NULL, unfused),
    NO(UNFUSED, NOT_MEGATRON, NULL, unfused),
    NO(UNFUSED, CONTEXT, NULL,
       "attention: unfused with context {context}: Megatron-Core refuses context parallelism without "
       "TransformerEngine; use context: 1, or attention: flash"),
    NO(UNFUSED, SHARED_HEADS, NULL,
       "attention: unfused with tensor {tensor} and the {heads} key and value heads of model '{model}': what "
       "the local attention copies of a shared head is not described; use tensor {heads}, or attention: "
       "flash"),
    NO(UNFUSED, UNREAD_CORE, NULL,
       "attention: unfused is described for attention of heads and key-value heads without norms, gates or "
       "another mixer, which model '{model}' has; use attention: flash"),
    NO(UNFUSED, WIDE_ACTIVATIONS, NULL, unfused_more),
    NO(UNFUSED, RECIPE, NULL, unfused_more),
    NO(UNFUSED, FINETUNE, NULL, unfused_more),
    NO(UNFUSED, REMAT_OF_OTHERS, NULL, unfused_more),
    NO(OTHER_LOSS, ANYTHING, NULL,
       OF_SCHEME "cross_entropy: {loss} is {loss_owner}; use {loss_words}, or leave it out"),
    NO(NOT_OFFLOADING, OFFLOAD, NULL,
       OF_SCHEME "offload_modules {offload} is of Megatron-Core, and described for megatron-alltoall, "
                 "megatron-allgather and megatron-flex; use one of them, or offload_modules: []"),
    NO(OFFLOAD, NOT_MEGATRON, NULL, offload),
    NO(OFFLOAD, FINETUNE, NULL, offload),
    NO(OFFLOAD, UNFUSED, NULL, offload),
    NO(OFFLOAD, SNAPSHOT, NULL,
       "offload_modules {offload} with a recorded snapshot is not modelled; leave the snapshot out, or use "
       "offload_modules: []"),
    NO(OFFLOAD_EXPERTS, EXPERTS_AGAIN, NULL,
       "offload_modules {offload} with remat {remat}: the experts run again right before their backward "
       "pass, so nothing of them waits; use remat: none, selective or moe_act, or offload_modules: []"),
    NO(OFFLOAD_ATTENTION, ATTENTION_AGAIN, NULL,
       "offload_modules {offload} with remat {remat}: the core of attention runs again, or its queries, keys "
       "and values are made again, so they do not wait; use remat: none, moe_act, layernorm or moe, or leave "
       "core_attn and attn_proj out"),
    NO(OFFLOAD_ATTENTION, RECIPE, NULL,
       "offload_modules {offload} with recipe {recipe}: which copies of the core's output leave the GPU is "
       "not "
       "described; use recipe: none, or leave core_attn and attn_proj out"),
    NO(OFFLOAD_ATTENTION, UNLISTED_CORE, NULL,
       "offload_modules {offload} is described for grouped and latent attention in every layer, without "
       "gates, "
       "context parallelism and key heads that GPUs share; leave core_attn and attn_proj out"),
    NO(OFFLOAD_FC1, DELAYED, NULL,
       "offload_modules {offload} with recipe delayed: Megatron-Core has fc1 keep its input in bf16 then, "
       "which TransformerEngine refuses under delayed scaling; use offload_modules: [moe_act], or another "
       "recipe"),
    NO(OVERLAP, NO_SPLITS, NULL, OF_MEGATRON("overlap_moe_expert_parallel_comm")),
    NO(GRAPH, NO_SPLITS, NULL, OF_MEGATRON("cuda_graph_impl")),
    NO(GRAPH_OPTION, GRAPH_PARTS, NULL,
       OF_SCHEME "graph=full is a graph of a whole iteration, and cuda_graph_impl is {graph}; leave the key "
                 "out, or write graph=none"),
    NO(GRAPH_UNSAID, GRAPH_WHOLE, NULL,
       OF_SCHEME "cuda_graph_impl: full_iteration; write graph=full among the scheme's options, by which its "
                 "buffers are counted"),
    NO(READS_ROWS, GRAPH_WHOLE, NULL,
       OF_SCHEME "cuda_graph_impl: full_iteration needs rows whose number the host does not read; use "
                 "megatron-syncfree:graph=full, or capacity_factor=C,pad=true, or transformer_engine for "
                 "graphs of parts of a layer"),
    NO(GRAPH_PARTS, REMAT_FULL, NULL,
       OF_SCHEME
       "cuda_graph_impl: {graph} does not go with remat {remat}: Megatron-Core takes full recompute with "
       "full_iteration alone; use --remat none or a list of modules, or cuda_graph_impl: none"),
    NO(OVERLAP, REMAT_MOE_OR_FULL, NULL,
       OVERLAPS "does not go with recompute of whole layers or of moe; use --remat none or other modules"),
    NO(OVERLAP, ALL_GATHER, NULL, OVERLAPS "takes megatron-alltoall, -flex and -syncfree, not all-gathers"),
    NO(OVERLAP, NO_EXPERT_PARALLEL, NULL,
       OVERLAPS "needs expert parallelism; use --expert-parallel 2 or more, or leave it out"),
    NO(OVERLAP, PLAIN_STAGES, NULL,
       OVERLAPS "with pipeline stages needs virtual stages; use --virtual-stages 2 or more"),
    NO(NO_STREAM_MODULES, REMAT_MHC, NULL,
       OF_SCHEME "mhc in remat is a module of Megatron-Core's own layers; leave it out, or use one of its "
                 "schemes, as --scheme megatron-alltoall"),
    NO(OWN_STREAMS, FUSED_STREAMS, NULL,
       OF_SCHEME "use_fused_mhc is of Megatron-Core's own layers, and Primus mixes streams by a class of its "
                 "own; leave it out"),
    NO(MEGATRON_KEY, NO_SPLITS, NULL, OF_MEGATRON("{said}")),
    NO(OVERLAP_SHARED, ALL_GATHER, NULL,
       OF_SCHEME
       "moe_shared_expert_overlap takes megatron-alltoall and -flex, not all-gathers, as Megatron-Core does"),
    NO(FUSED_EXPERTS, EXPERT_TENSOR, NULL,
       OF_SCHEME "use_transformer_engine_op_fuser does not go with experts that GPUs share, as in "
                 "Megatron-Core; use parallel.expert_tensor: 1, or leave it out"),
    NO(OWN_STATE, KEPT_WEIGHTS, NULL,
       "optimizer {optimizer} does not go with scheme '{scheme}', whose program shards its whole state; use "
       "optimizer: sharded, or a scheme of another framework, as --scheme megatron-alltoall"),
};
const size_t spw_pairs_count = sizeof spw_pairs / sizeof *spw_pairs;
