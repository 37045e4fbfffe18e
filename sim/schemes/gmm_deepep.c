/* Grouped GEMM behind DeepEP in JAX (Primus-Turbo, ROCm MaxText; docs/schemes.md, sections 3.1 and 3.3). A
 * token travels once a rank; it is received into R T rows and fanned out to W rows for the experts. */
#include "sim/schemes/deepep_buffers.h"
#include "sim/schemes/expert_events.h"

static const char *const fan_ins[] = {"gather", "scatter1", "scatter2", NULL};

static const spw_scheme_option options[] = {
    {"fan_in", 0.0, 0.0, 0.0, false,
     "how the rows of a token are summed on the receiver: by a gather, the later version, or by one or two "
     "scatters; same bytes",
     fan_ins},
    {.name = NULL},
};

enum {
    RECEIVED,
    X,
    W0,
    W1,
    ACT,
    Y,
    Y_UNSORTED,
    OUT,
    OUT_GRADIENT,
    DY_UNSORTED,
    DY,
    DW0,
    DW1,
    DX0,
    DX1,
    DX_UNSORTED,
    DX_RECEIVED
};

static const spw_tensor tensors[] = {
    SPW_EXPERT_TENSORS(),
    [RECEIVED] = {"received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [Y_UNSORTED] = {"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [OUT] = {"fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [OUT_GRADIENT] = {"d_fanned_in", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
    [DY_UNSORTED] = {"dy_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [DX_UNSORTED] = {"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [DX_RECEIVED] = {"dx_received", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN},
};

static const spw_event events[] = {
    SPW_BORN(FORWARD, "dispatch", RECEIVED),
    SPW_BORN(FORWARD, "fan-out", X),
    SPW_DIES(FORWARD, "fan-out", RECEIVED),
    SPW_EXPERTS_FORWARD(),
    SPW_BORN(FORWARD, "unsort", Y_UNSORTED),
    SPW_DIES(FORWARD, "unsort", Y),
    SPW_BORN(FORWARD, "fan-in", OUT),
    SPW_DIES(FORWARD, "fan-in", Y_UNSORTED),
    SPW_DIES(FORWARD, "combine", OUT),

    /* The received rows stay to the end of the layer; the combine is not repeated, nothing needs its result. */
    SPW_BORN(RECOMPUTE, "dispatch", RECEIVED),
    SPW_BORN(RECOMPUTE, "fan-out", X),
    SPW_EXPERTS_RECOMPUTE(),
    SPW_BORN(RECOMPUTE, "unsort", Y_UNSORTED),
    SPW_DIES(RECOMPUTE, "unsort", Y),

    SPW_BORN(BACKWARD, "combine gradient", OUT_GRADIENT),
    SPW_BORN(BACKWARD, "fan-in gradient", DY_UNSORTED),
    SPW_DIES(BACKWARD, "fan-in gradient", Y_UNSORTED),
    SPW_DIES(BACKWARD, "fan-in gradient", OUT_GRADIENT),
    SPW_BORN(BACKWARD, "unsort gradient", DY),
    SPW_DIES(BACKWARD, "unsort gradient", DY_UNSORTED),
    SPW_EXPERTS_GRADIENT(),
    SPW_BORN(BACKWARD, "fan-out gradient", DX_UNSORTED),
    SPW_DIES(BACKWARD, "fan-out gradient", DX0),
    SPW_BORN(BACKWARD, "fan-out gradient", DX_RECEIVED),
    SPW_DIES(BACKWARD, "fan-out gradient", DX_UNSORTED),
    SPW_DIES(BACKWARD, "dispatch gradient", DX_RECEIVED),
    SPW_DIES(BACKWARD, "dispatch gradient", RECEIVED),
};

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return s->worst_rows;
}

/* Rows carry 4-byte expert indices and weights, and the index of the source token (section 4.2). */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme;
    const uint64_t row = s->hidden * s->element_bytes, choice = 4 * s->top_k, source = 4;
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, row + 2 * choice + source},
        {"combine", SPW_PHASE_FORWARD, true, row + source},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, row + 2 * choice + source},
        {"combine gradient", SPW_PHASE_BACKWARD, false, row + source},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true, row + source + choice},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    (void)scheme;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t rank = group * s->ranks + r;
        for (size_t d = 0; d < s->ranks; d++) out->wire[r * s->ranks + d] = c->distinct[rank * s->ranks + d];
        for (size_t x = 0; x < s->experts; x++) {
            const uint32_t n = c->routed[rank * s->experts + x];
            out->limit[r * s->experts + x] = n;
            out->rows[x / s->experts_per_rank] += n;
        }
    }
}

/* ROCm MaxText on several hosts uses 32 multiprocessors (section 3.1). */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 32);
    return b.nvl_bytes + b.rdma_bytes;
}

/* x, y unsorted, dy, and one copy of a sort; two of the SwiGLU products; received and d_fanned_in. */
static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer list = {SPW_PACKING_DEEPEP, SPW_COMPILED_EXCHANGE_LIBRARY,
                                            .hidden_live = 3,   .hidden_copies = 1,
                                            .ffn = 2,           .gathered = 2};
    (void)scheme;
    return &list;
}

const spw_scheme_type spw_scheme_gmm_deepep = {
    .name = "gmm-deepep",
    .summary = "Grouped GEMM behind DeepEP in JAX: a token is sent once a rank, received for the worst case",
    .section_source = "event list of the scheme (3)",
    .source = "AMD-AGI/Primus-Turbo primus_turbo/jax/lax/moe; ROCm/maxtext src/MaxText/layers/moe.py",
    .options = options,
    .layer = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)},
    .by_node = true,
    .once_a_rank = true,
    .buffer_rows = buffer_rows,
    .buffer_formula = "W = R T min(e, K)",
    .exchanges = exchanges,
    .flow = flow,
    .communication_bytes = communication_bytes,
    .compiled = compiled,
};
