/* MaxText sparse_matmul with ragged all-to-alls (docs/schemes.md, section 2): by a grouped GEMM (3.2), or by jax.lax.ragged_dot (2.5). */
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

static void ragged_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ragged_layer(b, &spw_experts_ragged_dot);
}

static const spw_compiled_layer *compiled_ragged(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED,
                                             .masked_operands = true};
    (void)scheme;
    return &layer;
}

/* What both send, and hold of it. */
#define ROWS_SENT \
    .trainer = SPW_TRAINER_MAXTEXT, .routing.factor = "buffer_factor", \
    .routing.worst_factor = spw_worst_rank_factor, .routing.limits = true, .routing.flow = spw_ragged_flow, \
    .memory.buffer_rows = spw_ragged_buffer_rows, .memory.buffer_formula = "buffer", \
    .traffic.exchanges = spw_row_exchanges, .check = spw_ragged_check, .compiled.mesh = true

const spw_scheme_type spw_scheme_gmm = {
    .name = "gmm",
    ROWS_SENT,
    .about.summary =
        "MaxText sparse_matmul, grouped GEMM: every row is sent, into a buffer for the worst case",
    .memory.any_device = true,
    .about.section = "event list of the scheme (2)",
    .about.source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; AMD-AGI/Primus-Turbo grouped_gemm",
    .options = options,
    .memory.layer = gmm_layer,
    .compiled.layer = spw_xla_gmm,
    .compiled.list = compiled,
};

static const spw_scheme_option ragged_options[] = {SPW_RAGGED_OPTION_ROWS, {.name = NULL}};

const spw_scheme_type spw_scheme_ragged = {
    .name = "ragged",
    ROWS_SENT,
    .about.summary =
        "MaxText sparse_matmul, ragged_dot: as gmm, and a masked copy of the operand for every local expert",
    .about.section = "event list of the scheme (2.5)",
    .about.source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; XLA's lowering of ragged_dot",
    .options = ragged_options,
    .memory.layer = ragged_layer,
    .compiled.layer = spw_xla_ragged,
    .compiled.list = compiled_ragged,
};
