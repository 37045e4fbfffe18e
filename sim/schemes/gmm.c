/* MaxText sparse_matmul with a grouped GEMM and ragged all-to-alls (docs/schemes.md, sections 2 and 3.2). */
#include "sim/schemes/ragged_exchange.h"
#include "sim/schemes/xla_layers.h"

static const char *const exchanges[] = {"rccl", "oneshot", NULL};

static const spw_scheme_option options[] = {
    SPW_RAGGED_OPTION_ROWS,
    {"exchange", 0.0, 0.0, 0.0, false,
     "kernel of the ragged all-to-all: the library's, or XLA's one-shot kernel; same bytes, same buffers",
     exchanges},
    {.name = NULL},
};

static void layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ragged_layer(b, &spw_experts_grouped);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED, .either_way = 1};
    (void)scheme;
    return &layer;
}

const spw_scheme_type spw_scheme_gmm = {
    .name = "gmm",
    .summary = "MaxText sparse_matmul, grouped GEMM: every row is sent, into a buffer for the worst case",
    .shards_state = true,
    .section_source = "event list of the scheme (2)",
    .source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; AMD-AGI/Primus-Turbo grouped_gemm",
    .options = options,
    .layer = layer,
    .buffer_rows = spw_ragged_buffer_rows,
    .buffer_formula = "buffer",
    .exchanges = spw_row_exchanges,
    .flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .xla_layer = spw_xla_gmm,
    .compiled = compiled,
};
