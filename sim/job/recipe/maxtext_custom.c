#include "sim/job/recipe/maxtext_custom.h"

#include "sim/job/job.h"

#include <stdbool.h>
#include <string.h>

/* Sets of tensors. Fused projections are there where a model fuses them, and else no program has them. */
enum { QUERY = 1, KEY = 2, VALUE = 4, OUT = 8, CONTEXT = 16, INPUT = 32, OTHER = 64, FUSED = 0 };
enum { QKV = QUERY | KEY | VALUE };

static const struct tensor {
    const char *name;
    unsigned bit;
} tensors[] = {
    {"query_proj", QUERY},
    {"key_proj", KEY},
    {"value_proj", VALUE},
    {"kv_proj", FUSED},
    {"qkv_proj", FUSED},
    {"out_proj", OUT},
    {"context", CONTEXT},
    {"decoder_layer_input", INPUT},
    {"mlpwi", OTHER},
    {"mlpwi_0", OTHER},
    {"mlpwi_1", OTHER},
    {"mlpwo", OTHER},
    {"moe_mlpwi_0", OTHER},
    {"moe_mlpwi_1", OTHER},
    {"moe_mlpwo", OTHER},
    {"moe_combine", OTHER},
    {"query_wa_proj", OTHER},
    {"kv_wa_proj", OTHER},
    {"mla_q", OTHER},
    {"mla_kv", OTHER},
    {"attention_out", OTHER},
    {"engram", OTHER},
    {"indexer_cutoff_threshold", OTHER},
};

static const struct policy {
    unsigned device, host;
    spw_remat remat;
} policies[] = {
    {QKV, 0, SPW_REMAT_SAVE_QKV_PROJ},
    {OUT, 0, SPW_REMAT_SAVE_OUT_PROJ},
    {QKV | OUT, 0, SPW_REMAT_SAVE_DOT_EXCEPT_MLP},
    {QKV | OUT | CONTEXT, 0, SPW_REMAT_SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP},
    {0, QKV, SPW_REMAT_QKV_PROJ_OFFLOADED},
    {0, INPUT, SPW_REMAT_INPUT_OFFLOADED},
};

static const struct tensor *tensor_of(const char *word, size_t length) {
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (strlen(tensors[i].name) == length && strncmp(tensors[i].name, word, length) == 0)
            return &tensors[i];
    return NULL;
}

static bool is(const char *word, const char *value, size_t length) {
    return strlen(word) == length && strncmp(word, value, length) == 0;
}

const spw_maxtext_setting *spw_maxtext_tensor_find(const char *word, size_t length, const char *value,
                                                   size_t value_length) {
    static const spw_maxtext_setting again = {NULL, "remat", SPW_MAXTEXT_NONE, "remat full runs it again"};
    static const spw_maxtext_setting inputs = {NULL, "device", SPW_MAXTEXT_NONE, "MaxText's default"};
    static const spw_maxtext_setting kept = {NULL, NULL, SPW_MAXTEXT_REFUSED, SPW_MAXTEXT_POLICIES};
    static const spw_maxtext_setting hosted = {NULL, "offload", SPW_MAXTEXT_NONE,
                                               "write remat: decoder_layer_input_offloaded"};
    const struct tensor *t = tensor_of(word, length);
    if (t == NULL) return NULL;
    if (t->bit == INPUT) return value != NULL && is("offload", value, value_length) ? &hosted : &inputs;
    return value != NULL && is("remat", value, value_length) ? &again : &kept;
}

/* Sets of tensors that "query_proj=device ..." keeps. `first`: the first of them; NULL: none is kept. */
typedef struct kept_sets {
    unsigned device, host;
    const char *first;
    int first_length;
} kept_sets;

static kept_sets sets_of(const char *text) {
    kept_sets out = {0, 0, NULL, 0};
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, " "), key = strcspn(at, " =");
        const struct tensor *t = key < length ? tensor_of(at, key) : NULL;
        const bool kept = t != NULL && is("device", at + key + 1, length - key - 1) && t->bit != INPUT;
        const bool hosted = t != NULL && is("offload", at + key + 1, length - key - 1);
        if (kept) out.device |= t->bit;
        if (hosted) out.host |= t->bit;
        if ((kept || hosted) && out.first == NULL) out.first = at, out.first_length = (int)length;
        at += length;
    }
    return out;
}

bool spw_maxtext_custom_policy(const char *text, spw_remat *out) {
    const kept_sets sets = sets_of(text);
    *out = SPW_REMAT_FULL;
    if (sets.device == 0 && sets.host == 0) return true;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (policies[i].device != sets.device || policies[i].host != sets.host) continue;
        *out = policies[i].remat;
        return true;
    }
    return false;
}

spw_status spw_maxtext_custom_apply(const char *text, spw_job *job) {
    const kept_sets sets = sets_of(text);
    spw_remat kept = SPW_REMAT_FULL;
    if (sets.device == 0 && sets.host == 0) return SPW_OK;
    if (!spw_maxtext_custom_policy(text, &kept))
        return spw_fail(SPW_ECONFIG, "MaxText's %.*s: %s", sets.first_length, sets.first,
                        SPW_MAXTEXT_POLICIES);
    job->remat = kept;
    return SPW_OK;
}
