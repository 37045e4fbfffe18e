/* The order in which an executed layer runs: forward, whole once more as a checkpoint runs it, backward. */
#ifndef SPW_REFERENCE_SCHEMES_PASSES_H
#define SPW_REFERENCE_SCHEMES_PASSES_H

#include "reference/schemes/ranks.h"

/* What experts do between the exchanges: `forward` in the first two passes, `backward` in the last. run->pass says which. */
typedef struct spw_expert_passes {
    spw_status (*forward)(spw_execution *run, void *experts);
    spw_status (*backward)(spw_execution *run, void *experts);
} spw_expert_passes;

/* What a scheme does around them. to_experts leaves x, from_experts takes y; to_gradient leaves dy, from_gradient takes dx. */
typedef struct spw_scheme_passes {
    spw_status (*to_experts)(spw_execution *run, void *state, const char *exchange);
    spw_status (*from_experts)(spw_execution *run, void *state, const char *exchange);
    spw_status (*to_gradient)(spw_execution *run, void *state);
    spw_status (*from_gradient)(spw_execution *run, void *state);
} spw_scheme_passes;

/* Runs all three passes; exchanges are named "dispatch", "combine", and in the second pass "... again". */
SPW_MUST_CHECK spw_status spw_run_passes(spw_execution *run, const spw_scheme_passes *scheme, void *state,
                                         const spw_expert_passes *experts, void *expert_state);

#endif
