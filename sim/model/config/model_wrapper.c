#include "sim/model/config/model_wrapper.h"

#include "sim/model/config/model_keys.h"
#include "sim/read/settings.h"

#include <stdio.h>
#include <string.h>

typedef enum tie_rule {
    TIE_OUTER, /* the whole's class ties, by its own configuration */
    TIE_TEXT,  /* the whole holds a class with a head, which ties by text_config */
    TIE_EITHER /* text_config's true is forwarded to the outer configuration (BC of Glm4vMoeConfig) */
} tie_rule;

/* Source: transformers 5.24, models/<model_type>/configuration_*.py (the default of the class that decides) and modeling_*.py
 * (_tied_weights_keys of ...ForConditionalGeneration; Llama4's has none). Of Kimi-VL the code beside the published weights. */
static const struct wrapper {
    const char *model_type;
    const char *within; /* text_config is a key of this mapping; NULL: of the file */
    tie_rule rule;
    bool tied;        /* where the one that decides says nothing */
    const char *text; /* model_type of a text_config that does not say it; NULL: the file's */
} wrappers[] = {
    {"qwen3_vl_moe", NULL, TIE_OUTER, false, NULL},
    {"qwen3_5_moe", NULL, TIE_OUTER, false, NULL},
    {"gemma4", NULL, TIE_OUTER, true, NULL},
    {"llama4", NULL, TIE_TEXT, false, NULL},
    {"internvl", NULL, TIE_OUTER, true, NULL},
    {"mistral3", NULL, TIE_OUTER, true, NULL},
    {"glm4v_moe", NULL, TIE_EITHER, false, NULL},
    {"qwen3_omni_moe", "thinker_config", TIE_OUTER, false, NULL},
    {"kimi_vl", NULL, TIE_TEXT, false, "deepseek_v3"},
    {"kimi_k25", NULL, TIE_OUTER, true, "deepseek_v3"},
    {"aria", NULL, TIE_OUTER, false, NULL},
    {"deepseek_ocr2", NULL, TIE_OUTER, false, NULL},
    {"unlimited_ocr", NULL, TIE_OUTER, false, NULL},
    {"ernie4_5_vl_moe", NULL, TIE_OUTER, true, NULL},
    {"minimax_m3_vl", NULL, TIE_EITHER, false, NULL},
    {"step3p7", NULL, TIE_OUTER, false, NULL},
    {"muse_spark", NULL, TIE_OUTER, false, NULL},
    {"mistral_large4", NULL, TIE_OUTER, false, NULL},
    {"hy_v4_vl", NULL, TIE_OUTER, false, NULL},
    {"glm5_next", NULL, TIE_OUTER, false, NULL},
    {"qwen4_exp", NULL, TIE_OUTER, false, NULL},
    {"qwen3_8_flash_next", NULL, TIE_OUTER, false, NULL},
    {"deepseek_v41", NULL, TIE_TEXT, false, NULL},
};

/* Names of the mapping that holds the language model; the second and third are of code beside published weights. */
static const char *const text_names[] = {"text_config", "llm_config", "language_config"};

static const struct wrapper *find_wrapper(const char *model_type) {
    for (size_t i = 0; model_type != NULL && i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i].model_type, model_type) == 0) return &wrappers[i];
    return NULL;
}

static const char *type_of(const json_t *root) {
    return json_string_value(json_object_get(root, "model_type"));
}

static const spw_family *family_of(const json_t *root) {
    const char *type = type_of(root);
    return type != NULL ? spw_family_find(type) : NULL;
}

/* --- Unknown families --- */

/* No key of the file names experts: the model is dense. */
static bool is_dense(const json_t *root) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (strstr(key, "expert") != NULL || strstr(key, "moe") != NULL) return false;
        if (json_is_object(value) && !is_dense(value)) return false;
    }
    return true;
}

static spw_status name_known(const spw_reading *in, const char *before) {
    char known[1536] = "";
    for (size_t i = 0; spw_family_at(i) != NULL; i++) {
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                       spw_family_at(i)->model_type);
    }
    return spw_fail(SPW_ECONFIG, "%s: %s%s", in->where, before, known);
}

const char *spw_wrapper_type(const spw_reading *in) {
    const char *type = type_of(in->root);
    if (type == NULL) type = type_of(in->whole);
    return type != NULL ? type : "";
}

spw_status spw_wrapper_unknown(const spw_reading *in, const char *why) {
    char shown[SPW_SETTINGS_SHOWN];
    const char *type = spw_wrapper_type(in);
    return spw_fail(SPW_ECONFIG,
                    "%s: model_type '%s' is unknown, and it cannot be read by its keys alone: %s; "
                    "docs/models.md lists the types that are known",
                    in->where, spw_settings_shown(type, strlen(type), shown), why);
}

