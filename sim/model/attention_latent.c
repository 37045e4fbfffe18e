/* Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): q down, norm, up; keys and values down with the rotary key, norm, up;
 * o. Without a rank for q one plain projection. The down projections are whole on every GPU of a tensor group; Megatron-Core runs the
 * others again as its module mla_up_proj. */
#include "sim/model/attention.h"

#include "sim/model/config/model_reading.h"
#include "sim/model/model_mixer_parts.h"
#include "sim/model/module.h"

static const spw_matrix_words query = {.weights = "q",
                                       .weights_formula = "H heads (nope + rope) w",
                                       .tokens = "queries",
                                       .tokens_formula = {"TP T H b", "TP T H c", "TP T H 2 c"}},
                              query_down = {.weights = "q_down",
                                            .weights_formula = "H q_lora w",
                                            .latent = "low_rank_queries",
                                            .latent_formula = "T q_lora b"},
                              query_up = {.weights = "q_up",
                                          .weights_formula = "q_lora heads (nope + rope) w",
                                          .tokens = "queries",
                                          .tokens_formula = {"TP T q_lora b", "TP T q_lora c",
                                                             "TP T q_lora 2 c"}},
                              key_down = {.weights = "kv_down",
                                          .weights_formula = "H (kv_lora + rope) w",
                                          .latent = "low_rank_keys",
                                          .latent_formula = "T kv_lora b",
                                          .apart = "rotary_key",
                                          .apart_formula = {"TP T rope b", "T rope b"}},
                              key_up = {.weights = "kv_up",
                                        .weights_formula = "kv_lora heads (nope + v) w",
                                        .tokens = "keys_values",
                                        .tokens_formula = {"TP T kv_lora b", "TP T kv_lora c",
                                                           "TP T kv_lora 2 c"}},
                              output = {.weights = "out",
                                        .weights_formula = "heads v H w",
                                        .tokens = "attention_output",
                                        .tokens_formula = {"TP T H b", "TP T H c", "TP T H 2 c"}};

enum { UP = SPW_MODULE_MLA_UP_PROJ };

static void add_vectors(const spw_model *m, spw_matrices *out) {
    const spw_matrix numbers = {.in = 1, .vector = true};
    spw_matrix row = numbers;
    row.name = "biases", row.out = m->q_lora_rank + m->kv_lora_rank + m->rope_dim;
    spw_matrices_add(out, m->attention_bias, row);
    row.name = "bias of the output", row.out = m->hidden;
    spw_matrices_add(out, m->output_bias, row);
}

static void list(const spw_model *m, spw_matrices *out) {
    const uint64_t q = m->heads * (m->nope_dim + m->rope_dim), rank = m->q_lora_rank, kv = m->kv_lora_rank;
    const bool plain = rank == 0;
    const spw_matrix norm = {.in = 1, .vector = true, .norm = true, .reads = SPW_READS_LATENT};
    spw_matrix row = {.name = "queries, down", .in = m->hidden, .out = rank, .words = &query_down};
    spw_matrices_add(out, true, row);
    row = norm, row.name = "norm of queries", row.out = rank;
    spw_matrices_add(out, true, row);
    row = (spw_matrix){.name = plain ? "queries" : "queries, up",
                       .in = plain ? m->hidden : rank,
                       .out = q,
                       .cut = SPW_CUT_OUTPUTS,
                       .reads = plain ? SPW_READS_INPUT : SPW_READS_LATENT,
                       .makes = SPW_MAKES_QUERIES,
                       .module = UP,
                       .words = plain ? &query : &query_up};
    spw_matrices_add(out, true, row);
    row = (spw_matrix){.name = "keys and values, down",
                       .in = m->hidden,
                       .out = kv + m->rope_dim,
                       .apart = m->rope_dim,
                       .words = &key_down};
    spw_matrices_add(out, true, row);
    row = norm, row.name = "norm of keys and values", row.out = kv;
    spw_matrices_add(out, true, row);
    row = (spw_matrix){.name = "keys and values, up",
                       .in = kv,
                       .out = m->heads * (m->nope_dim + m->v_head_dim),
                       .cut = SPW_CUT_OUTPUTS,
                       .reads = SPW_READS_LATENT,
                       .makes = SPW_MAKES_KEYS,
                       .module = UP,
                       .words = &key_up};
    spw_matrices_add(out, true, row);
    row = (spw_matrix){.name = "output",
                       .in = m->heads * m->v_head_dim,
                       .out = m->hidden,
                       .cut = SPW_CUT_INPUTS,
                       .reads = SPW_READS_RESULT,
                       .words = &output};
    spw_matrices_add(out, true, row);
    add_vectors(m, out);
}

