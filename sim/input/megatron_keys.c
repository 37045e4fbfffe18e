#include "sim/input/megatron_keys.h"

#include "sim/input/remat_modules.h"
#include "sim/input/state_law.h"

#include <stdlib.h>
#include <string.h>

/* The first release whose layer-wise optimizer packs its buffers: docs/schemes.md, section 7.16. */
enum { PACKED_MUON = 18 };

bool spw_megatron_release_parse(const char *text, size_t *minor) {
    static const char *const heads[] = {"core_r", "core_v", "v", "r", ""};
    const char *at = text;
    char *end = NULL;
    for (size_t i = 0; at == text && i < sizeof heads / sizeof *heads; i++)
        if (strncmp(text, heads[i], strlen(heads[i])) == 0 && heads[i][0] != '\0')
            at = text + strlen(heads[i]);
    if (strncmp(at, "0.", 2) != 0 || at[2] < '0' || at[2] > '9') return false;
    *minor = (size_t)strtoul(at + 2, &end, 10);
    while ((*end >= '0' && *end <= '9') || *end == '.') end++;
    return *end == '\0' && *minor < 1000;
}

const char *spw_megatron_keys_said(const spw_megatron_keys *k) {
    const struct {
        bool said;
        const char *name;
    } keys[] = {{k->overlap_gradients, "overlap_grad_reduce"},
                {k->overlap_gathers, "overlap_param_gather"},
                {k->delay_weight_gradients, "delay_wgrad_compute"},
                {k->overlap_shared, "moe_shared_expert_overlap"},
                {k->fused_experts, "use_transformer_engine_op_fuser"},
                {k->permute != SPW_FUSION_AUTO, "moe_permute_fusion"},
                {k->router != SPW_FUSION_AUTO, "moe_router_fusion"},
                {k->rope != SPW_FUSION_AUTO, "apply_rope_fusion"},
                {k->streams != SPW_FUSION_AUTO, "use_fused_mhc"},
                {k->streams_group != 0, "mhc_recompute_layer_num"},
                {k->weight_gradients != SPW_FUSION_AUTO, "gradient_accumulation_fusion"},
                {k->release[0] != '\0', "megatron_core_release"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].said) return keys[i].name;
    return NULL;
}

bool spw_offload_stays(const spw_job *job) {
    return (job->offload.modules & SPW_OFFLOAD_EXPERT_FC1) != 0 && job->precision.recipe == SPW_FP8_MXFP8;
}

bool spw_megatron_fuses_experts(const spw_job *job) {
    return job->megatron.fused_experts && !job->model.plain_experts && job->precision.recipe == SPW_FP8_MXFP8;
}

static spw_status check_collectives(const spw_job *job, const char **key) {
    const spw_megatron_keys *k = &job->megatron;
    *key = k->overlap_gradients ? "overlap_grad_reduce" : "overlap_param_gather";
    if (!k->overlap_gradients && !k->overlap_gathers) return SPW_OK;
    if (!spw_state_is_megatron(job))
        return spw_fail(
            SPW_ECONFIG,
            "%s is of Megatron-Core's data parallelism of whole models; use optimizer: distributed or "
            "replicated and model_part: whole, or leave it out",
            *key);
    if (!k->overlap_gathers) return SPW_OK;
    *key = "overlap_param_gather";
    if (!k->overlap_gradients)
        return spw_fail(SPW_ECONFIG,
                        "overlap_param_gather needs overlap_grad_reduce: true, as Megatron-Core does");
    if (job->optimizer != SPW_OPTIMIZER_DISTRIBUTED)
        return spw_fail(
            SPW_ECONFIG,
            "overlap_param_gather hides gathers of the distributed optimizer, and optimizer is %s, which "
            "gathers nothing; use optimizer: distributed, or leave it out",
            spw_optimizer_name(job->optimizer));
    return SPW_OK;
}

static spw_status check_layers(const spw_job *job, const char **key) {
    const spw_megatron_keys *k = &job->megatron;
    *key = "delay_wgrad_compute";
    if (k->delay_weight_gradients && !job->overlap_exchanges)
        return spw_fail(SPW_ECONFIG, "delay_wgrad_compute needs overlap_moe_expert_parallel_comm: true, as "
                                     "Megatron-Core does");
    *key = "moe_shared_expert_overlap";
    if (k->overlap_shared && job->overlap_exchanges)
        return spw_fail(SPW_ECONFIG,
                        "moe_shared_expert_overlap does not go with overlap_moe_expert_parallel_comm, as "
                        "in Megatron-Core; leave one of them out");
    if (k->overlap_shared && spw_remat_repeats(job->remat, SPW_MODULE_SHARED_EXPERTS))
        return spw_fail(SPW_ECONFIG, "moe_shared_expert_overlap does not go with remat shared_experts, as in "
                                     "Megatron-Core; leave one of them out");
    *key = "use_fused_mhc";
    if (k->streams != SPW_FUSION_AUTO && job->model.streams < 2)
        return spw_fail(SPW_ECONFIG,
                        "use_fused_mhc is of residual streams, which model '%s' does not have; leave it out",
                        job->model.name);
    *key = "mhc_recompute_layer_num";
    if (k->streams_group != 0 && !spw_remat_repeats(job->remat, SPW_MODULE_MHC))
        return spw_fail(SPW_ECONFIG,
                        "mhc_recompute_layer_num needs mhc among the modules of remat, which is %s",
                        spw_remat_name(job->remat));
    *key = "use_transformer_engine_op_fuser";
    if (k->fused_experts && job->offload.modules != 0)
        return spw_fail(SPW_ECONFIG,
                        "use_transformer_engine_op_fuser does not go with offload_modules expert_fc1 or "
                        "moe_act, as in Megatron-Core; leave one of them out");
    return SPW_OK;
}

static spw_status check_release(const spw_job *job, const char **key) {
    const char *text = job->megatron.release;
    size_t minor = 0;
    *key = "megatron_core_release";
    if (text[0] == '\0') return SPW_OK;
    if (!spw_megatron_release_parse(text, &minor))
        return spw_fail(SPW_ECONFIG, "megatron_core_release '%s'; write it as 0.17, 0.17.1 or core_r0.17.0",
                        text);
    if (job->muon && !job->muon_ping_pong && minor < PACKED_MUON)
        return spw_fail(SPW_ECONFIG,
                        "megatron_core_release %s has no packed layout of Muon, which came with 0.%d; write "
                        "muon_layout: ping_pong",
                        text, (int)PACKED_MUON);
    return SPW_OK;
}

spw_status spw_megatron_keys_check(const spw_job *job, const char **key) {
    spw_status status = check_collectives(job, key);
    if (status == SPW_OK) status = check_layers(job, key);
    if (status == SPW_OK) status = check_release(job, key);
    return status;
}
