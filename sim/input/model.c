#include "sim/input/model.h"

#include "base/saturate.h"
#include "sim/input/model_json.h"
#include "sim/input/preset.h"

#include <stdio.h>
#include <string.h>

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
    {"deepseek-r1", "deepseek-v3"},
    {"glm-4.6", "glm-4.5"},
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
    const spw_preset_kind kind = {.what = "model",
                                  .file_words = "a Hugging Face config.json",
                                  .files = spw_model_files,
                                  .suffixes = suffixes,
                                  .most_bytes = SPW_MODEL_FILE_BYTES};
    spw_preset_text text;
    if (name[0] == '{') { /* the model itself */
        const spw_status parsed = spw_model_parse("model {...}", name, strlen(name), out);
        if (parsed == SPW_OK) (void)snprintf(out->name, sizeof out->name, "model of the job");
        return parsed;
    }
    spw_status status = spw_preset_open(&kind, spw_model_preset_of(name), folder, &text);
    if (status != SPW_OK) return status;
    status = spw_model_parse(text.where, text.text, text.length, out);
    if (status == SPW_OK) name_after(text.where, out->name);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_model_presets(void) { return spw_model_names; }

/* --- Parameter counts; saturating, so that an absurd model is seen by its total --- */

/* Attention of `heads` and `kv_heads`, keys and values of their own widths: q, k, v, o. */
static uint64_t projections(const spw_model *m, uint64_t heads, uint64_t kv_heads, uint64_t key,
                            uint64_t value) {
    const uint64_t wide = spw_saturated_sum(spw_saturated_product(heads, key),
                                            spw_saturated_product(kv_heads, key)),
                   out = spw_saturated_sum(spw_saturated_product(kv_heads, value),
                                           spw_saturated_product(heads, value));
    return spw_saturated_product(m->hidden, spw_saturated_sum(wide, out));
}

/* Grouped-query attention: projections, their biases, the norms of q and k, one sink a head (gpt-oss), a gate. */
static uint64_t gqa(const spw_model *m) {
    const uint64_t q = spw_saturated_product(m->heads, m->head_dim),
                   k = spw_saturated_product(m->kv_heads, m->head_dim),
                   v = spw_saturated_product(m->kv_heads, m->v_head_dim);
    uint64_t sum = projections(m, m->heads, m->kv_heads, m->head_dim, m->v_head_dim);
    if (m->attention_bias) sum = spw_saturated_sum(sum, spw_saturated_sum(q, spw_saturated_sum(k, v)));
    if (m->output_bias) sum = spw_saturated_sum(sum, m->hidden);
    if (m->qk_norm)
        sum = spw_saturated_sum(sum, m->qk_norm_per_head ? spw_saturated_product(2, m->head_dim)
                                                         : spw_saturated_sum(q, k));
    if (m->attention_sinks) sum = spw_saturated_sum(sum, m->heads);
    if (m->query_gate) sum = spw_saturated_sum(sum, spw_saturated_product(m->hidden, q));
    if (m->gate_bias) sum = spw_saturated_sum(sum, q);
    if (m->query_gate_bias) sum = spw_saturated_sum(sum, m->heads);
    return sum;
}

size_t spw_model_query_key_value(const spw_model *m) {
    return m->heads * m->head_dim * (m->query_gate ? 2 : 1) + m->kv_heads * (m->head_dim + m->v_head_dim);
}

/* Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): q down, norm, up; k and v down with the
 * rotary key, norm, up; o. Without a rank for q one plain projection. */
static uint64_t mla(const spw_model *m) {
    uint64_t q = spw_saturated_product(m->heads, m->nope_dim + m->rope_dim),
             kv_down = m->kv_lora_rank + m->rope_dim;
    uint64_t kv_up = spw_saturated_product(m->heads, m->nope_dim + m->v_head_dim),
             o = spw_saturated_product(m->heads, m->v_head_dim);
    uint64_t sum = m->q_lora_rank == 0
                       ? spw_saturated_product(m->hidden, q)
                       : spw_saturated_sum(spw_saturated_sum(spw_saturated_product(m->hidden, m->q_lora_rank),
                                                             m->q_lora_rank),
                                           spw_saturated_product(m->q_lora_rank, q));
    sum = spw_saturated_sum(
        sum,
        spw_saturated_sum(spw_saturated_product(m->hidden, kv_down),
                          spw_saturated_sum(m->kv_lora_rank, spw_saturated_product(m->kv_lora_rank, kv_up))));
    sum = spw_saturated_sum(sum, spw_saturated_product(o, m->hidden));
    if (m->attention_bias) sum = spw_saturated_sum(sum, spw_saturated_sum(m->q_lora_rank, kv_down));
    if (m->output_bias) sum = spw_saturated_sum(sum, m->hidden);
    return sum;
}

