/* MaxText sparse_matmul with jax.lax.ragged_dot (docs/schemes.md, section 2.5): XLA without a grouped library
 * lowers it to a dense product over all local experts, whose masked operand [e, rows, contracted] is a tensor
 * of its own. One operand forward; in the backward pass the two gradients of a product hold one each
 * (measured on one H200: 28.03 and 44.0 GiB for [65536, 7168] x [32, 7168, 4096], jax 0.11.2). */
#include "sim/schemes/ragged_exchange.h"

static const spw_scheme_option options[] = {SPW_RAGGED_OPTION_ROWS, {.name = NULL}};

enum { HIDDEN_OPERAND = SPW_RAGGED_TENSORS, FFN_OPERAND };

static const spw_tensor tensors[] = {
    SPW_RAGGED_TENSOR_ROWS,
    [HIDDEN_OPERAND] = {"ragged_dot_hidden_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_HIDDEN},
    [FFN_OPERAND] = {"ragged_dot_ffn_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_FFN},
};

#define MASKED(phase, step, operand) SPW_BORN(phase, step, operand), SPW_DIES(phase, step, operand)

static const spw_event events[] = {
    SPW_RAGGED_DISPATCH(FORWARD),
    SPW_BORN(FORWARD, "ragged_dot w0", SPW_RAGGED_W0),
    MASKED(FORWARD, "ragged_dot w0", HIDDEN_OPERAND),
    SPW_BORN(FORWARD, "ragged_dot w1", SPW_RAGGED_W1),
    MASKED(FORWARD, "ragged_dot w1", HIDDEN_OPERAND),
    SPW_DIES(FORWARD, "ragged_dot w1", SPW_RAGGED_X),
    SPW_BORN(FORWARD, "swiglu", SPW_RAGGED_ACT),
    SPW_DIES(FORWARD, "swiglu", SPW_RAGGED_W0),
    SPW_DIES(FORWARD, "swiglu", SPW_RAGGED_W1),
    SPW_BORN(FORWARD, "ragged_dot wo", SPW_RAGGED_Y),
    MASKED(FORWARD, "ragged_dot wo", FFN_OPERAND),
    SPW_DIES(FORWARD, "ragged_dot wo", SPW_RAGGED_ACT),
    SPW_RAGGED_COMBINE(FORWARD),
    SPW_DIES(FORWARD, "sum over choices", SPW_RAGGED_RETURNED_UNSORTED),

    SPW_RAGGED_DISPATCH(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "ragged_dot w0", SPW_RAGGED_W0),
    MASKED(RECOMPUTE, "ragged_dot w0", HIDDEN_OPERAND),
    SPW_BORN(RECOMPUTE, "ragged_dot w1", SPW_RAGGED_W1),
    MASKED(RECOMPUTE, "ragged_dot w1", HIDDEN_OPERAND),
    SPW_BORN(RECOMPUTE, "swiglu", SPW_RAGGED_ACT),
    SPW_BORN(RECOMPUTE, "ragged_dot wo", SPW_RAGGED_Y),
    MASKED(RECOMPUTE, "ragged_dot wo", FFN_OPERAND),
    SPW_RAGGED_COMBINE(RECOMPUTE),

    SPW_RAGGED_COMBINE_GRADIENT,
    SPW_BORN(BACKWARD, "gradients of wo", HIDDEN_OPERAND), /* of dy, for d_act */
    SPW_BORN(BACKWARD, "gradients of wo", FFN_OPERAND),    /* of act, for the weights */
    SPW_DIES(BACKWARD, "gradients of wo", SPW_RAGGED_ACT),
    SPW_BORN(BACKWARD, "gradients of wo", SPW_RAGGED_DW0),
    SPW_DIES(BACKWARD, "gradients of wo", FFN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of wo", HIDDEN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of wo", SPW_RAGGED_DY),
    SPW_DIES(BACKWARD, "swiglu gradient", SPW_RAGGED_W1),
    SPW_BORN(BACKWARD, "swiglu gradient", SPW_RAGGED_DW1),
    SPW_DIES(BACKWARD, "swiglu gradient", SPW_RAGGED_W0),
    SPW_BORN(BACKWARD, "gradients of w0", SPW_RAGGED_DX0),
    SPW_BORN(BACKWARD, "gradients of w0", FFN_OPERAND),    /* of d_w0_out, for dx */
    SPW_BORN(BACKWARD, "gradients of w0", HIDDEN_OPERAND), /* of x, for the weights */
    SPW_DIES(BACKWARD, "gradients of w0", HIDDEN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of w0", FFN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of w0", SPW_RAGGED_DW0),
    SPW_BORN(BACKWARD, "gradients of w1", SPW_RAGGED_DX1),
    SPW_BORN(BACKWARD, "gradients of w1", FFN_OPERAND),
    SPW_BORN(BACKWARD, "gradients of w1", HIDDEN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of w1", HIDDEN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of w1", FFN_OPERAND),
    SPW_DIES(BACKWARD, "gradients of w1", SPW_RAGGED_DW1),
    SPW_DIES(BACKWARD, "gradients of w1", SPW_RAGGED_X),
    SPW_DIES(BACKWARD, "sum of dx", SPW_RAGGED_DX1),
    SPW_RAGGED_DISPATCH_GRADIENT,
};

/* As gmm, and the masked operands. */
static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer list = {
        SPW_PACKING_GMM,  SPW_COMPILED_EXCHANGE_RAGGED, .hidden_live = 3, .hidden_copies = 1, .ffn = 2,
        .assignments = 2, .masked_operands = true};
    (void)scheme;
    return &list;
}

const spw_scheme_type spw_scheme_ragged = {
    .name = "ragged",
    .summary =
        "MaxText sparse_matmul, ragged_dot: as gmm, and a masked copy of the operand for every local expert",
    .section_source = "event list of the scheme (2.5)",
    .source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; XLA's lowering of ragged_dot",
    .options = options,
    .layer = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)},
    .buffer_rows = spw_ragged_buffer_rows,
    .buffer_formula = "buffer",
    .exchanges = spw_row_exchanges,
    .flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .compiled = compiled,
};
