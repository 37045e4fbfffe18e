/* torchtitan's MoE with its minimal asynchronous expert parallelism (docs/schemes.md, section 6.6): rows are copied into the
 * receivers' symmetric memory, where they are the experts' input, for the worst case; what returns lies there, too. */
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

enum { BUFFERS = 2 };

static const spw_scheme_option options[] = {{.name = NULL}};

static size_t buffer_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return s->worst_rows;
}

/* x and dy lie in the symmetric buffers and have no rows of their own. */
static size_t no_rows(const spw_scheme *scheme, const spw_layer_shape *s, size_t i) {
    (void)scheme, (void)s, (void)i;
    return 0;
}

/* Two buffers of rows, used in turn, and the counts of all ranks and experts. */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return BUFFERS * s->worst_rows * s->hidden * s->element_bytes + 8 * s->ranks * s->experts;
}

static spw_tensor column(const char *name, spw_rows rows) {
    return (spw_tensor){name, rows, SPW_WIDTH_ONE, .element_bytes = 8};
}
static spw_tensor in_buffer(const char *name) { return (spw_tensor){name, SPW_ROWS_OWN_0, SPW_WIDTH_HIDDEN}; }
static spw_tensor tokens(const char *name) { return (spw_tensor){name, SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN}; }

static const char *const of_dispatch[] = {"combine_ranks", "combine_rows", "slot_row"},
                         *const of_combine[] = {"dispatch_ranks", "dispatch_rows", "row_slot"};

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "sort", column("row_slot", SPW_ROWS_SENT));
    spw_layer_born(b, "sort", column("row_token", SPW_ROWS_SENT));
    spw_layer_born(b, "metadata", column("dispatch_ranks", SPW_ROWS_SENT));
    spw_layer_born(b, "metadata", column("dispatch_rows", SPW_ROWS_SENT));
    spw_layer_born(b, "metadata", column("combine_ranks", SPW_ROWS_BUFFER));
    spw_layer_born(b, "metadata", column("combine_rows", SPW_ROWS_BUFFER));
    spw_layer_born(b, "metadata", column("slot_row", SPW_ROWS_SENT));
    spw_layer_born(b, "copy to peers", in_buffer("x"));
    spw_layer_dies(b, "copy to peers", "row_token");
}

static void combine(spw_layer_builder *b) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "copy to origins", tokens("output"));
    spw_layer_dies(b, "layer end", "y");
    if (forward) spw_layer_dies(b, "layer end", "x");
    for (size_t i = 0; i < SPW_COUNT_OF(of_dispatch) && forward; i++) {
        spw_layer_dies(b, "layer end", of_dispatch[i]);
        spw_layer_dies(b, "layer end", of_combine[i]);
    }
    spw_layer_dies(b, "layer end", "output");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "combine gradient", (spw_tensor){"d_returned", SPW_ROWS_SENT, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "combine gradient",
                   (spw_tensor){"d_scores", SPW_ROWS_SENT, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_born(b, "combine gradient", in_buffer("dy"));
    spw_layer_dies(b, "combine gradient", "d_returned");
    for (size_t i = 0; i < SPW_COUNT_OF(of_combine); i++)
        spw_layer_dies(b, "combine gradient", of_combine[i]);
}

static void dispatch_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "dispatch gradient", tokens("dx"));
    spw_layer_dies(b, "dispatch gradient", "dx_w1");
    for (size_t i = 0; i < SPW_COUNT_OF(of_dispatch); i++)
        spw_layer_dies(b, "dispatch gradient", of_dispatch[i]);
    spw_layer_dies(b, "layer end", "dx");
    spw_layer_dies(b, "layer end", "d_scores");
}

static void torchtitan_async_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        dispatch(b);
        spw_experts_up_last(b, SPW_ROWS_BUFFER);
        combine(b);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    spw_experts_autograd_gradient(b, s, SPW_ROWS_BUFFER, SPW_AUTOGRAD_UP_LAST);
    dispatch_gradient(b);
    spw_experts_weight_gradients_end(b, s);
}

static void torchtitan_async_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_every_choice(routed, 1, out);
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->ranks > 1 && (s->node_ranks == 0 || s->node_ranks >= s->ranks)) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': minimal async EP copies into the memory of its peers: two expert-parallel ranks "
        "or more of one node, not %zu with %zu on a node",
        scheme->text, s->ranks, s->node_ranks);
}

static spw_status check_kernels(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->remat == SPW_REMAT_FULL) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': torchtitan runs minimal async EP with full recompute only; remat: full would be "
        "right",
        scheme->text);
}

const spw_scheme_type spw_scheme_torchtitan_async = {
    .name = "torchtitan-async",
    .trainer = SPW_TRAINER_TORCHTITAN,
    .about.summary =
        "torchtitan with minimal async EP: every choice is copied into the receiver's symmetric memory, "
        "for the worst case",
    .about.section = "event list of the scheme (6.6)",
    .about.source = "pytorch/torchtitan torchtitan/distributed/minimal_async_ep/api.py, "
                    "models/common/token_dispatcher.py MinimalAsyncEPTokenDispatcher",
    .options = options,
    .memory.layer = torchtitan_async_layer,
    .memory.weight_gradients = true,
    .memory.buffer_rows = buffer_rows,
    .memory.buffer_formula = "R T min(e, K)",
    .memory.own_rows = no_rows,
    .memory.own_rows_formula = {"in the symmetric buffers", NULL},
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "symmetric buffers (6.6)",
    .memory.communication_formula = "two of R T min(e, K) rows, counts of all ranks and experts",
    .traffic.exchanges = spw_row_exchanges,
    .routing.flow = torchtitan_async_flow,
    .check = check,
    .check_kernels = check_kernels,
};
