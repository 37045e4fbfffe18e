/* MaxText sparse_matmul with jax.lax.ragged_dot (docs/schemes.md, section 2.5). */
#include "sim/machine/compiled_layer.h"
#include "sim/schemes/maxtext/ragged_exchange.h"
#include "sim/schemes/maxtext/xla_layers.h"

static const spw_scheme_option options[] = {SPW_RAGGED_OPTION_ROWS, {.name = NULL}};

static void ragged_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ragged_layer(b, &spw_experts_ragged_dot);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED,
                                             .masked_operands = true};
    (void)scheme;
    return &layer;
}

const spw_scheme_type spw_scheme_ragged = {
    .name = "ragged",
    .trainer = SPW_TRAINER_MAXTEXT,
    .about.summary =
        "MaxText sparse_matmul, ragged_dot: as gmm, and a masked copy of the operand for every local expert",
    .about.section = "event list of the scheme (2.5)",
    .about.source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; XLA's lowering of ragged_dot",
    .options = options,
    .routing.factor = "buffer_factor",
    .routing.worst_factor = spw_worst_rank_factor,
    .memory.layer = ragged_layer,
    .memory.buffer_rows = spw_ragged_buffer_rows,
    .memory.buffer_formula = "buffer",
    .traffic.exchanges = spw_row_exchanges,
    .routing.flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .compiled.mesh = true,
    .compiled.layer = spw_xla_ragged,
    .compiled.list = compiled,
};
