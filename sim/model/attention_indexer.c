/* The lightning indexer of sparse attention (DeepSeek-V3.2, 2025, section 2.1): queries from q's latent, one key of the hidden state, its
 * layer norm, a weight a head. Every GPU of a tensor group holds it whole. */
#include "sim/model/attention.h"

static const spw_matrix_words queries = {.tokens = "indexer_queries", .tokens_formula = {"TP T q_lora b"}},
                              keys = {.tokens = "indexer_input", .tokens_formula = {"TP T H b"}};

void spw_indexer_list(const spw_model *m, spw_matrices *out) {
    const bool is_there = m->indexer_heads > 0;
    spw_matrix row = {.name = "indexer: queries",
                      .in = m->q_lora_rank,
                      .out = m->indexer_heads * m->indexer_dim,
                      .place = SPW_IN_INDEXER,
                      .reads = SPW_READS_LATENT,
                      .words = &queries};
    spw_matrices_add(out, is_there, row);
    row.reads = SPW_READS_INPUT, row.words = &keys;
    row.name = "indexer: keys", row.in = m->hidden, row.out = m->indexer_dim;
    spw_matrices_add(out, is_there, row);
    row.words = NULL;
    row.name = "indexer: norm of keys", row.in = 1, row.out = 2 * m->indexer_dim, row.vector = true;
    spw_matrices_add(out, is_there, row);
    row.name = "indexer: weights", row.in = m->hidden, row.out = m->indexer_heads, row.vector = false;
    spw_matrices_add(out, is_there, row);
}
