/* The operations of an expert layer as custom calls, a call an operation of kernels/experts/experts_call.h: XLA's buffers are
 * its arrays, place by place. All but those named here stand in its table; rows = tokens top_k, and every array that is
 * written is a result of XLA's, scratch among them.
 *   plan              expert                                       ->  row, assignment, offset, scratch
 *   forward           x, w, offset                                 ->  y
 *   input gradient    dy, w, offset                                ->  dx
 *   weight gradient   x, dy, offset, assignment                    ->  dw      attribute gathers: 0; 1: x is by token; 2: dy is
 *   up                x by token, w, offset, assignment, bias?     ->  h, act
 *   down gradient     dy by token, w, offset, assignment, h, weight  ->  d_h, act, row_sum
 *   combine           rows, row, weight?                           ->  y
 *   row sums          row_sum, row                                 ->  d_weight
 * Attributes: transposed of all with w or dw; activation, pairs, limit and alpha of up and down gradient. */
#ifndef SPW_KERNELS_JAX_JAX_EXPERTS_H
#define SPW_KERNELS_JAX_JAX_EXPERTS_H

#include "kernels/experts/experts_call.h"
#include "kernels/jax/jax_frame.h"

/* Shapes, types and attributes, checked; the call is for the CPU until its device and stream are set. */
SPW_MUST_CHECK spw_status spw_jax_read_experts(const XLA_FFI_CallFrame *frame,
                                               spw_experts_operation operation, spw_experts_call *out);

/* The handlers of a platform, by the names that spillway_jax.py looks for. work takes a spw_experts_operation. */
#define SPW_JAX_EXPERTS_HANDLER(platform, name, work, operation) \
    SPW_JAX_HANDLER(spw_jax_##platform##_experts_##name, "spillway.experts_" #name, work, operation)
#define SPW_JAX_EXPERTS_HANDLERS(platform, work) \
    SPW_JAX_EXPERTS_HANDLER(platform, plan, work, SPW_EXPERTS_PLAN) \
    SPW_JAX_EXPERTS_HANDLER(platform, forward, work, SPW_EXPERTS_FORWARD) \
    SPW_JAX_EXPERTS_HANDLER(platform, input_gradient, work, SPW_EXPERTS_INPUT_GRADIENT) \
    SPW_JAX_EXPERTS_HANDLER(platform, weight_gradient, work, SPW_EXPERTS_WEIGHT_GRADIENT) \
    SPW_JAX_EXPERTS_HANDLER(platform, up, work, SPW_EXPERTS_UP) \
    SPW_JAX_EXPERTS_HANDLER(platform, down_gradient, work, SPW_EXPERTS_DOWN_GRADIENT) \
    SPW_JAX_EXPERTS_HANDLER(platform, combine, work, SPW_EXPERTS_COMBINE) \
    SPW_JAX_EXPERTS_HANDLER(platform, row_sums, work, SPW_EXPERTS_ROW_SUMS)

#endif
