/* A training job: model, cluster, parallel split, batch, precision. Read from YAML (docs/keys.md; README.md, "Your
 * own job"). */
#ifndef SPW_SIM_JOB_JOB_H
#define SPW_SIM_JOB_JOB_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/job/recipe/finetune.h"
#include "sim/job/recipe/fp8_recipe.h"
#include "sim/job/recipe/offload_modules.h"
#include "sim/job/stage_layout.h"
#include "sim/machine/cluster.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { SPW_JOB_IMPLIED = 256, SPW_JOB_MORE = 1024, SPW_JOB_UNSAID = 2048, SPW_JOB_ORIGIN = 24 };
enum { SPW_JOB_NAME = 1024 };

enum { SPW_MASTER_AUTO = 255 };

/* Bytes an element of each kind takes: bf16 and fp16 2, fp32 4, fp8 1 (sim/job/recipe/precision.h). */
typedef struct spw_precision {
    size_t weights, gradients, optimizer, activations;
    unsigned fp16;     /* bit i: the i-th of them is fp16, not bf16 */
    unsigned assumed;  /* bit i: the i-th was not said and is fp32, as the framework's own default */
    unsigned followed; /* bit i: a smaller format was said of the i-th, which follows sharded fp32 weights */
    size_t second;     /* bytes of Adam's second moment where it is not the optimizer's; 0: it is */
    spw_fp8_recipe recipe;
    bool fp8_param_gather; /* weights of linear layers are fp8 */
} spw_precision;

/* Of optimizer sharded under PyTorch: what its FSDP2 does with the gathered weights of a layer (sim/weights/fsdp2.h). Off: a
 * layer scan gathers the layer at work and the next one. Default: as torchtitan does for its own schemes, off for others;
 * spw_fsdp2_job makes it one of the others. Torchtitan: its policy "default". */
typedef enum spw_reshard {
    SPW_RESHARD_OFF,
    SPW_RESHARD_ALWAYS,
    SPW_RESHARD_NEVER,
    SPW_RESHARD_DEFAULT,
    SPW_RESHARD_TORCHTITAN
} spw_reshard;
enum { SPW_GATHERED_SAME = 1 };
typedef struct spw_job_fsdp2 {
    spw_reshard reshard; /* after a layer's forward pass */
    size_t prefetch;     /* layers whose all-gathers are under way beside the layer at work */
    size_t replicas;     /* groups of GPUs that each hold all sharded state once (HSDP); 1: none */
    size_t
        gathered; /* bytes of a weight as it is gathered and used; 0: auto, SPW_GATHERED_SAME: as it is sharded */
    bool on_host; /* what is sharded stays in the host's memory (CPUOffloadPolicy) */
} spw_job_fsdp2;

/* Orders of a pipeline's passes, by the names of torch.distributed.pipelining, which torchtitan takes. What is not one of the first
 * three is known by name and refused. */
#define SPW_SCHEDULE_LIST(X) \
    X(ONE_F_ONE_B, "1F1B") \
    X(INTERLEAVED, "Interleaved1F1B") \
    X(GPIPE, "GPipe") \
    X(LOOPED_BFS, "LoopedBFS") \
    X(INTERLEAVED_ZERO_BUBBLE, "InterleavedZeroBubble") \
    X(ZBV, "ZBVZeroBubble") \
    X(DUAL_PIPE_V, "DualPipeV") \
    X(ZERO_BUBBLE, "ZB1P") \
    X(DUAL_PIPE, "DualPipe")
#define SPW_SCHEDULE_ENUM(name, text) SPW_SCHEDULE_##name,
typedef enum spw_schedule { SPW_SCHEDULE_LIST(SPW_SCHEDULE_ENUM) SPW_SCHEDULES } spw_schedule;
#undef SPW_SCHEDULE_ENUM

const char *spw_optimizer_name(spw_optimizer_kind optimizer);

/* PyTorch's caching allocator (sim/memory/allocator/allocator.h), for schemes that allocate what arrives. */
struct spw_job_allocator {
    bool expandable_segments;
    size_t max_split_size_mb;            /* MiB, as PyTorch calls them; 0 = no limit */
    double garbage_collection_threshold; /* 0 = off */
    double per_process_memory_fraction;  /* of the device; 0 = none was set */
    size_t roundup_power2_divisions;     /* 0 = off */
};

/* What stays on every GPU beside the training process through its step, such as serving weights and their cache. */
enum { SPW_RESIDENT_TEXT = 64 };
typedef struct spw_job_resident {
    char name[SPW_RESIDENT_TEXT];
    double gib, share; /* the two added; share: of the device; 0: nothing */
} spw_job_resident;

