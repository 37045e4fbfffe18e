/* PEFT 0.21.2: tuners/tuners_utils.py (_maybe_include_all_linear_layers), utils/transformers_weight_conversion.py
 * (_resolve_string_target_modules, _convert_peft_config_moe), tuners/lora/layer.py (ParamWrapper). In transformers 5 the experts of a
 * layer are one parameter each for gate and up and for down, and the router is no nn.Linear. PEFT turns names of a checkpoint's
 * experts (gate_proj, up_proj, down_proj, w1, w2, w3, gate) into these parameters, and takes them away from the linears of the same
 * names in dense FFNs and shared experts. From 0.20 on the word all-linear has all of them. */
#include "sim/frameworks/rules.h"
#include "sim/frameworks/tuning.h"

#include "base/memory.h"
#include "sim/job/recipe/finetune.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WRAPPED \
    "PEFT adds them to the experts' weights in each pass: a copy of a layer's experts, which is counted"

/* What is named: bits of the job's own, and how. */
typedef struct named {
    unsigned targets; /* spw_lora_targets */
    bool attention;   /* all of q, k, v and o, or another kind's */
    bool linears;     /* by their class, as leaf names of what is nn.Linear in the model */
    bool all;         /* PEFT's word all-linear */
} named;

static bool is_separator(char c) { return c == '\0' || strchr(", []'\"|()+", c) != NULL; }

static void read_word(const char *word, size_t length, named *out, unsigned *seen) {
    static const char *const experts[] = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2",
                                          "w3",        "experts", NULL},
                             *const parts[] = {"q_proj", "k_proj", "v_proj", "o_proj", NULL};
    char text[64];
    (void)snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), word);
    if (strcasecmp(text, "all-linear") == 0) out->all = true;
    if (strcasecmp(text, "all") == 0) out->linears = true;
    if (out->all || out->linears) return;
    for (size_t i = 0; experts[i] != NULL; i++)
        if (strstr(text, experts[i]) != NULL) {
            out->targets |= SPW_LORA_EXPERTS;
            return;
        }
    if (strcmp(text, "gate") == 0 || strcmp(text, "router") == 0) {
        out->targets |= SPW_LORA_ROUTER;
        return;
    }
    out->targets |= SPW_LORA_ATTENTION;
    for (size_t i = 0; parts[i] != NULL; i++)
        if (strstr(text, parts[i]) != NULL) *seen |= 1U << i;
}

static named read_names(spw_draft *d) {
    const char *said = spw_draft_fact(d, "@targets");
    named out = {.linears = spw_draft_on(d, "@all_linear")};
    unsigned seen = 0;
    for (const char *at = said != NULL ? said : ""; *at != '\0';) {
        size_t length = 0;
        while (!is_separator(at[length])) length++;
        if (length > 0) read_word(at, length, &out, &seen);
        at += length;
        if (*at != '\0') at++;
    }
    out.attention = seen == 0 || seen == 15;
    if (spw_draft_fact(d, "@expert_targets") != NULL) out.targets |= SPW_LORA_EXPERTS;
    return out;
}

/* Models whose names of experts PEFT does not turn into parameters: transformers 5.17.0 conversion_mapping.py. */
static bool keeps_names(const char *model) {
    static const char *const other[] = {"gpt-oss",     "llama-4",     "dbrx", "jamba",
                                        "phi-3.5-moe", "kimi-linear", NULL};
    for (const char *const *o = other; *o != NULL; o++)
        if (strncmp(model, *o, strlen(*o)) == 0) return true;
    return false;
}

/* Has it linears beside attention's, by the names that its experts have too? */
static spw_status has_linears(const char *preset, bool *out) {
    spw_model *model = NULL;
    spw_status status = SPW_OK;
    *out = false;
    if (preset == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &model));
    SPW_TRY(spw_model_read(preset, NULL, model));
    *out = model->shared_ffn > 0 || spw_model_dense_layers(model) > 0;

cleanup:
    spw_free(model);
    return status;
}

