/* MaxText sparse_matmul with a grouped GEMM and ragged all-to-alls (docs/schemes.md, sections 2 and 3.2). */
#include "sim/schemes/ragged_exchange.h"

static const char *const exchanges[] = {"rccl", "oneshot", NULL};

static const spw_scheme_option options[] = {
    SPW_RAGGED_OPTION_ROWS,
    {"exchange", 0.0, 0.0, 0.0, false,
     "kernel of the ragged all-to-all: the library's, or XLA's one-shot kernel; same bytes, same buffers",
     exchanges},
    {.name = NULL},
};

static const spw_tensor tensors[] = {SPW_RAGGED_TENSOR_ROWS};

static const spw_event events[] = {
    SPW_RAGGED_DISPATCH(FORWARD),
    SPW_BORN(FORWARD, "gemm w0", SPW_RAGGED_W0),
    SPW_BORN(FORWARD, "gemm w1", SPW_RAGGED_W1),
    SPW_DIES(FORWARD, "gemm w1", SPW_RAGGED_X),
    SPW_BORN(FORWARD, "swiglu", SPW_RAGGED_ACT),
    SPW_DIES(FORWARD, "swiglu", SPW_RAGGED_W0),
    SPW_DIES(FORWARD, "swiglu", SPW_RAGGED_W1),
    SPW_BORN(FORWARD, "gemm wo", SPW_RAGGED_Y),
    SPW_DIES(FORWARD, "gemm wo", SPW_RAGGED_ACT),
    SPW_RAGGED_COMBINE(FORWARD),
    SPW_DIES(FORWARD, "sum over choices", SPW_RAGGED_RETURNED_UNSORTED),

    SPW_RAGGED_DISPATCH(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "gemm w0", SPW_RAGGED_W0),
    SPW_BORN(RECOMPUTE, "gemm w1", SPW_RAGGED_W1),
    SPW_BORN(RECOMPUTE, "swiglu", SPW_RAGGED_ACT),
    SPW_BORN(RECOMPUTE, "gemm wo", SPW_RAGGED_Y),
    SPW_RAGGED_COMBINE(RECOMPUTE),

    SPW_RAGGED_COMBINE_GRADIENT,
    SPW_DIES(BACKWARD, "wo weight gradient", SPW_RAGGED_ACT), /* d_act takes its place, and becomes d_w0 */
    SPW_BORN(BACKWARD, "gemm wo input gradient", SPW_RAGGED_DW0),
    SPW_DIES(BACKWARD, "gemm wo input gradient", SPW_RAGGED_DY),
    SPW_DIES(BACKWARD, "swiglu gradient", SPW_RAGGED_W1), /* in place: d_w1 where w1_out was */
    SPW_BORN(BACKWARD, "swiglu gradient", SPW_RAGGED_DW1),
    SPW_DIES(BACKWARD, "swiglu gradient", SPW_RAGGED_W0),
    SPW_BORN(BACKWARD, "gemm w0 input gradient", SPW_RAGGED_DX0),
    SPW_BORN(BACKWARD, "gemm w1 input gradient", SPW_RAGGED_DX1),
    SPW_DIES(BACKWARD, "w0 w1 weight gradients", SPW_RAGGED_X),
    SPW_DIES(BACKWARD, "w0 w1 weight gradients", SPW_RAGGED_DW0),
    SPW_DIES(BACKWARD, "w0 w1 weight gradients", SPW_RAGGED_DW1),
    SPW_DIES(BACKWARD, "sum of dx", SPW_RAGGED_DX1),
    SPW_RAGGED_DISPATCH_GRADIENT,
};

/* x, dy as received and as sorted, and a copy of it in the layout [rows, 1, H] that the exchange wants; the
 * products of SwiGLU are recomputed so late that two of the three live; d_returned and its sorted copy. */
static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer list = {SPW_PACKING_GMM, .hidden_live = 3, .hidden_copies = 1, .ffn = 2,
                                            .assignments = 2};
    (void)scheme;
    return &list;
}

const spw_scheme_type spw_scheme_gmm = {
    .name = "gmm",
    .summary = "MaxText sparse_matmul, grouped GEMM: every row is sent, into a buffer for the worst case",
    .section_source = "event list of the scheme (2)",
    .source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; AMD-AGI/Primus-Turbo grouped_gemm",
    .options = options,
    .tensors = tensors,
    .events = events,
    .tensor_count = SPW_COUNT_OF(tensors),
    .event_count = SPW_COUNT_OF(events),
    .buffer_rows = spw_ragged_buffer_rows,
    .buffer_formula = "buffer",
    .exchanges = spw_ragged_exchanges,
    .flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .compiled = compiled,
};
