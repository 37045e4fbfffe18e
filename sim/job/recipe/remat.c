#include "sim/job/recipe/remat.h"

#include "sim/model/attention.h"

#include <stdio.h>
#include <string.h>

/* One row a policy: which names it lists (MaxText), or which modules keep what they computed (all of them in a layer
 * without rematerialization). */
static const struct {
    bool qkv, out, context, wi, wo;
    bool layers, experts;
    bool operations; /* outputs of single operations (sim/memory/kept/selective_ops.h) */
    bool host;       /* what it keeps waits in the host's memory */
} saved[SPW_REMAT_COUNT] = {
    [SPW_REMAT_NONE] = {.layers = true, .experts = true},
    [SPW_REMAT_SELECTIVE] = {.layers = true, .experts = true},
    [SPW_REMAT_MOE_ACT] = {.layers = true, .experts = true},
    [SPW_REMAT_MOE] = {.layers = true},
    [SPW_REMAT_MINIMAL] = {.qkv = true, .out = true, .wi = true, .wo = true},
    [SPW_REMAT_MINIMAL_WITH_CONTEXT] = {.qkv = true, .out = true, .context = true, .wi = true, .wo = true},
    [SPW_REMAT_SAVE_OUT_PROJ] = {.out = true},
    [SPW_REMAT_SAVE_QKV_PROJ] = {.qkv = true},
    [SPW_REMAT_SAVE_DOT_EXCEPT_MLP] = {.qkv = true, .out = true},
    [SPW_REMAT_SAVE_DOT_EXCEPT_MLPWI] = {.qkv = true, .out = true, .wo = true},
    [SPW_REMAT_SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP] = {.qkv = true, .out = true, .context = true},
    [SPW_REMAT_QKV_PROJ_OFFLOADED] = {.host = true},
    [SPW_REMAT_INPUT_OFFLOADED] = {.host = true},
    [SPW_REMAT_SELECTIVE_OP] = {.operations = true},
};

/* A list of modules keeps what `none` or `moe` keeps, as far as a row says it. */
static spw_remat row_of(spw_remat remat) {
    if (remat < SPW_REMAT_COUNT) return remat;
    return spw_remat_repeats(remat, SPW_MODULE_MOE) ? SPW_REMAT_MOE : SPW_REMAT_NONE;
}

size_t spw_remat_token_elements(const spw_model *m, size_t layers, size_t moe_layers, spw_remat remat) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    size_t elements = 0;
    if (saved[row_of(remat)].qkv) elements += layers * (w.query + w.key + w.value);
    if (saved[row_of(remat)].out) elements += layers * m->hidden;
    if (saved[row_of(remat)].context) elements += layers * w.context;
    if (saved[row_of(remat)].wi)
        elements += 2 * (moe_layers * m->shared_ffn + (layers - moe_layers) * m->dense_ffn);
    return elements;
}

static const spw_remat_tree trees[] = {
    {"maxtext@7e3f19ff7", 0, 0, 0, 0, "exchange", false, false,
     "compiled: minimal takes what save_dot_except_mlp takes"},
    {"maxtext@e591f30c", 2, 1, 1, 1, "gathered peeled", false, true,
     "compiled: of a grouped layer w0's and wo's products are kept, not w1's; Gemma 4: gemma4.py, "
     "nnx_scan.py"},
    {"maxtext@0.2.5", 2, 1, 1, 2, "gathered peeled", true, true,
     "compiled: plain programs take what those of maxtext@e591f30c take, to 30 kB; Qwen3-Next: qwen3.py, "
     "Qwen3NextScannableBlock"},
    {"rocm-maxtext", 2, 2, 1, 0, "exchange", false, false,
     "ROCm/maxtext src/MaxText/layers/moe.py, checkpoint_name of the products"},
    {"maxtext", 2, 1, 1, 1, NULL, false, false, "any tree, counted as maxtext@e591f30c"},
};

bool spw_remat_scans_alone(const spw_remat_tree *tree, const spw_model *model) {
    return model->nested_scans > 0 && model->nested_scans <= tree->nested_scans;
}

spw_status spw_remat_tree_find(const char *name, const spw_remat_tree **out) {
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        *out = &trees[i];
        if (strcmp(trees[i].name, name) == 0) return SPW_OK;
    }
    char known[128] = "";
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", trees[i].name);
    }
    return spw_fail(SPW_ECONFIG, "tree '%s' is unknown; known: %s", name, known);
}

spw_status spw_remat_tree_check(const spw_remat_tree *tree, spw_remat remat) {
    if (!saved[row_of(remat)].layers) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "remat %s is no policy of %s; use full, minimal or another of MaxText's",
                    spw_remat_name(remat), tree->name);
}

spw_remat_expert_tensors spw_remat_experts(const spw_remat_tree *tree, bool dense, spw_remat remat) {
    const unsigned ffn = dense ? tree->dense_ffn : tree->grouped_ffn;
    return (spw_remat_expert_tensors){.ffn = saved[row_of(remat)].wi ? ffn : 0,
                                      .hidden = saved[row_of(remat)].wo ? tree->hidden : 0};
}

spw_remat_names spw_remat_keeps(spw_remat remat) {
    return (spw_remat_names){saved[row_of(remat)].qkv, saved[row_of(remat)].out, saved[row_of(remat)].context,
                             saved[row_of(remat)].wi};
}

bool spw_remat_is_offloaded(spw_remat remat) { return saved[row_of(remat)].host; }
bool spw_remat_keeps_operations(spw_remat remat) { return saved[row_of(remat)].operations; }
bool spw_remat_keeps_layers(spw_remat remat) { return saved[row_of(remat)].layers; }
bool spw_remat_keeps_experts(spw_remat remat) { return saved[row_of(remat)].experts; }
bool spw_remat_is_megatron(spw_remat remat) { return spw_remat_modules(remat) != 0; }
bool spw_remat_goes_with_megatron(spw_remat remat) {
    return remat == SPW_REMAT_NONE || remat == SPW_REMAT_FULL || spw_remat_is_megatron(remat);
}
