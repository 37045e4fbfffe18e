/* gmm and ragged as XLA of JAX 0.11 on runs them. What ragged all-to-alls send and receive lies in an arena of its own
 * (sim/memory/compiled/compiled_step.c), so that this list begins behind them. x and dy are sorted by one fusion, the gradients of both
 * products take their places: 2 [W, H] + 3 [W, F]. Then the rows go back to their order: y, recomputed, beside the two results of one
 * fusion: 3 [W, H]. Beside a shared expert the whole weight gradients are still there, elsewhere they are scattered before. */
#include "sim/schemes/maxtext/xla_layers.h"

static const spw_tensor x = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y_unsorted = {"y_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor dx_unsorted = {"dx_unsorted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};

static void forward(const spw_layer_shape *s, spw_layer_builder *b, bool masked) {
    spw_layer_pass(b, SPW_PHASE_FORWARD);
    spw_xla_gather_weights(s, b);
    spw_layer_born(b, "sort by expert", x);
    spw_xla_experts_forward(b, masked, y);
    spw_layer_dies(b, "unsort", "y");
}

/* What the other layers of a scan's turn keep until their own backward pass. */
static void wait(const spw_layer_shape *s, spw_layer_builder *b, bool born) {
    const uint8_t times = (uint8_t)s->waiting_layers;
    const spw_tensor tensors[] = {
        {"waiting_x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, times, 0, {{0}}},
        {"waiting_products", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, (uint8_t)(2 * times), 0, {{0}}},
        {"waiting_act",
         SPW_ROWS_BUFFER,
         SPW_WIDTH_FFN,
         (uint8_t)((s->expert_bias ? 2 : 1) * times),
         0,
         {{0}}},
        spw_xla_waiting_weights(s),
    };
    if (times > 0) spw_xla_wait(b, tensors, sizeof tensors / sizeof *tensors, born);
}

/* Gradients of the products of one layer and of its weights; act is left. */
static void product_gradients(const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_born(b, "sort dy by expert", spw_xla_rows("dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_xla_swiglu_gradient(b, false);
    spw_layer_born(b, "wo weight gradient", spw_xla_weight(s, "d_wo"));
    spw_layer_dies(b, "wo weight gradient", "dy");
    if (!s->shared_expert) spw_layer_dies(b, "reduce-scatter of weight gradients", "d_wo");
    spw_layer_born(b, "w1 weight gradient", spw_xla_weight(s, "d_wi_1"));
    if (!s->shared_expert) spw_layer_dies(b, "reduce-scatter of weight gradients", "d_wi_1");
    spw_layer_born(b, "w0 weight gradient", spw_xla_weight(s, "d_wi_0"));
    spw_layer_dies(b, "w0 weight gradient", "x");
    if (!s->shared_expert) spw_layer_dies(b, "reduce-scatter of weight gradients", "d_wi_0");
}

void spw_xla_gmm_apart(const spw_layer_shape *s, spw_layer_builder *b, bool ragged_dot) {
    const bool masked = ragged_dot && s->experts_per_rank > 1; /* a single expert needs no mask */
    forward(s, b, masked);
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    wait(s, b, true);
    spw_xla_gather_weights(s, b);
    spw_layer_born(b, "sort by expert", x);
    spw_xla_up(b);
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    product_gradients(s, b);
    spw_xla_input_gradients(b, masked, false);
    spw_layer_dies(b, "sum of input gradients", "dx1");
    spw_layer_born(b, "gemm wo again", y);
    spw_layer_dies(b, "gemm wo again", "wo");
    spw_layer_dies(b, "gemm wo again", "act");
    spw_layer_born(b, "unsort of gradients", dx_unsorted);
    spw_layer_dies(b, "unsort of gradients", "dx0");
    spw_layer_born(b, "unsort of gradients", y_unsorted);
    spw_layer_dies(b, "unsort of gradients", "y");
    if (s->shared_expert) spw_xla_scatter_gradients(b);
    spw_layer_dies(b, "ragged all-to-all of dx", "dx_unsorted");
    spw_layer_dies(b, "ragged all-to-all back", "y_unsorted");
    wait(s, b, false);
}
