/* What `ragged` and `gmm` share: MaxText's ragged all-to-all into one receive buffer (docs/schemes.md,
 * section 2). */
#ifndef SPW_SIM_SCHEMES_RAGGED_EXCHANGE_H
#define SPW_SIM_SCHEMES_RAGGED_EXCHANGE_H

#include "sim/schemes/expert_events.h"

/* buffer_factor; 0 = the worst case. */
#define SPW_RAGGED_OPTION_ROWS \
    { \
        "buffer_factor", 0.0, 1e6, 0.0, false, \
            "rows of the receive buffer as a multiple of the rows a rank sends; 0 = the worst case, which " \
            "never drops", \
            NULL \
    }

/* buffer_factor > 0: trunc(N f); else W = R T min(e, K). */
size_t spw_ragged_buffer_rows(const spw_scheme *scheme, const spw_layer_shape *shape);

/* Rows that fit into the buffer of their destination: source ranks are served in order, and of a source its
 * experts in order; what comes later is dropped (section 2.4). */
void spw_ragged_flow(const spw_scheme *scheme, const spw_layer_shape *shape, const spw_counts *counts,
                     size_t group, spw_flow *out);
spw_status spw_ragged_check(const spw_scheme *scheme, const spw_layer_shape *shape);

/* The tensors of the path, first in the tensor list of both schemes. */
enum {
    SPW_RAGGED_REPEATED,
    SPW_RAGGED_SORTED,
    SPW_RAGGED_RECEIVED,
    SPW_RAGGED_X,
    SPW_RAGGED_W0,
    SPW_RAGGED_W1,
    SPW_RAGGED_ACT,
    SPW_RAGGED_Y,
    SPW_RAGGED_Y_UNSORTED,
    SPW_RAGGED_RETURNED,
    SPW_RAGGED_RETURNED_UNSORTED,
    SPW_RAGGED_OUT_GRADIENT,
    SPW_RAGGED_OUT_GRADIENT_SORTED,
    SPW_RAGGED_DY_RECEIVED,
    SPW_RAGGED_DY,
    SPW_RAGGED_DW0,
    SPW_RAGGED_DW1,
    SPW_RAGGED_DX0,
    SPW_RAGGED_DX1,
    SPW_RAGGED_DX_UNSORTED,
    SPW_RAGGED_DX_RETURNED,
    SPW_RAGGED_TENSORS
};
#define SPW_RAGGED_TENSOR_ROWS \
    SPW_EXPERT_TENSORS(SPW_RAGGED_), \
        [SPW_RAGGED_REPEATED] = {"repeated", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_SORTED] = {"sorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_RECEIVED] = {"received", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_Y_UNSORTED] = {"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_RETURNED] = {"returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_RETURNED_UNSORTED] = {"returned_unsorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_OUT_GRADIENT] = {"d_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_OUT_GRADIENT_SORTED] = {"d_returned_sorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_DY_RECEIVED] = {"dy_received", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_DX_UNSORTED] = {"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
        [SPW_RAGGED_DX_RETURNED] = {"dx_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN}

/* The parts of the event list that do not touch a GEMM. */
#define SPW_RAGGED_DISPATCH(phase) \
    SPW_BORN(phase, "repeat", SPW_RAGGED_REPEATED), SPW_BORN(phase, "sort", SPW_RAGGED_SORTED), \
        SPW_DIES(phase, "sort", SPW_RAGGED_REPEATED), SPW_BORN(phase, "dispatch", SPW_RAGGED_RECEIVED), \
        SPW_DIES(phase, "dispatch", SPW_RAGGED_SORTED), SPW_BORN(phase, "local sort", SPW_RAGGED_X), \
        SPW_DIES(phase, "local sort", SPW_RAGGED_RECEIVED)
/* The receive buffer of the combine stands before its operand is sorted. */
#define SPW_RAGGED_COMBINE(phase) \
    SPW_BORN(phase, "local unsort", SPW_RAGGED_RETURNED), \
        SPW_BORN(phase, "local unsort", SPW_RAGGED_Y_UNSORTED), \
        SPW_DIES(phase, "local unsort", SPW_RAGGED_Y), SPW_DIES(phase, "combine", SPW_RAGGED_Y_UNSORTED), \
        SPW_BORN(phase, "unsort", SPW_RAGGED_RETURNED_UNSORTED), \
        SPW_DIES(phase, "unsort", SPW_RAGGED_RETURNED)
#define SPW_RAGGED_COMBINE_GRADIENT \
    SPW_BORN(BACKWARD, "combine gradient", SPW_RAGGED_OUT_GRADIENT), \
        SPW_DIES(BACKWARD, "combine gradient", \
                 SPW_RAGGED_RETURNED_UNSORTED), /* the weight gradient used it */ \
        SPW_BORN(BACKWARD, "sort of dy", SPW_RAGGED_OUT_GRADIENT_SORTED), \
        SPW_BORN(BACKWARD, "dispatch of dy", SPW_RAGGED_DY_RECEIVED), \
        SPW_BORN(BACKWARD, "local sort of dy", SPW_RAGGED_DY), \
        SPW_DIES(BACKWARD, "local sort of dy", SPW_RAGGED_DY_RECEIVED), \
        SPW_DIES(BACKWARD, "local sort of dy", SPW_RAGGED_OUT_GRADIENT_SORTED), \
        SPW_DIES(BACKWARD, "local sort of dy", SPW_RAGGED_OUT_GRADIENT)
#define SPW_RAGGED_DISPATCH_GRADIENT \
    SPW_BORN(BACKWARD, "local unsort of dx", SPW_RAGGED_DX_UNSORTED), \
        SPW_DIES(BACKWARD, "local unsort of dx", SPW_RAGGED_DX0), \
        SPW_BORN(BACKWARD, "combine of dx", SPW_RAGGED_DX_RETURNED), \
        SPW_DIES(BACKWARD, "combine of dx", SPW_RAGGED_DX_UNSORTED), \
        SPW_DIES(BACKWARD, "sum over choices", SPW_RAGGED_DX_RETURNED)

#endif
