/* Every collective of one training step on one GPU: the exchanges of the scheme, weights and gradients (layer by
 * layer where the state is sharded, once a step where only the optimizer is, or nothing is), what XLA gathers
 * beside them for the capacity-factor scheme, embedding and head, and what pipeline stages send each other. One item a tensor, as it is before a
 * compiler combines small ones. Evidence: the 139 programs of notebooks_data/compiled/maxtext_collectives.csv,
 * all matched by tests/unit/traffic/test_compiled_traffic.c; docs/step_traffic.md says what is exact and what is not. */
#ifndef SPW_SIM_TRAFFIC_STEP_TRAFFIC_H
#define SPW_SIM_TRAFFIC_STEP_TRAFFIC_H

#include "base/status.h"
#include "sim/traffic/step_items.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct spw_point spw_point; /* sim/schemes/point.h */

/* Differences between trees of MaxText and settings of XLA. */
typedef struct spw_step_stack {
    bool router_over_fsdp; /* a sigmoid router is sharded over fsdp alone (trees of August 2026) */
    uint64_t gather_combined_bytes, scatter_combined_bytes; /* no combined operation is larger */
    bool combined_by_dim; /* tensors cut along different dimensions stay apart */
} spw_step_stack;
#define SPW_STEP_STACK_LIST(X) \
    X(CUDA_OLD, "maxtext@7e3f19ff7+xla-cuda-0.10.2-default", false, (30u << 20) + 7, 512u << 20, true) \
    X(CUDA, "maxtext@e591f30c+xla-cuda-0.10.2-default", true, (30u << 20) + 7, 512u << 20, true) \
    X(AMD_OLD, "maxtext@7e3f19ff7+xla-rocm-0.10.2-amd", false, 1ull << 30, 8ull << 30, false)
#define SPW_STEP_STACK_ENUM(name, text, fsdp, gather, scatter, by_dim) SPW_STEP_STACK_##name,
typedef enum spw_step_stack_name {
    SPW_STEP_STACK_LIST(SPW_STEP_STACK_ENUM) SPW_STEP_STACKS
} spw_step_stack_name;
#undef SPW_STEP_STACK_ENUM
extern const spw_step_stack spw_step_stacks[SPW_STEP_STACKS];
extern const char *const spw_step_stack_texts[SPW_STEP_STACKS]; /* as in the column `stack` of the tables */

/* Items whose group is one GPU are left out. A scheme that exchanges by library calls, or that XLA does not
 * compile, has no exchange items: replay counts its exchanges. SPW_ECONFIG: bytes that do not fit in 63 bits. */
SPW_MUST_CHECK spw_status spw_step_traffic_of(const spw_point *point, const spw_step_stack *stack,
                                              spw_step_traffic *out);

/* Operations and bytes of one place and pass once its families are combined as XLA does it: in order, a new
 * operation when the next tensor would take it past the limit, tensors past the limit alone. */
typedef struct spw_step_sum {
    size_t count;
    uint64_t bytes;
} spw_step_sum;
spw_step_sum spw_step_combine(const spw_step_traffic *traffic, const spw_step_stack *stack,
                              spw_step_place place, spw_operation operation, bool backward);

#endif
