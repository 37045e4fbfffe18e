/* The experts by jax.lax.ragged_dot (docs/schemes.md, section 2.5): XLA without a grouped library lowers it to a dense
 * product over all local experts, whose masked operand [e, rows, contracted] is a tensor of its own. One operand
 * forward; in the backward pass the two gradients of a product hold one each (measured on one H200: 28.03 and 44.0 GiB
 * for [65536, 7168] x [32, 7168, 4096], jax 0.11.2). As expert_events.h, with p##HIDDEN_OPERAND and p##FFN_OPERAND. */
#ifndef SPW_SIM_SCHEMES_RAGGED_DOT_EVENTS_H
#define SPW_SIM_SCHEMES_RAGGED_DOT_EVENTS_H

#include "sim/schemes/expert_events.h"

#define SPW_RAGGED_DOT_TENSORS(p) \
    [p##HIDDEN_OPERAND] = {"ragged_dot_hidden_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_HIDDEN}, \
    [p##FFN_OPERAND] = {"ragged_dot_ffn_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_FFN}

#define SPW_MASKED(phase, step, operand) SPW_BORN(phase, step, operand), SPW_DIES(phase, step, operand)

#define SPW_RAGGED_DOT_FORWARD(p) \
    SPW_BORN(FORWARD, "ragged_dot w0", p##W0), SPW_MASKED(FORWARD, "ragged_dot w0", p##HIDDEN_OPERAND), \
        SPW_BORN(FORWARD, "ragged_dot w1", p##W1), SPW_MASKED(FORWARD, "ragged_dot w1", p##HIDDEN_OPERAND), \
        SPW_DIES(FORWARD, "ragged_dot w1", p##X), SPW_BORN(FORWARD, "swiglu", p##ACT), \
        SPW_DIES(FORWARD, "swiglu", p##W0), SPW_DIES(FORWARD, "swiglu", p##W1), \
        SPW_BORN(FORWARD, "ragged_dot wo", p##Y), SPW_MASKED(FORWARD, "ragged_dot wo", p##FFN_OPERAND), \
        SPW_DIES(FORWARD, "ragged_dot wo", p##ACT)

#define SPW_RAGGED_DOT_RECOMPUTE(p) \
    SPW_BORN(RECOMPUTE, "ragged_dot w0", p##W0), SPW_MASKED(RECOMPUTE, "ragged_dot w0", p##HIDDEN_OPERAND), \
        SPW_BORN(RECOMPUTE, "ragged_dot w1", p##W1), \
        SPW_MASKED(RECOMPUTE, "ragged_dot w1", p##HIDDEN_OPERAND), SPW_BORN(RECOMPUTE, "swiglu", p##ACT), \
        SPW_BORN(RECOMPUTE, "ragged_dot wo", p##Y), SPW_MASKED(RECOMPUTE, "ragged_dot wo", p##FFN_OPERAND)

/* Of a product's two operands one serves the rows' gradient and the other the weights'. */
#define SPW_RAGGED_DOT_GRADIENT(p) \
    SPW_BORN(BACKWARD, "gradients of wo", p##HIDDEN_OPERAND), \
        SPW_BORN(BACKWARD, "gradients of wo", p##FFN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of wo", p##ACT), SPW_BORN(BACKWARD, "gradients of wo", p##DW0), \
        SPW_DIES(BACKWARD, "gradients of wo", p##FFN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of wo", p##HIDDEN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of wo", p##DY), SPW_DIES(BACKWARD, "swiglu gradient", p##W1), \
        SPW_BORN(BACKWARD, "swiglu gradient", p##DW1), SPW_DIES(BACKWARD, "swiglu gradient", p##W0), \
        SPW_BORN(BACKWARD, "gradients of w0", p##DX0), \
        SPW_BORN(BACKWARD, "gradients of w0", p##FFN_OPERAND), \
        SPW_BORN(BACKWARD, "gradients of w0", p##HIDDEN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w0", p##HIDDEN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w0", p##FFN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w0", p##DW0), SPW_BORN(BACKWARD, "gradients of w1", p##DX1), \
        SPW_BORN(BACKWARD, "gradients of w1", p##FFN_OPERAND), \
        SPW_BORN(BACKWARD, "gradients of w1", p##HIDDEN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w1", p##HIDDEN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w1", p##FFN_OPERAND), \
        SPW_DIES(BACKWARD, "gradients of w1", p##DW1), SPW_DIES(BACKWARD, "gradients of w1", p##X), \
        SPW_DIES(BACKWARD, "sum of dx", p##DX1)

#endif
