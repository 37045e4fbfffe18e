/* DeepEP with exact receive counts and the PyTorch layer around it (docs/schemes.md, sections 4.1 to 4.4): received rows are
 * permuted to the experts, computed by grouped products and summed with their weights before they return. Every tensor has
 * the rows that arrive. */
#include "sim/schemes/deepep/deepep_buffers.h"
#include "sim/schemes/deepep/deepep_jax.h"
#include "sim/schemes/library_limits.h"
#include "sim/schemes/padded_rows.h"
#include "sim/schemes/torch/experts_torch.h"

static const char *const types[] = {"bf16", "fp8", NULL};

static const char *const versions[] = {"v1", "v2", NULL};

static const spw_scheme_option options[] = {
    {"dtype", 0.0, 0.0, 0.0, false,
     "what dispatches send: activations as they are, or fp8 with a scale for every 128", types},
    SPW_PAD_OPTION_ROW,
    {"buffers", 0.0, 0.0, 0.0, false,
     "registered buffers: v1's rings, or v2's (ElasticBuffer), which grow with the tokens of a rank",
     versions},
    {.name = NULL},
};

static bool sends_fp8(const spw_scheme *scheme) { return spw_scheme_option_is(scheme, "dtype", "fp8"); }

/* What an fp8 exchange brings has one byte an element, and its scales beside it. */
static void received(spw_layer_builder *b, const char *step, bool fp8, const char *name, spw_rows rows) {
    spw_layer_born(b, step, (spw_tensor){name, rows, SPW_WIDTH_HIDDEN, .element_bytes = fp8 ? 1 : 0});
}

static void scales(spw_layer_builder *b, const char *step, bool fp8, const char *name, spw_rows rows) {
    if (fp8) spw_layer_born(b, step, (spw_tensor){name, rows, SPW_WIDTH_SCALES, .element_bytes = 4});
}

static void dispatch(spw_layer_builder *b, bool fp8) {
    spw_layer_born(b, "layout",
                   (spw_tensor){"is_token_in_rank", SPW_ROWS_TOKENS, SPW_WIDTH_RANKS, .element_bytes = 1});
    received(b, "dispatch", fp8, "received", SPW_ROWS_RECEIVED);
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_source", SPW_ROWS_RECEIVED, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"send_head", SPW_ROWS_TOKENS, SPW_WIDTH_RANKS, .element_bytes = 4});
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_index", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 8});
    spw_layer_born(b, "dispatch",
                   (spw_tensor){"received_weight", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 4});
    scales(b, "dispatch", fp8, "received_scales", SPW_ROWS_RECEIVED);
    spw_layer_born(b, "permute", (spw_tensor){"row_slot", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 8});
    spw_layer_born(b, "permute",
                   (spw_tensor){"row_weight", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4});
    received(b, "permute", fp8, "x", SPW_ROWS_HELD);
    scales(b, "permute", fp8, "x_scales", SPW_ROWS_HELD);
    spw_layer_dies(b, "permute", "received");
    if (fp8) spw_layer_dies(b, "permute", "received_scales");
}

