/* Expected counts of tokens, by the law of count_tree.h and without a draw: what spw_count_sample() gives in the mean, and how far it is
 * from that by chance.
 *
 * T tokens choose independently of each other, alike. So whatever is a sum over tokens has T times the mean and T times the variance of
 * one token, and the tokens that reach a block of experts have the binomial law of T and `reached`. Sums over sequences, source ranks,
 * layers and steps, which are drawn apart, add means and variances. All is exact for the law of the tree, to rounding.
 *
 * A token's choices in a block that is a node of the tree have the law `share` of its states. For other blocks it is joined from the two
 * halves of every node that the block cuts: given a state of the node, the halves are independent. */
#ifndef SPW_TRACES_GENERATE_EXPECTED_COUNTS_H
#define SPW_TRACES_GENERATE_EXPECTED_COUNTS_H

#include "base/status.h"
#include "traces/generate/count_tree.h"

/* A mean, and the square of the standard deviation around it. */
typedef struct spw_moments {
    double mean, variance;
} spw_moments;

/* One token and a block of experts: the probability of any choice there, and of the number of choices mean, variance and third moment
 * around the mean. */
typedef struct spw_block_law {
    double reached;
    spw_moments choices;
    double third;
} spw_block_law;

/* out [experts / block]: of every block of so many consecutive experts, which divide all of them: of 1 the experts, else ranks, nodes,
 * or another level. O(states) where blocks are nodes of the tree, O(blocks log(experts) top_k^2) elsewhere. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_expected_blocks(const spw_count_tree *tree, size_t block, spw_block_law *out);

/* Of `tokens` tokens: choices in the block (rows of a rank), and tokens with any (copies that reach it, deduplicated). */
spw_moments spw_expected_rows(const spw_block_law *law, double tokens);
spw_moments spw_expected_copies(const spw_block_law *law, double tokens);

/* How many blocks of so many experts one token reaches. variance NAN: a block is no node of the tree. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_expected_reach(const spw_count_tree *tree, size_t block, spw_moments *out);

/* The sum of value [experts] over the choices of one token. O(options). SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_expected_sum(const spw_count_tree *tree, const double *value, spw_moments *out);

/* Rows of the fullest of `blocks` blocks, of `tokens` tokens. It has no closed form; this is an approximation. The blocks are taken for
 * correlated alike, as the sum of their rows is fixed: a number of the mean covariance, added to all of them, makes them independent and
 * leaves the mean of the largest as it is. Rows have the law of Wilson and Hilferty (1931, Proc. Natl. Acad. Sci. 17, 684) with their mean,
 * variance and skewness. In 500 random jobs (test_expected_counts) it is 0.01 (0.007 by chance) of the standard deviation of a draw off. */
double spw_expected_fullest(const spw_block_law *law, size_t blocks, double tokens);

#endif
