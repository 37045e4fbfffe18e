/* Grouped-query attention: one product of the hidden state makes queries, keys, values and a gate of the output, if there is one.
 * Ainslie et al. 2023. Norms of q and k: of one head (Qwen3) or of all (OLMoE). Sinks: one a head (gpt-oss). */
#include "sim/input/attention.h"

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

const spw_attention_kind spw_grouped_attention = {"grouped queries", list, widths};