/* Python holds indices and weights to the combine; autograd keeps the layout, the rows' slots and their weights. */
static void combine(spw_layer_builder *b) {
    static const char *const layout[] = {"received_source", "send_head", "is_token_in_rank"};
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "unpermute", (spw_tensor){"summed", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    if (forward) {
        spw_layer_dies(b, "unpermute", "y");
        spw_layer_dies(b, "unpermute", "row_slot");
        spw_layer_dies(b, "unpermute", "row_weight");
    }
    spw_layer_dies(b, "combine", "summed");
    spw_layer_dies(b, "combine", "received_index");
    spw_layer_dies(b, "combine", "received_weight");
    for (size_t i = 0; i < SPW_COUNT_OF(layout) && forward; i++) spw_layer_dies(b, "combine", layout[i]);
}

static void combine_gradient(spw_layer_builder *b, bool fp8) {
    received(b, "combine gradient", fp8, "d_summed", SPW_ROWS_RECEIVED);
    scales(b, "combine gradient", fp8, "d_summed_scales", SPW_ROWS_RECEIVED);
    received(b, "unpermute gradient", fp8, "dy", SPW_ROWS_HELD);
    scales(b, "unpermute gradient", fp8, "dy_scales", SPW_ROWS_HELD);
    spw_layer_born(b, "unpermute gradient",
                   (spw_tensor){"d_row_weight", SPW_ROWS_HELD, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "unpermute gradient", "d_summed");
    if (fp8) spw_layer_dies(b, "unpermute gradient", "d_summed_scales");
    spw_layer_dies(b, "unpermute gradient", "y");
    spw_layer_dies(b, "unpermute gradient", "row_weight");
}

static void dispatch_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "permute gradient", (spw_tensor){"d_received", SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "permute gradient",
                   (spw_tensor){"d_received_weight", SPW_ROWS_RECEIVED, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_dies(b, "permute gradient", "dx");
    spw_layer_dies(b, "permute gradient", "d_row_weight");
    spw_layer_dies(b, "permute gradient", "row_slot");
    spw_layer_dies(b, "dispatch gradient", "d_received");
    spw_layer_dies(b, "dispatch gradient", "d_received_weight");
    spw_layer_dies(b, "dispatch gradient", "received_source");
    spw_layer_dies(b, "dispatch gradient", "send_head");
    spw_layer_dies(b, "dispatch gradient", "is_token_in_rank");
}

static void deepep_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const spw_experts_fused experts = {.rows = SPW_ROWS_HELD, .fp8 = sends_fp8(scheme)};
    (void)s;
    dispatch(b, experts.fp8);
    spw_experts_fused_forward(b, experts);
    combine(b);

    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    dispatch(b, experts.fp8);
    spw_experts_fused_again(b, experts);
    combine(b);

    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b, experts.fp8);
    spw_experts_fused_gradient(b, experts);
    dispatch_gradient(b);
}

/* Recomputation repeats the combine: a checkpoint runs the whole layer again. */
static size_t exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const bool fp8 = sends_fp8(scheme);
    const uint64_t dispatch = spw_deepep_row_bytes(s, (spw_deepep_row){fp8, 8, true}),
                   row = spw_deepep_row_bytes(s, (spw_deepep_row){false, 0, false});
    const spw_exchange list[] = {
        {"dispatch", SPW_PHASE_FORWARD, false, dispatch},
        {"combine", SPW_PHASE_FORWARD, true, row},
        {"dispatch again", SPW_PHASE_RECOMPUTE, false, dispatch},
        {"combine again", SPW_PHASE_RECOMPUTE, true, row},
        {"combine gradient", SPW_PHASE_BACKWARD, false,
         spw_deepep_row_bytes(s, (spw_deepep_row){fp8, 0, false})},
        {"dispatch gradient", SPW_PHASE_BACKWARD, true,
         spw_deepep_row_bytes(s, (spw_deepep_row){false, 0, true})},
    };
    for (size_t i = 0; i < SPW_COUNT_OF(list); i++) out[i] = list[i];
    return SPW_COUNT_OF(list);
}

static void deepep_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_deepep_flow(routed, out);
    spw_pad_rows(routed, out->rows);
}

/* Buffer.num_sms is 20 unless set. */
static uint64_t communication_bytes(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (spw_scheme_option_is(scheme, "buffers", "v2"))
        return spw_deepep_elastic_bytes(s, s->tokens, sends_fp8(scheme));
    const spw_deepep_buffers b = spw_deepep_buffer_hint(s->ranks, s->hidden, s->element_bytes, 20);
    return b.nvl_bytes + b.rdma_bytes;
}

static spw_status check(const spw_scheme *scheme, const spw_layer_shape *s) {
    const bool nodes = spw_scheme_option_is(scheme, "buffers", "v2");
    const spw_status status = nodes ? spw_hybrid_ep_check(scheme, s) : SPW_OK;
    return status == SPW_OK ? spw_pad_check(scheme, s) : status;
}

static int library(const spw_scheme *scheme) {
    return spw_scheme_option_is(scheme, "buffers", "v2") ? SPW_LIBRARY_NONE : SPW_LIBRARY_DEEPEP;
}

const spw_scheme_type spw_scheme_deepep = {
    .name = "deepep",
    .trainer = SPW_TRAINER_PYTORCH,
    .library = library,
    .about.summary = "DeepEP in PyTorch: a token is sent once a rank, tensors have the rows that arrive",
    .about.section = "event list of the scheme (4.4)",
    .about.source =
        "deepseek-ai/DeepEP csrc/legacy, deep_ep/buffers/legacy.py; NVIDIA/Megatron-LM core_v0.11.0 "
        "moe/token_dispatcher.py",
    .options = options,
    .memory.layer = deepep_layer,
    .traffic.by_node = true,
    .traffic.once_a_rank = true,
    .traffic.exchanges = exchanges,
    .routing.flow = deepep_flow,
    .routing.lines = spw_no_lines,
    .routing.balance = spw_pad_balance,
    .memory.communication_bytes = communication_bytes,
    .memory.communication_source = "DeepEP buffer hints (4.3)",
    .memory.communication_formula =
        "rings of the channels, independent of T; v2: slots for the tokens of all ranks",
    .check = check,
};
