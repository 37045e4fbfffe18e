#include "sim/job/common_names.h"

#include "sim/job/recipe/maxtext_settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MICRO_BATCH \
    "batch.sequences_per_gpu are the sequences of a GPU in a step, micro_batches x micro-batch size: for a " \
    "micro-batch of 2 in 8 micro-batches write --sequences-per-gpu 16 --micro-batches 8"
#define CAPACITY "a capacity factor is an option of a scheme: --scheme dense:capacity_factor=1.25"

/* Megatron-LM's arguments (megatron/training/arguments.py), torchtitan's and DeepSpeed's names, and what people write for short. */
static const spw_common_name names[] = {
    {"ep", "parallel.expert", "expert-parallel", NULL},
    {"expert_parallel", "parallel.expert", "expert-parallel", NULL},
    {"expert_parallel_degree", "parallel.expert", "expert-parallel", NULL},
    {"expert_model_parallel", "parallel.expert", "expert-parallel", NULL},
    {"tp", "parallel.tensor", "tensor", NULL},
    {"tensor_parallel", "parallel.tensor", "tensor", NULL},
    {"tensor_parallel_degree", "parallel.tensor", "tensor", NULL},
    {"tensor_model_parallel", "parallel.tensor", "tensor", NULL},
    {"pp", "parallel.pipeline", "pipeline", NULL},
    {"pipeline_parallel", "parallel.pipeline", "pipeline", NULL},
    {"pipeline_parallel_degree", "parallel.pipeline", "pipeline", NULL},
    {"pipeline_model_parallel", "parallel.pipeline", "pipeline", NULL},
    {"cp", "parallel.context", "context", NULL},
    {"context_parallel", "parallel.context", "context", NULL},
    {"context_parallel_degree", "parallel.context", "context", NULL},
    {"etp", "parallel.expert_tensor", "expert-tensor", NULL},
    {"expert_tensor_parallel", "parallel.expert_tensor", "expert-tensor", NULL},
    {"vp", "parallel.virtual_stages", "virtual-stages", NULL},
    {"vpp", "parallel.virtual_stages", "virtual-stages", NULL},
    {"virtual_pipeline_model_parallel", "parallel.virtual_stages", "virtual-stages", NULL},
    {"virtual_pipeline", "parallel.virtual_stages", "virtual-stages", NULL},
    {"lora", "finetune.lora_rank", NULL, NULL},
    {"lora_r", "finetune.lora_rank", NULL, NULL},
    {"freeze", "finetune.frozen", NULL, NULL},
    {"dp", "parallel.data", "data", NULL},
    {"data_parallel", "parallel.data", "data", NULL},
    {"data_parallel_replicate_degree", "fsdp2.replicas", NULL, NULL},
    {"dp_shard", "parallel.fsdp", "fsdp", NULL},
    {"edp", "parallel.fsdp", "fsdp", NULL},
    {"mb", NULL, NULL, MICRO_BATCH},
    {"mbs", NULL, NULL, MICRO_BATCH},
    {"micro_batch", NULL, NULL, MICRO_BATCH},
    {"train_micro_batch_size_per_gpu", NULL, NULL, MICRO_BATCH},
    {"per_device_batch", "batch.sequences_per_gpu", "sequences-per-gpu", NULL},
    {"per_device_train_batch", "batch.sequences_per_gpu", "sequences-per-gpu", NULL},
    {"local_batch", "batch.sequences_per_gpu", "sequences-per-gpu", NULL},
    {"batch_per_gpu", "batch.sequences_per_gpu", "sequences-per-gpu", NULL},
    {"gradient_accumulation_steps", "batch.micro_batches", "micro-batches", NULL},
    {"num_micro_batches", "batch.micro_batches", "micro-batches", NULL},
    {"num_microbatches", "batch.micro_batches", "micro-batches", NULL},
    {"gas", "batch.micro_batches", "micro-batches", NULL},
    {"gbs", "batch.global_batch", "global-batch", NULL},
    {"global_batch", "batch.global_batch", "global-batch", NULL},
    {"train_batch", "batch.global_batch", "global-batch", NULL},
    {"batch_size", "batch.global_batch", "global-batch", NULL},
    {"seq_length", "batch.sequence_length", "sequence-length", NULL},
    {"seq_len", "batch.sequence_length", "sequence-length", NULL},
    {"seq", "batch.sequence_length", "sequence-length", NULL},
    {"max_seq_len", "batch.sequence_length", "sequence-length", NULL},
    {"max_target_length", "batch.sequence_length", "sequence-length", NULL},
    {"context_length", "batch.sequence_length", "sequence-length", NULL},
    {"recompute", "remat", "remat", NULL},
    {"recompute_granularity", "remat", "remat", NULL},
    {"recompute_modules", "remat", "remat", NULL},
    {"remat_policy", "remat", "remat", NULL},
    {"activation_checkpointing", "remat", "remat", NULL},
    {"gradient_checkpointing", "remat", "remat", NULL},
    {"ac", "remat", "remat", NULL},
    {"use_distributed_optimizer", NULL, NULL, "write optimizer: distributed (--optimizer distributed)"},
    {"distributed_optimizer", NULL, NULL, "write optimizer: distributed (--optimizer distributed)"},
    {"num_distributed_optimizer_instances", "optimizer_instances", NULL, NULL},
    {"zero", NULL, NULL,
     "ZeRO-1 is optimizer: distributed, ZeRO-3 and FSDP are optimizer: sharded (--optimizer)"},
    {"zero_stage", NULL, NULL,
     "ZeRO-1 is optimizer: distributed, ZeRO-3 and FSDP are optimizer: sharded (--optimizer)"},
    {"bf16", "precision", "precision", NULL},
    {"fp8", "precision.recipe", NULL, NULL},
    {"fp8_recipe", "precision.recipe", NULL, NULL},
    {"dtype", "precision", "precision", NULL},
    {"gpu", "cluster", "cluster", NULL},
    {"hardware", "cluster", "cluster", NULL},
    {"system", "cluster", "cluster", NULL},
    {"nodes", NULL, NULL, "nodes are said by the cluster, GPUs a node x nodes: --cluster h200:8x4"},
    {"num_nodes", NULL, NULL, "nodes are said by the cluster, GPUs a node x nodes: --cluster h200:8x4"},
    {"nnodes", NULL, NULL, "nodes are said by the cluster, GPUs a node x nodes: --cluster h200:8x4"},
    {"world", "gpus", "gpus", NULL},
    {"num_gpus", "gpus", "gpus", NULL},
    {"ngpus", "gpus", "gpus", NULL},
    {"config", "model", "model", NULL},
    {"scheme", "schemes", "scheme", NULL},
    {"dispatcher", "schemes", "scheme", NULL},
    {"moe_token_dispatcher_type", "schemes", "scheme", NULL},
    {"capacity_factor", NULL, NULL, CAPACITY},
    {"moe_expert_capacity_factor", NULL, NULL, CAPACITY},
    {"cf", NULL, NULL, CAPACITY},
};

