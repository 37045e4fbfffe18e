#include "sim/model/model.h"

#include "base/nearest.h"
#include "sim/model/config/model_json.h"
#include "sim/read/preset.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_TEXT = 256 }; /* of a name that is compared */

/* Other names under which the presets are known: MaxText's, and the repositories of the published
 * configurations. */
static const struct alias {
    const char *alias, *preset;
} aliases[] = {
    {"deepseek3-671b", "deepseek-v3"},
    {"deepseek-v3-671b", "deepseek-v3"},
    {"kimi-k2-1t", "kimi-k2"},
    {"llama4-17b-16e", "llama-4-scout"},
    {"llama4-17b-128e", "llama-4-maverick"},
    {"deepseek2-16b", "deepseek-v2-lite"},
    {"deepseek2-236b", "deepseek-v2"},
    {"deepseek3.2-671b", "deepseek-v3.2"},
    {"deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"},
    {"deepseek-ai/DeepSeek-V2", "deepseek-v2"},
    {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
    {"moonshotai/Kimi-K2-Instruct", "kimi-k2"},
    {"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"},
    {"Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"},
    {"Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"},
    {"qwen3-480b-a35b", "qwen3-coder-480b-a35b"},
    {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
    {"mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"},
    {"allenai/OLMoE-1B-7B-0924", "olmoe-1b-7b"},
    {"openai/gpt-oss-20b", "gpt-oss-20b"},
    {"openai/gpt-oss-120b", "gpt-oss-120b"},
    {"zai-org/GLM-4.5", "glm-4.5"},
    {"zai-org/GLM-4.6", "glm-4.5"},
    {"zai-org/GLM-4.5-Air", "glm-4.5-air"},
    {"MiniMaxAI/MiniMax-M2", "minimax-m2"},
    {"meta-llama/Llama-4-Scout-17B-16E", "llama-4-scout"},
    {"meta-llama/Llama-4-Maverick-17B-128E", "llama-4-maverick"},
    {"Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"},
    {"deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"},
    {"moonshotai/Kimi-Linear-48B-A3B-Instruct", "kimi-linear-48b-a3b"},
    {"tencent/Hunyuan-A13B-Instruct", "hunyuan-a13b"},
    {"baidu/ERNIE-4.5-300B-A47B-PT", "ernie-4.5-300b-a47b"},
    {"rednote-hilab/dots.llm1.inst", "dots.llm1"},
    {"inclusionAI/Ling-1T", "ling-1t"},
    {"databricks/dbrx-base", "dbrx"},
    {"microsoft/Phi-3.5-MoE-instruct", "phi-3.5-moe"},
    {"ai21labs/AI21-Jamba-1.5-Large", "jamba-1.5-large"},
    {"meituan-longcat/LongCat-Flash-Chat", "longcat-flash"},
    {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", "nemotron-3-nano"},
    {"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", "nemotron-3-super"},
    {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3.1", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"},
    {"qwen3-coder-30b-a3b", "qwen3-30b-a3b"},
    {"nemotron-3-nano-30b-a3b", "nemotron-3-nano"},
    {"nemotron-3-super-120b-a12b", "nemotron-3-super"},
    {"inclusionAI/Ring-1T", "ling-1t"},
    {"deepseek-r1", "deepseek-v3"},
    {"glm-4.6", "glm-4.5"},
    {"zai-org/GLM-4.7", "glm-4.5"},
    {"glm-4.7", "glm-4.5"},
    {"MiniMaxAI/MiniMax-M2.1", "minimax-m2"},
    {"MiniMaxAI/MiniMax-M2.7", "minimax-m2"},
    {"moonshotai/Kimi-K2.5", "kimi-k2"}, /* its language model */
    {"moonshotai/Moonlight-16B-A3B", "moonlight-16b-a3b"},
    {"baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b"},
    {"tencent/Tencent-Hunyuan-Large", "hunyuan-large"},
    {"Hunyuan-A52B", "hunyuan-large"},
    {"MiniMaxAI/MiniMax-M2.5", "minimax-m2"},
    {"Qwen/Qwen3.5-35B-A3B", "qwen3.5-35b-a3b"},
    {"Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b"},
    {"Qwen/Qwen1.5-MoE-A2.7B", "qwen1.5-moe-a2.7b"},
    {"Qwen/Qwen2-57B-A14B", "qwen2-57b-a14b"},
    {"Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3-vl-30b-a3b"},
    {"google/gemma-4-26B-A4B", "gemma-4-26b-a4b"},
    {"LiquidAI/LFM2-8B-A1B", "lfm2-8b-a1b"},
    {"mistralai/Mistral-Small-4-119B-2603", "mistral-small-4-119b"},
    {"openai/gpt-oss-safeguard-20b", "gpt-oss-20b"},
    {"openai/gpt-oss-safeguard-120b", "gpt-oss-120b"},
    /* names of Primus' files for Megatron and torchtitan, of MaxText's, and of folders in slime's scripts */
    {"llama4-17b16e", "llama-4-scout"},
    {"llama4-17bx16e", "llama-4-scout"},
    {"llama4-17b128e", "llama-4-maverick"},
    {"llama4-e16", "llama-4-scout"},
    {"llama4-e128", "llama-4-maverick"},
    {"llama4-17bx128e", "llama-4-maverick"},
    {"deepseek-v2-16b", "deepseek-v2-lite"},
    {"deepseek-v3-16b", "deepseek-v2-lite"},
    {"deepseek-v3-236b", "deepseek-v2"},
    {"deepseek4-284b", "deepseek-v4-flash"},
    {"qwen3-5-35b-a3b", "qwen3.5-35b-a3b"},
    {"glm5", "glm-5"},
    {"glm4-7", "glm-4.5"},
    {"glm-4.5-106b-a12b", "glm-4.5-air"},
    {"glm-4.5-355b-a32b", "glm-4.5"},
    {"glm-4.7-355b-a32b", "glm-4.5"},
    {"glm-5-744b-a40b", "glm-5"},
};

const char *spw_model_nearest(const char *name) {
    spw_nearest nearest = {.text = name};
    for (const char *const *preset = spw_model_names; *preset != NULL; preset++)
        spw_nearest_offer_name(&nearest, *preset);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        spw_nearest_offer_name(&nearest, aliases[i].alias);
    return nearest.best != NULL ? spw_model_preset_of(nearest.best) : NULL;
}

static const char *const suffixes[] = {".json", NULL};

/* A file is named after itself, a config.json after its folder: ".../DeepSeek-V3/config.json". */
static void name_after(const char *path, char name[SPW_MODEL_NAME]) {
    size_t end = strlen(path);
    const char *tail = "/config.json";
    if (end > strlen(tail) && strcmp(path + end - strlen(tail), tail) == 0)
        end -= strlen(tail);
    else if (end > 5 && strcmp(path + end - 5, ".json") == 0)
        end -= 5;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    char raw[SPW_MODEL_NAME];
    (void)snprintf(raw, sizeof raw, "%.*s", (int)(end - begin), path + begin);
    spw_plain_text(raw, name, SPW_MODEL_NAME); /* it is printed */
}

/* The preset of an alias; NULL: it is none. */
static const char *alias_of(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].alias, name) == 0) return aliases[i].preset;
    return NULL;
}

