/* MaxText dense_matmul with a capacity factor, in its three layouts (docs/schemes.md, section 1). Every
 * sequence has C slots an expert; slots travel and are multiplied whether filled or not. */
#include "sim/machine/compiled_layer.h"
#include "sim/routing/counts.h"
#include "sim/schemes/experts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/list.h"
#include "sim/schemes/maxtext/xla_layers.h"

static const char *const layouts[] = {"exchange", "gathered", "peeled", "auto", NULL};

static const spw_scheme_option options[] = {
    {"capacity_factor", 1e-3, 1e6, 1.0, true,
     "slots of an expert as a multiple of the balanced load of a sequence", NULL},
    {"layout", 0.0, 0.0, 3.0, false,
     "tokens go to the experts by all-to-all, or all experts' weights come to the tokens, or the expert axis "
     "is peeled off the batch; auto: as the tree of --stack has it, exchange without one",
     layouts},
    {.name = NULL},
};

/* Slots travel as wide as tokens are between products. The GPUs of a tensor group gather their parts behind the exchange, before
 * the products and again for the gradients of their weights. */
static void gather(spw_layer_builder *b) {
    if (spw_layer_is_cut(b))
        spw_layer_born(b, "gather of x", (spw_tensor){"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
}

static const char *arrived(const spw_layer_builder *b) { return spw_layer_is_cut(b) ? "received" : "x"; }

/* From the last product to its rows among the tokens; `x` and what is recomputed with it stays. */
static void leave(spw_layer_builder *b, bool keep) {
    spw_layer_born(b, "gemm wo", (spw_tensor){spw_experts_y_name(b), SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    if (!keep) spw_layer_dies(b, "gemm wo", "act");
    spw_experts_sum_of_y(b);
    spw_layer_born(b, "all-to-all back", (spw_tensor){"y_returned", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "all-to-all back", "y");
}

/* Up to the activation, forward and recomputed alike. */
static void to_experts(spw_layer_builder *b) {
    spw_layer_born(b, "masks", (spw_tensor){"combine_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS});
    spw_layer_born(b, "masks", (spw_tensor){"dispatch_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS});
    spw_layer_born(b, "dispatch", (spw_tensor){"dispatched", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "all-to-all", (spw_tensor){arrived(b), SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "all-to-all", "dispatched");
    gather(b);
    spw_layer_born(b, "gemm w0", (spw_tensor){"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_born(b, "gemm w1", (spw_tensor){"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    if (spw_layer_is_cut(b)) spw_layer_dies(b, "gemm w1", "x");
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"dy_sent", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_combine_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS});
    spw_layer_dies(b, "combine gradient", "y_returned");
    spw_layer_dies(b, "combine gradient", "combine_mask");
    spw_layer_dies(b, "mask gradient", "d_combine_mask");
    spw_layer_born(b, "all-to-all of dy", (spw_tensor){"dy", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "all-to-all of dy", "dy_sent");
}

/* d_act takes the place of act, and splits into d_w0, d_w1. */
static void experts_gradient(spw_layer_builder *b) {
    const char *dx = spw_layer_is_cut(b) ? "dx_term" : "dx";
    spw_experts_gather_of_dy(b);
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_layer_born(b, "gemm wo input gradient", (spw_tensor){"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "gemm wo input gradient", spw_experts_dy_name(b));
    spw_layer_dies(b, "swiglu gradient", "w1_out");
    spw_layer_born(b, "swiglu gradient", (spw_tensor){"d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu gradient", "w0_out");
    gather(b);
    if (spw_layer_is_cut(b)) spw_layer_dies(b, "w0 w1 weight gradients", arrived(b));
    spw_layer_dies(b, "w0 w1 weight gradients", "x");
    spw_layer_born(b, "gemm w0 w1 input gradient", (spw_tensor){dx, SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gemm w0 w1 input gradient", "d_w0_out");
    spw_layer_dies(b, "gemm w0 w1 input gradient", "d_w1_out");
    if (!spw_layer_is_cut(b)) return;
    spw_layer_born(b, "sum of dx", (spw_tensor){"dx", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "sum of dx", dx);
}

static void dense_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    (void)scheme, (void)shape;
    to_experts(b);
    spw_layer_dies(b, "swiglu", arrived(b));
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    spw_layer_dies(b, "swiglu", "dispatch_mask");
    leave(b, false);
    spw_layer_dies(b, "combine", "y_returned");
    spw_layer_dies(b, "combine", "combine_mask");

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    to_experts(b);
    leave(b, true);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    experts_gradient(b);
    spw_layer_born(b, "all-to-all of dx", (spw_tensor){"dx_returned", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "all-to-all of dx", "dx");
    spw_layer_dies(b, "dispatch gradient", "dx_returned");
    spw_layer_dies(b, "dispatch gradient", "dispatch_mask");
}

/* Every token of a sequence may choose the same expert. */
static double worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    const size_t length = spw_whole_sequence(s), mean = (length * s->top_k + s->experts - 1) / s->experts;
    return (double)length / (double)mean;
}

/* D = p E C, before and after the exchange. */
static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return s->sequences * s->experts * spw_scheme_capacity(scheme, s);
}

/* Choices of a sequence's expert that stand before those of rank `rank`: on the GPUs of its context group before it. */
static uint64_t taken_before(const spw_routed_group *routed, size_t rank, size_t cell) {
    const spw_layer_shape *s = routed->shape;
    const size_t group = routed->number;
    const size_t first = group - group % spw_layer_context(s);
    uint64_t taken = 0;
    for (size_t g = first; g < group; g++)
        taken += spw_counts_sequences_of(routed->counts, g * s->ranks + rank)[cell];
    return taken;
}

/* Within a sequence the earliest positions win; weights play no role. Who shares a sequence has its slots alike, and its tokens
 * in the order of the group. */
static void dense_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    const uint64_t capacity = spw_scheme_capacity(routed->scheme, s);
    const bool exchanged = !spw_scheme_option_is(routed->scheme, "layout", "gathered");
    spw_flow_one_line(out, s->ranks, exchanged ? s->sequences * s->experts_per_rank * capacity : 0);
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t cells = s->sequences * s->experts;
        const uint32_t *n = spw_counts_sequences_of(routed->counts, routed->number * s->ranks + r);
        out->rows[r] = s->sequences * s->experts * capacity;
        out->dropped[r] = 0;
        for (size_t i = 0; i < cells; i++) {
            const uint64_t taken = taken_before(routed, r, i), room = capacity > taken ? capacity - taken : 0;
            out->limit[r * cells + i] = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
            if (n[i] > room) out->dropped[r] += n[i] - room;
        }
    }
}

/* All six are as wide as tokens are between products. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const size_t count = spw_row_exchanges(scheme, s, out);
    for (size_t i = 0; i < count; i++) out[i].row_bytes = spw_returned_width(s) * s->element_bytes;
    return count;
}

static const spw_compiled_layer *compiled(const spw_scheme *scheme) {
    static const spw_compiled_layer exchange = {SPW_PROGRAM_DENSE, SPW_COMPILED_EXCHANGE_ALL_TO_ALL,
                                                .capacity_slots = true};
    static const spw_compiled_layer gathered = {SPW_PROGRAM_DENSE_GATHERED, SPW_COMPILED_EXCHANGE_NONE,
                                                .capacity_slots = true, .all_experts = true};
    static const spw_compiled_layer peeled = {SPW_PROGRAM_DENSE, SPW_COMPILED_EXCHANGE_PEELED,
                                              .capacity_slots = true, .whole_dispatch = true};
    if (spw_scheme_option_is(scheme, "layout", "gathered")) return &gathered;
    return spw_scheme_option_is(scheme, "layout", "peeled") ? &peeled : &exchange;
}

const spw_scheme_type spw_scheme_dense = {
    .name = "dense",
    .trainer = SPW_TRAINER_MAXTEXT,
    .about.summary =
        "MaxText dense_matmul: a fixed number of slots a sequence and expert, the rest is dropped",
    .memory.any_device = true,
    .about.section = "event list of the scheme (1)",
    .about.source = "AI-Hypercomputer/maxtext src/maxtext/layers/moe.py dense_matmul",
    .options = options,
    .routing.factor = "capacity_factor",
    .routing.worst_factor = worst_factor,
    .memory.layer = dense_layer,
    .routing.limits = true,
    .routing.limit_per_sequence = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "D = p E C",
    .traffic.exchanges = exchanges,
    .routing.flow = dense_flow,
    .routing.lines = spw_one_line,
    .compiled.mesh = true,
    .compiled.layer = spw_xla_dense,
    .compiled.list = compiled,
};
