/* Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): q down, norm, up; keys and values down with the rotary key, norm, up;
 * o. Without a rank for q one plain projection. The down projections are whole on every GPU of a tensor group; Megatron-Core runs the
 * others again as its module mla_up_proj. */
#include "sim/input/attention.h"

#include "sim/input/remat_modules.h"

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

const spw_attention_kind spw_latent_attention = {"latent", list, widths};
