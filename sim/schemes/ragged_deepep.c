/* MaxText sparse_matmul with jax.lax.ragged_dot behind DeepEP (docs/schemes.md, section 3.4): the exchange of gmm-deepep, the
 * products of ragged. */
#include "sim/schemes/deepep_jax.h"
#include "sim/schemes/ragged_dot_events.h"

static const spw_scheme_option options[] = {{.name = NULL}};

enum { SPW_DEEPEP_JAX_HIDDEN_OPERAND = SPW_DEEPEP_JAX_TENSORS, SPW_DEEPEP_JAX_FFN_OPERAND };

static const spw_tensor tensors[] = {SPW_DEEPEP_JAX_TENSOR_ROWS, SPW_RAGGED_DOT_TENSORS(SPW_DEEPEP_JAX_)};

static const spw_event events[] = {
    SPW_DEEPEP_JAX_DISPATCH_FORWARD,   SPW_RAGGED_DOT_FORWARD(SPW_DEEPEP_JAX_),
    SPW_DEEPEP_JAX_COMBINE_FORWARD,

    SPW_DEEPEP_JAX_DISPATCH_RECOMPUTE, SPW_RAGGED_DOT_RECOMPUTE(SPW_DEEPEP_JAX_),
    SPW_DEEPEP_JAX_UNSORT_RECOMPUTE,

    SPW_DEEPEP_JAX_COMBINE_GRADIENT,   SPW_RAGGED_DOT_GRADIENT(SPW_DEEPEP_JAX_),
    SPW_DEEPEP_JAX_DISPATCH_GRADIENT,
};

/* No compiled list: with gmm-deepep's and ragged's masked operands it says 436 GiB for the one published figure, 375
 * (docs/validation_memory.md). */
const spw_scheme_type spw_scheme_ragged_deepep = {
    .name = "ragged-deepep",
    .summary = "MaxText sparse_matmul, ragged_dot behind DeepEP: as gmm-deepep, and ragged's masked operands",
    .shards_state = true,
    .section_source = "event list of the scheme (3.4)",
    .source = "ROCm/maxtext src/MaxText/layers/moe.py; XLA's lowering of ragged_dot",
    .options = options,
    .list = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)},
    .by_node = true,
    .once_a_rank = true,
    .buffer_rows = spw_deepep_jax_buffer_rows,
    .buffer_formula = "W = R T min(e, K)",
    .exchanges = spw_deepep_jax_exchanges,
    .flow = spw_deepep_flow,
    .communication_bytes = spw_deepep_jax_communication_bytes,
};