/* Keys are what the up projection makes of them, and the rotary key for every head. kept: values are copied out of the up projection
 * as keys are, and its output goes; else it stays, of which keys and values are counted: what is left is nope. */
static spw_attention_widths widths(const spw_model *m) {
    const size_t key = m->nope_dim + m->rope_dim, queries = m->heads * key, value = m->heads * m->v_head_dim,
                 latent = m->q_lora_rank + m->kv_lora_rank, around = 3 * m->hidden;
    const size_t copied = around + 2 * latent + m->rope_dim + 2 * queries + 2 * value;
    return (spw_attention_widths){.key_dim = key,
                                  .value_dim = m->v_head_dim,
                                  .query = queries,
                                  .key = queries,
                                  .value = value,
                                  .context = value,
                                  .rotary_dim = m->rope_dim,
                                  .rotated = (m->heads + 1) * m->rope_dim,
                                  .latents = m->q_lora_rank > 0 ? 2 : 1,
                                  .latent = latent,
                                  .apart = m->rope_dim,
                                  .written = copied + m->heads * m->nope_dim,
                                  .kept = copied + m->heads * m->nope_dim,
                                  .kept_copied = copied};
}

/* --- A config.json --- */

static const spw_key_row keys_of_file[] = {SPW_KEY("q_lora_rank", q_lora_rank, 1, SPW_MODEL_WIDEST, false),
                                           SPW_KEY("kv_lora_rank", kv_lora_rank, 1, SPW_MODEL_WIDEST, true),
                                           SPW_KEY("qk_nope_head_dim", nope_dim, 1, SPW_MODEL_WIDEST, true),
                                           SPW_KEY("qk_rope_head_dim", rope_dim, 0, SPW_MODEL_WIDEST, true),
                                           SPW_KEY("v_head_dim", v_head_dim, 1, SPW_MODEL_WIDEST, true),
                                           {.key = NULL}};

static spw_status read(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = spw_reading_rows(in, keys_of_file, raw);
    if (status != SPW_OK) return status;
    m->q_lora_rank = spw_or_default(raw->q_lora_rank, 0);
    m->kv_lora_rank = (size_t)raw->kv_lora_rank;
    m->nope_dim = (size_t)raw->nope_dim;
    m->rope_dim = (size_t)raw->rope_dim;
    m->v_head_dim = (size_t)raw->v_head_dim;
    m->kv_heads = m->heads;
    m->head_dim = m->nope_dim + m->rope_dim;
    return SPW_OK;
}

static const spw_layer_key layer_keys[] = {{"num_attention_heads", offsetof(spw_raw_config, mixer_heads)},
                                           {"num_key_value_heads", offsetof(spw_raw_config, mixer_kv_heads)},
                                           {"kv_lora_rank", offsetof(spw_raw_config, mixer_rank)},
                                           {"qk_nope_head_dim", offsetof(spw_raw_config, mixer_nope)},
                                           {.key = NULL}};

