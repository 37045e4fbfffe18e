/* Draws how many of some tokens choose each expert and reach each rank and node, by the law of count_tree.h: exactly, and without a
 * token. A histogram of tokens by their choices goes down the tree, and is split by binomials. */
#ifndef SPW_TRACES_GENERATE_COUNT_SAMPLE_H
#define SPW_TRACES_GENERATE_COUNT_SAMPLE_H

#include "traces/generate/count_tree.h"
#include "traces/generate/random_stream.h"

/* What is counted of some tokens; set by a draw. */
typedef struct spw_token_counts {
    uint32_t *expert; /* [experts] */
    uint32_t *
        rank; /* [experts / rank_experts][rank_stride], of which the first is written: tokens with any of its experts */
    uint32_t *node; /* [experts / node_experts] */
    size_t rank_stride;
} spw_token_counts;

/* Bytes of scratch memory that a draw needs; one a thread. */
size_t spw_count_sample_bytes(const spw_count_tree *tree);
void spw_count_sample(const spw_count_tree *tree, spw_random_stream *stream, void *scratch, size_t tokens,
                      const spw_token_counts *out);

/* Successes of `trials`, each with the probability `share`; log_rest = log(1 - share). */
uint32_t spw_draw_binomial(spw_random_stream *stream, uint32_t trials, double share, double log_rest);

#endif
