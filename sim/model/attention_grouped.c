/* Grouped-query attention: one product of the hidden state makes queries, keys, values and a gate of the output, if there is one.
 * Ainslie et al. 2023. Norms of q and k: of one head (Qwen3) or of all (OLMoE). Sinks: one a head (gpt-oss). */
#include "sim/model/attention.h"

#include "sim/model/config/model_reading.h"
#include "sim/model/model_mixer_parts.h"

static const spw_matrix_words queries = {.weights = "q",
                                         .weights_formula = "H heads head_dim w",
                                         .tokens = "attention_input",
                                         .tokens_formula = {"TP T H b", "TP T H c", "TP T H 2 c"}},
                              keys = {.weights = "k", .weights_formula = "H kv_heads head_dim w"},
                              gate = {.weights = "q_gate", .weights_formula = "H heads head_dim w"},
                              values = {.weights = "v", .weights_formula = "H kv_heads head_dim w"},
                              output = {.weights = "out",
                                        .weights_formula = "heads head_dim H w",
                                        .tokens = "attention_output",
                                        .tokens_formula = {"TP T H b", "TP T H c", "TP T H 2 c"}};

static void list(const spw_model *m, spw_matrices *out) {
    const uint64_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, v = m->kv_heads * m->v_head_dim;
    const spw_matrix projection = {.in = m->hidden, .cut = SPW_CUT_OUTPUTS, .makes = SPW_MAKES_QUERIES},
                     numbers = {.in = 1, .vector = true, .cut = SPW_CUT_OUTPUTS};
    spw_matrix row = projection;
    row.name = "queries", row.out = q, row.words = &queries;
    spw_matrices_add(out, true, row);
    row.joined = true;
    row.name = "keys", row.out = k, row.makes = SPW_MAKES_KEYS, row.words = &keys;
    spw_matrices_add(out, true, row);
    row.name = "values", row.out = v, row.makes = SPW_MAKES_VALUES, row.words = &values;
    spw_matrices_add(out, true, row);
    row.name = "gate of the output", row.out = q, row.makes = SPW_MAKES_GATE, row.words = &gate;
    spw_matrices_add(out, m->query_gate, row);
    spw_matrices_add(out, true,
                     (spw_matrix){.name = "output",
                                  .in = m->heads * m->v_head_dim,
                                  .out = m->hidden,
                                  .cut = SPW_CUT_INPUTS,
                                  .reads = SPW_READS_RESULT,
                                  .words = &output});
    row = numbers;
    row.name = "biases of queries, keys, values", row.out = q + k + v;
    spw_matrices_add(out, m->attention_bias, row);
    row.name = "bias of the output", row.out = m->hidden, row.cut = SPW_CUT_NOWHERE;
    spw_matrices_add(out, m->output_bias, row);
    row.name = "norms of queries and keys", row.norm = true;
    row.out = m->qk_norm_per_head ? 2 * m->head_dim : q + k;
    row.cut = m->qk_norm_per_head ? SPW_CUT_NOWHERE : SPW_CUT_OUTPUTS;
    spw_matrices_add(out, m->qk_norm, row);
    row = numbers;
    row.name = "sinks", row.out = m->heads;
    spw_matrices_add(out, m->attention_sinks, row);
    row.name = "bias of the gate", row.out = m->gate_bias ? q : m->heads;
    spw_matrices_add(out, m->gate_bias || m->query_gate_bias, row);
}

static spw_attention_widths widths(const spw_model *m) {
    const size_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, around = 3 * m->hidden;
    return (spw_attention_widths){.key_dim = m->head_dim,
                                  .value_dim = m->v_head_dim,
                                  .query = q,
                                  .key = k,
                                  .value = m->kv_heads * m->v_head_dim,
                                  .context = m->heads * m->v_head_dim,
                                  .rotary_dim = m->head_dim,
                                  .rotated = q + k,
                                  .written = around + 3 * q + 4 * k,
                                  .kept = around + 3 * q + 3 * k,
                                  .kept_copied = around + 2 * q + 2 * k};
}

