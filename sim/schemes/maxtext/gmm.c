/* MaxText sparse_matmul with a grouped GEMM and ragged all-to-alls (docs/schemes.md, sections 2 and 3.2). */
#include "sim/machine/compiled_layer.h"
#include "sim/schemes/maxtext/ragged_exchange.h"
#include "sim/schemes/maxtext/xla_layers.h"

static const char *const exchanges[] = {"rccl", "oneshot", NULL};

static const spw_scheme_option options[] = {
    SPW_RAGGED_OPTION_ROWS,
    {"exchange", 0.0, 0.0, 0.0, false,
     "kernel of the ragged all-to-all: the library's, or XLA's one-shot kernel; same bytes, same buffers",
     exchanges},
    {.name = NULL},
};

static void gmm_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ragged_layer(b, &spw_experts_grouped);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer library = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED},
                                    oneshot = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED,
                                               .oneshot = true};
    return spw_scheme_option_is(scheme, "exchange", "oneshot") ? &oneshot : &library;
}

const spw_scheme_type spw_scheme_gmm = {
    .name = "gmm",
    .trainer = SPW_TRAINER_MAXTEXT,
    .about.summary =
        "MaxText sparse_matmul, grouped GEMM: every row is sent, into a buffer for the worst case",
    .memory.any_device = true,
    .about.section = "event list of the scheme (2)",
    .about.source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; AMD-AGI/Primus-Turbo grouped_gemm",
    .options = options,
    .routing.factor = "buffer_factor",
    .routing.worst_factor = spw_worst_rank_factor,
    .memory.layer = gmm_layer,
    .memory.buffer_rows = spw_ragged_buffer_rows,
    .memory.buffer_formula = "buffer",
    .traffic.exchanges = spw_row_exchanges,
    .routing.flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .compiled.mesh = true,
    .compiled.layer = spw_xla_gmm,
    .compiled.list = compiled,
};
