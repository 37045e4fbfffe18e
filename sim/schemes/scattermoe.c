/* ScatterMoE on one rank (docs/schemes.md, section 6.3): the kernels gather and scatter themselves, so no row is copied
 * for the first product; the gradients reuse the forward pass's buffers. */
#include "sim/schemes/list.h"

static const char *const activations[] = {"eager", "compiled", NULL};

static const spw_scheme_option options[] = {
    {"activation", 0.0, 0.0, 0.0, false,
     "the gated activation as autograd sees it in eager mode, or compiled into one kernel that saves its "
     "input "
     "only",
     activations},
    {.name = NULL},
};

enum { INPUT, GATES, SILU, ACT, EXPANDED, DACT, DSILU, DW1, DW0, DGATES, GROUPED_X };

static const spw_tensor tensors[] = {
    [INPUT] = {"input", SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN, .times = 1},
    [GATES] = {"w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2},
    [SILU] = {"silu", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [ACT] = {"act", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [EXPANDED] = {"y_expanded", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN, .times = 1},
    [DACT] = {"d_act", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [DSILU] = {"d_silu", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [DW1] = {"d_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [DW0] = {"d_w0_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 1},
    [DGATES] = {"d_w0_w1_out", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2},
    [GROUPED_X] = {"grouped_x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN, .times = 1},
};

/* GLUMLP.forward names its gates and its activation to the end. */
#define UP(phase) SPW_BORN(phase, "input", INPUT), SPW_BORN(phase, "up projection", GATES)
#define DOWN \
    SPW_BORN(FORWARD, "down projection", EXPANDED), SPW_DIES(FORWARD, "down projection", EXPANDED), \
        SPW_DIES(FORWARD, "return", GATES), SPW_DIES(FORWARD, "return", ACT), \
        SPW_DIES(FORWARD, "return", INPUT)
/* dy of every row is written over y_expanded; dx of every row over grouped_x. */
#define DOWN_GRADIENT \
    SPW_BORN(BACKWARD, "down projection gradient", DACT), \
        SPW_DIES(BACKWARD, "down projection gradient", ACT), \
        SPW_DIES(BACKWARD, "down projection gradient", EXPANDED)
#define UP_GRADIENT \
    SPW_BORN(BACKWARD, "up projection gradient", GROUPED_X), \
        SPW_DIES(BACKWARD, "up projection gradient", GROUPED_X), \
        SPW_DIES(BACKWARD, "up projection gradient", DGATES), \
        SPW_DIES(BACKWARD, "up projection gradient", INPUT)

static const spw_event eager_events[] = {
    UP(FORWARD),
    SPW_BORN(FORWARD, "activation", SILU),
    SPW_BORN(FORWARD, "activation", ACT),
    SPW_DIES(FORWARD, "activation", SILU),
    DOWN,

    UP(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "activation", SILU),
    SPW_BORN(RECOMPUTE, "activation", ACT),
    SPW_BORN(RECOMPUTE, "down projection", EXPANDED),

    DOWN_GRADIENT,
    SPW_BORN(BACKWARD, "product gradient", DSILU),
    SPW_BORN(BACKWARD, "product gradient", DW1),
    SPW_DIES(BACKWARD, "product gradient", SILU),
    SPW_DIES(BACKWARD, "product gradient", DACT),
    SPW_BORN(BACKWARD, "silu gradient", DW0),
    SPW_DIES(BACKWARD, "silu gradient", GATES),
    SPW_DIES(BACKWARD, "silu gradient", DSILU),
    SPW_BORN(BACKWARD, "chunk gradient", DGATES),
    SPW_DIES(BACKWARD, "chunk gradient", DW0),
    SPW_DIES(BACKWARD, "chunk gradient", DW1),
    UP_GRADIENT,
};

static const spw_event compiled_events[] = {
    UP(FORWARD),
    SPW_BORN(FORWARD, "activation", ACT),
    DOWN,

    UP(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "activation", ACT),
    SPW_BORN(RECOMPUTE, "down projection", EXPANDED),

    DOWN_GRADIENT,
    SPW_BORN(BACKWARD, "activation gradient", DGATES),
    SPW_DIES(BACKWARD, "activation gradient", GATES),
    SPW_DIES(BACKWARD, "activation gradient", DACT),
    UP_GRADIENT,
};

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const spw_layer_list eager = {tensors, eager_events, SPW_COUNT_OF(tensors),
                                         SPW_COUNT_OF(eager_events)};
    static const spw_layer_list compiled = {tensors, compiled_events, SPW_COUNT_OF(tensors),
                                            SPW_COUNT_OF(compiled_events)};
    (void)s;
    return spw_scheme_option_is(scheme, "activation", "compiled") ? &compiled : &eager;
}

static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    (void)scheme;
    out->wire[0] = out->rows[0] = c->assignments[group];
    out->dropped[0] = 0;
    for (size_t x = 0; x < s->experts; x++) out->limit[x] = c->routed[group * s->experts + x];
}

const spw_scheme_type spw_scheme_scattermoe = {
    .name = "scattermoe",
    .summary = "ScatterMoE on one rank: products that gather and scatter themselves",
    .section_source = "event list of the scheme (6.3)",
    .source = "shawntan/scattermoe scattermoe/{parallel_experts,mlp}.py",
    .options = options,
    .list = {tensors, eager_events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(eager_events)},
    .layer_of = layer_of,
    .exchanges = spw_no_exchanges,
    .flow = flow,
    .check = spw_check_one_rank,
};
