/* torchtitan's MoE with its all-to-all token dispatcher and grouped products (docs/schemes.md, section 6.5). What a frame of
 * Python still names is held until that function returns: RoutedExperts.forward names x and y to its end. An exchange
 * receives one piece a source and then makes one tensor of them. */
#include "sim/schemes/list.h"
#include "sim/schemes/torch/experts_torch.h"

static const spw_scheme_option options[] = {{.name = NULL}};

static bool is_forward(const spw_layer_builder *b) { return spw_layer_phase(b) == SPW_PHASE_FORWARD; }

/* One number a row that leaves or arrives. */
static spw_tensor column(const char *name, spw_rows rows, uint8_t element_bytes) {
    return (spw_tensor){name, rows, SPW_WIDTH_ONE, .element_bytes = element_bytes};
}
static spw_tensor sent(const char *name) { return (spw_tensor){name, SPW_ROWS_SENT, SPW_WIDTH_HIDDEN}; }
static spw_tensor sent_fp32(const char *name) {
    return (spw_tensor){name, SPW_ROWS_SENT, SPW_WIDTH_HIDDEN, .element_bytes = 4};
}
static spw_tensor received(const char *name) {
    return (spw_tensor){name, SPW_ROWS_RECEIVED, SPW_WIDTH_HIDDEN};
}
static spw_tensor tokens(const char *name) { return (spw_tensor){name, SPW_ROWS_TOKENS, SPW_WIDTH_HIDDEN}; }

/* What arrives is there twice while it is put together. */
static void exchange(spw_layer_builder *b, const char *step, spw_tensor pieces, spw_tensor whole) {
    pieces.by_rank = true;
    spw_layer_born(b, step, pieces);
    spw_layer_born(b, step, whole);
    spw_layer_dies(b, step, pieces.name);
}

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "sort", column("choice_order", SPW_ROWS_SENT, 8));
    spw_layer_born(b, "sort", column("scores_sorted", SPW_ROWS_SENT, 4));
    spw_layer_born(b, "sort", column("token_index", SPW_ROWS_SENT, 8));
    if (is_forward(b)) spw_layer_dies(b, "sort", "choice_order");
    spw_layer_born(b, "gather", sent("sent"));
    exchange(b, "all-to-all", received("received_pieces"), received("received"));
    spw_layer_born(b, "permute", column("segment_ids", SPW_ROWS_RECEIVED, 8));
    spw_layer_born(b, "permute", column("row_index", SPW_ROWS_RECEIVED, 8));
    spw_layer_born(b, "permute", (spw_tensor){"x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "permute", "segment_ids");
    spw_layer_dies(b, "permute", "received");
    spw_layer_dies(b, "return", "sent");
}

/* Scores multiply the returned rows in fp32; autograd keeps both factors. */
static void combine(spw_layer_builder *b) {
    static const char *const saved[] = {"x", "row_index", "token_index", "scores_sorted"};
    spw_layer_born(b, "unpermute", received("y_received_order"));
    exchange(b, "all-to-all back", sent("returned_pieces"), sent("returned"));
    spw_layer_dies(b, "all-to-all back", "y_received_order");
    spw_layer_born(b, "weight", tokens("zeros"));
    spw_layer_born(b, "weight", sent_fp32("returned_fp32"));
    spw_layer_born(b, "weight", sent_fp32("weighted_fp32"));
    if (is_forward(b)) spw_layer_dies(b, "weight", "returned_fp32");
    spw_layer_born(b, "weight", sent("weighted"));
    spw_layer_dies(b, "weight", "weighted_fp32");
    spw_layer_dies(b, "weight", "returned");
    spw_layer_born(b, "scatter add", tokens("output"));
    spw_layer_dies(b, "scatter add", "zeros");
    spw_layer_dies(b, "return of combine", "weighted");
    spw_layer_dies(b, "layer end", "y");
    for (size_t i = 0; i < SPW_COUNT_OF(saved) && is_forward(b); i++)
        spw_layer_dies(b, "layer end", saved[i]);
    spw_layer_dies(b, "layer end", "output");
}

static void combine_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "scatter add gradient", sent("d_weighted"));
    spw_layer_born(b, "weight gradient", sent_fp32("d_weighted_fp32"));
    spw_layer_dies(b, "weight gradient", "d_weighted");
    spw_layer_born(b, "weight gradient", sent_fp32("d_returned_fp32"));
    spw_layer_born(b, "weight gradient", sent_fp32("score_products"));
    spw_layer_born(b, "weight gradient", column("d_scores", SPW_ROWS_SENT, 4));
    spw_layer_dies(b, "weight gradient", "score_products");
    spw_layer_dies(b, "weight gradient", "returned_fp32");
    spw_layer_dies(b, "weight gradient", "scores_sorted");
    spw_layer_dies(b, "weight gradient", "d_weighted_fp32");
    spw_layer_born(b, "weight gradient", sent("d_returned"));
    spw_layer_dies(b, "weight gradient", "d_returned_fp32");
    exchange(b, "all-to-all back gradient", received("dy_pieces"), received("dy_received"));
    spw_layer_dies(b, "all-to-all back gradient", "d_returned");
    spw_layer_born(b, "unpermute gradient", (spw_tensor){"dy", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "unpermute gradient", "dy_received");
}

