#include "traces/importers/importer.h"

#include "base/file.h"
#include "traces/importers/assembly.h"

#include <string.h>

static const char *const fact_option[SPW_IMPORT_FACTS] = {
    "--experts",         "--top-k",           "--layers",      "--dense-layers",  "--ranks",
    "--tokens-per-rank", "--expert-parallel", "--stage-first", "--micro-batches", "--micro-batch-size",
    "--recompute",       "--resumed",         "--axes",        "--files",         "--array",
    "--missing",         "--order",           "--scores",      "--drop-padding"};

const char *spw_import_fact_option(int bit) { return fact_option[bit]; }

enum {
    SHAPE = SPW_FACT_EXPERTS | SPW_FACT_TOP_K,
    OF_RANKS = SPW_FACT_LAYERS | SPW_FACT_STAGE_FIRST | SPW_FACT_MICRO_BATCHES | SPW_FACT_RECOMPUTE,
    OF_RESPONSES = SPW_FACT_DENSE_LAYERS | SPW_FACT_MISSING | SPW_FACT_ORDER | SPW_FACT_DROP_PADDING,
    TRAIN = 0,
    MIXED = 4
};

static const char routed_lost[] = "router weights; which response a token is of; source ranks";

static const spw_importer importers[] = {
    {"megatron-router", "Megatron-LM --moe-routing-trace-path", "router_trace_rank{N}.jsonl of every rank",
     "ids, source ranks; router weights where logits are recorded and --scores is stated",
     "router weights without logits; the order of preference where ids ascend", TRAIN, SHAPE | SPW_FACT_RANKS,
     OF_RANKS | SPW_FACT_MICRO_BATCH_SIZE | SPW_FACT_SCORES, spw_import_megatron_router},
    {"megatron-counts", "Megatron-LM --save-tokens-per-expert-interval",
     "tokens_per_expert/rank{N}.jsonl of every rank", "counts", "which tokens chose an expert; source ranks",
     TRAIN, SHAPE | SPW_FACT_RANKS | SPW_FACT_EXPERT_PARALLEL, OF_RANKS | SPW_FACT_RESUMED,
     spw_import_megatron_counts},
    {"mcore-load", "a Megatron-Core fork, MCORE_MOE_EXPERT_LOAD_DUMP",
     "mcore_ep_loads_rank{N}_*.npz of every rank", "counts, source ranks",
     "which tokens chose an expert; training iterations", TRAIN, SHAPE | SPW_FACT_RANKS, OF_RANKS,
     spw_import_mcore_load},
    {"array", "arrays of numpy", ".npy, or .npz (one array, or one a layer), axes as stated",
     "ids (of router logits too) or counts, source ranks where stated",
     "what the arrays do not hold: router weights", MIXED, SHAPE | SPW_FACT_AXES,
     SPW_FACT_LAYERS | SPW_FACT_DENSE_LAYERS | SPW_FACT_RANKS | SPW_FACT_TOKENS_PER_RANK | SPW_FACT_FILES |
         SPW_FACT_ARRAY | SPW_FACT_MISSING | SPW_FACT_ORDER | SPW_FACT_DROP_PADDING,
     spw_import_array},
    {"count-csv", "tables of activations",
     "a CSV file with the header layer,expert,count, or layer,expert and a line an assignment",
     "counts of one step", "which tokens chose an expert; source ranks; steps", MIXED, SHAPE, SPW_FACT_LAYERS,
     spw_import_count_table},
    {"count-jsonl", "tables of activations", "lines of {\"layer\", \"counts\"}", "counts of one step",
     "which tokens chose an expert; source ranks; steps", MIXED, SHAPE, SPW_FACT_LAYERS,
     spw_import_layer_counts},
    {"moe-balance", "moe-balance", "lines of {\"layer\", \"batch_id\", \"origin_rows\", \"topk_experts\"}",
     "ids, router weights where every line has them, source ranks where origin_rows are filled",
     "which request a token is of", MIXED, SHAPE, SPW_FACT_LAYERS | SPW_FACT_RANKS | SPW_FACT_ORDER,
     spw_import_moe_balance},
    {"vllm-eplb", "vLLM offline EPLB statistics",
     "lines of eplb_load_stats, replicas summed by their p2l_map", "counts",
     "which tokens chose an expert; source ranks; loads of replicas", MIXED, SHAPE, SPW_FACT_LAYERS,
     spw_import_vllm_eplb},
    {"vllm-routed", "vLLM --enable-return-routed-experts",
     "responses with routed_experts, base64 of a .npy, a line each", "ids, a file a step", routed_lost, MIXED,
     SHAPE, SPW_FACT_LAYERS | OF_RESPONSES, spw_import_vllm_routed},
    {"sglang-routed", "SGLang --enable-return-routed-experts",
     "responses with routed_experts, base64 of int32, a line each", "ids, a file a step", routed_lost, MIXED,
     SHAPE | SPW_FACT_LAYERS, OF_RESPONSES, spw_import_sglang_routed},
    {"dynamo-routed", "dynamo, engine_data of a response",
     "responses with {data, shape, dtype, start}, a line each", "ids, a file a step", routed_lost, MIXED,
     SHAPE, SPW_FACT_LAYERS | OF_RESPONSES, spw_import_dynamo_routed},
    {"nemo-rl-routed", "NeMo-RL router replay", "responses with a text that begins with nrlre1, a line each",
     "ids, a file a step", routed_lost, MIXED, SHAPE,
     SPW_FACT_LAYERS | SPW_FACT_DENSE_LAYERS | SPW_FACT_ORDER, spw_import_nemo_rl_routed},
};

const spw_importer *spw_importer_list(size_t *count) {
    *count = sizeof importers / sizeof *importers;
    return importers;
}

const spw_importer *spw_importer_find(const char *name) {
    for (size_t i = 0; i < sizeof importers / sizeof *importers; i++) {
        if (strcmp(importers[i].name, name) == 0) return &importers[i];
    }
    return NULL;
}

static spw_status check_facts(const spw_importer *importer, const spw_import_settings *settings) {
    for (int bit = 0; bit < SPW_IMPORT_FACTS; bit++) {
        const unsigned fact = 1u << bit;
        if ((importer->needs & fact) != 0 && (settings->given & fact) == 0)
            return spw_fail(SPW_EARG, "trace import %s: %s is needed; the files do not say it",
                            importer->name, fact_option[bit]);
        if ((settings->given & fact) != 0 && ((importer->needs | importer->takes) & fact) == 0)
            return spw_fail(SPW_EARG, "trace import %s: %s says nothing of this format", importer->name,
                            fact_option[bit]);
    }
    return SPW_OK;
}

spw_status spw_trace_import(const spw_importer *importer, const spw_import_settings *settings) {
    spw_status status = SPW_OK;
    spw_assembly *assembly = NULL;
    if (settings->inputs == 0) SPW_TRY(spw_fail(SPW_EARG, "trace import %s: no input files", importer->name));
    SPW_TRY(check_facts(importer, settings));
    for (size_t i = 0; i < settings->inputs; i++) {
        SPW_TRY(spw_file_reads(settings->input[i]));
        for (size_t j = 0; j < i && settings->inputs <= 4096; j++) {
            if (strcmp(settings->input[i], settings->input[j]) == 0)
                SPW_TRY(spw_fail(SPW_EARG, "%s is given twice", settings->input[i]));
        }
    }
    SPW_TRY(importer->read(settings, &assembly));
    SPW_TRY(spw_assembly_write(assembly, importer));

cleanup:
    spw_assembly_destroy(assembly);
    return status;
}