size_t spw_model_query_key_value(const spw_model *m) {
    return m->heads * m->head_dim * (m->query_gate ? 2 : 1) + m->kv_heads * (m->head_dim + m->v_head_dim);
}

static const spw_key_row keys_of_file[] = {
    SPW_KEY("num_key_value_heads", kv_heads, 1, 65535, false),
    SPW_KEY("head_dim", head_dim, 1, SPW_MODEL_WIDEST, false),
    SPW_PART_KEY(SPW_VALUE_DIM, "v_head_dim", v_head_dim, 1, SPW_MODEL_WIDEST, false),
    {.key = NULL}};

static spw_status read(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    spw_status status = spw_reading_rows(in, keys_of_file, raw);
    if (status != SPW_OK) return status;
    m->kv_heads = spw_or_default(raw->kv_heads, m->heads);
    m->head_dim = spw_or_default(raw->head_dim, m->hidden / m->heads);
    m->v_head_dim = spw_or_default(raw->v_head_dim, m->head_dim);
    /* transformers rounds down, in every family; a generic model is no file of its own */
    if (raw->head_dim == SPW_ABSENT &&
        (m->head_dim == 0 || (in->family->any_attention && m->hidden % m->heads != 0)))
        return spw_fail(SPW_ECONFIG,
                        "%s: hidden_size %zu is not a multiple of num_attention_heads %zu; give 'head_dim'",
                        in->where, m->hidden, m->heads);
    if (m->heads % m->kv_heads != 0)
        return spw_fail(
            SPW_ECONFIG,
            "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu; give a divisor",
            in->where, m->heads, m->kv_heads);
    return SPW_OK;
}

static const spw_layer_key layer_keys[] = {{"head_dim", offsetof(spw_raw_config, mixer_dim)},
                                           {"num_key_value_heads", offsetof(spw_raw_config, mixer_kv_heads)},
                                           {.key = NULL}};

#define OF_A_FILE \
    .keys = keys_of_file, .read = read, .layer_keys = layer_keys, \
    .layer_keys_words = "'head_dim' and 'num_key_value_heads'"
const spw_attention_kind spw_grouped_attention = {
    .words = "grouped queries", .list = list, .widths = widths, OF_A_FILE};
/* All its matrices are in the model's file; its sizes are those of grouped queries. */
const spw_attention_kind spw_listed_attention = {.words = "grouped queries", .widths = widths, OF_A_FILE};

/* --- Other heads in some layers --- */

/* [MiMoV2FlashAttention] sliding layers with heads of their own and a sink each; where the file has none, the model's, and twice its
 * heads of keys and values. */
static void sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t heads = spw_or_default(raw->mixer_heads, m->heads),
                   kv_heads = spw_or_default(raw->mixer_kv_heads, 2 * m->kv_heads),
                   key = spw_or_default(raw->mixer_dim, m->head_dim),
                   value = spw_or_default(raw->mixer_value_dim, m->v_head_dim);
    m->mixer[kind].attends = true;
    matrix(m, kind, "q", m->hidden, P(heads, key), SPW_CUT_OUTPUTS);
    matrix(m, kind, "k", m->hidden, P(kv_heads, key), SPW_CUT_OUTPUTS);
    matrix(m, kind, "v", m->hidden, P(kv_heads, value), SPW_CUT_OUTPUTS);
    matrix(m, kind, "o", P(heads, value), m->hidden, SPW_CUT_INPUTS);
    numbers(m, kind, "sinks", heads, SPW_CUT_OUTPUTS);
}

static const spw_key_row sliding_keys[] = {
    SPW_KEY("swa_num_attention_heads", mixer_heads, 1, 65535, false),
    SPW_KEY("swa_num_key_value_heads", mixer_kv_heads, 1, 65535, false),
    SPW_KEY("swa_head_dim", mixer_dim, 1, SPW_MODEL_WIDEST, false),
    SPW_KEY("swa_v_head_dim", mixer_value_dim, 1, SPW_MODEL_WIDEST, false),
    {.key = NULL}};
const spw_mixer_kind spw_sliding = {
    "sliding attention with heads of its own", {"sliding_attention"}, sliding_keys, sliding};