/* What is trained: the whole model, or its bare MoE layers, x + MoE(norm(x)), without attention, shared
 * experts, embedding and optimizer. */
typedef enum spw_model_part { SPW_PART_WHOLE, SPW_PART_EXPERT_LAYERS } spw_model_part;
const char *spw_model_part_name(spw_model_part part);

/* The core of attention: one kernel that never holds the scores, or Megatron-Core's own without TransformerEngine, which does. */
typedef enum spw_attention_core {
    SPW_ATTENTION_FLASH, /* under Megatron-Core TransformerEngine's */
    SPW_ATTENTION_UNFUSED,
    SPW_ATTENTION_SDPA /* PyTorch's, of modules that take TransformerEngine's place */
} spw_attention_core;

/* Megatron-Core's --cuda-graph-impl: graphs of parts of a layer, or of a whole iteration. */
typedef enum spw_cuda_graph {
    SPW_GRAPH_NONE,
    SPW_GRAPH_LOCAL,
    SPW_GRAPH_TRANSFORMER_ENGINE,
    SPW_GRAPH_FULL_ITERATION
} spw_cuda_graph;
const char *spw_cuda_graph_name(spw_cuda_graph graph);

/* Kernels that TransformerEngine fuses, or PyTorch's one by one. AUTO: as the runs behind the stack had them. */
typedef enum spw_fusion { SPW_FUSION_AUTO, SPW_FUSION_ON, SPW_FUSION_OFF, SPW_FUSION_LAYERS } spw_fusion;
enum { SPW_RELEASE_TEXT = 16 };

/* What recipes of Megatron-Core say beside the split, by its names (sim/job/recipe/megatron_keys.h). */
typedef struct spw_megatron_keys {
    bool overlap_gradients;      /* --overlap-grad-reduce */
    bool overlap_gathers;        /* --overlap-param-gather */
    bool delay_weight_gradients; /* --delay-wgrad-compute */
    bool overlap_shared;         /* --moe-shared-expert-overlap */
    bool fused_experts;          /* --use-transformer-engine-op-fuser */
    spw_fusion permute, router, rope;
    spw_fusion streams; /* use_fused_mhc; AUTO: on Blackwell, whose kernels they are */
    size_t
        streams_group; /* mhc_recompute_layer_num: layers whose module mhc runs again at once; 0: a whole block */
    spw_fusion weight_gradients; /* gradient_accumulation_fusion; AUTO: on; LAYERS: of all but the head */
    /* store_param_remainders, of a precision-aware optimizer: half of an fp32 master weight beside bf16 */
    bool remainders;
    char release[SPW_RELEASE_TEXT]; /* of Megatron-Core, as in 0.17; "": not said */
    bool untuned; /* without what recipes made for speed have: the host's settings, fused kernels */
} spw_megatron_keys;

