/* The experts' part of a layer in PyTorch frameworks: gate and up in one product [rows, 2 F], the backward pass in
 * autograd's order. `p` is the prefix of the scheme's tensor names; X, FC1, ACT, Y, DY, D_ACT, D_FC1 and DX must be among
 * them. `r` is the kind of their rows, x_bytes the size of an element of x and dy (0: as activations). */
#ifndef SPW_SIM_SCHEMES_FUSED_EXPERT_EVENTS_H
#define SPW_SIM_SCHEMES_FUSED_EXPERT_EVENTS_H

#include "sim/schemes/list.h"

#define SPW_FUSED_TENSORS(p, r, x_bytes) \
    [p##X] = {"x", r, SPW_WIDTH_HIDDEN, .element_bytes = (x_bytes)}, \
    [p##FC1] = {"fc1_out", r, SPW_WIDTH_FFN, .times = 2}, [p##ACT] = {"act", r, SPW_WIDTH_FFN}, \
    [p##Y] = {"y", r, SPW_WIDTH_HIDDEN}, [p##DY] = {"dy", r, SPW_WIDTH_HIDDEN, .element_bytes = (x_bytes)}, \
    [p##D_ACT] = {"d_act", r, SPW_WIDTH_FFN}, [p##D_FC1] = {"d_fc1_out", r, SPW_WIDTH_FFN, .times = 2}, \
    [p##DX] = {"dx", r, SPW_WIDTH_HIDDEN}

/* Forward: only y is left. */
#define SPW_FUSED_FORWARD(p) \
    SPW_BORN(FORWARD, "fc1", p##FC1), SPW_DIES(FORWARD, "fc1", p##X), SPW_BORN(FORWARD, "swiglu", p##ACT), \
        SPW_DIES(FORWARD, "swiglu", p##FC1), SPW_BORN(FORWARD, "fc2", p##Y), \
        SPW_DIES(FORWARD, "fc2", p##ACT)

/* Recomputed: everything stays for the backward pass. */
#define SPW_FUSED_RECOMPUTE(p) \
    SPW_BORN(RECOMPUTE, "fc1", p##FC1), SPW_BORN(RECOMPUTE, "swiglu", p##ACT), \
        SPW_BORN(RECOMPUTE, "fc2", p##Y)

/* From dy to dx. The parts let a scheme put its own events between them. */
#define SPW_FUSED_FC2_GRADIENT(p) \
    SPW_BORN(BACKWARD, "fc2 gradient", p##D_ACT), SPW_DIES(BACKWARD, "fc2 gradient", p##ACT), \
        SPW_DIES(BACKWARD, "fc2 gradient", p##DY)
#define SPW_FUSED_SWIGLU_GRADIENT(p) \
    SPW_DIES(BACKWARD, "swiglu gradient", p##D_ACT), SPW_DIES(BACKWARD, "swiglu gradient", p##FC1)
#define SPW_FUSED_FC1_GRADIENT(p) \
    SPW_BORN(BACKWARD, "fc1 gradient", p##DX), SPW_DIES(BACKWARD, "fc1 gradient", p##X), \
        SPW_DIES(BACKWARD, "fc1 gradient", p##D_FC1)

#endif