static void dispatch_gradient(spw_layer_builder *b) {
    spw_layer_born(b, "permute gradient", received("dx_received_order"));
    spw_layer_dies(b, "permute gradient", "dx_w1");
    spw_layer_dies(b, "permute gradient", "row_index");
    exchange(b, "all-to-all gradient", sent("dx_pieces"), sent("dx_returned"));
    spw_layer_dies(b, "all-to-all gradient", "dx_received_order");
    spw_layer_born(b, "gather gradient", tokens("dx"));
    spw_layer_dies(b, "gather gradient", "dx_returned");
    spw_layer_dies(b, "gather gradient", "token_index");
    spw_layer_born(b, "sort gradient",
                   (spw_tensor){"d_top_scores", SPW_ROWS_TOKENS, SPW_WIDTH_TOP_K, .element_bytes = 4});
    spw_layer_dies(b, "sort gradient", "d_scores");
    spw_layer_dies(b, "sort gradient", "choice_order");
    spw_layer_dies(b, "layer end", "dx");
    spw_layer_dies(b, "layer end", "d_top_scores");
}

static void torchtitan_layer(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    for (spw_phase phase = SPW_PHASE_FORWARD; phase <= SPW_PHASE_RECOMPUTE; phase++) {
        spw_layer_pass(b, phase);
        dispatch(b);
        spw_experts_up_last(b, SPW_ROWS_HELD);
        combine(b);
    }
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    combine_gradient(b);
    spw_experts_autograd_gradient(b, s, SPW_ROWS_HELD, SPW_AUTOGRAD_UP_LAST);
    dispatch_gradient(b);
    spw_experts_weight_gradients_end(b, s);
}

static void torchtitan_flow(const spw_routed_group *routed, spw_flow *out) {
    spw_every_choice(routed, 1, out);
}

const spw_scheme_type spw_scheme_torchtitan = {
    .name = "torchtitan",
    .trainer = SPW_TRAINER_TORCHTITAN,
    .about.summary =
        "torchtitan: every choice travels by itself, grouped products, scores multiply what returns",
    .about.section = "event list of the scheme (6.5)",
    .about.source =
        "pytorch/torchtitan torchtitan/models/common/{moe,token_dispatcher}.py AllToAllTokenDispatcher",
    .options = options,
    .memory.layer = torchtitan_layer,
    .memory.selects_operations = true,
    .memory.weight_gradients = true,
    .megatron.by_parts = true,
    .traffic.exchanges = spw_row_exchanges,
    .routing.flow = torchtitan_flow,
    .check = spw_check_remat,
};
