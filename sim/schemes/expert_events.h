/* The experts' part of a layer, which all dropless schemes share: rows in, rows out, and back. `p` is the prefix of the
 * scheme's tensor names (empty is fine); X, W0, W1, ACT, Y, DY, DW0, DW1, DX0 and DX1 must be among them. */
#ifndef SPW_SIM_SCHEMES_EXPERT_EVENTS_H
#define SPW_SIM_SCHEMES_EXPERT_EVENTS_H

#include "sim/schemes/list.h"

#define SPW_EXPERT_TENSORS(p) \
    [p##X] = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, [p##W0] = {"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, \
    [p##W1] = {"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, \
    [p##ACT] = {"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, [p##Y] = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
    [p##DY] = {"dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
    [p##DW0] = {"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, \
    [p##DW1] = {"d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, \
    [p##DX0] = {"dx_w0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}, \
    [p##DX1] = {"dx_w1", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN}

/* Forward: only y is left. */
#define SPW_EXPERTS_FORWARD(p) \
    SPW_BORN(FORWARD, "gemm w0", p##W0), SPW_BORN(FORWARD, "gemm w1", p##W1), \
        SPW_DIES(FORWARD, "gemm w1", p##X), SPW_BORN(FORWARD, "swiglu", p##ACT), \
        SPW_DIES(FORWARD, "swiglu", p##W0), SPW_DIES(FORWARD, "swiglu", p##W1), \
        SPW_BORN(FORWARD, "gemm wo", p##Y), SPW_DIES(FORWARD, "gemm wo", p##ACT)

/* Recomputed: everything stays for the backward pass. */
#define SPW_EXPERTS_RECOMPUTE(p) \
    SPW_BORN(RECOMPUTE, "gemm w0", p##W0), SPW_BORN(RECOMPUTE, "gemm w1", p##W1), \
        SPW_BORN(RECOMPUTE, "swiglu", p##ACT), SPW_BORN(RECOMPUTE, "gemm wo", p##Y)

/* From dy to dx_w0, the sum of both parts. d_act takes the place of act and becomes d_w0_out; d_w1_out stands where
 * w1_out was. */
#define SPW_EXPERTS_GRADIENT(p) \
    SPW_DIES(BACKWARD, "wo weight gradient", p##ACT), SPW_BORN(BACKWARD, "gemm wo input gradient", p##DW0), \
        SPW_DIES(BACKWARD, "gemm wo input gradient", p##DY), SPW_DIES(BACKWARD, "swiglu gradient", p##W1), \
        SPW_BORN(BACKWARD, "swiglu gradient", p##DW1), SPW_DIES(BACKWARD, "swiglu gradient", p##W0), \
        SPW_BORN(BACKWARD, "gemm w0 input gradient", p##DX0), \
        SPW_BORN(BACKWARD, "gemm w1 input gradient", p##DX1), \
        SPW_DIES(BACKWARD, "w0 w1 weight gradients", p##X), \
        SPW_DIES(BACKWARD, "w0 w1 weight gradients", p##DW0), \
        SPW_DIES(BACKWARD, "w0 w1 weight gradients", p##DW1), SPW_DIES(BACKWARD, "sum of dx", p##DX1)

#endif
