/* MaxText sparse_matmul with a grouped GEMM and ragged all-to-alls (docs/schemes.md, sections 2 and 3.2). */
#include "sim/schemes/ragged_exchange.h"

static const spw_tensor tensors[] = {SPW_RAGGED_TENSOR_ROWS};

static const spw_event events[] = {
    SPW_RAGGED_DISPATCH(FORWARD),   SPW_EXPERTS_FORWARD(SPW_RAGGED_),
    SPW_RAGGED_COMBINE(FORWARD),    SPW_DIES(FORWARD, "sum over choices", SPW_RAGGED_RETURNED_UNSORTED),

    SPW_RAGGED_DISPATCH(RECOMPUTE), SPW_EXPERTS_RECOMPUTE(SPW_RAGGED_),
    SPW_RAGGED_COMBINE(RECOMPUTE),

    SPW_RAGGED_COMBINE_GRADIENT,    SPW_EXPERTS_GRADIENT(SPW_RAGGED_),
    SPW_RAGGED_DISPATCH_GRADIENT,
};

const spw_scheme_type spw_scheme_gmm = {
    .name = "gmm",
    .summary = "MaxText sparse_matmul, grouped GEMM: every row is sent, into a buffer for the worst case",
    .section_source = "event list of the scheme (2)",
    .source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; AMD-AGI/Primus-Turbo grouped_gemm",
    .options = spw_ragged_options,
    .tensors = tensors,
    .events = events,
    .tensor_count = SPW_COUNT_OF(tensors),
    .event_count = SPW_COUNT_OF(events),
    .buffer_rows = spw_ragged_buffer_rows,
    .buffer_formula = "buffer",
    .exchanges = spw_row_exchanges,
    .flow = spw_ragged_flow,
    .check = spw_ragged_check,
};
