#include "sim/model/config/model_twice.h"

#include "sim/model/config/model_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Names of one number. Sources: attribute_map and __post_init__ of transformers 5.24, models/<model_type>/configuration_*.py, and the
 * names that the families of model_family.c read. A file may have several, if they say the same. */
enum { NAMES = 8 };
static const struct {
    const char *what, *name[NAMES];
} synonyms[] = {
    {"the number of experts in a layer",
     {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts",
      "ffn_config.moe_num_experts"}},
    {"the number of experts that a token chooses",
     {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k",
      "top_k_experts", "ffn_config.moe_top_k"}},
    {"the width of an expert", {"moe_intermediate_size", "expert_ffn_hidden_size"}},
    {"the number of shared experts",
     {"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"}},
    {"the width of the shared experts",
     {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"}},
    {"the width of a dense layer", {"dense_intermediate_size", "intermediate_size_mlp"}},
    {"the width of a dense layer", {"intermediate_size", "ffn_hidden_size"}},
    {"the number of dense layers before the first with experts",
     {"first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"}},
    {"the step between layers with experts",
     {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"}},
    {"the step between layers with experts", {"moe_layer_freq", "moe_layer_frequency"}},
    {"the number of layers", {"num_hidden_layers", "n_layers"}},
    {"the hidden size", {"hidden_size", "d_model", "ffn_config.hidden_size"}},
    {"the number of attention heads", {"num_attention_heads", "n_heads"}},
    {"the number of KV heads", {"num_key_value_heads", "attn_config.kv_n_heads"}},
    {"the width of a head", {"head_dim", "attention_head_dim"}},
    {"the number of groups of experts", {"n_group", "num_expert_group", "num_expert_groups"}},
    {"the number of groups that a token keeps", {"topk_group", "num_limited_groups"}},
    {"the tie of embedding and head", {"tie_word_embeddings", "tie_embedding"}},
    {"the heads of a linear attention", {"linear_attn_config.num_heads", "linear_num_heads"}},
    {"the width of a head of a linear attention", {"linear_attn_config.head_dim", "linear_head_dim"}},
    {"the width of a linear attention's convolution",
     {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim", "short_conv_kernel_size"}},
    {"the number of layers of multi-token prediction",
     {"num_nextn_predict_layers", "mtp_num_layers", "num_mtp_layers", "mtp_num_hidden_layers",
      "num_mtp_modules"}},
};

/* Products and sums that imply each other: factor x a x b (or a + b) = c x d, in a file that has all of them. */
typedef struct implication {
    bool sum;
    int64_t factor;
    const char *a, *b, *c, *d; /* b, d: NULL is 1 */
} implication;
static const implication implied[] = {
    {false, 1, "mamba_n_heads", "mamba_d_head", "mamba_expand", "hidden_size"},
    {false, 2, "num_layers", NULL, "num_hidden_layers", NULL}, /* LongCat: a layer of the file is two */
};

static bool same_value(const json_t *a, const json_t *b) {
    a = spw_json_one_of_list(a);
    b = spw_json_one_of_list(b);
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

static spw_status check_synonyms(const spw_reading *in) {
    for (size_t s = 0; s < sizeof synonyms / sizeof *synonyms; s++) {
        const json_t *first = NULL;
        const char *named = NULL;
        for (size_t i = 0; i < NAMES && synonyms[s].name[i] != NULL; i++) {
            const char *const name = synonyms[s].name[i];
            const json_t *value = spw_reading_at(in->root, name);
            char one[SPW_JSON_WORDS], other[SPW_JSON_WORDS];
            if (value == NULL || (spw_model_key_is_mtp(name) && spw_family_is_quiet(in->family, name)))
                continue;
            if (first == NULL) {
                first = value;
                named = name;
            } else if (!same_value(first, value)) {
                return spw_fail(
                    SPW_ECONFIG,
                    "%s: '%s' is %s and '%s' is %s; both are %s: keep the right one, or write the "
                    "same value in both",
                    in->where, named, spw_json_words(first, one), name, spw_json_words(value, other),
                    synonyms[s].what);
            }
        }
    }
    return SPW_OK;
}

bool spw_states_again(const spw_reading *in, const spw_attention_kind *kind, const char *key) {
    for (size_t s = 0; s < sizeof synonyms / sizeof *synonyms; s++) {
        bool among = false, read = false;
        for (size_t i = 0; i < NAMES && synonyms[s].name[i] != NULL; i++) {
            const char *const name = synonyms[s].name[i];
            among = among || strcmp(name, key) == 0;
            read = read || (strcmp(name, key) != 0 && spw_reading_at(in->root, name) != NULL &&
                            spw_family_reads(in->family, kind, name));
        }
        if (among && read) return true;
    }
    return false;
}

/* The number at `name`; 1 for NULL; NAN where there is none. */
static double number_at(const json_t *root, const char *name) {
    const json_t *value = name != NULL ? spw_reading_at(root, name) : NULL;
    if (name == NULL) return 1.0;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static spw_status check_one(const spw_reading *in, const implication *of) {
    const double a = number_at(in->root, of->a), b = number_at(in->root, of->b),
                 c = number_at(in->root, of->c), d = number_at(in->root, of->d);
    const double left = (double)of->factor * (of->sum ? a + b : a * b), right = c * d;
    char factor[24] = "", beside[80] = "", times[80] = "";
    if (isnan(left) || isnan(right) || left == right) return SPW_OK;
    if (of->factor > 1) (void)snprintf(factor, sizeof factor, "%lld x ", (long long)of->factor);
    if (of->b != NULL) (void)snprintf(beside, sizeof beside, " %c '%s' %.15g", of->sum ? '+' : 'x', of->b, b);
    if (of->d != NULL) (void)snprintf(times, sizeof times, " x '%s' %.15g", of->d, d);
    return spw_fail(SPW_ECONFIG,
                    "%s: %s'%s' %.15g%s is %.15g, but '%s' %.15g%s is %.15g; they must be equal: change or "
                    "leave out the wrong one",
                    in->where, factor, of->a, a, beside, left, of->c, c, times, right);
}

static spw_status check_implied(const spw_reading *in) {
    spw_status status = SPW_OK;
    for (size_t k = 0; status == SPW_OK && spw_attention_kind_at(k) != NULL; k++) {
        const char *const *sum = spw_attention_kind_at(k)->sum;
        const implication of = {true, 1, sum[0], sum[1], sum[2], NULL};
        if (sum[0] != NULL) status = check_one(in, &of);
    }
    for (size_t i = 0; status == SPW_OK && i < sizeof implied / sizeof *implied; i++)
        status = check_one(in, &implied[i]);
    return status;
}

/* Numbers that both the file and its text_config have, of those that are read. */
static spw_status check_outer(const spw_reading *in) {
    const spw_attention_kind *kind = spw_attention_said(in);
    const char *key;
    json_t *value;
    if (in->outer == in->root) return SPW_OK;
    json_object_foreach((json_t *)(uintptr_t)in->outer, key, value) {
        const json_t *inner = spw_reading_at(in->root, key);
        char one[SPW_JSON_WORDS], other[SPW_JSON_WORDS];
        if (inner == NULL || !json_is_number(value) || !json_is_number(inner) || same_value(value, inner) ||
            !spw_family_reads(in->family, kind, key))
            continue;
        return spw_fail(
            SPW_ECONFIG,
            "%s: '%s' is %s in the file and %s in its 'text_config'; keep the right one, or write "
            "the same value in both",
            in->where, key, spw_json_words(value, one), spw_json_words(inner, other));
    }
    return SPW_OK;
}

spw_status spw_stated_twice(const spw_reading *in) {
    spw_status status = check_synonyms(in);
    if (status == SPW_OK) status = check_implied(in);
    if (status == SPW_OK) status = check_outer(in);
    return status;
}

spw_status spw_same_layers(const spw_reading *in, spw_layer_marks listed, spw_layer_marks counted,
                           size_t layers, const char *yes, const char *no) {
    const uint8_t *list = listed.marks, *count = counted.marks;
    for (size_t i = 0; i < layers; i++) {
        char words[SPW_JSON_WORDS];
        const json_t *value = spw_reading_at(in->root, counted.key);
        if (list[i] == count[i] || value == NULL) continue;
        return spw_fail(
            SPW_ECONFIG,
            "%s: '%s' says that layer %zu %s, but by '%s' (%s) it %s; they must agree: leave out the "
            "wrong one",
            in->where, listed.key, i, list[i] != 0 ? yes : no, counted.key, spw_json_words(value, words),
            count[i] != 0 ? yes : no);
    }
    return SPW_OK;
}