static const spw_attention_size sizes[] = {
    {"@query_rank", "q_lora_rank", "q_lora", offsetof(spw_model, q_lora_rank)},
    {"@key_rank", "kv_lora_rank", "kv_lora", offsetof(spw_model, kv_lora_rank)},
    {"@key_dim", "qk_nope_head_dim", "nope", offsetof(spw_model, nope_dim)},
    {"@rotary_dim", "qk_rope_head_dim", "rope", offsetof(spw_model, rope_dim)},
    {"@value_dim", "v_head_dim", "v", offsetof(spw_model, v_head_dim)},
    {.key = NULL}};

const spw_attention_kind spw_latent_attention = {
    .words = "latent",
    .latent = true,
    .list = list,
    .widths = widths,
    .mark = "kv_lora_rank",
    .keys = keys_of_file,
    .read = read,
    .sum = {"qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim"},
    .layer_keys = layer_keys,
    .layer_keys_words = "'num_attention_heads', 'num_key_value_heads', 'kv_lora_rank' and 'qk_nope_head_dim'",
    .sizes = sizes};

/* --- The same in some layers, or with more beside it; sources as in model_mixer_more.c --- */

/* [AXK2Attention, AXK2GatedRMSNorm] beside latent attention: queries of two latents, a gate of the output, and norms whose gate goes
 * through a low rank: the first of every layer, the second where there are experts. */
static void axk2_gates(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, q = m->q_lora_rank, rank = N(rank);
    matrix(m, kind, "queries, second half", q, P(m->heads, m->nope_dim + m->rope_dim), SPW_CUT_OUTPUTS);
    matrix(m, kind, "gate of the output", 2 * q, P(m->heads, m->v_head_dim), SPW_CUT_OUTPUTS);
    spw_matrix_add(m, (spw_matrix){"gate of the norm", h, rank, 2, SPW_IN_LAYER, 0, SPW_CUT_NOWHERE, false});
    spw_matrix_add(m,
                   (spw_matrix){"gate of the norm", h, rank, 2, SPW_IN_MOE_LAYER, 0, SPW_CUT_NOWHERE, false});
}

/* [Dots3NoteAttention] beside latent attention: a gate a head, and a norm of the rotary key. */
static void dots_gate(const spw_raw_config *raw, spw_model *m, size_t kind) {
    (void)raw;
    matrix(m, kind, "gate", m->hidden, m->heads, SPW_CUT_OUTPUTS);
    numbers(m, kind, "norm of the rotary key", m->rope_dim, SPW_CUT_NOWHERE);
}

/* [Dots3NoteAttention] sliding layers: latent attention of other heads and ranks. */
static void dots_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, q = m->q_lora_rank, heads = spw_or_default(raw->mixer_heads, m->heads),
                   rank = spw_or_default(raw->mixer_rank, m->kv_lora_rank),
                   nope = spw_or_default(raw->mixer_nope, m->nope_dim), value = m->v_head_dim,
                   rope = m->rope_dim;
    m->mixer[kind].attends = true;
    matrix(m, kind, "queries, down", h, q, SPW_CUT_NOWHERE);
    matrix(m, kind, "queries, up", q, P(heads, nope + rope), SPW_CUT_OUTPUTS);
    matrix(m, kind, "keys and values, down", h, rank + rope, SPW_CUT_NOWHERE);
    matrix(m, kind, "keys and values, up", rank, P(heads, nope + value), SPW_CUT_OUTPUTS);
    matrix(m, kind, "output", P(heads, value), h, SPW_CUT_INPUTS);
    matrix(m, kind, "gate", h, heads, SPW_CUT_OUTPUTS);
    numbers(m, kind, "norms", q + rank + rope, SPW_CUT_NOWHERE);
    m->mixer[kind].heads = (size_t)heads;
    m->mixer[kind].key = (size_t)(nope + rope);
    m->mixer[kind].value = (size_t)value;
    m->mixer[kind].window = spw_or_default(raw->window, 0);
}

