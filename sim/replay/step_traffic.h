/* Every collective of one training step on one GPU: the exchanges of the scheme, weights and gradients (layer by
 * layer where the state is sharded, once a step where only the optimizer is, or nothing is), what XLA gathers
 * beside them for the capacity-factor scheme, embedding and head, and what pipeline stages send each other. One item a tensor, as it is before a
 * compiler combines small ones. Evidence: the 139 programs of notebooks_data/compiled/maxtext_collectives.csv,
 * all matched by tests/test_step_traffic.c; docs/step_traffic.md says what is exact and what is not. */
#ifndef SPW_SIM_REPLAY_STEP_TRAFFIC_H
#define SPW_SIM_REPLAY_STEP_TRAFFIC_H

#include "sim/input/job.h"
#include "sim/scheme.h"

#include <stdbool.h>
#include <stdint.h>

#define SPW_OPERATION_LIST(X) \
    X(ALL_TO_ALL, "all_to_all") \
    X(RAGGED_ALL_TO_ALL, "ragged_all_to_all") \
    X(ALL_GATHER, "all_gather") \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(ALL_REDUCE, "all_reduce") \
    X(SEND, "send")
#define SPW_PURPOSE_LIST(X) \
    X(EXCHANGE, "exchanges", "tokens to their experts and back, with logits and sizes") \
    X(EXPERT_WEIGHTS, "expert_weights", "routed experts: weights gathered, gradients scattered") \
    X(OTHER_WEIGHTS, "other_weights", "attention, shared experts, router, dense layers: likewise") \
    X(INDICES, "indices", "the top-k scatter of dense, gathered by XLA over all GPUs") \
    X(RESHARDING, "resharding", "what layout=peeled gathers to multiply where the tokens are") \
    X(EMBEDDING, "embedding_and_head", "tokens to the sharded embedding, or its table; the head") \
    X(PIPELINE, "pipeline", "activations to the next stage, their gradients back")
#define SPW_OPERATION_ENUM(name, text) SPW_OPERATION_##name,
#define SPW_PURPOSE_ENUM(name, text, help) SPW_PURPOSE_##name,
typedef enum spw_operation { SPW_OPERATION_LIST(SPW_OPERATION_ENUM) SPW_OPERATIONS } spw_operation;
typedef enum spw_purpose { SPW_PURPOSE_LIST(SPW_PURPOSE_ENUM) SPW_PURPOSES } spw_purpose;
#undef SPW_OPERATION_ENUM
#undef SPW_PURPOSE_ENUM
const char *spw_operation_name(spw_operation operation);
const char *spw_purpose_name(spw_purpose purpose);
const char *spw_purpose_help(spw_purpose purpose);

/* Ends: embedding and head of a micro-batch. Step: once, whatever the number of micro-batches. */
typedef enum spw_step_place {
    SPW_PLACE_MOE_LAYER,
    SPW_PLACE_DENSE_LAYER,
    SPW_PLACE_ENDS,
    SPW_PLACE_STEP,
    SPW_PLACES
} spw_step_place;
typedef enum spw_step_group {
    SPW_GROUP_EXPERT,
    SPW_GROUP_FSDP,
    SPW_GROUP_ALL, /* expert x fsdp */
    SPW_GROUP_PIPELINE,
    SPW_GROUPS
} spw_step_group;
const char *spw_step_place_name(spw_step_place place);
const char *spw_step_group_name(spw_step_group group);

/* Which items a compiler may combine into one operation. */
typedef enum spw_step_family { SPW_FAMILY_ALONE, SPW_FAMILY_WEIGHTS, SPW_FAMILY_INDICES } spw_step_family;

typedef struct spw_step_item {
    const char *name, *formula;
    spw_operation operation;
    spw_purpose purpose;
    spw_step_place place;
    spw_step_group group;
    spw_step_family family;
    bool backward;  /* the recomputation is part of it */
    bool other_dim; /* cut along another dimension than the rest of its family */
    size_t count;
    uint64_t
        bytes; /* of each: the whole tensor that one GPU sees, result of a gather, operand of the others */
} spw_step_item;

enum { SPW_STEP_ITEMS = 96 };
typedef struct spw_step_traffic {
    spw_step_item item[SPW_STEP_ITEMS];
    size_t items;
    size_t times[SPW_PLACES];      /* of each place in one step, all micro-batches and stages together */
    size_t group_size[SPW_GROUPS]; /* GPUs of each group */
    bool overflow;                 /* an item did not fit; spw_step_traffic_of then fails */
} spw_step_traffic;

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
SPW_MUST_CHECK spw_status spw_step_traffic_of(const spw_job *job, const spw_scheme *scheme, size_t sequences,
                                              const spw_step_stack *stack, spw_step_traffic *out);

/* Appends an item of `elements` x `element_bytes`; nothing where its group is one GPU or a factor is 0. */
void spw_step_add(spw_step_traffic *traffic, spw_step_item item, uint64_t elements, size_t element_bytes);

/* Bytes out of one GPU in one step, mean over the stages: bytes x count x times x (g - 1) / g / stages; twice that for
 * an all-reduce, without (g - 1) / g for a send. */
double spw_step_item_wire_bytes(const spw_step_traffic *traffic, const spw_step_item *item);
double spw_step_purpose_wire_bytes(const spw_step_traffic *traffic, spw_purpose purpose);

/* Operations and bytes of one place and pass once its families are combined as XLA does it: in order, a new
 * operation when the next tensor would take it past the limit, tensors past the limit alone. */
typedef struct spw_step_sum {
    size_t count;
    uint64_t bytes;
} spw_step_sum;
spw_step_sum spw_step_combine(const spw_step_traffic *traffic, const spw_step_stack *stack,
                              spw_step_place place, spw_operation operation, bool backward);

#endif