/* What may stand behind a name and changes no size. */
static bool is_variant(const char *rest) {
    static const char *const words[] = {
        "instruct", "base",     "thinking", "chat", "it",         "hf",          "bf16",  "fp8",  "v0.1",
        "sft",      "pretrain", "unsloth",  "pt",   "terminus",   "nvfp4",       "mxfp4", "int4", "int8",
        "awq",      "gptq",     "bnb",      "nf4",  "linearized", "dequantized", "mcore", NULL};
    while (*rest == '-' || *rest == '_') {
        const size_t length = strcspn(++rest, "-_");
        bool known = length > 0 && strspn(rest, "0123456789") == length;
        for (const char *const *w = words; *w != NULL && !known; w++)
            known = strlen(*w) == length && strncasecmp(rest, *w, length) == 0;
        if (!known) return false;
        rest += length;
    }
    return *rest == '\0';
}

/* Lower case, '-' for '_', without a folder in front, ".yaml" and '/' behind. */
static void plain(const char *name, char out[NAME_TEXT]) {
    size_t end = strlen(name), begin = 0;
    while (end > 1 && name[end - 1] == '/') end--;
    for (size_t i = 0; i < end; i++)
        if (name[i] == '/') begin = i + 1;
    (void)snprintf(out, NAME_TEXT, "%.*s", (int)(end - begin), name + begin);
    for (char *c = out; *c != '\0'; c++) *c = (char)(*c == '_' ? '-' : tolower((unsigned char)*c));
    for (size_t i = 0; i < 2; i++) {
        char *tail = strstr(out, i == 0 ? ".yaml" : ".yml");
        if (tail != NULL) *tail = '\0';
    }
}

