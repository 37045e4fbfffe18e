#include "sim/input/offload_modules.h"

#include <string.h>

/* Of Megatron-Core; module 0: its tensors are not described. */
static const struct {
    const char *name;
    unsigned module;
} known[] = {{"attn_norm", 0},
             {"qkv_linear", 0},
             {"core_attn", 0},
             {"attn_proj", 0},
             {"mlp_norm", 0},
             {"expert_fc1", SPW_OFFLOAD_EXPERT_FC1},
             {"moe_act", SPW_OFFLOAD_MOE_ACT},
             {"fused_group_mlp", 0},
             {"gdp_qkv", 0}};
enum { KNOWN = sizeof known / sizeof *known };

spw_status spw_offload_parse(spw_offload *offload) {
    offload->modules = 0;
    for (size_t i = 0; i < offload->texts; i++) {
        const char *text = offload->text[i];
        size_t k = 0;
        while (k < KNOWN && strcmp(known[k].name, text) != 0) k++;
        if (k == KNOWN)
            return spw_fail(
                SPW_ECONFIG,
                "offload_modules: '%s' is no module of Megatron-Core; use expert_fc1, moe_act or both", text);
        if (known[k].module == 0)
            return spw_fail(
                SPW_ECONFIG,
                "offload_modules: what Megatron-Core takes to the host of %s is not described; use "
                "expert_fc1, moe_act or both",
                text);
        if ((offload->modules & known[k].module) != 0)
            return spw_fail(SPW_ECONFIG, "offload_modules: %s stands there twice; name it once", text);
        offload->modules |= known[k].module;
    }
    return SPW_OK;
}

size_t spw_offload_count(const spw_offload *offload) {
    size_t count = 0;
    for (size_t k = 0; k < KNOWN; k++) count += (offload->modules & known[k].module) != 0;
    return count;
}

static const char *const notes[] = {"", ", offload expert_fc1", ", offload moe_act",
                                    ", offload expert_fc1, moe_act"}; /* by modules */

const char *spw_offload_name(const spw_offload *offload) {
    return offload->modules == 0 ? "none" : notes[offload->modules] + strlen(", offload ");
}

const char *spw_offload_note(const spw_offload *offload) { return notes[offload->modules]; }
