/* The model of a measured run whose table gives its sizes column by column, and how many parameters one GPU had. */
#ifndef SPW_SIM_SCORE_WHOLE_WHOLE_MODEL_H
#define SPW_SIM_SCORE_WHOLE_WHOLE_MODEL_H

#include "sim/model/model.h"
#include "sim/read/csv.h"

enum { SPW_WHOLE_REASON = 256 };

/* A whole number of at most `most`. An empty field is 0 where `optional`. SPW_ECONFIG with file, line and column; SPW_EFORMAT: no such
 * column. */
SPW_MUST_CHECK spw_status spw_whole_read_count(const spw_csv *csv, size_t row, const char *column,
                                               size_t most, bool optional, size_t *out);

/* Columns: hidden, layers, dense_layers, dense_ffn, heads, kv_heads, head_dim or those of latent attention (spw_attention_size),
 * experts, top_k, ffn, shared, vocab, parameters. What no column says (norms of queries and keys; is `shared` a width or a number of
 * experts?) is what comes nearest to `parameters`, those of a GPU with 1 / expert_parallel of the experts.
 * `reason` [SPW_WHOLE_REASON]: why there is no such model, "" otherwise: the sizes are none, or their parameters are more than 1 % off. */
SPW_MUST_CHECK spw_status spw_whole_model_read(const spw_csv *csv, size_t row, size_t expert_parallel,
                                               spw_model *out, char *reason);

#endif
