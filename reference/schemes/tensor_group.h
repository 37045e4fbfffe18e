/* MaxText's mesh axis tensor (docs/schemes.md, section 2.8): t consecutive ranks have the same tokens and t-th parts of the
 * columns of the same experts (shape.tensor_group, t = expert_tensor). Terms of a sum over the group are scattered along
 * the hidden size, and parts of that gathered. Without such a group (t 1) parts are whole, and nothing is sent. */
#ifndef SPW_REFERENCE_SCHEMES_TENSOR_GROUP_H
#define SPW_REFERENCE_SCHEMES_TENSOR_GROUP_H

#include "reference/schemes/ranks.h"

size_t spw_group_size(const spw_execution *run);  /* t */
size_t spw_group_ranks(const spw_execution *run); /* ranks / t, which have tokens of their own */
size_t spw_group_width(const spw_execution *run); /* hidden / t */
/* The rank that has expert x among those to which `rank` sends: of its own place in the group. */
size_t spw_group_peer(const spw_execution *run, size_t rank, size_t place);

/* An array [rows][width] of every rank, which no scheme's memory is judged by; freed at the end of the run. */
SPW_MUST_CHECK spw_status spw_group_scratch(spw_execution *run, size_t rows, size_t width, spw_spread *out);

/* terms [rows][hidden] -> sum over the group, of which each rank has the columns of its place: parts [rows][hidden / t]. Both
 * are there. `exchange`: the name under which what is sent counts. */
SPW_MUST_CHECK spw_status spw_group_scatter(spw_execution *run, const char *exchange, const spw_spread *terms,
                                            spw_spread *parts);
/* The mirror: parts [rows][hidden / t] -> whole [rows][hidden]. */
SPW_MUST_CHECK spw_status spw_group_gather(spw_execution *run, const char *exchange, const spw_spread *parts,
                                           spw_spread *whole);
/* out [ranks / t][count] = the sum over the group of one array of `count` numbers a rank. */
SPW_MUST_CHECK spw_status spw_group_sum(spw_execution *run, const char *exchange, float *const *terms,
                                        size_t count, float *out);

/* The columns of a rank's place out of [tokens][hidden] that its group has, into part [tokens][hidden / t]. */
void spw_group_take(const spw_execution *run, size_t rank, const float *whole, float *part);
/* And back, into all [ranks / t][tokens][hidden]. */
void spw_group_put_tokens(const spw_execution *run, size_t rank, const float *part, float *all);

#endif
