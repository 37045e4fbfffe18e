/* What the executed schemes of Megatron-Core share: routing with capacity and alignment, tensors of the layer, and the
 * experts with the router weight inside the activation. The tensors are those of the simulator's event lists. */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_RANKS_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_RANKS_H

#include "reference/schemes/ranks.h"

/* Tensor, name, rows, width, elements a column, bytes an element (0: of activations). */
#define SPW_MEGATRON_TENSOR_LIST(X) \
    X(LOGITS, "logits", TOKENS, EXPERTS, 1, 4) \
    X(CHOSEN_PROBS, "chosen_probs", TOKENS, TOP_K, 1, 4) \
    X(PROBS, "probs", TOKENS, EXPERTS, 1, 4) \
    X(MAP, "routing_map", TOKENS, EXPERTS, 1, 1) \
    X(COLUMNS, "map_by_expert", TOKENS, EXPERTS, 1, 1) \
    X(ARGSORT, "argsort", TOKENS, EXPERTS, 1, 8) \
    X(MAPPING, "permutation", SENT, ONE, 1, 8) \
    X(PROB_COLUMNS, "probs_by_expert", TOKENS, EXPERTS, 1, 4) \
    X(PROB_INDEX, "prob_index", SENT, ONE, 1, 8) \
    X(ROW_ID_MAP, "row_id_map", TOKENS, ROW_IDS, 1, 4) \
    X(SORT_ID_MAP, "sort_id_map", RECEIVED, ONE, 1, 4) \
    X(SENT_PROBS, "sent_probs", SENT, ONE, 1, 4) \
    X(SENT, "sent_rows", SENT, HIDDEN, 1, 0) \
    X(RECEIVED, "received_rows", RECEIVED, HIDDEN, 1, 0) \
    X(RECEIVED_PROBS, "received_probs", RECEIVED, ONE, 1, 4) \
    X(SORTED, "sorted_rows", RECEIVED, HIDDEN, 1, 0) \
    X(SORTED_PROBS, "sorted_probs", RECEIVED, ONE, 1, 4) \
    X(FC1_INPUT, "fc1_input", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(ROW_PROBS, "row_probs", EXPERT_ROWS, ONE, 1, 4) \
    X(FC1_OUTPUT, "fc1_output", EXPERT_ROWS, FFN, 2, 0) \
    X(FC2_INPUT, "fc2_input", EXPERT_ROWS, FFN, 1, 0) \
    X(FC2_OUTPUT, "fc2_output", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(UNPADDED, "unpadded_rows", RECEIVED, HIDDEN, 1, 0) \
    X(UNSORTED, "unsorted_rows", RECEIVED, HIDDEN, 1, 0) \
    X(COMBINED, "combined_rows", SENT, HIDDEN, 1, 0) \
    X(OUTPUT, "output", TOKENS, HIDDEN, 1, 0) \
    X(D_COMBINED, "d_combined_rows", SENT, HIDDEN, 1, 0) \
    X(D_UNSORTED, "d_unsorted_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_UNPADDED, "d_unpadded_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_FC2_OUTPUT, "d_fc2_output", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(D_FC2_INPUT, "d_fc2_input", EXPERT_ROWS, FFN, 1, 0) \
    X(D_FC1_OUTPUT, "d_fc1_output", EXPERT_ROWS, FFN, 2, 0) \
    X(D_ROW_PROBS, "d_row_probs", EXPERT_ROWS, ONE, 1, 4) \
    X(D_FC1_INPUT, "d_fc1_input", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(D_SORTED, "d_sorted_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_SORTED_PROBS, "d_sorted_probs", RECEIVED, ONE, 1, 4) \
    X(D_RECEIVED, "d_received_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_RECEIVED_PROBS, "d_received_probs", RECEIVED, ONE, 1, 4) \
    X(D_SENT, "d_sent_rows", SENT, HIDDEN, 1, 0) \
    X(D_SENT_PROBS, "d_sent_probs", SENT, ONE, 1, 4) \
    X(D_X, "dx", TOKENS, HIDDEN, 1, 0) \
    X(SORTED_IDS, "sorted_ids", TOKENS, EXPERTS, 1, 8) \
    X(TOP_PROBS, "top_probs", TOKENS, TOP_K, 1, 4) \
    X(TOP_INDEX, "top_index", TOKENS, TOP_K, 1, 8) \
    X(HANDLE, "handle", HANDLE, ONE, 1, 1) \
    X(RECEIVED_INDEX, "received_index", RECEIVED, TOP_K, 1, 8) \
    X(TOKEN_PROBS, "received_probs", RECEIVED, TOP_K, 1, 4) \
    X(SOURCE, "source_index", RECEIVED, ONE, 1, 4) \
    X(GATHERED, "gathered_rows", RECEIVED, HIDDEN, 1, 0) \
    X(GATHERED_MAP, "gathered_map", RECEIVED, EXPERTS, 1, 1) \
    X(GATHERED_PROBS, "gathered_probs", RECEIVED, EXPERTS, 1, 4) \
    X(MULTIHOT, "multihot", RECEIVED, LOCAL, 1, 8) \
    X(LOCAL_PROBS, "local_probs", RECEIVED, LOCAL, 1, 4) \
    X(LOCAL_MAP, "local_map", RECEIVED, LOCAL, 1, 1) \
    X(LOCAL_COLUMNS, "map_by_expert", RECEIVED, LOCAL, 1, 1) \
    X(LOCAL_ARGSORT, "argsort", RECEIVED, LOCAL, 1, 8) \
    X(LOCAL_MAPPING, "permutation", EXPERT_ROWS, ONE, 1, 8) \
    X(LOCAL_PROB_COLUMNS, "probs_by_expert", RECEIVED, LOCAL, 1, 4) \
    X(PROB_MASK, "prob_mask", RECEIVED, LOCAL, 1, 1) \
    X(LOCAL_ROW_ID_MAP, "row_id_map", RECEIVED, LOCAL_ROW_IDS, 1, 4) \
    X(HELD_ROWS, "gathered_rows", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(HELD_PROBS, "gathered_probs", EXPERT_ROWS, ONE, 1, 4) \
    X(HELD_UNSORTED, "unsorted_rows", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(SCATTER_INPUT, "scatter_input_fp32", EXPERT_ROWS, HIDDEN, 1, 4) \
    X(SCATTERED_SUM, "scattered_fp32", RECEIVED, HIDDEN, 1, 4) \
    X(SCATTERED, "scattered_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_SCATTERED, "d_scattered_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_SCATTERED_SUM, "d_scattered_fp32", RECEIVED, HIDDEN, 1, 4) \
    X(D_SCATTER_INPUT, "d_scatter_input_fp32", EXPERT_ROWS, HIDDEN, 1, 4) \
    X(D_HELD_UNSORTED, "d_unsorted_rows", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(D_HELD_ROWS, "d_gathered_rows", EXPERT_ROWS, HIDDEN, 1, 0) \
    X(D_HELD_PROBS, "d_gathered_probs", EXPERT_ROWS, ONE, 1, 4) \
    X(RESTORED, "restored_rows", RECEIVED, HIDDEN, 1, 0) \
    X(CAST, "restored_fp32", RECEIVED, HIDDEN, 1, 4) \
    X(REDUCED, "reduced_fp32", TOKENS, HIDDEN, 1, 4) \
    X(D_REDUCED, "d_reduced_fp32", TOKENS, HIDDEN, 1, 4) \
    X(D_CAST, "d_restored_fp32", RECEIVED, HIDDEN, 1, 4) \
    X(D_RESTORED, "d_restored_rows", RECEIVED, HIDDEN, 1, 0) \
    X(D_LOCAL_PROBS, "d_local_probs", RECEIVED, LOCAL, 1, 4) \
    X(D_TOKEN_PROBS, "d_received_probs", RECEIVED, TOP_K, 1, 4) \
    X(D_GATHERED_PROBS, "d_gathered_probs", RECEIVED, EXPERTS, 1, 4) \
    X(D_TOP_PROBS, "d_top_probs", TOKENS, TOP_K, 1, 4) \
    X(D_PROBS, "d_probs", TOKENS, EXPERTS, 1, 4) \
    X(D_LOGITS, "d_logits", TOKENS, EXPERTS, 1, 4)

#define SPW_MEGATRON_TENSOR_ENUM(tensor, name, rows, width, times, element) SPW_MEGATRON_##tensor,
typedef enum spw_megatron_tensor {
    SPW_MEGATRON_TENSOR_LIST(SPW_MEGATRON_TENSOR_ENUM) SPW_MEGATRON_TENSOR_COUNT
} spw_megatron_tensor;
#undef SPW_MEGATRON_TENSOR_ENUM

typedef enum spw_megatron_rows {
    SPW_MEGATRON_ROWS_TOKENS,
    SPW_MEGATRON_ROWS_SENT,
    SPW_MEGATRON_ROWS_RECEIVED,    /* rows that arrive: choices, tokens, or all tokens of the group */
    SPW_MEGATRON_ROWS_EXPERT_ROWS, /* of the experts' tensors: rows held, or a fixed buffer */
    SPW_MEGATRON_ROWS_HANDLE,      /* bytes of a routing table */
    SPW_MEGATRON_ROWS_COUNT
} spw_megatron_rows;

/* What a scheme's options come to. */
typedef struct spw_megatron_settings {
    double capacity_factor; /* 0: dropless */
    bool by_position;       /* who is kept: the first; else the most probable */
    bool slots;             /* pad every expert of every rank to its capacity */
    size_t router_align;    /* pad rows of every expert and rank, at the source; 1: not */
    size_t expert_align;    /* pad rows of every expert where it is; 1: not */
    bool padded;            /* ... in the expert module, into copies */
    bool fused;             /* fused router and permutation */
} spw_megatron_settings;

typedef struct spw_megatron_rank {
    uint8_t *map;        /* [tokens][experts] 1: the token has a row for the expert */
    int32_t *choice;     /* [tokens][experts] slot of a kept choice, else -1 */
    size_t *count;       /* [experts] rows that this rank has for each */
    int32_t *token;      /* [rows sent] by expert, then token */
    int32_t *slot;       /* [rows sent] the choice, or -1: padding */
    size_t *arrived;     /* [ranks][local] rows of each source and expert of this rank */
    int32_t *local_row;  /* [rows of the experts] which row that arrived, or -1: empty */
    int32_t *local_slot; /* [rows of the experts] the choice of its token, or -1: padding */
    size_t *segment;     /* [local + 1] where an expert's rows stand before they are padded */
} spw_megatron_rank;

typedef struct spw_megatron {
    spw_megatron_settings set;
    spw_experts experts; /* rows and offsets; its tensors are not used */
    size_t rows[SPW_MEGATRON_ROWS_COUNT][SPW_EXECUTION_RANKS];
    spw_megatron_rank rank[SPW_EXECUTION_RANKS];
    spw_spread tensor[SPW_MEGATRON_TENSOR_COUNT];
} spw_megatron;

size_t spw_megatron_align_of(const spw_execution *run); /* the option `align`; 1: none */

/* Allocates, routes and drops: rank[].map to .slot, rows sent, out.dropped. */
SPW_MUST_CHECK spw_status spw_megatron_create(spw_execution *run, const spw_megatron_settings *settings,
                                              spw_megatron **out);

SPW_MUST_CHECK spw_status spw_megatron_born(spw_execution *run, spw_megatron *g, spw_megatron_tensor tensor);
void spw_megatron_dies(spw_execution *run, spw_megatron *g, spw_megatron_tensor tensor);
/* Several in order. Ended by SPW_MEGATRON_TENSOR_COUNT. */
void spw_megatron_die(spw_execution *run, spw_megatron *g, const spw_megatron_tensor *tensor);
#define SPW_MEGATRON_DIE(run, g, ...) \
    spw_megatron_die((run), (g), (const spw_megatron_tensor[]){__VA_ARGS__, SPW_MEGATRON_TENSOR_COUNT})

/* probs and routing_map as the router hands them on. */
void spw_megatron_fill_map(spw_execution *run, spw_megatron *g);

/* Where rows that arrive are tokens: the experts' rows from `map` [rows that arrived][local], 1 where a row has the
 * expert, and `choice` of the same shape, which choice of the token that is, or -1. By expert, then row; segments are
 * filled to `multiple`, or to `zone` [local] unless that is NULL, with empty rows. Fills local_row, local_slot, offsets, and
 * rows of the experts with `fixed`, or as many as there are when it is 0. */
typedef struct spw_local_rows {
    const uint8_t *map;
    const int32_t *choice;
    size_t multiple;
    const size_t *zone;
    size_t fixed;
} spw_local_rows;
SPW_MUST_CHECK spw_status spw_megatron_place_local(spw_execution *run, spw_megatron *g, size_t rank,
                                                   const spw_local_rows *rows);
/* to[row that arrived] = sum of its rows at the experts, in order of expert. */
SPW_MUST_CHECK spw_status spw_megatron_add_local(const spw_execution *run, const spw_megatron *g, size_t rank,
                                                 const float *from, float *to);
/* The mirror: copies; empty rows are left alone. */
void spw_megatron_copy_local(const spw_execution *run, const spw_megatron *g, size_t rank, const float *from,
                             float *to);

/* out.d_weight from d_probs: of kept choices only. */
void spw_megatron_hand_over_weights(spw_execution *run, const spw_megatron *g);

/* From fc1_input, or sorted_rows where the experts pad, to fc2_output, or unpadded_rows; and back. Rows stand by expert
 * as experts.offset says; rank[].segment without the padding. */
SPW_MUST_CHECK spw_status spw_megatron_experts_forward(spw_execution *run, spw_megatron *g);
SPW_MUST_CHECK spw_status spw_megatron_experts_backward(spw_execution *run, spw_megatron *g);

size_t spw_megatron_round_up(size_t rows, size_t multiple);

#endif
