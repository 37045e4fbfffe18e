/* Multi-matrix factorization attention (Hu et al. 2024, arXiv:2412.19255; Step-3, 2025, arXiv:2507.19427, section 3): one product of the
 * hidden state makes a low rank of queries and one key and one value for all heads; the rank is normed and projected up to the queries
 * of every head. One key and value head cannot be cut: every GPU of a tensor group holds that product whole (vLLM's Step3TextAttention,
 * whose qkv_proj is a ReplicatedLinear). */
#include "sim/model/attention.h"

#include "sim/model/config/model_reading.h"

static const spw_matrix_words down = {.weights = "q_down",
                                      .weights_formula = "H q_rank w",
                                      .latent = "low_rank_queries",
                                      .latent_formula = "T q_rank b"},
                              keys = {.weights = "k",
                                      .weights_formula = "H kv_heads head_dim w",
                                      .apart = "keys",
                                      .apart_formula = {"TP T kv_heads head_dim b", "T kv_heads head_dim b"}},
                              values = {.weights = "v",
                                        .weights_formula = "H kv_heads head_dim w",
                                        .apart = "values",
                                        .apart_formula = {"TP T kv_heads head_dim b",
                                                          "T kv_heads head_dim b"}},
                              up = {.weights = "q_up",
                                    .weights_formula = "q_rank heads head_dim w",
                                    .tokens = "queries",
                                    .tokens_formula = {"TP T q_rank b", "TP T q_rank c", "TP T q_rank 2 c"}},
                              output = {.weights = "out",
                                        .weights_formula = "heads head_dim H w",
                                        .tokens = "attention_output",
                                        .tokens_formula = {"TP T H b", "TP T H c", "TP T H 2 c"}};

static void list(const spw_model *m, spw_matrices *out) {
    const uint64_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, rank = m->q_lora_rank;
    const spw_matrix rows[] = {
        {.name = "queries, down", .in = m->hidden, .out = rank, .words = &down},
        {.name = "keys", .in = m->hidden, .out = k, .apart = k, .joined = true, .words = &keys},
        {.name = "values", .in = m->hidden, .out = k, .apart = k, .joined = true, .words = &values},
        {.name = "norm of queries",
         .in = 1,
         .out = rank,
         .vector = true,
         .norm = true,
         .reads = SPW_READS_LATENT},
        {.name = "queries, up",
         .in = rank,
         .out = q,
         .cut = SPW_CUT_OUTPUTS,
         .reads = SPW_READS_LATENT,
         .makes = SPW_MAKES_QUERIES,
         .words = &up},
        {.name = "output",
         .in = q,
         .out = m->hidden,
         .cut = SPW_CUT_INPUTS,
         .reads = SPW_READS_RESULT,
         .words = &output},
        {.name = "biases", .in = 1, .out = m->attention_bias ? rank + 2 * k + q : 0, .vector = true},
        {.name = "bias of the output", .in = 1, .out = m->output_bias ? m->hidden : 0, .vector = true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) spw_matrices_add(out, true, rows[i]);
}

static spw_attention_widths widths(const spw_model *m) {
    const size_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, rank = m->q_lora_rank,
                 kept = 3 * m->hidden + 2 * rank + 3 * q + 3 * k;
    return (spw_attention_widths){.key_dim = m->head_dim,
                                  .value_dim = m->head_dim,
                                  .query = q,
                                  .key = k,
                                  .value = k,
                                  .context = q,
                                  .rotary_dim = m->head_dim,
                                  .rotated = q + k,
                                  .latents = 1,
                                  .latent = rank,
                                  .apart = 2 * k,
                                  .written = kept + k,
                                  .kept = kept,
                                  .kept_copied = kept};
}

static const spw_key_row keys_of_file[] = {SPW_KEY("share_q_dim", q_lora_rank, 1, SPW_MODEL_WIDEST, true),
                                           SPW_KEY("num_key_value_heads", kv_heads, 1, 65535, false),
                                           SPW_KEY("head_dim", head_dim, 1, SPW_MODEL_WIDEST, true),
                                           {.key = NULL}};

static spw_status read(const spw_reading *in, spw_raw_config *raw, spw_model *m) {
    const spw_status status = spw_reading_rows(in, keys_of_file, raw);
    if (status != SPW_OK) return status;
    m->q_lora_rank = (size_t)raw->q_lora_rank;
    m->kv_heads = spw_or_default(raw->kv_heads, 1);
    m->head_dim = m->v_head_dim = (size_t)raw->head_dim;
    return SPW_OK;
}

static const spw_layer_key no_layer_keys[] = {{.key = NULL}};

const spw_attention_kind spw_factored_attention = {.words = "queries of a low rank",
                                                   .list = list,
                                                   .widths = widths,
                                                   .mark = "share_q_dim",
                                                   .keys = keys_of_file,
                                                   .read = read,
                                                   .layer_keys = no_layer_keys,
                                                   .layer_keys_words = "no keys"};
