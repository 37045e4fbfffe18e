/* Kinds of layers of the families in model_families_more.c; as model_mixer.c. Sources: transformers 5.24,
 * src/transformers/models/<family>/modeling_<family>.py, class in brackets; tests/models/classes.jsonl holds them against it. */
#include "base/saturate.h"
#include "sim/model/config/model_reading.h"
#include "sim/model/model_mixer_parts.h"

/* [BailingHybridLinearAttention] Kimi's delta attention with both gates of full rank. */
static void bailing_delta(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, heads = spw_or_default(raw->mixer_heads, m->heads),
                   dim = spw_or_default(raw->mixer_dim, 128), wide = P(heads, dim),
                   convolved = P(3, P(wide, spw_or_default(raw->mixer_conv, 4)));
    matrix(m, kind, "q, k and v", h, P(3, wide), SPW_CUT_OUTPUTS);
    matrix(m, kind, "forget gate", h, wide, SPW_CUT_OUTPUTS);
    matrix(m, kind, "output gate", h, wide, SPW_CUT_OUTPUTS);
    matrix(m, kind, "b", h, heads, SPW_CUT_OUTPUTS);
    matrix(m, kind, "out", wide, h, SPW_CUT_INPUTS);
    numbers(m, kind, "convolution", convolved, SPW_CUT_OUTPUTS);
    numbers(m, kind, "decay", spw_saturated_sum(wide, heads), SPW_CUT_OUTPUTS);
    numbers(m, kind, "norm", dim, SPW_CUT_NOWHERE);
    m->mixer[kind].state = spw_saturated_sum(P(wide, dim), convolved);
}

/* [LagunaAttention] the gate of the model's own attention, one number a head. */
static void laguna_gate(const spw_raw_config *raw, spw_model *m, size_t kind) {
    (void)raw;
    matrix(m, kind, "gate", m->hidden, m->head_gates ? m->heads : P(m->heads, m->head_dim), SPW_CUT_OUTPUTS);
}

/* [LagunaAttention] sliding layers, whose queries may have another number of heads. */
static void laguna_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, heads = spw_or_default(raw->mixer_heads, m->heads);
    m->mixer[kind].attends = true;
    matrix(m, kind, "q", h, P(heads, m->head_dim), SPW_CUT_OUTPUTS);
    matrix(m, kind, "k and v", h, P(2, P(m->kv_heads, m->head_dim)), SPW_CUT_OUTPUTS);
    matrix(m, kind, "o", P(heads, m->head_dim), h, SPW_CUT_INPUTS);
    matrix(m, kind, "gate", h, m->head_gates ? heads : P(heads, m->head_dim), SPW_CUT_OUTPUTS);
    numbers(m, kind, "norms", P(2, m->head_dim), SPW_CUT_NOWHERE);
    m->mixer[kind].heads = (size_t)heads;
    m->mixer[kind].key = m->head_dim;
    m->mixer[kind].value = spw_attention_widths_of(m).value_dim;
    m->mixer[kind].window = spw_or_default(raw->window, 0);
}

/* [Glm5NextIndexer] beside latent attention and its indexer: blocks of keys are joined by weights of their own. */
static void pooled_indexer(const spw_raw_config *raw, spw_model *m, size_t kind) {
    matrix(m, kind, "indexer: gate of joined keys", m->hidden, m->indexer_dim, SPW_CUT_NOWHERE);
    numbers(m, kind, "indexer: places of joined keys", P(N(dim), m->indexer_dim), SPW_CUT_NOWHERE);
}

/* [JetMoeMoA] attention whose queries and output are experts, `top_k` of them a token; keys and values are every token's. */
static void attention_experts(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, wide = P(m->kv_heads, N(dim));
    spw_matrix_add(m, (spw_matrix){"queries of an expert", h, wide, m->experts, SPW_IN_MIXER, (uint8_t)kind,
                                   SPW_CUT_NOWHERE, false});
    spw_matrix_add(m, (spw_matrix){"output of an expert", wide, h, m->experts, SPW_IN_MIXER, (uint8_t)kind,
                                   SPW_CUT_NOWHERE, false});
    matrix(m, kind, "router of attention", h, m->experts, SPW_CUT_NOWHERE);
    matrix(m, kind, "keys and values", h, 2 * wide, SPW_CUT_NOWHERE);
    numbers(m, kind, "bias", h, SPW_CUT_NOWHERE);
    spw_matrix_add(m,
                   (spw_matrix){"bias of the experts", 1, h, 1, SPW_IN_MOE_LAYER, 0, SPW_CUT_NOWHERE, true});
    m->mixer[kind].heads = m->heads;
    m->mixer[kind].key = m->mixer[kind].value = (size_t)N(dim);
}

