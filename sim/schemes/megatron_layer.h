/* What Megatron-Core's dispatchers share: router, capacity, alignment, and the experts between dispatch and combine
 * (fc1 [rows, 2 F], activation times router weight [rows, F], fc2 [rows, H]). docs/schemes.md, section 5.
 * Tensors stand under the names of their list, in the order in which PyTorch allocates and frees them; read in
 * NVIDIA/Megatron-LM megatron/core/transformer/moe (moe_layer.py, moe_utils.py, experts.py TEGroupedMLP). Left out: what
 * lives within one call of the router, the weight gradients (the footprint has them), and what the allocator adds. */
#ifndef SPW_SIM_SCHEMES_MEGATRON_LAYER_H
#define SPW_SIM_SCHEMES_MEGATRON_LAYER_H

#include "sim/schemes/event_table.h"
#include "sim/schemes/padded_rows.h"

/* Conditions of the event tables. */
enum {
    SPW_MEGATRON_ACT = 1,    /* remat moe_act: the activation is computed again */
    SPW_MEGATRON_PADDED = 2, /* the expert module pads its rows, into copies */
    SPW_MEGATRON_MANY = 4,   /* more than one expert a rank: rows are sorted by expert */
    SPW_MEGATRON_OWN = 8     /* and above: of one scheme */
};

/* Tensors that every scheme of the family has; its own come after. */
enum {
    SPW_MEGATRON_LOGITS,
    SPW_MEGATRON_PROBS,
    SPW_MEGATRON_MAP,
    SPW_MEGATRON_SORTED,
    SPW_MEGATRON_SORTED_PROBS,
    SPW_MEGATRON_FC1_INPUT,
    SPW_MEGATRON_ROW_PROBS,
    SPW_MEGATRON_FC1_OUTPUT,
    SPW_MEGATRON_FC2_INPUT,
    SPW_MEGATRON_FC2_OUTPUT,
    SPW_MEGATRON_UNPADDED,
    SPW_MEGATRON_OUTPUT,
    SPW_MEGATRON_D_UNPADDED,
    SPW_MEGATRON_D_FC2_OUTPUT,
    SPW_MEGATRON_D_FC2_INPUT,
    SPW_MEGATRON_D_FC1_OUTPUT,
    SPW_MEGATRON_D_ROW_PROBS,
    SPW_MEGATRON_D_FC1_INPUT,
    SPW_MEGATRON_D_SORTED,
    SPW_MEGATRON_D_SORTED_PROBS,
    SPW_MEGATRON_D_X,
    SPW_MEGATRON_D_PROBS,
    SPW_MEGATRON_D_LOGITS,
    SPW_MEGATRON_TENSORS
};

