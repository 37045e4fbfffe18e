/* The experts of a PyTorch layer that autograd differentiates product by product: w0_out, w1_out, their SiLU, its product
 * with w1_out, y; and back, in the order in which autograd walks (the latest node first). Executed counterpart:
 * reference/schemes/autograd_glu.h. X, W0, W1, SILU, ACT, Y, DY, DACT, DSILU, DW0, DW1, DX0, DX1 are tensors of the scheme. */
#ifndef SPW_SIM_SCHEMES_GLU_EVENTS_H
#define SPW_SIM_SCHEMES_GLU_EVENTS_H

#include "sim/schemes/list.h"

#define SPW_GLU_TENSORS(rows) \
    [X] = {"x", rows, SPW_WIDTH_HIDDEN, .times = 1}, [W0] = {"w0_out", rows, SPW_WIDTH_FFN, .times = 1}, \
    [W1] = {"w1_out", rows, SPW_WIDTH_FFN, .times = 1}, [SILU] = {"silu", rows, SPW_WIDTH_FFN, .times = 1}, \
    [ACT] = {"act", rows, SPW_WIDTH_FFN, .times = 1}, [Y] = {"y", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
    [DY] = {"dy", rows, SPW_WIDTH_HIDDEN, .times = 1}, [DACT] = {"d_act", rows, SPW_WIDTH_FFN, .times = 1}, \
    [DSILU] = {"d_silu", rows, SPW_WIDTH_FFN, .times = 1}, \
    [DW0] = {"d_w0_out", rows, SPW_WIDTH_FFN, .times = 1}, \
    [DW1] = {"d_w1_out", rows, SPW_WIDTH_FFN, .times = 1}, \
    [DX0] = {"dx_w0", rows, SPW_WIDTH_HIDDEN, .times = 1}, \
    [DX1] = {"dx_w1", rows, SPW_WIDTH_HIDDEN, .times = 1}

#define SPW_GLU_GATES(phase) \
    SPW_BORN(phase, "gemm w0", W0), SPW_BORN(phase, "gemm w1", W1), SPW_BORN(phase, "silu", SILU), \
        SPW_BORN(phase, "product", ACT)

/* From dy to dx_w1, the sum of both parts. */
#define SPW_GLU_GRADIENT() \
    SPW_BORN(BACKWARD, "gemm wo gradient", DACT), SPW_DIES(BACKWARD, "gemm wo gradient", ACT), \
        SPW_DIES(BACKWARD, "gemm wo gradient", DY), SPW_BORN(BACKWARD, "product gradient", DSILU), \
        SPW_BORN(BACKWARD, "product gradient", DW1), SPW_DIES(BACKWARD, "product gradient", SILU), \
        SPW_DIES(BACKWARD, "product gradient", W1), SPW_DIES(BACKWARD, "product gradient", DACT), \
        SPW_BORN(BACKWARD, "silu gradient", DW0), SPW_DIES(BACKWARD, "silu gradient", W0), \
        SPW_DIES(BACKWARD, "silu gradient", DSILU), SPW_BORN(BACKWARD, "gemm w1 gradient", DX1), \
        SPW_DIES(BACKWARD, "gemm w1 gradient", DW1), SPW_BORN(BACKWARD, "gemm w0 gradient", DX0), \
        SPW_DIES(BACKWARD, "gemm w0 gradient", X), SPW_DIES(BACKWARD, "gemm w0 gradient", DW0), \
        SPW_DIES(BACKWARD, "sum of dx", DX0)

#endif
