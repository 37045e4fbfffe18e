#include "sim/input/model.h"

#include "sim/input/preset.h"

#include <stdio.h>
#include <string.h>

/* Other names under which the presets are known: MaxText's, and the repositories of the published
 * configurations. */
static const struct alias {
    const char *alias, *preset;
} aliases[] = {
    {"deepseek3-671b", "deepseek-v3"},
    {"kimi-k2-1t", "kimi-k2"},
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
};

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
    (void)snprintf(name, SPW_MODEL_NAME, "%.*s", (int)(end - begin), path + begin);
}

const char *spw_model_preset_of(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].alias, name) == 0) return aliases[i].preset;
    return name;
}

spw_status spw_model_read(const char *name, const char *folder, spw_model *out) {
    const spw_preset_kind kind = {"model", "a Hugging Face config.json", spw_model_files, suffixes};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, spw_model_preset_of(name), folder, &text);
    if (status != SPW_OK) return status;
    status = spw_model_parse(text.where, text.text, text.length, out);
    if (status == SPW_OK) name_after(text.where, out->name);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_model_presets(void) { return spw_model_names; }

/* --- Parameter counts; saturating, so that an absurd model is seen by its total --- */

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Grouped-query attention: q, k, v, o, their biases, the norms of q and k, one sink a head (gpt-oss). */
static uint64_t gqa(const spw_model *m) {
    uint64_t q = times(m->heads, m->head_dim), kv = times(m->kv_heads, m->head_dim);
    uint64_t sum = times(m->hidden, plus(times(2, q), times(2, kv)));
    if (m->attention_bias) sum = plus(sum, plus(q, times(2, kv)));
    if (m->output_bias) sum = plus(sum, m->hidden);
    if (m->qk_norm) sum = plus(sum, m->qk_norm_per_head ? times(2, m->head_dim) : plus(q, kv));
    if (m->attention_sinks) sum = plus(sum, m->heads);
    return sum;
}

/* Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): q down, norm, up; k and v down with the
 * rotary key, norm, up; o. Without a rank for q one plain projection. */
static uint64_t mla(const spw_model *m) {
    uint64_t q = times(m->heads, m->nope_dim + m->rope_dim), kv_down = m->kv_lora_rank + m->rope_dim;
    uint64_t kv_up = times(m->heads, m->nope_dim + m->v_head_dim), o = times(m->heads, m->v_head_dim);
    uint64_t sum = m->q_lora_rank == 0 ? times(m->hidden, q)
                                       : plus(plus(times(m->hidden, m->q_lora_rank), m->q_lora_rank),
                                              times(m->q_lora_rank, q));
    sum = plus(sum, plus(times(m->hidden, kv_down), plus(m->kv_lora_rank, times(m->kv_lora_rank, kv_up))));
    sum = plus(sum, times(o, m->hidden));
    if (m->attention_bias) sum = plus(sum, plus(m->q_lora_rank, kv_down));
    if (m->output_bias) sum = plus(sum, m->hidden);
    return sum;
}

/* Gate, up and down projection; biases of width 2 ffn and hidden. */
static uint64_t swiglu(const spw_model *m, uint64_t ffn, bool bias) {
    return plus(times(3, times(m->hidden, ffn)), bias ? plus(times(2, ffn), m->hidden) : 0);
}

spw_parameters spw_model_parameters(const spw_model *m) {
    uint64_t expert = swiglu(m, m->expert_ffn, m->expert_bias), dense_layers = m->layers - m->moe_layers;
    spw_parameters p = {.embedding = times(m->vocab, m->hidden), .final_norm = m->hidden};
    p.head = m->tied_embeddings ? 0 : p.embedding;
    p.attention_per_layer = m->attention == SPW_ATTENTION_MLA ? mla(m) : gqa(m);
    p.norms_per_layer = times(2, m->hidden);
    p.routed_per_layer = times(m->experts, expert);
    p.shared_per_layer = plus(swiglu(m, m->shared_ffn, false), m->shared_gate ? m->hidden : 0);
    p.router_per_layer = plus(times(m->experts, m->hidden),
                              (m->router_bias ? m->experts : 0) + (m->selection_bias ? m->experts : 0));
    p.dense_ffn_per_layer = swiglu(m, m->dense_ffn, false);
    uint64_t sum = plus(plus(p.embedding, p.head), p.final_norm);
    sum = plus(sum, times(m->layers, plus(p.attention_per_layer, p.norms_per_layer)));
    sum = plus(sum, times(dense_layers, p.dense_ffn_per_layer));
    sum = plus(sum, times(m->moe_layers, plus(p.shared_per_layer, p.router_per_layer)));
    p.total = plus(sum, times(m->moe_layers, p.routed_per_layer));
    p.active = plus(sum, times(m->moe_layers, times(m->top_k, expert)));
    return p;
}