/* Their shapes; `r`: rows of the experts' tensors. */
#define SPW_MEGATRON_SHAPES(r) \
    [SPW_MEGATRON_LOGITS] = {"logits", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 4}, \
    [SPW_MEGATRON_PROBS] = {"probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 4}, \
    [SPW_MEGATRON_MAP] = {"routing_map", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 1}, \
    [SPW_MEGATRON_SORTED] = {"sorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_SORTED_PROBS] = {"sorted_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, 1, 4}, \
    [SPW_MEGATRON_FC1_INPUT] = {"fc1_input", r, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_ROW_PROBS] = {"row_probs", r, SPW_WIDTH_ONE, 1, 4}, \
    [SPW_MEGATRON_FC1_OUTPUT] = {"fc1_output", r, SPW_WIDTH_FFN, 2, 0}, \
    [SPW_MEGATRON_FC2_INPUT] = {"fc2_input", r, SPW_WIDTH_FFN, 1, 0}, \
    [SPW_MEGATRON_FC2_OUTPUT] = {"fc2_output", r, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_UNPADDED] = {"unpadded_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_OUTPUT] = {"output", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_UNPADDED] = {"d_unpadded_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_FC2_OUTPUT] = {"d_fc2_output", r, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_FC2_INPUT] = {"d_fc2_input", r, SPW_WIDTH_FFN, 1, 0}, \
    [SPW_MEGATRON_D_FC1_OUTPUT] = {"d_fc1_output", r, SPW_WIDTH_FFN, 2, 0}, \
    [SPW_MEGATRON_D_ROW_PROBS] = {"d_row_probs", r, SPW_WIDTH_ONE, 1, 4}, \
    [SPW_MEGATRON_D_FC1_INPUT] = {"d_fc1_input", r, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_SORTED] = {"d_sorted_rows", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_SORTED_PROBS] = {"d_sorted_probs", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, 1, 4}, \
    [SPW_MEGATRON_D_X] = {"dx", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, 1, 0}, \
    [SPW_MEGATRON_D_PROBS] = {"d_probs", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 4}, \
    [SPW_MEGATRON_D_LOGITS] = {"d_logits", SPW_ROWS_TOKENS, SPW_WIDTH_EXPERTS, 1, 4}

/* Rows of an event table. Passes: FORWARD, RECOMPUTE, BOTH, BACKWARD. */
#define SPW_ROW_BORN(passes, when, unless, step, tensor) \
    { step, tensor, +1, SPW_IN_##passes, when, unless }
#define SPW_ROW_DIES(passes, when, unless, step, tensor) \
    { step, tensor, -1, SPW_IN_##passes, when, unless }

/* From the rows that arrived and are sorted to the experts' output: fc2_output, or unpadded_rows where they pad. */
#define SPW_MEGATRON_EXPERTS_FORWARD \
    SPW_ROW_BORN(BOTH, SPW_MEGATRON_PADDED, 0, "pad", SPW_MEGATRON_FC1_INPUT), \
        SPW_ROW_BORN(BOTH, SPW_MEGATRON_PADDED, 0, "pad", SPW_MEGATRON_ROW_PROBS), \
        SPW_ROW_BORN(BOTH, 0, 0, "fc1", SPW_MEGATRON_FC1_OUTPUT), \
        SPW_ROW_BORN(BOTH, 0, 0, "swiglu", SPW_MEGATRON_FC2_INPUT), \
        SPW_ROW_BORN(BOTH, 0, 0, "fc2", SPW_MEGATRON_FC2_OUTPUT), \
        SPW_ROW_DIES(FORWARD, 0, 0, "fc2", SPW_MEGATRON_FC2_INPUT), \
        SPW_ROW_DIES(RECOMPUTE, SPW_MEGATRON_ACT, 0, "fc2", SPW_MEGATRON_FC2_INPUT), \
        SPW_ROW_DIES(FORWARD, 0, 0, "fc2", SPW_MEGATRON_FC1_OUTPUT), \
        SPW_ROW_BORN(BOTH, SPW_MEGATRON_PADDED, 0, "unpad", SPW_MEGATRON_UNPADDED), \
        SPW_ROW_DIES(BOTH, SPW_MEGATRON_PADDED, 0, "unpad", SPW_MEGATRON_FC2_OUTPUT), \
        SPW_ROW_DIES(FORWARD, SPW_MEGATRON_PADDED, 0, "unpad", SPW_MEGATRON_FC1_INPUT), \
        SPW_ROW_DIES(FORWARD, SPW_MEGATRON_PADDED, 0, "unpad", SPW_MEGATRON_ROW_PROBS)

/* From the gradient of that output to the gradient of the rows that arrived: d_fc1_input, or d_sorted_rows. */
#define SPW_MEGATRON_EXPERTS_BACKWARD \
    SPW_ROW_BORN(BACKWARD, SPW_MEGATRON_PADDED, 0, "unpad gradient", SPW_MEGATRON_D_FC2_OUTPUT), \
        SPW_ROW_DIES(BACKWARD, SPW_MEGATRON_PADDED, 0, "unpad gradient", SPW_MEGATRON_D_UNPADDED), \
        SPW_ROW_BORN(BACKWARD, SPW_MEGATRON_ACT, 0, "swiglu again", SPW_MEGATRON_FC2_INPUT), \
        SPW_ROW_BORN(BACKWARD, 0, 0, "fc2 input gradient", SPW_MEGATRON_D_FC2_INPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "fc2 weight gradient", SPW_MEGATRON_FC2_INPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "fc2 weight gradient", SPW_MEGATRON_D_FC2_OUTPUT), \
        SPW_ROW_BORN(BACKWARD, 0, 0, "swiglu gradient", SPW_MEGATRON_D_FC1_OUTPUT), \
        SPW_ROW_BORN(BACKWARD, 0, 0, "swiglu gradient", SPW_MEGATRON_D_ROW_PROBS), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "swiglu gradient", SPW_MEGATRON_FC1_OUTPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "swiglu gradient", SPW_MEGATRON_D_FC2_INPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "swiglu gradient", SPW_MEGATRON_ROW_PROBS), \
        SPW_ROW_BORN(BACKWARD, 0, 0, "fc1 input gradient", SPW_MEGATRON_D_FC1_INPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "fc1 weight gradient", SPW_MEGATRON_D_FC1_OUTPUT), \
        SPW_ROW_DIES(BACKWARD, 0, 0, "fc1 weight gradient", SPW_MEGATRON_FC1_INPUT), \
        SPW_ROW_BORN(BACKWARD, SPW_MEGATRON_PADDED, 0, "pad gradient", SPW_MEGATRON_D_SORTED), \
        SPW_ROW_DIES(BACKWARD, SPW_MEGATRON_PADDED, 0, "pad gradient", SPW_MEGATRON_D_FC1_INPUT), \
        SPW_ROW_BORN(BACKWARD, SPW_MEGATRON_PADDED, 0, "pad gradient", SPW_MEGATRON_D_SORTED_PROBS), \
        SPW_ROW_DIES(BACKWARD, SPW_MEGATRON_PADDED, 0, "pad gradient", SPW_MEGATRON_D_ROW_PROBS)

/* The table of a scheme whose tensors and rows are the arrays `tensors` and `rows` of its file. */
#define SPW_EVENT_TABLE(tensors, rows) \
    { tensors, rows, SPW_COUNT_OF(tensors), SPW_COUNT_OF(rows) }

/* --- Options --- */

extern const char *const spw_megatron_policies[]; /* probs, position */
extern const char *const spw_megatron_aligns[];   /* none, 16, 32, 128, 256 */

#define SPW_MEGATRON_CAPACITY_OPTIONS \
    {"capacity_factor", \
     0.0, \
     1e6, \
     0.0, \
     false, \
     "slots of an expert and rank as a multiple of the balanced load of the rank; 0 = dropless", \
     NULL}, \
    { \
        "policy", 0.0, 0.0, 0.0, false, "who keeps its slot: the most probable, or the first", \
            spw_megatron_policies \
    }
#define SPW_MEGATRON_ALIGN_OPTION \
    { \
        "align", 0.0, 0.0, 0.0, false, \
            "rows of an expert are padded to a multiple: none for bf16, 16 for fp8, 32 for mxfp8 and fp4, " \
            "128 and more for " \
            "other kernels", \
            spw_megatron_aligns \
    }

/* C = ceil(T K / E f), over the whole micro-batch of a rank; SIZE_MAX: nothing is dropped, as C > T or f = 0. */
size_t spw_megatron_capacity(const spw_scheme *scheme, const spw_layer_shape *shape);
size_t spw_megatron_align(const spw_scheme *scheme); /* 1: none */

/* Fields of the scheme type. An expert keeps C choices of each rank: by policy probs those of greatest weight, ties to
 * the earlier token; by policy position the earliest. */
spw_drop_rule spw_megatron_drop_rule(const spw_scheme *scheme);
spw_status spw_megatron_keep(const spw_scheme *scheme, const spw_layer_shape *shape,
                             const spw_choices *choices, uint8_t *kept);

/* Sets wire 0, rows 0, dropped 0 and, without keep(), every limit to what is routed. */
void spw_megatron_flow_begin(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_counts *counts,
                             size_t group, spw_flow *out);

#endif
