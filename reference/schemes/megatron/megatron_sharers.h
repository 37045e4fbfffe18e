/* Expert tensor parallelism of Megatron-Core's all-to-all dispatcher (docs/schemes.md, section 5.10): t consecutive ranks
 * hold one t-th of the columns of each of their experts. What the all-to-all brought to one of them is gathered by all;
 * what each makes of a row is summed, in fp32, at the rank that the row arrived at. */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_SHARERS_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_SHARERS_H

#include "reference/schemes/megatron/megatron_ranks.h"

bool spw_megatron_shares(const spw_execution *run); /* t > 1 */
/* One expert-parallel rank, whose experts others share or which sorts its rows: the all-to-all hands on what it gets, and has no
 * tensors of its own. */
bool spw_megatron_alone(const spw_execution *run);
/* `from` under the name of what the all-to-all would have made of it. */
void spw_megatron_hand_on(spw_megatron *g, spw_megatron_tensor from, spw_megatron_tensor to);

/* sent_rows and sent_probs to fc1_input and row_probs. `name`: of the all-to-all. */
SPW_MUST_CHECK spw_status spw_megatron_dispatch_shared(spw_execution *run, spw_megatron *g, const char *name);
/* fc2_output to combined_rows. */
SPW_MUST_CHECK spw_status spw_megatron_combine_shared(spw_execution *run, spw_megatron *g, const char *name);
/* d_combined_rows to d_fc2_output. */
SPW_MUST_CHECK spw_status spw_megatron_combine_gradient_shared(spw_execution *run, spw_megatron *g);
/* d_fc1_input and d_row_probs to d_sent_rows and d_sent_probs. */
SPW_MUST_CHECK spw_status spw_megatron_dispatch_gradient_shared(spw_execution *run, spw_megatron *g);

#endif
