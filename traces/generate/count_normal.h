/* The counts of count_sample.h where all of them are large: the normal law with the means, variances and covariances of count_tree.h, in
 * whole numbers. A figure costs one number drawn, where the exact draw splits every state of a run by binomials.
 *
 * Of a run of experts are carried: choices N, and where ranks or nodes lie in it how many of its tokens reach each of them, R and Q, summed
 * over these. Per token they have the moments of the tree. A half of the run gets
 *   y = E y + (regression on the run's own figures and on those of the half that are drawn already) + s z
 * with z normal, s^2 the variance that is left, less the 1/12 of rounding. So every figure of a run has the right mean and variance, and
 * any two of the two halves of a run the right covariance. Figures further apart have it where a half's share does not depend on how a
 * token's choices are spread otherwise: exactly where all experts are chosen alike, else to second order. Of N the third moment is kept,
 * too: by (z^2 - 1) times a sixth of the skewness, and by s that follows N of the run.
 *
 * How near it is: test_count_normal. */
#ifndef SPW_TRACES_GENERATE_COUNT_NORMAL_H
#define SPW_TRACES_GENERATE_COUNT_NORMAL_H

#include "traces/generate/count_sample.h"

#include <stdbool.h>

typedef struct spw_count_normal spw_count_normal;

/* Of the tree, which must outlive it. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_count_normal_create(const spw_count_tree *tree, spw_count_normal **out);
void spw_count_normal_destroy(spw_count_normal *c); /* NULL is fine */

/* Are the counts of so many tokens large: has every expert that is neither sure nor impossible a variance of at least
 * SPW_COUNT_NORMAL_VARIANCE? */
enum { SPW_COUNT_NORMAL_VARIANCE = 9 };
bool spw_count_normal_serves(const spw_count_normal *c, size_t tokens);

/* As spw_count_sample(), of several pieces: stream and out are [pieces]. Scratch begins once, and is of this law alone then: pieces of as
 * many tokens share what is there. LANES pieces are drawn in little more than the time of one. */
enum { SPW_COUNT_NORMAL_LANES = 8 };
size_t spw_count_normal_bytes(const spw_count_normal *c);
void spw_count_normal_begin(void *scratch);
void spw_count_normal_sample(const spw_count_normal *c, spw_random_stream *stream, size_t pieces,
                             void *scratch, size_t tokens, const spw_token_counts *out);

/* A normal number: the inverse of its law, by a table between which it is a straight line (1e-3 off at most), and exact at its ends. */
double spw_draw_normal(spw_random_stream *stream);

#endif
