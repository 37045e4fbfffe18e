/* The experts' part of a layer with gate and up in one product [rows, 2 F], as PyTorch frameworks and fused kernels run it;
 * the backward pass in autograd's order. `p` is the prefix of the scheme's tensor identifiers; X, FC1, ACT, Y, DY, D_ACT,
 * D_FC1 and DX must be among them. `q` stands before names and steps ("" but for a second set), `r` is the kind of the rows,
 * x_bytes the size of an element of x and dy (0: as activations). */
#ifndef SPW_SIM_SCHEMES_FUSED_EXPERT_EVENTS_H
#define SPW_SIM_SCHEMES_FUSED_EXPERT_EVENTS_H

#include "sim/schemes/list.h"

#define SPW_FUSED_TENSORS(p, q, r, x_bytes) \
    [p##X] = {q "x", r, SPW_WIDTH_HIDDEN, .element_bytes = (x_bytes)}, \
    [p##FC1] = {q "fc1_out", r, SPW_WIDTH_FFN, .times = 2}, [p##ACT] = {q "act", r, SPW_WIDTH_FFN}, \
    [p##Y] = {q "y", r, SPW_WIDTH_HIDDEN}, \
    [p##DY] = {q "dy", r, SPW_WIDTH_HIDDEN, .element_bytes = (x_bytes)}, \
    [p##D_ACT] = {q "d_act", r, SPW_WIDTH_FFN}, [p##D_FC1] = {q "d_fc1_out", r, SPW_WIDTH_FFN, .times = 2}, \
    [p##DX] = {q "dx", r, SPW_WIDTH_HIDDEN}

/* Recomputed: everything stays for the backward pass. */
#define SPW_FUSED_RECOMPUTE(p, q) \
    SPW_BORN(RECOMPUTE, q "fc1", p##FC1), SPW_BORN(RECOMPUTE, q "swiglu", p##ACT), \
        SPW_BORN(RECOMPUTE, q "fc2", p##Y)

/* From dy to dx. The parts let a scheme put its own events between them. */
#define SPW_FUSED_FC2_GRADIENT(p, q) \
    SPW_BORN(BACKWARD, q "fc2 gradient", p##D_ACT), SPW_DIES(BACKWARD, q "fc2 gradient", p##ACT), \
        SPW_DIES(BACKWARD, q "fc2 gradient", p##DY)
#define SPW_FUSED_SWIGLU_GRADIENT(p, q) \
    SPW_DIES(BACKWARD, q "swiglu gradient", p##D_ACT), SPW_DIES(BACKWARD, q "swiglu gradient", p##FC1)
#define SPW_FUSED_FC1_GRADIENT(p, q) \
    SPW_BORN(BACKWARD, q "fc1 gradient", p##DX), SPW_DIES(BACKWARD, q "fc1 gradient", p##X), \
        SPW_DIES(BACKWARD, q "fc1 gradient", p##D_FC1)

#endif
