#include "sim/job/recipe/maxtext_settings.h"

#include "sim/job/job.h"
#include "sim/job/recipe/maxtext_custom.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDING \
    "another sharding of the experts than expert x fsdp is not modelled; nearest: the same without it"
#define AXIS \
    "this axis is not modelled for compiled programs; nearest: its GPUs in ici_fsdp_parallelism, --fsdp"
#define TPU "it is for TPUs; nearest: the same without it"
#define PIPED "another pipeline than the default one is not modelled; nearest: MaxText's default of it"

static const spw_maxtext_setting rows[] = {
    {"weight_dtype", NULL, SPW_MAXTEXT_NONE, "precision.weights says it"},
    {"grad_dtype", NULL, SPW_MAXTEXT_NONE, "precision.gradients says it"},
    {"mu_dtype", NULL, SPW_MAXTEXT_NONE, "precision.optimizer says it"},
    {"ragged_buffer_factor", NULL, SPW_MAXTEXT_NONE, "--scheme gmm:buffer_factor=F, or of ring"},
    {"use_ring_of_experts", NULL, SPW_MAXTEXT_NONE, "--scheme ring"},
    {"use_ragged_sort", NULL, SPW_MAXTEXT_NONE,
     "--scheme ring:ragged_sort=true; behind all-to-alls the memory is the same"},
    {"ragged_gather_fallback", NULL, SPW_MAXTEXT_NONE, "the memory is the same"},
    {"ragged_gather_reduce_fallback", NULL, SPW_MAXTEXT_NONE, "the memory is the same"},
    {"merge_gating_gmm", NULL, SPW_MAXTEXT_NONE, "the memory is the same (Mixtral 8x7B, gmm)"},
    {"num_vocab_tiling", NULL, SPW_MAXTEXT_NONE,
     "the fullest moment is in a MoE layer and stays the same (DeepSeek-V3, gmm, 8 tiles)"},
    {"use_custom_sort_vjp", "true", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"use_custom_sort_vjp", NULL, SPW_MAXTEXT_REFUSED,
     "use_custom_sort_vjp=false is not modelled; Mixtral 8x7B, gmm, takes 22.4 GiB for 22.1; nearest: gmm"},
    {"dcn_data_parallelism", NULL, SPW_MAXTEXT_DATA,
     "replicas beside FSDP: the memory is that of the GPUs of one replica; write gpus and parallel.fsdp of "
     "one"},
    {"ici_data_parallelism", NULL, SPW_MAXTEXT_DATA,
     "replicas beside FSDP: the memory is that of the GPUs of one replica; write gpus and parallel.fsdp of "
     "one"},
    {"prefuse_moe_weights", "true", SPW_MAXTEXT_REFUSED,
     "prefuse_moe_weights is not modelled; Mixtral 8x7B, gmm, takes 28.6 GiB for 22.1; nearest: gmm"},
    {"moe_dropless_fallback", "layer", SPW_MAXTEXT_REFUSED,
     "moe_dropless_fallback=layer keeps all eight dropless chunks in the backward pass: Mixtral 8x7B, sorted "
     "ring at 1.5, "
     "takes 48.0 GiB for 15.3; nearest: ring:ragged_sort=true, which drops nothing in 41.3"},
    {"moe_dropless_fallback", "step", SPW_MAXTEXT_REFUSED,
     "moe_dropless_fallback=step compiles two programs, of which one runs dropless: plan both, "
     "ring:buffer_factor=F (14.6 GiB for 15.3) and ring:ragged_sort=true"},
    {"moe_x_sorted", "remat", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"moe_x_sorted", "device", SPW_MAXTEXT_REFUSED,
     "moe_x_sorted=device keeps the sorted rows of every layer: Mixtral 8x7B, gmm, takes 53.1 GiB for 22.1; "
     "nearest: "
     "remat full, which sorts again"},
    {"moe_topk_before_ep_all_gather", "true", SPW_MAXTEXT_REFUSED,
     "moe_topk_before_ep_all_gather is not modelled; DeepSeek-V3's ring takes 86.4 GiB for 84.8; nearest: "
     "ring"},
    {"moe_use_direct_token_gather", "true", SPW_MAXTEXT_REFUSED,
     "moe_use_direct_token_gather is not modelled; Mixtral 8x7B, gmm, takes 22.3 GiB for 22.1; nearest: gmm"},
    {"num_moe_token_chunks", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"num_moe_token_chunks", NULL, SPW_MAXTEXT_REFUSED,
     "num_moe_token_chunks is --scheme ring:token_chunks=N, whose chunks XLA keeps side by side unless "
     "moe_chunk_barrier "
     "is set: 38.0 GiB for 41.3 with 2 (Mixtral 8x7B, sorted ring), not modelled"},
    {"moe_chunk_barrier", "true", SPW_MAXTEXT_REFUSED,
     "moe_chunk_barrier is not modelled: 38.0 GiB for 41.3 with 2 chunks (Mixtral 8x7B, sorted ring); "
     "nearest: "
     "ring:ragged_sort=true"},
    {"num_moe_emb_chunks", "0", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"num_moe_emb_chunks", NULL, SPW_MAXTEXT_REFUSED, "num_moe_emb_chunks is not modelled; nearest: gmm"},
    {"use_batch_split_schedule", "true", SPW_MAXTEXT_REFUSED,
     "use_batch_split_schedule is not modelled; nearest: gmm at the same batch"},
    {"use_gmm_v2", "true", SPW_MAXTEXT_LESS, "use_gmm_v2 is a TPU kernel; nearest: gmm"},
    {"use_tokamax_gmm", "true", SPW_MAXTEXT_LESS, "use_tokamax_gmm is a TPU kernel; nearest: gmm"},
    {"te_moe_block", "true", SPW_MAXTEXT_REFUSED,
     "te_moe_block runs TransformerEngine's layer, which was not read; nearest: gmm"},
    {"moe_quantize_token_all_gather", "true", SPW_MAXTEXT_REFUSED,
     "fp8 token gathers are not modelled; nearest: ring, whose gathers are in bf16"},
    {"scan_layers", "true", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"mtp_num_layers", "0", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"mtp_num_layers", NULL, SPW_MAXTEXT_REFUSED,
     "layers of multi-token prediction, and logits of each, are not modelled for compiled programs; nearest: "
     "0"},
    {"dropout_rate", "0.0", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"dropout_rate", "0", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"dropout_rate", NULL, SPW_MAXTEXT_REFUSED, "masks of dropout are not modelled; nearest: 0"},
    {"use_dpo", "true", SPW_MAXTEXT_REFUSED,
     "preferences are two batches and a second model, which are not modelled; nearest: training without it"},
    {"use_multimodal", "true", SPW_MAXTEXT_REFUSED,
     "encoders of images and sound are not modelled; nearest: the text model"},
    {"scan_layers", NULL, SPW_MAXTEXT_REFUSED,
     "scan_layers=false unrolls all layers, of which no program was compiled; nearest: the scan"},
    {"pipeline_fsdp_ag_once", "true", SPW_MAXTEXT_REFUSED,
     "pipeline_fsdp_ag_once keeps all gathered weights of a stage; nearest: parallel.fsdp 1, whose weights "
     "are whole"},
    {"pipeline_fsdp_ag_per_repeat", "true", SPW_MAXTEXT_REFUSED,
     "pipeline_fsdp_ag_per_repeat keeps the gathered weights of a round; nearest: the pipeline without it"},
    {"pipeline_parallel_layers", "-1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"pipeline_parallel_layers", NULL, SPW_MAXTEXT_REFUSED,
     "pipeline_parallel_layers is not modelled; layers that fill no whole round run before the loop"},
    {"shard_exp_on_fsdp", "true", SPW_MAXTEXT_REFUSED, SHARDING},
    {"use_2d_fsdp_sharding", "true", SPW_MAXTEXT_REFUSED, SHARDING},
    {"optimizer_memory_host_offload", "true", SPW_MAXTEXT_LESS,
     "optimizer state in the host's memory is not modelled for compiled programs; nearest: the same without "
     "it, of "
     "whose arguments 2 o / (w + 2 o) are the moments"},
    {"parameter_memory_host_offload", "true", SPW_MAXTEXT_LESS,
     "parameters in the host's memory are not modelled for compiled programs; nearest: the same without it"},
    {"shard_optimizer_over_data", "true", SPW_MAXTEXT_LESS,
     "shard_optimizer_over_data is not modelled; nearest: fsdp over all GPUs"},
    {"attention", "dot_product", SPW_MAXTEXT_REFUSED,
     "attention dot_product keeps [heads, S, S] scores, which no list has; nearest: flash attention"},
    {"opt_type", "muon", SPW_MAXTEXT_REFUSED,
     "MaxText's Muon is not modelled for compiled programs; nearest: adamw"},
    {"enable_lora", "true", SPW_MAXTEXT_LESS,
     "LoRA is not modelled for compiled programs; nearest: full training"},
    {"mhc_expansion_rate", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"mhc_expansion_rate", NULL, SPW_MAXTEXT_REFUSED, "mHC's streams are not modelled; nearest: one stream"},
    {"quantization", "", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"quantization", NULL, SPW_MAXTEXT_LESS,
     "quantization of a compiled program is not modelled; nearest: bf16, whose memory is larger where fp8 "
     "replaces it"},
    {"moe_x_sorted", "offload", SPW_MAXTEXT_REFUSED,
     "moe_x_sorted=offload is not modelled; nearest: remat full, which sorts again"},
    {"moe_routing_maps", "remat", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"moe_routing_maps", "device", SPW_MAXTEXT_REFUSED,
     "moe_routing_maps=device keeps indices of every layer, 4 bytes a choice; nearest: remat full"},
    {"moe_routing_maps", "offload", SPW_MAXTEXT_REFUSED,
     "moe_routing_maps=offload is not modelled; nearest: remat full"},
    {"moe_quantize_combine_bwd_method", "", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"moe_quantize_combine_bwd_method", NULL, SPW_MAXTEXT_LESS,
     "fp8 gradients of the combine are not modelled; nearest: ring, whose gathers are in bf16"},
    {"te_gmm_quantization", "", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"te_gmm_quantization", NULL, SPW_MAXTEXT_REFUSED,
     "te_gmm_quantization goes with te_moe_block, which was not read; nearest: gmm"},
    {"moe_dispatch_no_expert_sharding", "true", SPW_MAXTEXT_NONE, "--scheme dense:layout=peeled"},
    {"shard_embed_moe_on_fsdp", "true", SPW_MAXTEXT_REFUSED, SHARDING},
    {"moe_fsdp_use_two_stage_all_gather", "true", SPW_MAXTEXT_REFUSED,
     "weights that are gathered in two steps are not modelled; nearest: the same without it"},
    {"dense_fsdp_use_two_stage_all_gather", "true", SPW_MAXTEXT_REFUSED,
     "weights that are gathered in two steps are not modelled; nearest: the same without it"},
    {"moe_mlp_tp_size", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"moe_mlp_tp_size", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"moe_pin_sparse_core_all_gathers", "true", SPW_MAXTEXT_LESS, TPU},
    {"moe_pin_sparse_core_ep_all_gathers", "true", SPW_MAXTEXT_LESS, TPU},
    {"moe_pin_sparse_core_fsdp_all_gathers", "true", SPW_MAXTEXT_LESS, TPU},
    {"vocab_tiling_ag_once", "true", SPW_MAXTEXT_NONE,
     "the fullest moment is in a MoE layer and stays the same"},
    {"pipeline_delay_activation_forwarding", "true", SPW_MAXTEXT_REFUSED, PIPED},
    {"scan_pipeline_iterations", "true", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"scan_pipeline_iterations", NULL, SPW_MAXTEXT_REFUSED, PIPED},
    {"scan_pipeline_repeats", "true", SPW_MAXTEXT_REFUSED, PIPED},
    {"scan_layers_per_stage", "true", SPW_MAXTEXT_REFUSED, PIPED},
    {"set_remat_policy_on_pipeline_iterations", "true", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"set_remat_policy_on_pipeline_iterations", NULL, SPW_MAXTEXT_REFUSED, PIPED},
    {"set_remat_policy_on_layers_per_stage", "true", SPW_MAXTEXT_REFUSED, PIPED},
    {"ici_tensor_parallelism", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"ici_tensor_parallelism", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"dcn_tensor_parallelism", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"dcn_tensor_parallelism", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"ici_tensor_sequence_parallelism", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"ici_tensor_sequence_parallelism", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"ici_context_parallelism", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"ici_context_parallelism", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"dcn_context_parallelism", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"dcn_context_parallelism", NULL, SPW_MAXTEXT_REFUSED, AXIS},
    {"attention_type", "compressed", SPW_MAXTEXT_REFUSED,
     "DeepSeek-V4's compressed attention is not modelled for compiled programs; nearest: deepseek-v3.2"},
    {"attention_type", NULL, SPW_MAXTEXT_NONE, "the model says it"},
    {"activations_in_float32", "true", SPW_MAXTEXT_REFUSED,
     "activations in fp32 before the nonlinearity are not modelled; nearest: the same without it"},
    {"share_kv_projections", "true", SPW_MAXTEXT_LESS,
     "keys and values of one projection are not modelled; nearest: the same without it, which has one "
     "projection more"},
    {"param_scan_axis", "1", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"param_scan_axis", NULL, SPW_MAXTEXT_LESS,
     "param_scan_axis=0 lays the stacks as the loop takes them; nearest: the same without it, which lays "
     "them anew"},
    {"opt_type", "adamw", SPW_MAXTEXT_NONE, "MaxText's default"},
    {"opt_type", "sgd", SPW_MAXTEXT_LESS, "sgd keeps no moments and is not modelled; nearest: adamw"},
    {"remat_policy", "custom", SPW_MAXTEXT_REFUSED, SPW_MAXTEXT_POLICIES},
    {"remat_policy", "minimal_offloaded", SPW_MAXTEXT_REFUSED,
     "the copies' buffers are not modelled: Mixtral 8x7B at 4 sequences takes 24.5 GiB by gmm (22.1 by full) "
     "and 15.8 by "
     "dense at a factor of 1.25, where full takes 17.8; nearest: full"},
    {"remat_policy", "minimal_flash", SPW_MAXTEXT_REFUSED, "MaxText calls it minimal_with_context now"},
    {"remat_policy", "minimal_with_quantization", SPW_MAXTEXT_REFUSED,
     "what quantization keeps is not modelled; nearest: minimal"},
    {"remat_policy", "minimal_with_context_and_quantization", SPW_MAXTEXT_REFUSED,
     "what quantization keeps is not modelled; nearest: minimal_with_context"},
};

