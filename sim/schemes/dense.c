/* MaxText dense_matmul with a capacity factor, in its three layouts (docs/schemes.md, section 1). Every
 * sequence has C slots an expert; slots travel and are multiplied whether filled or not. */
#include "sim/schemes/list.h"

static const char *const layouts[] = {"exchange", "gathered", "peeled", NULL};

static const spw_scheme_option options[] = {
    {"capacity_factor", 1e-3, 1e6, 1.0, true,
     "slots of an expert as a multiple of the balanced load of a sequence", NULL},
    {"layout", 0.0, 0.0, 0.0, false,
     "tokens go to the experts by all-to-all, or all experts' weights come to the tokens, or the expert axis "
     "is peeled off the batch",
     layouts},
    {.name = NULL},
};

enum {
    COMBINE_MASK,
    DISPATCH_MASK,
    X,
    W0,
    W1,
    ACT,
    SENT,
    Y,
    RETURNED,
    OUT_GRADIENT,
    MASK_GRADIENT,
    DY,
    DW0,
    DW1,
    DX,
    DX_BACK
};

static const spw_tensor tensors[] = {
    [COMBINE_MASK] = {"combine_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS},
    [DISPATCH_MASK] = {"dispatch_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS},
    [X] = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [W0] = {"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN},
    [W1] = {"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN},
    [ACT] = {"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN},
    [SENT] = {"dispatched", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [Y] = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [RETURNED] = {"y_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [OUT_GRADIENT] = {"dy_sent", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [MASK_GRADIENT] = {"d_combine_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS},
    [DY] = {"dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [DW0] = {"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN},
    [DW1] = {"d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN},
    [DX] = {"dx", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
    [DX_BACK] = {"dx_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
};

/* Up to the experts' output, forward and recomputed alike. */
#define TO_EXPERTS(phase) \
    SPW_BORN(phase, "masks", COMBINE_MASK), SPW_BORN(phase, "masks", DISPATCH_MASK), \
        SPW_BORN(phase, "dispatch", SENT), SPW_BORN(phase, "all-to-all", X), \
        SPW_DIES(phase, "all-to-all", SENT), SPW_BORN(phase, "gemm w0", W0), SPW_BORN(phase, "gemm w1", W1), \
        SPW_BORN(phase, "swiglu", ACT)

static const spw_event events[] = {
    TO_EXPERTS(FORWARD),
    SPW_DIES(FORWARD, "swiglu", X),
    SPW_DIES(FORWARD, "swiglu", W0),
    SPW_DIES(FORWARD, "swiglu", W1),
    SPW_DIES(FORWARD, "swiglu", DISPATCH_MASK),
    SPW_BORN(FORWARD, "gemm wo", Y),
    SPW_DIES(FORWARD, "gemm wo", ACT),
    SPW_BORN(FORWARD, "all-to-all back", RETURNED),
    SPW_DIES(FORWARD, "all-to-all back", Y),
    SPW_DIES(FORWARD, "combine", RETURNED),
    SPW_DIES(FORWARD, "combine", COMBINE_MASK),

    TO_EXPERTS(RECOMPUTE),
    SPW_BORN(RECOMPUTE, "gemm wo", Y),
    SPW_BORN(RECOMPUTE, "all-to-all back", RETURNED),
    SPW_DIES(RECOMPUTE, "all-to-all back", Y),

    SPW_BORN(BACKWARD, "combine gradient", OUT_GRADIENT),
    SPW_BORN(BACKWARD, "combine gradient", MASK_GRADIENT),
    SPW_DIES(BACKWARD, "combine gradient", RETURNED),
    SPW_DIES(BACKWARD, "combine gradient", COMBINE_MASK),
    SPW_DIES(BACKWARD, "mask gradient", MASK_GRADIENT),
    SPW_BORN(BACKWARD, "all-to-all of dy", DY),
    SPW_DIES(BACKWARD, "all-to-all of dy", OUT_GRADIENT),
    SPW_DIES(BACKWARD, "wo weight gradient",
             ACT), /* then d_act takes its place, and splits into d_w0, d_w1 */
    SPW_BORN(BACKWARD, "gemm wo input gradient", DW0),
    SPW_DIES(BACKWARD, "gemm wo input gradient", DY),
    SPW_DIES(BACKWARD, "swiglu gradient", W1),
    SPW_BORN(BACKWARD, "swiglu gradient", DW1),
    SPW_DIES(BACKWARD, "swiglu gradient", W0),
    SPW_DIES(BACKWARD, "w0 w1 weight gradients", X),
    SPW_BORN(BACKWARD, "gemm w0 w1 input gradient", DX),
    SPW_DIES(BACKWARD, "gemm w0 w1 input gradient", DW0),
    SPW_DIES(BACKWARD, "gemm w0 w1 input gradient", DW1),
    SPW_BORN(BACKWARD, "all-to-all of dx", DX_BACK),
    SPW_DIES(BACKWARD, "all-to-all of dx", DX),
    SPW_DIES(BACKWARD, "dispatch gradient", DX_BACK),
    SPW_DIES(BACKWARD, "dispatch gradient", DISPATCH_MASK),
};

/* D = p E C, before and after the exchange. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return s->sequences * s->experts * spw_scheme_capacity(scheme, s);
}

/* Within a sequence the earliest positions win; weights play no role. */
static void flow(const spw_scheme *scheme, const spw_layer_shape *s, const spw_counts *c, size_t group,
                 spw_flow *out) {
    const size_t capacity = spw_scheme_capacity(scheme, s);
    const bool exchanged = !spw_scheme_option_is(scheme, "layout", "gathered");
    for (size_t i = 0; i < s->ranks * s->ranks; i++)
        out->wire[i] = exchanged ? s->sequences * s->experts_per_rank * capacity : 0;
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t cells = s->sequences * s->experts;
        const uint32_t *n = c->per_sequence + (group * s->ranks + r) * cells;
        out->rows[r] = s->sequences * s->experts * capacity;
        out->dropped[r] = 0;
        for (size_t i = 0; i < cells; i++) {
            out->limit[r * cells + i] = capacity < UINT32_MAX ? (uint32_t)capacity : UINT32_MAX;
            if (n[i] > capacity) out->dropped[r] += n[i] - capacity;
        }
    }
}

/* dispatched, y and dy with a layout copy each before or after an exchange; w0, w1, act; both masks and the
 * gradient of one. Without an exchange one copy is left, for the einsum over the expert axis. The peeled
 * layout multiplies [256, 64, 160, 7168] in DeepSeek-V3: the dispatched slots of all GPUs at once. */
static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer exchange = {SPW_PACKING_DENSE, SPW_COMPILED_EXCHANGE_ALL_TO_ALL,
                                                .hidden_live = 3,  .hidden_copies = 3,
                                                .ffn = 3,          .masks = 3};
    static const spw_compiled_layer gathered = {SPW_PACKING_DENSE_GATHERED,
                                                SPW_COMPILED_EXCHANGE_NONE,
                                                .hidden_live = 3,
                                                .hidden_copies = 1,
                                                .ffn = 3,
                                                .masks = 2,
                                                .all_experts = true};
    static const spw_compiled_layer peeled = {
        SPW_PACKING_DENSE, SPW_COMPILED_EXCHANGE_PEELED, .hidden_live = 3, .hidden_copies = 3, .ffn = 3,
        .masks = 3,        .whole_dispatch = true};
    if (spw_scheme_option_is(scheme, "layout", "gathered")) return &gathered;
    return spw_scheme_option_is(scheme, "layout", "peeled") ? &peeled : &exchange;
}

const spw_scheme_type spw_scheme_dense = {
    .name = "dense",
    .summary = "MaxText dense_matmul: a fixed number of slots a sequence and expert, the rest is dropped",
    .shards_state = true,
    .section_source = "event list of the scheme (1)",
    .source = "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py dense_matmul",
    .options = options,
    .list = {tensors, events, SPW_COUNT_OF(tensors), SPW_COUNT_OF(events)},
    .limit_per_sequence = true,
    .buffer_rows = buffer_rows,
    .buffer_formula = "D = p E C",
    .exchanges = spw_row_exchanges,
    .flow = flow,
    .compiled = compiled,
};
