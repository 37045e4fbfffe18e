/* gmm and ragged as XLA runs them. Fullest either when the gradients of the rows go back to their order (5 [W, H]: two
 * partial gradients and the recomputed y, sorted at once by one fusion) or when y is recomputed between the weight gradients
 * (2 [W, H] + 3 [W, F]). Without a shared expert, in the loop of a pipeline or where a rank has several experts and a turn of the
 * scan one layer, y is recomputed and goes back to its order before dy comes, whose buffer waits: 4 [W, H] + 3 [W, F]. */
#include "sim/schemes/maxtext/xla_layers.h"

static const spw_tensor received = {"received", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor x = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y_unsorted = {"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor dy_received = {"dy_received", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor dx0 = {"dx0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor dx1 = {"dx1", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor dx_unsorted = {"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor returned = {"y_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN};

/* The tokens, sorted by rank, then received, then sorted by expert. */
static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "sort", spw_xla_rows("sorted", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, "ragged all-to-all", received);
    spw_layer_dies(b, "ragged all-to-all", "sorted");
    spw_layer_born(b, "sort by expert", x);
    spw_layer_dies(b, "sort by expert", "received");
}

static void forward(const spw_layer_shape *s, spw_layer_builder *b, bool masked) {
    spw_layer_pass(b, SPW_PHASE_FORWARD);
    spw_xla_gather_weights(s, b);
    dispatch(b);
    spw_xla_experts_forward(b, masked, y);
    spw_layer_born(b, "unsort", y_unsorted);
    spw_layer_dies(b, "unsort", "y");
    spw_layer_born(b, "ragged all-to-all back", returned);
    spw_layer_dies(b, "ragged all-to-all back", "y_unsorted");
    spw_layer_dies(b, "sum over choices", "y_returned");
}

/* What the other layers of a scan's turn keep until their own backward pass: all of them x and their gathered weights, the next one its
 * products too. In the loop of a pipeline buffers for dy, and no weights. */
static void wait(const spw_layer_shape *s, spw_layer_builder *b, bool born) {
    const uint8_t times = (uint8_t)s->waiting_layers, buffers = s->looped ? times : 0;
    const spw_tensor tensors[] = {
        {"waiting_x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, times, 0, {{0}}},
        {"waiting_products", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, 2, 0, {{0}}},
        {"waiting_act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, s->expert_bias ? 3 : 1, 0, {{0}}},
        {"waiting_receive_buffers", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN, (uint8_t)(2 * times), 0, {{0}}},
        buffers > 0 ? (spw_tensor){"waiting_dy_buffers", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, buffers, 0, {{0}}}
                    : spw_xla_waiting_weights(s),
    };
    if (times > 0) spw_xla_wait(b, tensors, sizeof tensors / sizeof *tensors, born);
}

static void recompute(const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    wait(s, b, true);
    spw_xla_gather_weights(s, b);
    spw_layer_born(b, "receive buffer of the combine", returned);
    dispatch(b);
    spw_xla_up(b);
}

/* All of the layer again before its gradient comes. */
static void recompute_looped(const spw_layer_shape *s, spw_layer_builder *b) {
    recompute(s, b);
    spw_layer_born(b, "receive buffer of dy", dy_received);
    spw_xla_swiglu(b);
    spw_layer_born(b, "gemm wo", y);
    spw_layer_born(b, "unsort", y_unsorted);
    spw_layer_dies(b, "unsort", "y");
    spw_layer_dies(b, "ragged all-to-all back", "y_unsorted");
}

static void backward_looped(const spw_layer_shape *s, spw_layer_builder *b, bool masked) {
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_dies(b, "router weight gradient", "y_returned");
    spw_layer_born(b, "receive buffer of dx",
                   spw_xla_rows("dx_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, "sort dy by expert", spw_xla_rows("dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "sort dy by expert", "dy_received");
    spw_layer_born(b, "wo weight gradient", spw_xla_weight(s, "d_wo"));
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_xla_swiglu_gradient(b, true);
    spw_layer_dies(b, "gemm wo input gradient", "wo");
    spw_layer_dies(b, "gemm wo input gradient", "dy");
    spw_layer_born(b, "w1 weight gradient", spw_xla_weight(s, "d_wi_1"));
    spw_layer_born(b, "w0 weight gradient", spw_xla_weight(s, "d_wi_0"));
    spw_layer_dies(b, "w0 weight gradient", "x");
    spw_layer_born(b, "gemm w0 input gradient", dx0);
    spw_layer_dies(b, "gemm w0 input gradient", "wi_0");
    spw_layer_dies(b, "gemm w0 input gradient", "d_w0_out");
    if (masked) spw_xla_mask(b, "gemm w1 input gradient");
    spw_layer_born(b, "gemm w1 input gradient", dx1);
    spw_layer_dies(b, "gemm w1 input gradient", "wi_1");
    spw_layer_dies(b, "gemm w1 input gradient", "d_w1_out");
    spw_layer_born(b, "unsort of gradients", dx_unsorted);
    spw_layer_dies(b, "unsort of gradients", "dx0");
    spw_layer_dies(b, "unsort of gradients", "dx1");
    spw_xla_scatter_gradients(b);
    spw_layer_dies(b, "ragged all-to-all of dx", "dx_unsorted");
    spw_layer_dies(b, "dispatch gradient", "dx_returned");
    wait(s, b, false);
}

/* Up to the weight gradients of wo and w1; y is recomputed for the gradient of the router's weights. */
static void weight_gradients(const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "receive buffer of dx",
                   spw_xla_rows("dx_returned", SPW_ROWS_ASSIGNMENTS, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, "ragged all-to-all of dy", dy_received);
    spw_layer_born(b, "sort dy by expert", spw_xla_rows("dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "sort dy by expert", "dy_received");
    spw_xla_swiglu_gradient(b, false);
    spw_layer_born(b, "wo weight gradient", spw_xla_weight(s, "d_wo"));
    spw_layer_dies(b, "wo weight gradient", "dy");
    spw_layer_born(b, "w1 weight gradient", spw_xla_weight(s, "d_wi_1"));
    spw_layer_born(b, "gemm wo again", y);
    spw_layer_dies(b, "gemm wo again", "wo");
    spw_layer_dies(b, "gemm wo again", "act");
    spw_layer_born(b, "w0 weight gradient", spw_xla_weight(s, "d_wi_0"));
    spw_layer_dies(b, "w0 weight gradient", "x");
}

static void backward(const spw_layer_shape *s, spw_layer_builder *b, bool masked) {
    const bool waits = spw_layer_flavour(b) == SPW_FLAVOUR_XLA_HIDING;
    weight_gradients(s, b);
    spw_xla_input_gradients(b, masked, waits);
    spw_layer_born(b, "unsort of gradients", dx_unsorted);
    spw_layer_born(b, "unsort of gradients", y_unsorted);
    spw_layer_dies(b, "unsort of gradients", "dx0");
    spw_layer_dies(b, "unsort of gradients", "dx1");
    spw_layer_dies(b, "unsort of gradients", "y");
    if (waits) spw_layer_dies(b, "weight gradients that waited", "d_w0_out");
    if (waits) spw_layer_dies(b, "weight gradients that waited", "d_w1_out");
    spw_xla_scatter_gradients(b);
    spw_layer_dies(b, "ragged all-to-all back", "y_unsorted");
    spw_layer_dies(b, "router weight gradient", "y_returned");
    spw_layer_dies(b, "ragged all-to-all of dx", "dx_unsorted");
    spw_layer_dies(b, "dispatch gradient", "dx_returned");
    wait(s, b, false);
}

static void run(const spw_layer_shape *s, spw_layer_builder *b, bool masked) {
    if (spw_layer_flavour(b) == SPW_FLAVOUR_XLA_APART) {
        spw_xla_gmm_apart(s, b, masked);
        return;
    }
    forward(s, b, masked);
    const bool uniform = s->looped || (s->waiting_layers == 0 && s->experts_per_rank > 1);
    if (uniform && !s->shared_expert) {
        recompute_looped(s, b);
        backward_looped(s, b, masked);
    } else {
        recompute(s, b);
        backward(s, b, masked);
    }
}

void spw_xla_gmm(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    run(s, b, false);
}

void spw_xla_ragged(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    (void)scheme;
    run(s, b, true);
}
