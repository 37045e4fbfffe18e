/* Collectives of one training step on one GPU as a list: one item a tensor, as it is before a compiler combines small
 * ones, and what the list sums to. sim/traffic/step_traffic.h makes it. */
#ifndef SPW_SIM_TRAFFIC_STEP_ITEMS_H
#define SPW_SIM_TRAFFIC_STEP_ITEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_OPERATION_LIST(X) \
    X(ALL_TO_ALL, "all_to_all") \
    X(RAGGED_ALL_TO_ALL, "ragged_all_to_all") \
    X(ALL_GATHER, "all_gather") \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(ALL_REDUCE, "all_reduce") \
    X(SEND, "send") \
    X(HOST_COPY, "host_copy")
#define SPW_PURPOSE_LIST(X) \
    X(EXCHANGE, "exchanges", "tokens to their experts and back, with logits and sizes") \
    X(EXPERT_WEIGHTS, "expert_weights", "routed experts: weights gathered, gradients scattered") \
    X(OTHER_WEIGHTS, "other_weights", "attention, shared experts, router, dense layers: likewise") \
    X(INDICES, "indices", "the top-k scatter of dense, gathered by XLA over all GPUs") \
    X(RESHARDING, "resharding", "what layout=peeled gathers to multiply where the tokens are") \
    X(EMBEDDING, "embedding_and_head", "tokens to the sharded embedding, or its table; the head") \
    X(PIPELINE, "pipeline", "activations to the next stage, their gradients back") \
    X(TENSOR, "tensor_parallel", "gathers, scatters and sums of a tensor group, its loss") \
    X(CONTEXT, "context_parallel", "keys and values round a context group, and their gradients") \
    X(HOST, "host_offload", "state and activations in the host's memory: there and back; no network")
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
    SPW_GROUP_ALL, /* expert x fsdp; with tensor or context parallelism data x context */
    SPW_GROUP_PIPELINE,
    SPW_GROUP_TENSOR,
    SPW_GROUP_CONTEXT,
    SPW_GROUP_REPLICAS,   /* GPUs that hold the same shard (HSDP) */
    SPW_GROUP_HOST,       /* a GPU and its host */
    SPW_GROUP_BATCH,      /* of MaxText's mesh: all but for context, GPUs that have other sequences */
    SPW_GROUP_FSDP_BATCH, /* of MaxText's mesh: fsdp but for context */
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
    size_t in_step; /* how often in one step, where that is not as often as its place; else 0 */
    uint64_t
        bytes; /* of each: the whole tensor that one GPU sees, result of a gather, operand of the others */
} spw_step_item;

enum { SPW_STEP_ITEMS = 192 };
typedef struct spw_step_traffic {
    spw_step_item item[SPW_STEP_ITEMS];
    size_t items;
    size_t times[SPW_PLACES];      /* of each place in one step, all micro-batches and stages together */
    size_t group_size[SPW_GROUPS]; /* GPUs of each group */
    bool overflow;                 /* an item did not fit */
} spw_step_traffic;

/* Appends an item of `elements` x `element_bytes`; nothing where its group is one GPU or a factor is 0. */
void spw_step_add(spw_step_traffic *traffic, spw_step_item item, uint64_t elements, size_t element_bytes);

/* How often it is in one step, all micro-batches and stages together. */
size_t spw_step_item_times(const spw_step_traffic *traffic, const spw_step_item *item);

/* Bytes out of one GPU in one step, mean over the stages: bytes x count x times x (g - 1) / g / stages; twice that for
 * an all-reduce, without (g - 1) / g for a send or a copy from or to the host, both ways together. */
double spw_step_item_wire_bytes(const spw_step_traffic *traffic, const spw_step_item *item);
double spw_step_purpose_wire_bytes(const spw_step_traffic *traffic, spw_purpose purpose);

#endif
