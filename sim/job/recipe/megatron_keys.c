#include "sim/job/recipe/megatron_keys.h"

#include <stdlib.h>
#include <string.h>

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
                {k->remainders, "store_param_remainders"},
                {k->fused_experts, "use_transformer_engine_op_fuser"},
                {k->permute != SPW_FUSION_AUTO, "moe_permute_fusion"},
                {k->router != SPW_FUSION_AUTO, "moe_router_fusion"},
                {k->rope != SPW_FUSION_AUTO, "apply_rope_fusion"},
                {k->streams != SPW_FUSION_AUTO, "use_fused_mhc"},
                {k->streams_group != 0, "mhc_recompute_layer_num"},
                {k->weight_gradients != SPW_FUSION_AUTO, "gradient_accumulation_fusion"},
                {k->release[0] != '\0', "megatron_core_release"},
                {k->untuned, "untuned_release"}};
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

bool spw_megatron_release_is_before(const spw_job *job, size_t minor) {
    size_t said = 0;
    return spw_megatron_release_parse(job->megatron.release, &said) && said < minor;
}

spw_status spw_megatron_release_check(const spw_job *job, const char **key) {
    size_t minor = 0;
    *key = "megatron_core_release";
    if (job->megatron.release[0] == '\0' || spw_megatron_release_parse(job->megatron.release, &minor))
        return SPW_OK;
    return spw_fail(SPW_ECONFIG, "megatron_core_release '%s'; write it as 0.17, 0.17.1 or core_r0.17.0",
                    job->megatron.release);
}
