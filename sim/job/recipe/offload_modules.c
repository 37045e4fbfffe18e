#include "sim/job/recipe/offload_modules.h"

#include <string.h>

/* Of Megatron-Core; module 0: its tensors are not described. what: it takes to the host (docs/schemes.md, section 7.17);
 * less: what frees some of that, or of what lies beside it, without the host. */
static const struct {
    const char *name;
    unsigned module;
    const char *what, *less;
} known[] = {{"attn_norm", 0,
              "the input of MLA's norm; with GQA the norm is within a product and nothing goes",
              "remat: layernorm gives up the norm's output"},
             {"qkv_linear", 0, "the inputs of the projections, one that two read twice",
              "remat: layernorm gives up MLA's normed input, mla_up_proj the normed latents"},
             {"core_attn", SPW_OFFLOAD_CORE_ATTN, NULL, NULL},
             {"attn_proj", SPW_OFFLOAD_ATTN_PROJ, NULL, NULL},
             {"mlp_norm", 0, "the input of the norm before a MoE layer; a dense FFN has its norm within",
              "remat: layernorm gives up the norm's output"},
             {"expert_fc1", SPW_OFFLOAD_EXPERT_FC1, NULL, NULL},
             {"moe_act", SPW_OFFLOAD_MOE_ACT, NULL, NULL},
             {"fused_group_mlp", 0, "all that TransformerEngine's fused experts keep",
              "Megatron-Core takes it beside neither of the two"},
             {"gdp_qkv", 0, "inputs of gated delta products", "their layers are not described in parts"}};
enum { KNOWN = sizeof known / sizeof *known };
#define MODULES "core_attn, attn_proj, expert_fc1 and moe_act"

spw_status spw_offload_parse(spw_offload *offload) {
    offload->modules = 0;
    for (size_t i = 0; i < offload->texts; i++) {
        const char *text = offload->text[i];
        size_t k = 0;
        while (k < KNOWN && strcmp(known[k].name, text) != 0) k++;
        if (k == KNOWN)
            return spw_fail(SPW_ECONFIG,
                            "offload_modules: '%s' is no module of Megatron-Core; use some of " MODULES,
                            text);
        if (known[k].module == 0)
            return spw_fail(SPW_ECONFIG,
                            "offload_modules: %s (%s) is read and not counted (docs/schemes.md, 7.17); use "
                            "some of " MODULES "; %s",
                            text, known[k].what, known[k].less);
        if ((offload->modules & known[k].module) != 0)
            return spw_fail(SPW_ECONFIG, "offload_modules: %s stands there twice; name it once", text);
        offload->modules |= known[k].module;
    }
    if ((offload->modules & SPW_OFFLOAD_ATTENTION) == SPW_OFFLOAD_ATTN_PROJ)
        return spw_fail(
            SPW_ECONFIG,
            "offload_modules: Megatron-Core refuses attn_proj without core_attn, whose backward pass "
            "reads the same tensor; use core_attn, or both");
    return SPW_OK;
}

size_t spw_offload_count(const spw_offload *offload, unsigned of) {
    size_t count = 0;
    for (size_t k = 0; k < KNOWN; k++) count += (offload->modules & of & known[k].module) != 0;
    return count;
}

/* By modules; attn_proj is never there alone. */
#define BESIDE(text) text, text ", expert_fc1", text ", moe_act", text ", expert_fc1, moe_act"
static const char *const notes[] = {"",
                                    ", offload expert_fc1",
                                    ", offload moe_act",
                                    ", offload expert_fc1, moe_act",
                                    BESIDE(", offload core_attn"),
                                    BESIDE(", offload attn_proj"),
                                    BESIDE(", offload core_attn, attn_proj")};

const char *spw_offload_name(const spw_offload *offload) {
    return offload->modules == 0 ? "none" : notes[offload->modules] + strlen(", offload ");
}

const char *spw_offload_note(const spw_offload *offload) { return notes[offload->modules]; }