/* [HYV4Attention] beside latent attention: a gate as wide as its output, a sink a head. */
static void gated_sinks(const spw_raw_config *raw, spw_model *m, size_t kind) {
    (void)raw;
    matrix(m, kind, "gate of the output", m->hidden, P(m->heads, m->v_head_dim), SPW_CUT_OUTPUTS);
    numbers(m, kind, "sinks", m->heads, SPW_CUT_OUTPUTS);
}

/* [MistralLarge4Attention, MistralLarge4Indexer] what layers with and without rotary positions have in common: scales of the scores,
 * an indexer that reads the hidden state. */
static void large4_common(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, heads = N(heads), dim = N(dim);
    numbers(m, kind, "scales of the scores", P(2, m->heads), SPW_CUT_OUTPUTS);
    matrix(m, kind, "indexer: queries", h, P(heads, dim), SPW_CUT_NOWHERE);
    matrix(m, kind, "indexer: keys", h, dim, SPW_CUT_NOWHERE);
    matrix(m, kind, "indexer: weights", h, heads, SPW_CUT_NOWHERE);
    numbers(m, kind, "indexer: norms and scales",
            spw_saturated_sum(P(2, h), P(2, spw_saturated_sum(dim, heads))), SPW_CUT_NOWHERE);
}

static void large4_rotary(const spw_raw_config *raw, spw_model *m, size_t kind) {
    large4_common(raw, m, kind);
    spw_matrix_add(
        m, (spw_matrix){"rotary scales", 1, m->rope_dim / 2, 1, SPW_IN_MODEL, 0, SPW_CUT_NOWHERE, true});
}

static void large4_plain(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, rank = m->kv_lora_rank, key = m->nope_dim + m->rope_dim;
    m->mixer[kind].attends = true;
    matrix(m, kind, "queries", h, P(m->heads, key), SPW_CUT_OUTPUTS);
    matrix(m, kind, "keys and values, down", h, rank, SPW_CUT_NOWHERE);
    matrix(m, kind, "keys and values, up", rank, P(m->heads, key + m->v_head_dim), SPW_CUT_OUTPUTS);
    matrix(m, kind, "output", P(m->heads, m->v_head_dim), h, SPW_CUT_INPUTS);
    numbers(m, kind, "norm of keys and values", rank, SPW_CUT_NOWHERE);
    large4_common(raw, m, kind);
    m->mixer[kind].heads = m->heads;
    m->mixer[kind].key = (size_t)key;
    m->mixer[kind].value = m->v_head_dim;
}

#define WIDE SPW_MODEL_WIDEST
static const spw_key_row large4_keys[] = {SPW_KEY("index_n_heads", mixer_heads, 1, 65535, true),
                                          SPW_KEY("index_head_dim", mixer_dim, 1, WIDE, true),
                                          {.key = NULL}};
static const spw_key_row no_keys[] = {{.key = NULL}};
static const spw_key_row axk2_keys[] = {SPW_KEY("gated_norm_rank", mixer_rank, 1, WIDE, true), {.key = NULL}};

const spw_mixer_kind spw_axk2_gates = {"gated latent attention", {"full_attention"}, axk2_keys, axk2_gates};
const spw_mixer_kind spw_dots_gate = {"gated latent attention", {"indexed_attention"}, no_keys, dots_gate};
const spw_mixer_kind spw_dots_sliding = {
    "sliding latent attention of its own shape", {"sliding_attention"}, no_keys, dots_sliding};
const spw_mixer_kind spw_gated_sinks = {
    "gated latent attention with sinks", {"indexed_attention"}, no_keys, gated_sinks};
const spw_mixer_kind spw_large4_rotary = {
    "latent attention with an indexer", {"indexed_attention"}, large4_keys, large4_rotary};
const spw_mixer_kind spw_large4_plain = {
    "latent attention without rotary positions", {"indexed_attention"}, large4_keys, large4_plain};
