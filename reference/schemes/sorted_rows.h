/* Rows of the experts that are sorted out of another order and sorted back into it behind them, as JAX's programs do. */
#ifndef SPW_REFERENCE_SCHEMES_SORTED_ROWS_H
#define SPW_REFERENCE_SCHEMES_SORTED_ROWS_H

#include "reference/schemes/ranks.h"

typedef struct spw_sorted_rows {
    int32_t *place[SPW_EXECUTION_RANKS]; /* [rows] where each row of x stands before it is sorted */
    spw_spread y, dy, dx;                /* y_unsorted, dy_unsorted, dx_unsorted: in that order */
} spw_sorted_rows;

/* For the experts' rows; places are 0. */
SPW_MUST_CHECK spw_status spw_sorted_create(spw_execution *run, const spw_experts *experts,
                                            spw_sorted_rows *out);
/* Step "unsort": y -> y_unsorted. */
SPW_MUST_CHECK spw_status spw_unsort(spw_execution *run, spw_experts *experts, spw_sorted_rows *sorted);
/* Step "unsort gradient": dy_unsorted -> dy. */
SPW_MUST_CHECK spw_status spw_unsort_gradient(spw_execution *run, spw_experts *experts,
                                              spw_sorted_rows *sorted);
/* In the step under way: dx_w0 -> dx_unsorted. */
SPW_MUST_CHECK spw_status spw_sort_gradient(spw_execution *run, spw_experts *experts,
                                            spw_sorted_rows *sorted);

#endif
