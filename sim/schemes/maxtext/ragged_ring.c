/* MaxText's ring of experts with jax.lax.ragged_dot (docs/schemes.md, section 2.7): the exchange of ring, the products of
 * ragged. */
#include "sim/schemes/maxtext/ragged_exchange.h"
#include "sim/schemes/maxtext/ring.h"

static const spw_scheme_option options[] = {SPW_RING_OPTION_ROWS, {.name = NULL}};

static void ragged_ring_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_ring_layer(b, &spw_experts_ragged_dot);
}

const spw_scheme_type spw_scheme_ragged_ring = {
    .name = "ragged-ring",
    .trainer = SPW_TRAINER_MAXTEXT_LAYERS,
    .about.summary = "MaxText ring of experts, ragged_dot: as ring, and ragged's masked operands",
    .about.section = "event list of the scheme (2.7)",
    .about.source = "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py roe_ag_and_route, jax_ragged_dot_gmm",
    .options = options,
    .routing.factor = "buffer_factor",
    .routing.worst_factor = spw_worst_rank_factor,
    .routing.limits = true,
    .routing.flow = spw_ring_flow,
    .traffic.exchanges = spw_ring_exchanges,
    .memory.layer = ragged_ring_layer,
    .memory.buffer_rows = spw_ring_buffer_rows,
    .memory.buffer_formula = "rows",
    .check = spw_ragged_check,
    .compiled.mesh = true,
};
