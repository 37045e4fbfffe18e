/* Kinds of layers of Zaya, Doge and Inkling 2; as model_mixer.c. Sources: transformers 5.24,
 * src/transformers/models/<family>/modeling_<family>.py, class in brackets; tests/models/classes.jsonl holds them against it. */
#include "base/saturate.h"
#include "sim/model/config/model_reading.h"
#include "sim/model/model_mixer_parts.h"

#include <math.h>

/* Once a layer with experts; numbers once a layer, once a layer with experts, once. */
static void routes(spw_model *m, const char *name, uint64_t in, uint64_t out) {
    spw_matrix_add(m, (spw_matrix){.name = name, .in = in, .out = out, .place = SPW_IN_MOE_LAYER});
}
static void beside(spw_model *m, spw_matrix_place place, const char *name, uint64_t count) {
    spw_matrix_add(m, (spw_matrix){.name = name, .in = 1, .out = count, .place = place, .vector = true});
}

/* --- Zaya --- */

/* [ZayaAttention, ZayaCCAProjection, ZayaQKNorm] queries and keys through two convolutions, one a channel and one a head; half of
 * each value comes from the token before; a scale a head of keys. */
static void convolved_attention(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, dim = m->head_dim, q = P(m->heads, dim), kv = P(m->kv_heads, dim),
                   channels = spw_saturated_sum(q, kv);
    m->mixer[kind].attends = true;
    matrix(m, kind, "queries", h, q, SPW_CUT_OUTPUTS);
    matrix(m, kind, "keys", h, kv, SPW_CUT_OUTPUTS);
    matrix(m, kind, "values, half of this token", h, kv / 2, SPW_CUT_OUTPUTS);
    matrix(m, kind, "values, half of the one before", h, kv / 2, SPW_CUT_OUTPUTS);
    matrix(m, kind, "output", q, h, SPW_CUT_INPUTS);
    numbers(m, kind, "convolution a channel", P(channels, N(conv) + 1), SPW_CUT_OUTPUTS);
    numbers(m, kind, "convolution a head", P(channels, spw_saturated_sum(P(dim, N(expand)), 1)),
            SPW_CUT_OUTPUTS);
    numbers(m, kind, "scales of keys", m->kv_heads, SPW_CUT_OUTPUTS);
    if (m->attention_bias)
        numbers(m, kind, "biases", spw_saturated_sum(q, spw_saturated_sum(2 * kv, h)), SPW_CUT_NOWHERE);
    m->mixer[kind].heads = m->heads;
    m->mixer[kind].key = m->mixer[kind].value = (size_t)dim;
}

/* [ZayaRouter, ZayaRouterMLP, ZayaResidualScaling, ZayaModel] a router of three layers that adds the one before it, with one choice
 * that computes nothing; a scale and a bias of what every part adds and of what it adds to. */
static void zaya_full(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, rank = N(rank), choices = m->experts + m->zero_experts;
    convolved_attention(raw, m, kind);
    routes(m, "router, down", h, rank);
    routes(m, "router, first layer", rank, rank);
    routes(m, "router, second layer", rank, rank);
    routes(m, "router, choices", rank, choices);
    beside(m, SPW_IN_MOE_LAYER, "router: biases, norm, bias of the choice",
           spw_saturated_sum(P(4, rank), choices));
    beside(m, SPW_IN_LAYER, "scales and biases of residuals", P(8, h));
    beside(m, SPW_IN_MODEL, "scale and bias of the embedding", 2 * h);
    beside(m, SPW_IN_MODEL, "scales of the routers before", P(m->layers - 1, rank));
}

static void zaya_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    convolved_attention(raw, m, kind);
    m->mixer[kind].window = spw_or_default(raw->window, 0);
}

/* --- Doge --- */

/* [DogeAttention, DogeCDMoE, DogeDecoderLayer] beside attention: a mask made of values, a step a head of keys; a router of two times
 * the root of the experts, whose sums score them all. */
static void doge_mask(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t kv = P(m->kv_heads, m->head_dim), h = m->hidden;
    (void)raw;
    const double keys = floor(sqrt((double)m->experts));
    matrix(m, kind, "mask", kv, m->kv_heads, SPW_CUT_INPUTS);
    numbers(m, kind, "its scales", m->kv_heads * (m->attention_bias ? 2U : 1U), SPW_CUT_OUTPUTS);
    routes(m, "router", h, 2 * (uint64_t)keys);
}

/* --- Inkling 2 --- */

/* [Inkling2QueryProjection, Inkling2KeyValueProjection, Inkling2RelativePositionBias, Inkling2GatedOutputProjection] attention of
 * either kind: scales of queries, convolutions of keys and values, a gate as wide as the queries, a sink a head, positions of a
 * width of their own. */
static void gated_relative(const spw_raw_config *raw, spw_model *m, size_t kind, uint64_t heads,
                           uint64_t kv_heads, uint64_t dim, uint64_t extent) {
    const uint64_t h = m->hidden, q = P(heads, dim), kv = P(kv_heads, dim), width = N(rank);
    m->mixer[kind].attends = true;
    matrix(m, kind, "queries", h, q, SPW_CUT_OUTPUTS);
    matrix(m, kind, "keys and values", h, 2 * kv, SPW_CUT_OUTPUTS);
    matrix(m, kind, "gate", h, q, SPW_CUT_OUTPUTS);
    matrix(m, kind, "output", q, h, SPW_CUT_INPUTS);
    matrix(m, kind, "sinks", h, heads, SPW_CUT_OUTPUTS);
    matrix(m, kind, "relative positions", h, P(heads, width), SPW_CUT_OUTPUTS);
    numbers(m, kind, "scores of positions", P(width, extent), SPW_CUT_NOWHERE);
    numbers(m, kind, "scales of queries and positions", spw_saturated_sum(q, P(heads, width)),
            SPW_CUT_OUTPUTS);
    numbers(m, kind, "convolutions of keys and values", P(2, P(kv, N(conv))), SPW_CUT_OUTPUTS);
    m->mixer[kind].heads = (size_t)heads;
    m->mixer[kind].key = m->mixer[kind].value = (size_t)dim;
}

