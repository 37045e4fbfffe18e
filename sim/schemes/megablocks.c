/* MegaBlocks dropless MoE with expert parallelism (docs/schemes.md, section 6.1). What a frame of Python still names is
 * held until that function returns. */
#include "sim/schemes/glu_events.h"

static const char *const implementations[] = {"grouped", "sparse", "memory_optimized", NULL};

static const spw_scheme_option options[] = {
    {"impl", 0.0, 0.0, 0.0, false,
     "grouped GEMMs, block-sparse products with every expert padded to 128 rows, or grouped GEMMs that "
     "recompute the activation",
     implementations},
    {.name = NULL},
};

enum { BLOCK_ROWS = 128 };

enum {
    SENT,
    RECEIVED,
    X,
    W0,
    W1,
    SILU,
    ACT,
    Y,
    Y_RECEIVED,
    RETURNED,
    EXPANDED,
    D_RETURNED,
    DY_RECEIVED,
    DY,
    DACT,
    DSILU,
    DW0,
    DW1,
    DX0,
    DX1,
    DX_RECEIVED,
    D_SENT,
    DX_EXPANDED
};

static const spw_tensor tensors[] = {
    SPW_GLU_TENSORS(SPW_ROWS_HELD),
    [SENT] = {"sent", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, .times = 1},
    [RECEIVED] = {"received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .times = 1},
    [Y_RECEIVED] = {"y_received_order", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .times = 1},
    [RETURNED] = {"returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, .times = 1},
    [EXPANDED] = {"expanded", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN, .times = 1},
    [D_RETURNED] = {"d_returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, .times = 1},
    [DY_RECEIVED] = {"dy_received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .times = 1},
    [DX_RECEIVED] = {"dx_received_order", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN, .times = 1},
    [D_SENT] = {"dx_returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, .times = 1},
    [DX_EXPANDED] = {"dx_expanded", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN, .times = 1},
};

#define TO_EXPERTS(phase) \
    SPW_BORN(phase, "gather", SENT), SPW_BORN(phase, "all-to-all", RECEIVED), \
        SPW_BORN(phase, "local gather", X)

/* parallel_forward_once names the rows that it sent (`output`) and the experts' rows (`parallel_x`) to its end. */
#define FROM_EXPERTS(phase) \
    SPW_BORN(phase, "local scatter", Y_RECEIVED), SPW_DIES(phase, "local scatter", Y), \
        SPW_DIES(phase, "local scatter", RECEIVED), SPW_BORN(phase, "all-to-all back", RETURNED), \
        SPW_BORN(phase, "scatter", EXPANDED), SPW_DIES(phase, "scatter", EXPANDED), \
        SPW_DIES(phase, "return", SENT), SPW_DIES(phase, "return", Y_RECEIVED)

#define FORWARD_TO_GATES TO_EXPERTS(FORWARD), SPW_GLU_GATES(FORWARD), SPW_DIES(FORWARD, "product", SILU)

/* Neither the local scatter (without weights) nor an exchange saves anything; the last scatter saves what it scatters. */
#define GRADIENT_TO_EXPERTS \
    SPW_BORN(BACKWARD, "scatter gradient", D_RETURNED), SPW_DIES(BACKWARD, "scatter gradient", RETURNED), \
        SPW_BORN(BACKWARD, "all-to-all back gradient", DY_RECEIVED), \
        SPW_DIES(BACKWARD, "all-to-all back gradient", D_RETURNED), \
        SPW_BORN(BACKWARD, "local scatter gradient", DY), \
        SPW_DIES(BACKWARD, "local scatter gradient", DY_RECEIVED)

#define GRADIENT_FROM_EXPERTS(dx) \
    SPW_BORN(BACKWARD, "local gather gradient", DX_RECEIVED), \
        SPW_DIES(BACKWARD, "local gather gradient", dx), SPW_BORN(BACKWARD, "all-to-all gradient", D_SENT), \
        SPW_DIES(BACKWARD, "all-to-all gradient", DX_RECEIVED), \
        SPW_BORN(BACKWARD, "gather gradient", DX_EXPANDED), \
        SPW_DIES(BACKWARD, "gather gradient", DX_EXPANDED), SPW_DIES(BACKWARD, "gather gradient", D_SENT)

/* GroupedGLU, SparseGLU: the products are separate nodes of autograd. */
static const spw_event events[] = {
    FORWARD_TO_GATES,
    SPW_DIES(FORWARD, "product", W0), /* x1 is named anew */
    SPW_BORN(FORWARD, "gemm wo", Y),
    SPW_DIES(FORWARD, "gemm wo", ACT),
    SPW_DIES(FORWARD, "gemm wo", W1),
    SPW_DIES(FORWARD, "gemm wo", X),
    FROM_EXPERTS(FORWARD),
    SPW_DIES(FORWARD, "return", RETURNED),

    TO_EXPERTS(RECOMPUTE),
    SPW_GLU_GATES(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "gemm wo", Y),
    FROM_EXPERTS(RECOMPUTE),

    GRADIENT_TO_EXPERTS,
    SPW_GLU_GRADIENT(),
    GRADIENT_FROM_EXPERTS(DX1),
};

/* MemoryOptimizedGroupedGLU: one node that keeps x, w0_out, w1_out; d_act takes the place of act, dx that of dy. */
static const spw_event memory_optimized_events[] = {
    FORWARD_TO_GATES,
    SPW_BORN(FORWARD, "gemm wo", Y),
    SPW_DIES(FORWARD, "gemm wo", W0),
    SPW_DIES(FORWARD, "gemm wo", W1),
    SPW_DIES(FORWARD, "gemm wo", ACT),
    SPW_DIES(FORWARD, "gemm wo", X),
    FROM_EXPERTS(FORWARD),
    SPW_DIES(FORWARD, "return", RETURNED),

    TO_EXPERTS(RECOMPUTE),
    SPW_GLU_GATES(RECOMPUTE),
    SPW_DIES(RECOMPUTE, "product", SILU),
    SPW_BORN(RECOMPUTE, "gemm wo", Y),
    SPW_DIES(RECOMPUTE, "gemm wo", ACT),
    FROM_EXPERTS(RECOMPUTE),

    GRADIENT_TO_EXPERTS,
    SPW_BORN(BACKWARD, "activation again", SILU),
    SPW_BORN(BACKWARD, "activation again", ACT),
    SPW_BORN(BACKWARD, "product gradient", DSILU),
    SPW_BORN(BACKWARD, "product gradient", DW1),
    SPW_DIES(BACKWARD, "product gradient", SILU),
    SPW_BORN(BACKWARD, "silu gradient", DW0),
    SPW_DIES(BACKWARD, "silu gradient", DSILU),
    SPW_BORN(BACKWARD, "input gradients", DX1),
    SPW_DIES(BACKWARD, "input gradients", DX1),
    SPW_DIES(BACKWARD, "input gradients", ACT),
    SPW_DIES(BACKWARD, "input gradients", DW0),
    SPW_DIES(BACKWARD, "input gradients", DW1),
    SPW_DIES(BACKWARD, "input gradients", W0),
    SPW_DIES(BACKWARD, "input gradients", W1),
    SPW_DIES(BACKWARD, "input gradients", X),
    GRADIENT_FROM_EXPERTS(DY),
};

static const spw_layer_list *layer_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    static const spw_layer_list plain = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)};
    static const spw_layer_list optimized = {tensors, memory_optimized_events, SPW_COUNT_OF(tensors),
                                             SPW_COUNT_OF(memory_optimized_events)};
    (void)s;
    return spw_scheme_option_is(scheme, "impl", "memory_optimized") ? &optimized : &plain;
}

/* Every choice travels; the block-sparse products pad what an expert received from all ranks. */
static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    const size_t block = spw_scheme_option_is(scheme, "impl", "sparse") ? BLOCK_ROWS : 1;
    for (size_t d = 0; d < s->ranks; d++) out->rows[d] = out->dropped[d] = 0;
    for (size_t i = 0; i < s->ranks * s->ranks; i++) out->wire[i] = 0;
    for (size_t x = 0; x < s->experts; x++) {
        const size_t d = x / s->experts_per_rank;
        uint64_t rows = 0;
        for (size_t r = 0; r < s->ranks; r++) {
            const uint32_t n = c->routed[(group * s->ranks + r) * s->experts + x];
            out->limit[r * s->experts + x] = n;
            out->wire[r * s->ranks + d] += n;
            rows += n;
        }
        out->rows[d] += (rows + block - 1) / block * block;
    }
}

/* Every expert is padded as the mean is. */
static void balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t even = (s->ranks * s->assignments + s->experts - 1) / s->experts;
    if (spw_scheme_option_is(scheme, "impl", "sparse"))
        rows->held = (even + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS * s->experts_per_rank;
}

const spw_scheme_type spw_scheme_megablocks = {
    .name = "megablocks",
    .summary = "MegaBlocks dropless MoE: every choice travels by itself, memory follows what arrives",
    .section_source = "event list of the scheme (6.1)",
    .source = "databricks/megablocks megablocks/layers/{moe,dmoe,glu}.py, megablocks/ops",
    .options = options,
    .list = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)},
    .layer_of = layer_of,
    .exchanges = spw_row_exchanges,
    .flow = flow,
    .balance = balance,
    .check = spw_check_remat,
};