/* What PEFT attaches. */
static spw_status attached(spw_draft *d, named *n) {
    const char *name = spw_draft_fact(d, "@model_name"),
               *preset = name != NULL ? spw_model_of_name(name) : NULL;
    const bool keeps = preset != NULL && keeps_names(preset), experts = (n->targets & SPW_LORA_EXPERTS) != 0;
    bool dense = false;
    const spw_status status = has_linears(preset, &dense);
    if (status != SPW_OK) return status;
    if (keeps && (n->all || n->linears)) n->targets |= dense ? SPW_LORA_LINEAR : SPW_LORA_ATTENTION;
    if (keeps && !n->all && !n->linears && experts && spw_draft_fact(d, "@expert_targets") == NULL)
        n->targets = (n->targets & SPW_LORA_ATTENTION) | (dense ? SPW_LORA_LINEAR : SPW_LORA_ATTENTION);
    if (!keeps && n->all) n->targets |= SPW_LORA_ALL;
    if (!keeps && n->linears) n->targets |= dense ? SPW_LORA_BOTH : SPW_LORA_ATTENTION;
    if (n->targets == 0) n->targets = SPW_LORA_ATTENTION;
    return SPW_OK;
}

static const char *word_of(unsigned targets) {
    if ((targets & SPW_LORA_ROUTER) != 0) return "all";
    if ((targets & SPW_LORA_DENSE) != 0) return "linear";
    return (targets & SPW_LORA_BOTH) == SPW_LORA_BOTH ? "both"
           : (targets & SPW_LORA_EXPERTS) != 0        ? "experts"
                                                      : "attention";
}

/* What of it is not as the file has it. */
static spw_status note_targets(spw_draft *d, const named *n) {
    const char *fact = spw_draft_fact(d, "@targets") != NULL ? "@targets" : "@all_linear";
    const bool experts = (n->targets & SPW_LORA_EXPERTS) != 0,
               router = (n->targets & SPW_LORA_ROUTER) != 0 && n->targets != SPW_LORA_ALL;
    spw_status status = SPW_OK;
    if (n->all && experts)
        SPW_TRY(
            spw_draft_note_text(d, SPW_NOTE_ASSUMED, "finetune.lora_targets: all",
                                "as PEFT from 0.20 on, attention, routed experts and the router; up to 0.19 "
                                "linears alone: --set finetune.lora_targets=linear"));
    else if (n->linears)
        SPW_TRY(spw_draft_note_text(
            d, SPW_NOTE_ASSUMED, experts ? "finetune.lora_targets: both" : "finetune.lora_targets: attention",
            experts ? "linears of this model have the names of its experts, beside which PEFT puts the "
                      "adapters then"
                    : "experts and router are no linears in transformers 5"));
    if (experts) SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "adapters of experts", WRAPPED));
    if (!n->attention || router)
        SPW_TRY(spw_draft_note_less(
            d, fact,
            "planned beside all projections of attention, or all of experts, attention and "
            "router, which needs a little more memory"));

cleanup:
    return status;
}

spw_status spw_compose_adapter(spw_draft *d, const spw_tuner *tuner, bool *tuned) {
    const char *adapter = spw_draft_fact(d, "@adapter");
    const bool lora = spw_draft_on(d, "@peft") || (adapter != NULL && strstr(adapter, "lora") != NULL);
    named n = read_names(d);
    size_t rank = 0;
    spw_status status = spw_draft_count(d, "@rank", 1, tuner->rank, &rank);
    *tuned = lora;
    if (status != SPW_OK || !lora) return status;
    SPW_TRY(spw_draft_put(d, "finetune.frozen", "base", adapter != NULL ? "@adapter" : "@peft"));
    SPW_TRY(spw_draft_put_count(d, "finetune.lora_rank", rank, "@rank"));
    if (spw_tuning_is_plain(d)) {
        SPW_TRY(attached(d, &n));
        SPW_TRY(note_targets(d, &n));
    } else if (n.all || n.linears) {
        n.targets = SPW_LORA_BOTH; /* of Megatron-Core's schemes, nearest */
    }
    if (!spw_tuning_is_plain(d) && n.targets != SPW_LORA_EXPERTS)
        n.targets = (n.targets & SPW_LORA_EXPERTS) != 0 ? SPW_LORA_BOTH : SPW_LORA_ATTENTION;
    SPW_TRY(spw_draft_put(d, "finetune.lora_targets", word_of(n.targets),
                          spw_draft_fact(d, "@targets") != NULL ? "@targets" : "@all_linear"));
    if (adapter != NULL && strcmp(adapter, "qlora") == 0)
        SPW_TRY(spw_draft_note_less(d, "@adapter", SPW_TUNING_LOW_BITS));

cleanup:
    return status;
}