static bool same(const char *word, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (word[i] == '\0' || word[i] != tolower((unsigned char)text[i])) return false;
    return word[length] == '\0';
}

const spw_maxtext_setting *spw_maxtext_setting_find(const char *word, size_t length, const char *value,
                                                    size_t value_length) {
    const spw_maxtext_setting *any = spw_maxtext_tensor_find(word, length, value, value_length);
    bool known = any != NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!same(rows[i].word, word, length)) continue;
        if (rows[i].value == NULL)
            any = &rows[i];
        else if (value != NULL && same(rows[i].value, value, value_length))
            return &rows[i];
        else if (!known && value == NULL)
            known = (any = &rows[i]) != NULL;
    }
    return any;
}

void spw_maxtext_precision(const char *text, char *out, size_t size) {
    static const char *const said[][2] = {{"weight_dtype=float32", " weights=fp32"},
                                          {"grad_dtype=float32", " gradients=fp32"},
                                          {"mu_dtype=float32", " optimizer=fp32"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const size_t used = strlen(out);
        if (strstr(text, said[i][0]) != NULL) (void)snprintf(out + used, size - used, "%s", said[i][1]);
    }
}

/* The GPUs of one replica; SPW_ECONFIG where they are no part of the nodes. */
static spw_status take_replica(const char *value, spw_job *job) {
    const unsigned long count = strtoul(value, NULL, 10);
    if (count < 2) return SPW_OK;
    if (job->fsdp % count != 0 || job->cluster.nodes % count != 0)
        return spw_fail(
            SPW_ECONFIG,
            "data parallelism of %lu does not divide fsdp %zu and the %zu nodes; use a divisor of both",
            count, job->fsdp, job->cluster.nodes);
    job->fsdp /= count;
    job->cluster.nodes /= count;
    return SPW_OK;
}

spw_status spw_maxtext_settings_apply(const char *text, spw_job *job) {
    const spw_status settled = spw_maxtext_custom_apply(text, job);
    if (settled != SPW_OK) return settled;
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, " "), key = strcspn(at, " =");
        if (key < length && spw_maxtext_tensor_find(at, key, NULL, 0) == NULL) {
            const char *value = at + key + 1;
            const spw_maxtext_setting *s = spw_maxtext_setting_find(at, key, value, length - key - 1);
            spw_status status = SPW_OK;
            const bool custom = key == 12 && strncmp(at, "remat_policy=custom", 19) == 0;
            if (s != NULL && (s->effect == SPW_MAXTEXT_REFUSED || s->effect == SPW_MAXTEXT_LESS) && !custom)
                status = spw_fail(SPW_ECONFIG, "MaxText's %.*s: %s", (int)length, at, s->note);
            if (s != NULL && s->effect == SPW_MAXTEXT_DATA) status = take_replica(value, job);
            if (status != SPW_OK) return status;
        }
        at += length;
    }
    return SPW_OK;
}