#define DEEPSPEED \
    "DeepSpeed's MoE is not described; tutel and dense:capacity_factor=1.25 have its capacity, " \
    "megatron-alltoall with " \
    "optimizer: distributed its experts on some GPUs and its optimizer (ZeRO-1) on all"
#define AUTOMODEL \
    "NeMo AutoModel's experts are not described; torchtitan-hybridep has its FSDP2 and a fused dispatcher, " \
    "megatron-flex its DeepEP with TransformerEngine's experts"
/* Papers and programs call what a scheme does by these. */
static const struct {
    const char *word, *advice;
} schemes[] = {
    {"dropless", "gmm (MaxText), megatron-flex (Megatron-Core) and torchtitan drop nothing"},
    {"no_drop", "gmm (MaxText), megatron-flex (Megatron-Core) and torchtitan drop nothing"},
    {"dropping", "dense:capacity_factor=1.25 drops what is over its capacity"},
    {"drop", "dense:capacity_factor=1.25 drops what is over its capacity"},
    {"capacity", "dense:capacity_factor=1.25 drops what is over its capacity"},
    {"gshard", "dense:capacity_factor=1.25 has its capacity"},
    {"switch", "dense:capacity_factor=1.25 has its capacity"},
    {"einsum", "dense:capacity_factor=1.25 is MaxText's product of masks"},
    {"deepspeed", DEEPSPEED},
    {"deepspeed_moe", DEEPSPEED},
    {"automodel", AUTOMODEL},
    {"nemo_automodel", AUTOMODEL},
    {"nemo", AUTOMODEL},
    {"alltoall", "megatron-alltoall"},
    {"all_to_all", "megatron-alltoall"},
    {"a2a", "megatron-alltoall"},
    {"allgather", "megatron-allgather"},
    {"all_gather", "megatron-allgather"},
    {"flex", "megatron-flex"},
    {"hybridep", "megatron-flex:backend=hybridep"},
    {"megatron_hybridep", "megatron-flex:backend=hybridep"},
    {"megatron_deepep", "megatron-flex"},
    {"megatron", "megatron-alltoall, megatron-allgather or megatron-flex, by --moe-token-dispatcher-type"},
    {"megatron_core",
     "megatron-alltoall, megatron-allgather or megatron-flex, by --moe-token-dispatcher-type"},
    {"mcore", "megatron-alltoall, megatron-allgather or megatron-flex, by --moe-token-dispatcher-type"},
    {"maxtext", "gmm, dense or ragged"},
    {"grouped_gemm", "gmm (MaxText) or megatron-flex (Megatron-Core)"},
    {"groupedgemm", "gmm (MaxText) or megatron-flex (Megatron-Core)"},
    {"megablox", "gmm"},
    {"te", "megatron-flex or megatron-alltoall"},
    {"torch", "torchtitan"},
    {"titan", "torchtitan"},
    {"fsdp", "torchtitan or gmm, whose weights are sharded"},
    {"primus", "primus-syncfree or primus-megamoe"},
    {"low_latency", "deepep-ll"},
    {"deepep_low_latency", "deepep-ll"},
    {"nccl", "nccl-ep or megatron-alltoall"},
};

