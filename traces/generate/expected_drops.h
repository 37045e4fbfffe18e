/* Choices over a capacity, by the law of count_tree.h: of some tokens an expert takes the first `capacity` that choose it, and drops
 * the others. */
#ifndef SPW_TRACES_GENERATE_EXPECTED_DROPS_H
#define SPW_TRACES_GENERATE_EXPECTED_DROPS_H

#include "traces/generate/expected_counts.h"

/* What is over `capacity` of B successes of `trials`, each with the probability `share`: moments of max(0, B - capacity). The shorter tail
 * of the binomial law is summed, so that small ones are right to rounding, too. */
spw_moments spw_binomial_excess(size_t trials, double share, size_t capacity);

/* The same of all experts together, as one source of `tokens` tokens drops them. The mean is the sum over the experts. The variance has
 * the covariance of every two experts: their counts b and c have the law of fourfold sampling, which is
 *   P(b, c) = P(b) P(c) sum over n of rho^n k[n](b) k[n](c)
 * with the orthonormal polynomials k[n] of each binomial law, and rho the correlation of both in one token (Aitken, Gonin 1936, On
 * fourfold sampling with and without replacement, Proc. R. Soc. Edinburgh 55, 114). So the covariance is the sum over n > 0 of
 * rho^n f[n] g[n] with f[n] = E[max(0, b - capacity) k[n](b)], and g[n] that of the other. SPW_DROP_TERMS of them are taken: what is left
 * out is at most |rho|^(SPW_DROP_TERMS + 1) of the product of both standard deviations, and nothing of so many tokens at most. rho is
 * -1 / (experts - 1) where all are alike.
 *
 * Of more than SPW_DROP_PAIRED experts rho is exact for n = 1 alone, which is nearly all: the sum over all pairs is then the variance of a
 * token's sum of f[1] over its standard deviation. For n > 1 it is taken to be in proportion to the standard deviations of both in a
 * token, by one factor for pairs of a group (of all experts, where there are no groups) and one for other pairs, as the variances of the
 * groups' choices have it. In the 500 jobs of test_expected_counts that changes no variance
 * by more than 1.1e-4 of it, with groups 2.6e-3.
 *
 * O(options + experts terms); of up to SPW_DROP_PAIRED experts O(experts^2 (states + terms)); where all are alike, that of one expert.
 * SPW_ENOMEM. */
enum { SPW_DROP_TERMS = 16, SPW_DROP_PAIRED = 64 };
SPW_MUST_CHECK spw_status spw_expected_drops(const spw_count_tree *tree, size_t tokens, size_t capacity,
                                             spw_moments *out);
/* With every rho, whatever the number of experts. */
SPW_MUST_CHECK spw_status spw_expected_drops_by_pairs(const spw_count_tree *tree, size_t tokens,
                                                      size_t capacity, spw_moments *out);

#endif
