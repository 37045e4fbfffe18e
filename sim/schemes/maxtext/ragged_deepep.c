/* MaxText sparse_matmul with jax.lax.ragged_dot behind DeepEP (docs/schemes.md, section 3.4): the exchange of gmm-deepep, the
 * products of ragged. */
#include "sim/machine/compiled_layer.h"
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/maxtext/xla_layers.h"

static const spw_scheme_option options[] = {{.name = NULL}};

static void ragged_deepep_layer(const spw_scheme *scheme, const spw_layer_shape *shape,
                                spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_deepep_jax_layer(b, &spw_experts_ragged_dot);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY,
                                             .masked_operands = true};
    (void)scheme;
    return &layer;
}

const spw_scheme_type spw_scheme_ragged_deepep = {
    .name = "ragged-deepep",
    .trainer = SPW_TRAINER_MAXTEXT,
    .about.summary =
        "MaxText sparse_matmul, ragged_dot behind DeepEP: as gmm-deepep, and ragged's masked operands",
    .about.section = "event list of the scheme (3.4)",
    .about.source = "ROCm/maxtext src/MaxText/layers/moe.py; XLA's lowering of ragged_dot",
    .options = options,
    .memory.layer = ragged_deepep_layer,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .memory.buffer_rows = spw_deepep_jax_buffer_rows,
    .memory.buffer_formula = "W = R T min(e, K)",
    .traffic.exchanges = spw_deepep_jax_exchanges,
    .routing.flow = spw_deepep_flow,
    .memory.communication_bytes = spw_deepep_jax_communication_bytes,
    .compiled.layer = spw_xla_ragged_deepep,
    .compiled.list = compiled,
};