static bool same_word(const char *word, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const int c = text[i] == '-' ? '_' : tolower((unsigned char)text[i]);
        if (word[i] == '\0' || word[i] != c) return false;
    }
    return word[length] == '\0';
}

const spw_common_name *spw_common_name_find(const char *word, size_t length) {
    static const char tail[] = "_size";
    const size_t ending = sizeof tail - 1;
    for (int cut = 0; cut < 2; cut++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (same_word(names[i].word, word, length)) return &names[i];
        if (length <= ending || !same_word(tail, word + length - ending, ending)) return NULL;
        length -= ending;
    }
    return NULL;
}

const char *spw_common_key_advice(const char *word, size_t length, char out[SPW_ADVICE]) {
    const spw_common_name *const name = spw_common_name_find(word, length);
    out[0] = '\0';
    const spw_maxtext_setting *setting =
        name == NULL ? spw_maxtext_setting_find(word, length, NULL, 0) : NULL;
    if (setting != NULL) (void)snprintf(out, SPW_ADVICE, "a setting of MaxText: %s; ", setting->note);
    if (name == NULL) return out;
    if (name->note != NULL)
        (void)snprintf(out, SPW_ADVICE, "%s; ", name->note);
    else
        (void)snprintf(out, SPW_ADVICE, "did you mean '%s'%s%s? ", name->key,
                       name->option != NULL ? ", or --" : "", name->option != NULL ? name->option : "");
    return out;
}

const char *spw_common_scheme_advice(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (same_word(schemes[i].word, word, length)) return schemes[i].advice;
    return NULL;
}
