/* MaxText sparse_matmul with jax.lax.ragged_dot (docs/schemes.md, section 2.5). */
#include "sim/schemes/ragged_exchange.h"
#include "sim/schemes/xla_layers.h"

static const spw_scheme_option options[] = {SPW_RAGGED_OPTION_ROWS, {.name = NULL}};

static void layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ragged_layer(b, &spw_experts_ragged_dot);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_GMM, SPW_COMPILED_EXCHANGE_RAGGED,
                                             .masked_operands = true, .either_way = 1};
    (void)scheme;
    return &layer;
}

const spw_scheme_type spw_scheme_ragged = {
    .name = "ragged",
    .summary =
        "MaxText sparse_matmul, ragged_dot: as gmm, and a masked copy of the operand for every local expert",
    .shards_state = true,
    .section_source = "event list of the scheme (2.5)",
    .source =
        "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py sparse_matmul; XLA's lowering of ragged_dot",
    .options = options,
    .layer = layer,
    .buffer_rows = spw_ragged_buffer_rows,
    .buffer_formula = "buffer",
    .exchanges = spw_row_exchanges,
    .flow = spw_ragged_flow,
    .check = spw_ragged_check,
    .xla_layer = spw_xla_ragged,
    .compiled = compiled,
};