/* The lightning indexer of sparse attention (DeepSeek-V3.2, 2025, section 2.1): queries from q's latent, one key of the
 * hidden state, its layer norm, a weight a head. */
static uint64_t indexer(const spw_model *m) {
    if (m->indexer_heads == 0) return 0;
    const uint64_t queries =
        spw_saturated_product(m->q_lora_rank, spw_saturated_product(m->indexer_heads, m->indexer_dim));
    return spw_saturated_sum(spw_saturated_sum(queries, 2 * (uint64_t)m->indexer_dim),
                             spw_saturated_product(m->hidden, m->indexer_dim + m->indexer_heads));
}

size_t spw_model_indexer_layers(const spw_model *m) {
    size_t layers = 0;
    for (size_t i = 0; m->indexer_heads > 0 && i < m->layers; i++)
        layers += m->mixer_of[i] == 0 && m->shares_indexer[i] == 0;
    return layers;
}

/* Projections up, two with a gate, and down between rows of `in` elements; biases of what they give. */
static uint64_t ffn_of(size_t matrices, uint64_t in, uint64_t ffn, bool bias) {
    return spw_saturated_sum(spw_saturated_product(matrices, spw_saturated_product(in, ffn)),
                             bias ? spw_saturated_sum(spw_saturated_product(matrices - 1, ffn), in) : 0);
}

/* With what latent experts have around them. */
static uint64_t router(const spw_model *m) {
    if (m->listed_router) return 0;
    const uint64_t choices = m->experts - m->replicas + m->zero_experts;
    const uint64_t each = (uint64_t)m->router_bias + m->selection_bias + m->router_scales;
    return spw_saturated_sum(spw_saturated_product(choices, m->hidden + each),
                             spw_saturated_product((uint64_t)m->router_scales + m->moe_norm, m->hidden));
}

static uint64_t attention(const spw_model *m) {
    const uint64_t listed = spw_matrices_elements(m, SPW_IN_MIXER, 0);
    if (m->attention == SPW_ATTENTION_LISTED) return listed;
    return spw_saturated_sum(
        listed, spw_saturated_sum(m->attention == SPW_ATTENTION_MLA ? mla(m) : gqa(m), indexer(m)));
}

/* Of all layers by kind, and of the layer that has most. */
static void count_mixers(const spw_model *m, spw_parameters *p) {
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const size_t layers = k == 0 ? m->layers - m->other_layers : m->mixer[k].layers;
        p->mixer_per_layer[k] = k == 0 ? p->attention_per_layer : spw_matrices_elements(m, SPW_IN_MIXER, k);
        p->mixers = spw_saturated_sum(p->mixers, spw_saturated_product(layers, p->mixer_per_layer[k]));
        if (layers > 0 && p->mixer_per_layer[k] > p->mixer_most) p->mixer_most = p->mixer_per_layer[k];
    }
    if (m->indexer_heads == 0) return;
    const uint64_t shared = m->layers - m->other_layers - spw_model_indexer_layers(m),
                   less = spw_saturated_product(shared, p->indexer_per_layer);
    p->mixers = less < p->mixers ? p->mixers - less : 0;
}

uint64_t spw_model_mixer_most(const spw_model *m, bool experts) {
    const spw_parameters p = spw_model_parameters(m);
    uint64_t most = 0;
    if (!m->half_layers) return p.mixer_most;
    for (size_t i = 0; i < m->layers; i++) {
        const uint64_t here = p.mixer_per_layer[m->mixer_of[i]];
        if ((m->is_moe[i] != 0) == experts && here > most) most = here;
    }
    return most;
}

uint64_t spw_model_router_column(const spw_model *m) {
    return m->listed_router ? 0 : m->hidden + (uint64_t)m->router_bias + m->selection_bias + m->router_scales;
}