/* Neither a known family nor one that keys could tell. */
static spw_status check_type(const spw_reading *in) {
    const json_t *type = json_object_get(in->whole, "model_type");
    char shown[SPW_SETTINGS_SHOWN], found[SPW_JSON_WORDS];
    if (type != NULL && !json_is_string(type))
        return spw_fail(SPW_ECONFIG,
                        "%s: 'model_type' is %s; it must be a text, the name of a family such as 'qwen3_moe' "
                        "or 'generic'",
                        in->where, spw_json_words(type, found));
    if (spw_wrapper_type(in)[0] == '\0')
        return name_known(in, "key 'model_type' is missing; it must be one of: ");
    if (!is_dense(in->whole)) return SPW_OK;
    return spw_fail(SPW_ECONFIG,
                    "%s: a '%s' without a key of experts is a dense model, which has no experts; Spillway "
                    "plans mixtures of "
                    "experts only (docs/models.md lists those that are read)",
                    in->where, spw_settings_shown(spw_wrapper_type(in), strlen(spw_wrapper_type(in)), shown));
}

/* --- Entering --- */

static const json_t *find_text(const json_t *outer, const char **name) {
    for (size_t i = 0; i < sizeof text_names / sizeof *text_names; i++) {
        const json_t *text = json_object_get(outer, text_names[i]);
        if (text == NULL || (i > 0 && !json_is_object(text))) continue;
        *name = text_names[i];
        return text;
    }
    return NULL;
}

spw_status spw_wrapper_enter(spw_reading *in) {
    const struct wrapper *wrapper = find_wrapper(type_of(in->root));
    const json_t *outer = in->root;
    const bool within = wrapper != NULL && wrapper->within != NULL;
    if (within && json_is_object(json_object_get(outer, wrapper->within)))
        outer = json_object_get(outer, wrapper->within);
    const char *name = text_names[0];
    const json_t *text = find_text(outer, &name);
    const spw_family *whole = family_of(in->root);
    const bool enters = text != NULL && (wrapper != NULL || whole == NULL || whole->text);
    char found[SPW_JSON_WORDS];
    in->outer = outer;
    if (enters && !json_is_object(text))
        return spw_fail(SPW_ECONFIG, "%s: '%s' is %s; it must be a mapping", in->where, name,
                        spw_json_words(text, found));
    if (enters) in->root = text;
    if (!enters) in->outer = in->root;
    if (enters && type_of(text) == NULL && wrapper != NULL && wrapper->text != NULL)
        in->family = spw_family_find(wrapper->text);
    else
        in->family = enters && type_of(text) != NULL ? family_of(text) : whole;
    return in->family != NULL ? SPW_OK : check_type(in);
}

/* --- Tied embeddings --- */

/* *says: 1, 0; -1: nothing. */
static spw_status tie_at(const spw_reading *in, const json_t *root, int *says) {
    const json_t *value = json_object_get(root, "tie_word_embeddings");
    char found[SPW_JSON_WORDS];
    *says = value == NULL || json_is_null(value) ? -1 : json_is_true(value) ? 1 : 0;
    if (*says < 0 || json_is_boolean(value)) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "%s: 'tie_word_embeddings' is %s; it must be true or false", in->where,
                    spw_json_words(value, found));
}

spw_status spw_wrapper_tie(const spw_reading *in, bool *tied, const char **unread) {
    spw_status status = SPW_OK;
    const struct wrapper *w = find_wrapper(type_of(in->whole));
    int outer = -1, text = -1;
    if (unread != NULL) *unread = NULL;
    if (in->outer == in->root) return spw_reading_flag(in, "tie_word_embeddings", in->family->tied, tied);
    SPW_TRY(tie_at(in, in->outer, &outer));
    SPW_TRY(tie_at(in, in->root, &text));
    if (w == NULL && outer >= 0 && text >= 0 && outer != text)
        SPW_TRY(
            spw_fail(SPW_ECONFIG,
                     "%s: 'tie_word_embeddings' is %s in the file and %s in its 'text_config', and which of "
                     "them counts is not known of this model_type; give both the right value",
                     in->where, outer == 1 ? "true" : "false", text == 1 ? "true" : "false"));
    const tie_rule rule = w != NULL ? w->rule : text >= 0 ? TIE_TEXT : TIE_OUTER;
    const int says = rule == TIE_OUTER ? outer : rule == TIE_TEXT ? text : outer == 1 || text == 1;
    *tied = says >= 0 ? says == 1 : w != NULL ? w->tied : in->family->tied;
    const int other = rule == TIE_OUTER ? text : outer;
    if (unread != NULL && rule != TIE_EITHER && other >= 0 && (other == 1) != *tied)
        *unread = rule == TIE_OUTER ? "text_config" : "the outer file";

cleanup:
    return status;
}