/* [Inkling2LoopMessageGate] four gates of what the pass before says, through a low rank; a question each. */
static void loop_gates(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, rank = spw_or_default(raw->loop_rank, 64);
    spw_matrix_add(m, (spw_matrix){"gates of the pass before, down", 2 * h, rank, 4, SPW_IN_MIXER,
                                   (uint8_t)kind, SPW_CUT_NOWHERE, false});
    spw_matrix_add(m, (spw_matrix){"gates of the pass before, up", rank, 2 * h, 4, SPW_IN_MIXER,
                                   (uint8_t)kind, SPW_CUT_NOWHERE, false});
    numbers(m, kind, "questions to the pass before", P(4, h), SPW_CUT_NOWHERE);
}

/* [Inkling2FullAttention, Inkling2DynamicShortConvolution] weights of the convolution also of the hidden state; norms of queries,
 * keys and values each. */
static void inkling2_attention(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden;
    gated_relative(raw, m, kind, m->heads, m->kv_heads, m->head_dim, N(state));
    matrix(m, kind, "weights of the convolutions", h, P(2, P(m->kv_heads, N(conv))), SPW_CUT_OUTPUTS);
    numbers(m, kind, "norms of keys and values", 2 * h, SPW_CUT_NOWHERE);
}

/* [Inkling2SlidingDecoderLayer, Inkling2FullDecoderLayer, Inkling2BlockAttentionResidual] and what is beside: convolutions, a
 * question to the blocks before for the FFN, and one (three in full layers) for attention but in the first layer. */
static void inkling2_full(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden;
    uint64_t questions = 1; /* before the last norm */
    for (size_t i = 1; i < m->layers; i++) questions += m->mixer_of[i] % 2 == 0 ? 3 : 1;
    inkling2_attention(raw, m, kind);
    spw_matrix_add(m, (spw_matrix){"convolutions", N(conv), h, 2, SPW_IN_LAYER, 0, SPW_CUT_NOWHERE, true});
    beside(m, SPW_IN_LAYER, "question to the blocks before", h);
    beside(m, SPW_IN_MODEL, "questions to the blocks before", P(questions, h));
    beside(m, SPW_IN_MODEL, "norm of the embedding", h);
}

static void inkling2_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t window = (uint64_t)raw->mixer_expand;
    gated_relative(raw, m, kind, N(heads), N(kv_heads), N(dim), window);
    m->mixer[kind].window = (size_t)window;
}

static void inkling2_full_loop(const spw_raw_config *raw, spw_model *m, size_t kind) {
    inkling2_attention(raw, m, kind);
    loop_gates(raw, m, kind);
}

static void inkling2_sliding_loop(const spw_raw_config *raw, spw_model *m, size_t kind) {
    inkling2_sliding(raw, m, kind);
    loop_gates(raw, m, kind);
}

#define WIDE SPW_MODEL_WIDEST
static const spw_key_row no_keys[] = {{.key = NULL}};
static const spw_key_row zaya_keys[] = {SPW_KEY("router_hidden_size", mixer_rank, 1, WIDE, true),
                                        SPW_KEY("cca_time0", mixer_conv, 1, 65535, true),
                                        SPW_KEY("cca_time1", mixer_expand, 1, 65535, true),
                                        {.key = NULL}};
static const spw_key_row inkling2_keys[] = {
    SPW_KEY("swa_num_attention_heads", mixer_heads, 1, 65535, true),
    SPW_KEY("swa_num_key_value_heads", mixer_kv_heads, 1, 65535, true),
    SPW_KEY("swa_head_dim", mixer_dim, 1, WIDE, true),
    SPW_KEY("sliding_window_size", mixer_expand, 1, WIDE, true),
    SPW_KEY("d_rel", mixer_rank, 1, 65535, true),
    SPW_KEY("rel_extent", mixer_state, 1, WIDE, true),
    SPW_KEY("conv_kernel_size", mixer_conv, 1, 65535, true),
    {.key = NULL}};

const spw_mixer_kind spw_zaya_full = {
    "attention of convolved queries and keys", {"hybrid"}, zaya_keys, zaya_full};
const spw_mixer_kind spw_zaya_sliding = {
    "sliding attention of convolved queries and keys", {"hybrid_sliding"}, zaya_keys, zaya_sliding};
const spw_mixer_kind spw_doge_mask = {"attention with a mask of its own", {NULL}, no_keys, doge_mask};
const spw_mixer_kind spw_inkling2_full = {
    "gated attention with relative positions", {"hybrid"}, inkling2_keys, inkling2_full};
const spw_mixer_kind spw_inkling2_sliding = {
    "gated sliding attention with relative positions", {"hybrid_sliding"}, inkling2_keys, inkling2_sliding};
const spw_mixer_kind spw_inkling2_full_loop = {
    "gated attention, looped", {"hybrid"}, inkling2_keys, inkling2_full_loop};
const spw_mixer_kind spw_inkling2_sliding_loop = {
    "gated sliding attention, looped", {"hybrid_sliding"}, inkling2_keys, inkling2_sliding_loop};