/* [InklingAttention] attention of either kind: relative positions of a width of their own, convolutions of keys and values. */
static void relative_attention(const spw_raw_config *raw, spw_model *m, size_t kind, uint64_t heads,
                               uint64_t kv_heads, uint64_t dim, uint64_t extent) {
    const uint64_t h = m->hidden, q = P(heads, dim), kv = P(kv_heads, dim), width = N(rank);
    matrix(m, kind, "queries", h, q, SPW_CUT_OUTPUTS);
    matrix(m, kind, "keys and values", h, 2 * kv, SPW_CUT_OUTPUTS);
    matrix(m, kind, "relative positions", h, P(heads, width), SPW_CUT_OUTPUTS);
    matrix(m, kind, "output", q, h, SPW_CUT_INPUTS);
    numbers(m, kind, "scores of positions", P(width, extent), SPW_CUT_NOWHERE);
    numbers(m, kind, "convolutions of keys and values", P(2, P(kv, N(conv))), SPW_CUT_OUTPUTS);
    numbers(m, kind, "norms", P(2, dim), SPW_CUT_NOWHERE);
    m->mixer[kind].heads = (size_t)heads;
    m->mixer[kind].key = m->mixer[kind].value = (size_t)dim;
}

/* [InklingAttention, InklingMoE, InklingDecoderLayer] the full layers, and what every layer has beside its attention. */
static void inkling_full(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden;
    relative_attention(raw, m, kind, m->heads, m->kv_heads, m->head_dim, N(state));
    spw_matrix_add(m, (spw_matrix){"convolutions", N(conv), h, 2, SPW_IN_LAYER, 0, SPW_CUT_NOWHERE, true});
    spw_matrix_add(m, (spw_matrix){"router of shared experts", h, spw_or_default(raw->mixer_groups, 0), 1,
                                   SPW_IN_MOE_LAYER, 0, SPW_CUT_NOWHERE, false});
    spw_matrix_add(m,
                   (spw_matrix){"scale of the router", 1, 1, 1, SPW_IN_MOE_LAYER, 0, SPW_CUT_NOWHERE, true});
    spw_matrix_add(m, (spw_matrix){"norm of the embedding", 1, h, 1, SPW_IN_MODEL, 0, SPW_CUT_NOWHERE, true});
}

static void inkling_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t window = (uint64_t)raw->mixer_expand;
    m->mixer[kind].attends = true;
    relative_attention(raw, m, kind, N(heads), N(kv_heads), N(dim), window < N(state) ? window : N(state));
    m->mixer[kind].window = (size_t)window;
}

#define WIDE SPW_MODEL_WIDEST
static const spw_key_row jetmoe_keys[] = {SPW_KEY("kv_channels", mixer_dim, 1, WIDE, true), {.key = NULL}};
static const spw_key_row inkling_keys[] = {
    SPW_KEY("swa_num_attention_heads", mixer_heads, 1, 65535, true),
    SPW_KEY("swa_num_key_value_heads", mixer_kv_heads, 1, 65535, true),
    SPW_KEY("swa_head_dim", mixer_dim, 1, WIDE, true),
    SPW_KEY("sliding_window_size", mixer_expand, 1, WIDE, true),
    SPW_KEY("d_rel", mixer_rank, 1, 65535, true),
    SPW_KEY("rel_extent", mixer_state, 1, WIDE, true),
    SPW_KEY("conv_kernel_size", mixer_conv, 1, 65535, true),
    SPW_KEY("n_shared_experts", mixer_groups, 0, SPW_MODEL_MOST_EXPERTS, false),
    {.key = NULL}};
static const spw_key_row pool_keys[] = {SPW_KEY("index_kpool", mixer_dim, 1, 65535, true), {.key = NULL}};
static const spw_key_row no_keys[] = {{.key = NULL}};
static const spw_key_row bailing_keys[] = {SPW_KEY("linear_num_heads", mixer_heads, 1, 65535, false),
                                           SPW_KEY("linear_head_dim", mixer_dim, 1, WIDE, false),
                                           SPW_KEY("linear_conv_kernel_dim", mixer_conv, 1, 65535, false),
                                           {.key = NULL}};
const spw_mixer_kind spw_bailing_delta = {
    "delta attention, a linear attention", {"linear_attention"}, bailing_keys, bailing_delta};
const spw_mixer_kind spw_laguna_gate = {
    "attention with a gate a head", {"full_attention"}, no_keys, laguna_gate};
const spw_mixer_kind spw_laguna_sliding = {
    "sliding attention with heads of its own", {"sliding_attention"}, no_keys, laguna_sliding};
const spw_mixer_kind spw_pooled_indexer = {
    "latent attention with an indexer of joined keys", {"indexed_attention"}, pool_keys, pooled_indexer};
const spw_mixer_kind spw_attention_experts = {
    "attention whose queries are experts, all counted as at work", {NULL}, jetmoe_keys, attention_experts};
const spw_mixer_kind spw_inkling_full = {
    "attention with relative positions", {"hybrid"}, inkling_keys, inkling_full};
const spw_mixer_kind spw_inkling_sliding = {
    "sliding attention with relative positions", {"hybrid_sliding"}, inkling_keys, inkling_sliding};