struct spw_job {
    char model_text[SPW_JOB_NAME], cluster_text[SPW_JOB_NAME]; /* as written: presets or paths */
    size_t gpus;                                               /* as written; 0: the cluster's own number */
    spw_model model;
    spw_cluster cluster;
    size_t expert, fsdp, pipeline, tensor;
    size_t context, expert_tensor,
        data;               /* 0: worked out, by sim/job/grid.h, which says how all seven hang together */
    bool sequence_parallel; /* of tensor > 1: what is not sharded is cut along the sequence */
    size_t sequences_per_gpu[SPW_JOB_MAX_BATCHES], batches;
    size_t
        global_batch; /* sequences of all GPUs in one step; 0: not said. The batch is then worked out (sim/job/job_split.h) */
    size_t sequence_length;
    size_t micro_batches;  /* of one step; divides the sequences of a GPU; 0 counts as 1 */
    size_t virtual_stages; /* blocks of layers of one pipeline stage; > 1: interleaved schedule; 0 as 1, but
                              in MaxText's loop one a layer (sim/memory/compiled/compiled_cut.h) */
    spw_schedule schedule; /* of a pipeline; interleaved wherever there are several virtual stages */
    spw_stage_layout stage_layout; /* which stage holds which layers, where they are not shared out evenly */
    spw_model_part part;
    size_t
        layers; /* 0 = the model's; else how many bare layers, and then model.layers and moe_layers say the same */
    spw_job_allocator allocator;
    const struct spw_memory_snapshot *snapshot; /* the whole job, recorded; borrowed; NULL: none */
    size_t snapshot_stage;                      /* of the rank that was recorded */
    spw_finetune finetune;
    spw_precision precision;
    size_t master_bytes; /* of a second copy of each weight in the optimizer; 0 = none; SPW_MASTER_AUTO */
    spw_optimizer_kind optimizer;
    size_t
        optimizer_instances; /* groups of replicas that each hold the distributed optimizer's state once; 0 counts as 1 */
    bool muon;               /* matrices of layers by Muon, all else by Adam; false: all by Adam */
    bool muon_ping_pong;      /* its layer-wise optimizer deals whole parameters out, in no padded buffer */
    double optimizer_on_host; /* share of Megatron's optimizer state that is in the host's memory */
    spw_job_fsdp2 fsdp2;
    spw_offload offload;
    spw_remat remat;
    spw_attention_core attention;
    spw_cross_entropy cross_entropy;
    spw_cuda_graph cuda_graph;
    bool overlap_exchanges; /* of a micro-batch, behind another's work (--overlap-moe-expert-parallel-comm) */
    spw_megatron_keys megatron;
    double memory_fraction; /* (0, 1] */
    bool
        fraction_unsaid; /* nobody said it: what lies outside may be known (sim/memory/allocator/device_budget.h) */
    bool optimizer_unsaid; /* nobody said it: it follows the schemes (spw_job_optimizer_fill) */
    spw_job_resident resident;
    bool
        library_limits; /* libraries of exchanges must take the job's layers (sim/schemes/library_limits.h) */
    double price_per_gpu_hour;                         /* 0: the cluster's */
    char scheme[SPW_JOB_MAX_SCHEMES][SPW_SCHEME_TEXT]; /* as written; parsed by sim/schemes/scheme.h */
    size_t schemes;
    char implied
        [SPW_JOB_IMPLIED]; /* sizes of the file's split that options made others: a line for a person; "": none */
    char origin[SPW_JOB_ORIGIN]; /* the framework of that file, where no scheme is its own; "": another */
    char more
        [SPW_JOB_MORE]; /* of a framework's file: what may need more memory than is counted; "": nothing */
    char less[SPW_JOB_MORE];     /* the same: what needs less than is planned */
    char unsaid[SPW_JOB_UNSAID]; /* the same: what is assumed, as it does not say */
    size_t
        mesh_replicas; /* the same: of how many replicas that hold all state each the job is one; 0: it is all */
    size_t mesh_between; /* of these, how many lie on the axis between nodes, times those within one */
};

/* SPW_ECONFIG when the job trains expert layers alone; `what` is said to speak of whole models. */
SPW_MUST_CHECK spw_status spw_job_is_whole(const spw_job *job, const char *what);

/* Reads and checks a job file. Unknown key, wrong type, value out of range or a combination that cannot be is
 * SPW_ECONFIG with "file:line: what; what would be right"; a file that cannot be read is SPW_EIO. */
SPW_MUST_CHECK spw_status spw_job_read(const char *path, spw_job *out);
/* The same from text; relative model and cluster paths are taken from `folder`. */
SPW_MUST_CHECK spw_status spw_job_parse(const char *where, const char *folder, const char *text,
                                        size_t length, spw_job *out);
/* A value of a job's key from elsewhere than the file: `key` as in "batch.sequence_length"; `value` as one would write it in the
 * file, lists also as 1,2,4; `label` begins messages about it. */
struct spw_job_override {
    const char *key, *value, *label;
};
enum { SPW_JOB_OVERRIDES = 64 };

/* The same as spw_job_read with values in place of the file's. Without a path (NULL) the job is these values and 1 sequence of
 * 4096 tokens a GPU, its split worked out. Of the split, what the values leave unsaid is worked out (sim/job/job_override.h).
 * A path that begins with '{' is the job's text itself. Paths among the values, and in such a text, are taken from where the
 * program runs. */
SPW_MUST_CHECK spw_status spw_job_read_with(const char *path, const spw_job_override *override,
                                            size_t overrides, spw_job *out);
/* The table by which a job is read; rows with an `option` have a name on the command line. Ended by a NULL key. */
const spw_setting *spw_job_settings(void);

/* Checks what reading checks of the combination, and that micro_batches divide every batch, where reading is content with one;
 * call it after reading and after changing a field (say, from the command line). */
SPW_MUST_CHECK spw_status spw_job_check(const spw_job *job);

double spw_job_price(
    const spw_job *job); /* of one GPU for an hour: the job's, or else the cluster's; 0: neither says one */
size_t spw_job_gpus(const spw_job *job);          /* expert x expert_tensor x fsdp x pipeline */
size_t spw_job_micro_batches(const spw_job *job); /* of a step; 1 where the job does not say */
/* PyTorch's ScheduleInterleaved1F1B: as many rounds as stages fit into the micro-batches, one at least; all are of one length. */
size_t spw_job_rounds(const spw_job *job);

#endif