uint64_t spw_model_routed(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t all = spw_saturated_product(m->moe_layers, p.routed_per_layer),
                   less = spw_saturated_product(m->lacking_experts, p.expert);
    return less < all ? all - less : 0;
}

spw_mtp_parameters spw_mtp_parameters_of(const spw_model *m) {
    const spw_parameters p = spw_model_parameters(m);
    const uint64_t hidden = m->hidden;
    return (spw_mtp_parameters){.routed = p.routed_per_layer,
                                .rest = p.attention_per_layer + (m->half_layers ? 2 : 1) * p.norms_per_layer +
                                        p.shared_per_layer + p.router_per_layer + 2 * hidden * hidden +
                                        3 * hidden};
}

spw_parameters spw_model_parameters(const spw_model *m) {
    const uint64_t expert = ffn_of(spw_expert_matrices(m), spw_model_routed_width(m), m->expert_ffn,
                                   m->expert_bias),
                   norm = spw_saturated_product(m->hidden, m->norm_bias ? 2 : 1);
    spw_parameters p = {.embedding = spw_saturated_product(m->vocab, m->hidden), .expert = expert};
    p.final_norm = spw_saturated_sum(norm, spw_matrices_elements(m, SPW_IN_MODEL, 0));
    const uint64_t rows = m->head_rows > 0 ? m->head_rows : m->vocab;
    p.head = spw_saturated_sum(m->tied_embeddings ? 0 : spw_saturated_product(rows, m->hidden),
                               m->head_bias ? rows : 0);
    p.indexer_per_layer = indexer(m);
    p.attention_per_layer = attention(m);
    count_mixers(m, &p);
    p.norms_per_layer = spw_saturated_sum(spw_saturated_product(m->layer_norms, norm), m->layer_scalar);
    p.norms_per_layer = spw_saturated_sum(p.norms_per_layer, spw_matrices_elements(m, SPW_IN_LAYER, 0));
    p.routed_per_layer = spw_saturated_product(m->experts, expert);
    p.tables = spw_matrices_elements(m, SPW_IN_TABLES, 0);
    p.shared_per_layer = spw_saturated_sum(
        ffn_of(spw_ffn_matrices(m), m->hidden, m->shared_ffn, m->ffn_bias && m->shared_ffn > 0),
        m->shared_gate ? m->hidden : 0);
    p.latent_per_layer = spw_matrices_elements(m, SPW_IN_MOE_LAYER, 0);
    p.router_per_layer = spw_saturated_sum(router(m), p.latent_per_layer);
    p.dense_ffn_per_layer =
        ffn_of(spw_ffn_matrices(m), m->hidden, m->dense_ffn, m->ffn_bias && m->dense_ffn > 0);
    uint64_t sum = spw_saturated_sum(spw_saturated_sum(p.embedding, p.head), p.final_norm);
    sum = spw_saturated_sum(sum,
                            spw_saturated_sum(p.mixers, spw_saturated_product(m->layers, p.norms_per_layer)));
    sum = spw_saturated_sum(sum, spw_saturated_product(spw_model_dense_layers(m), p.dense_ffn_per_layer));
    sum = spw_saturated_sum(
        sum, spw_saturated_product(m->moe_layers, spw_saturated_sum(p.shared_per_layer, p.router_per_layer)));
    const uint64_t unbiased =
        m->selection_bias ? spw_saturated_product(m->hash_layers, m->experts - m->replicas) : 0;
    sum -= unbiased < sum ? unbiased : 0;
    const uint64_t columns = spw_saturated_product(m->lacking_experts, spw_model_router_column(m)),
                   lacking = spw_saturated_product(m->lacking_experts, expert);
    sum -= columns < sum ? columns : 0;
    p.total = spw_saturated_sum(spw_saturated_sum(sum, p.tables),
                                spw_saturated_product(m->moe_layers, p.routed_per_layer));
    p.total -= lacking < p.total ? lacking : 0;
    const uint64_t computed =
        spw_saturated_product(expert, m->top_k * m->experts) / (m->experts + m->zero_experts);
    p.active = spw_saturated_sum(sum, spw_saturated_product(m->moe_layers, computed) -
                                          spw_saturated_product(m->lacking_choices, expert));
    return p;
}