/* The longest name that a word is a variant of, and what that name means. */
typedef struct nearest_name {
    size_t length;
    const char *preset;
} nearest_name;

static void look_at(const char *word, const char *name, const char *preset, nearest_name *best) {
    const size_t length = strlen(name);
    if (length <= best->length || strncmp(word, name, length) != 0 || !is_variant(word + length)) return;
    *best = (nearest_name){length, preset};
}

const char *spw_model_of_name(const char *name) {
    char word[NAME_TEXT], base[NAME_TEXT];
    nearest_name best = {0, NULL};
    plain(name, word);
    const char *same = alias_of(name) != NULL ? alias_of(name) : alias_of(word);
    if (same != NULL) return same;
    for (const char *const *preset = spw_model_names; *preset != NULL; preset++)
        look_at(word, *preset, *preset, &best);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        plain(aliases[i].alias, base);
        look_at(word, base, aliases[i].preset, &best);
    }
    return best.preset;
}

/* "Qwen/..." of an owner whose repositories are among the aliases. */
static bool is_owned(const char *name) {
    const size_t owner = strcspn(name, "/") + 1;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strncmp(aliases[i].alias, name, owner) == 0 && strchr(name + owner, '/') == NULL) return true;
    return false;
}

const char *spw_model_preset_of(const char *name) {
    const char *preset = alias_of(name);
    const size_t length = strlen(name);
    if (preset == NULL && name[0] != '{' && (strchr(name, '/') == NULL || is_owned(name)) &&
        (length < 5 || strcmp(name + length - 5, ".json") != 0))
        preset = spw_model_of_name(name);
    return preset != NULL ? preset : name;
}

static const spw_preset_kind model_kind = {.what = "model",
                                           .file_words = "a Hugging Face config.json",
                                           .files = spw_model_files,
                                           .suffixes = suffixes,
                                           .most_bytes = SPW_MODEL_FILE_BYTES};

spw_status spw_model_read(const char *name, const char *folder, spw_model *out) {
    spw_preset_text text;
    if (name[0] == '{') { /* the model itself */
        const spw_status parsed = spw_model_parse("model {...}", name, strlen(name), out);
        if (parsed == SPW_OK) (void)snprintf(out->name, sizeof out->name, "model of the job");
        return parsed;
    }
    spw_status status = spw_preset_open(&model_kind, spw_model_preset_of(name), folder, &text);
    if (status != SPW_OK) return status;
    status = spw_model_parse(text.where, text.text, text.length, out);
    if (status == SPW_OK) name_after(text.where, out->name);
    spw_preset_close(&text);
    return status;
}

/* In the file itself, in the part that is the language model, or in what says how positions are turned. */
static double number_of(const json_t *root, const char *key) {
    static const char *const inner[] = {"text_config", "rope_parameters", "rope_scaling", NULL};
    const json_t *value = json_object_get(root, key);
    double out = json_is_number(value) ? json_number_value(value) : NAN;
    for (const char *const *name = inner; *name != NULL && isnan(out); name++) {
        const json_t *part = json_object_get(root, *name);
        if (json_is_object(part)) out = number_of(part, key);
    }
    return out;
}

double spw_model_file_number(const char *name, const char *key) {
    spw_preset_text text = {.where = NULL};
    if (name[0] == '{')
        text = (spw_preset_text){.text = name, .length = strlen(name)};
    else if (spw_preset_open(&model_kind, spw_model_preset_of(name), NULL, &text) != SPW_OK)
        return NAN;
    json_t *root = json_loadb(text.text, text.length, JSON_REJECT_DUPLICATES, NULL);
    const double out = number_of(root, key);
    json_decref(root);
    if (name[0] != '{') spw_preset_close(&text);
    return out;
}

const char *const *spw_model_presets(void) { return spw_model_names; }
