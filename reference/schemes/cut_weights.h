/* Experts that t = expert_tensor consecutive ranks share: each holds one t-th of their columns. */
#ifndef SPW_REFERENCE_SCHEMES_CUT_WEIGHTS_H
#define SPW_REFERENCE_SCHEMES_CUT_WEIGHTS_H

#include "reference/schemes/ranks.h"

/* The input's matrices as each rank holds them, [ranks][local][hidden][ffn] and [ranks][local][ffn][hidden], and room for
 * their gradients; *whole keeps where the caller wants the whole. */
SPW_MUST_CHECK spw_status spw_cut_weights(spw_execution *run, spw_expert_gradients *whole);
/* The gradients of all ranks' parts into `whole`. */
void spw_join_gradients(spw_execution *run, const spw_expert_gradients *whole);

#endif
