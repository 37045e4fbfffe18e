/* MaxText's ragged all-to-all into one receive buffer, shared by `ragged` and `gmm` (docs/schemes.md, section 2). */
#ifndef SPW_REFERENCE_SCHEMES_EXECUTE_RAGGED_EXCHANGE_H
#define SPW_REFERENCE_SCHEMES_EXECUTE_RAGGED_EXCHANGE_H

#include "reference/plan.h"
#include "reference/schemes/ranks.h"

/* What a rank knows of the exchange: its own sorting, and what the all-gather of counts told it. */
typedef struct spw_ragged_rank {
    spw_plan plan;     /* of its own assignments */
    size_t *kept;      /* [experts] rows it may send to each expert */
    int32_t *unsorted; /* [assignments] own place of the assignment, -1: unused slot */
    size_t *taken;     /* [ranks][local] rows it receives from each source for each local expert */
    int32_t *from_x;   /* [buffer] place among the received rows of each row of x; -1: none */
} spw_ragged_rank;

typedef struct spw_ragged {
    spw_experts experts;
    spw_ragged_rank rank[SPW_EXECUTION_RANKS];
    spw_spread repeated, sorted, received, y_unsorted, returned, returned_unsorted, d_returned,
        d_returned_sorted, dy_received, dx_unsorted, dx_returned;
} spw_ragged;

/* Counts are exchanged and all sizes agreed upon; the plans are freed by the other one. */
SPW_MUST_CHECK spw_status spw_ragged_create(spw_execution *run, spw_ragged *g);
void spw_ragged_destroy(spw_execution *run, spw_ragged *g);

/* Tokens to x; y to `returned_unsorted`. */
SPW_MUST_CHECK spw_status spw_ragged_dispatch(spw_execution *run, spw_ragged *g, const char *exchange);
SPW_MUST_CHECK spw_status spw_ragged_combine(spw_execution *run, spw_ragged *g, const char *exchange);
/* The output: the weighted sum of `returned_unsorted`, which dies. */
void spw_ragged_output(spw_execution *run, spw_ragged *g);
/* The gradients: of the output to dy, and of x (in dx0) to the tokens. */
SPW_MUST_CHECK spw_status spw_ragged_combine_gradient(spw_execution *run, spw_ragged *g);
SPW_MUST_CHECK spw_status spw_ragged_dispatch_gradient(spw_execution *run, spw_ragged *g);

#endif
