/* DeepEP in JAX (docs/schemes.md, sections 3.1, 3.3 and 3.4): the exchange of Primus-Turbo and ROCm MaxText, and the products of gmm or
 * those of ragged. */
#include "sim/machine/compiled_layer.h"
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/maxtext/xla_layers.h"

static const char *const fan_ins[] = {"gather", "scatter1", "scatter2", NULL};

static const spw_scheme_option options[] = {
    {"fan_in", 0.0, 0.0, 0.0, false,
     "how the rows of a token are summed on the receiver: by a gather, the later version, or by one or two "
     "scatters; same bytes",
     fan_ins},
    {.name = NULL},
};

static void gmm_deepep_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_deepep_jax_layer(b, &spw_experts_grouped);
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    enum { FAN_INS = sizeof fan_ins / sizeof *fan_ins - 1 };
    static const spw_compiled_layer layers[FAN_INS] = {
        {SPW_PROGRAM_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY},
        {SPW_PROGRAM_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY, .scatters = 1},
        {SPW_PROGRAM_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY, .scatters = 2},
    };
    return &layers[(size_t)spw_scheme_option_value(scheme, "fan_in")];
}

static void ragged_deepep_layer(const spw_scheme *scheme, const spw_layer_shape *shape,
                                spw_layer_builder *b) {
    (void)scheme, (void)shape;
    spw_deepep_jax_layer(b, &spw_experts_ragged_dot);
}

static const spw_compiled_layer *compiled_ragged(const spw_scheme *scheme) {
    static const spw_compiled_layer layer = {SPW_PROGRAM_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY,
                                             .masked_operands = true};
    (void)scheme;
    return &layer;
}

/* What both send, and hold of it. */
#define TOKENS_SENT \
    .trainer = SPW_TRAINER_MAXTEXT, .traffic.by_node = true, .traffic.once_a_rank = true, \
    .traffic.exchanges = spw_deepep_jax_exchanges, .memory.buffer_rows = spw_deepep_jax_buffer_rows, \
    .memory.buffer_formula = "W = R T min(e, K)", .routing.flow = spw_deepep_flow, \
    .routing.lines = spw_no_lines, .memory.communication_bytes = spw_deepep_jax_communication_bytes

const spw_scheme_type spw_scheme_gmm_deepep = {
    .name = "gmm-deepep",
    TOKENS_SENT,
    .about.summary =
        "Grouped GEMM behind DeepEP in JAX: a token is sent once a rank, received for the worst case",
    .about.section = "event list of the scheme (3)",
    .about.source = "AMD-AGI/Primus-Turbo primus_turbo/jax/lax/moe; ROCm/maxtext src/MaxText/layers/moe.py",
    .options = options,
    .memory.layer = gmm_deepep_layer,
    .compiled.layer = spw_xla_deepep,
    .compiled.list = compiled,
};

static const spw_scheme_option no_options[] = {{.name = NULL}};

const spw_scheme_type spw_scheme_ragged_deepep = {
    .name = "ragged-deepep",
    TOKENS_SENT,
    .about.summary =
        "MaxText sparse_matmul, ragged_dot behind DeepEP: as gmm-deepep, and ragged's masked operands",
    .about.section = "event list of the scheme (3.4)",
    .about.source = "ROCm/maxtext src/MaxText/layers/moe.py; XLA's lowering of ragged_dot",
    .options = no_options,
    .memory.layer = ragged_deepep_layer,
    .compiled.layer = spw_xla_ragged_deepep,
    .compiled.list = compiled_ragged,
};
