#include "sim/schemes/experts.h"
#include "sim/schemes/layer_builder.h"

static const spw_tensor hidden_operand = {"ragged_dot_hidden_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_HIDDEN},
                        ffn_operand = {"ragged_dot_ffn_operand", SPW_ROWS_EXPANDED, SPW_WIDTH_FFN};

/* A product forward: its result, and its masked operand while it runs. */
static void product(spw_layer_builder *b, const char *step, spw_tensor result, spw_tensor operand) {
    spw_layer_born(b, step, result);
    spw_layer_passes(b, step, operand);
}

static void gates(spw_layer_builder *b) {
    product(b, "ragged_dot w0", (spw_tensor){"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, hidden_operand);
    product(b, "ragged_dot w1", (spw_tensor){"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN}, hidden_operand);
}

static void last_product(spw_layer_builder *b) {
    product(b, "ragged_dot wo", (spw_tensor){spw_experts_y_name(b), SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN},
            ffn_operand);
}

static void forward(spw_layer_builder *b) {
    gates(b);
    spw_layer_dies(b, "ragged_dot w1", "x");
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    last_product(b);
    spw_layer_dies(b, "ragged_dot wo", "act");
    spw_experts_sum_of_y(b);
}

static void again(spw_layer_builder *b) {
    gates(b);
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    last_product(b);
    spw_experts_sum_of_y(b);
}

/* Of a product's two operands one serves the rows' gradient and the other the weights'. */
static void gate_gradients(spw_layer_builder *b, const char *step, const char *dx, const char *d_gate) {
    spw_layer_born(b, step, (spw_tensor){dx, SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, step, ffn_operand);
    spw_layer_passes(b, step, hidden_operand);
    spw_layer_dies(b, step, ffn_operand.name);
    spw_layer_dies(b, step, d_gate);
}

static void gradient(spw_layer_builder *b) {
    spw_experts_gather_of_dy(b);
    spw_layer_born(b, "gradients of wo", hidden_operand);
    spw_layer_born(b, "gradients of wo", ffn_operand);
    spw_layer_dies(b, "gradients of wo", "act");
    spw_layer_born(b, "gradients of wo", (spw_tensor){"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "gradients of wo", ffn_operand.name);
    spw_layer_dies(b, "gradients of wo", hidden_operand.name);
    spw_layer_dies(b, "gradients of wo", spw_experts_dy_name(b));
    spw_layer_dies(b, "swiglu gradient", "w1_out");
    spw_layer_born(b, "swiglu gradient", (spw_tensor){"d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu gradient", "w0_out");
    gate_gradients(b, "gradients of w0", "dx_w0", "d_w0_out");
    gate_gradients(b, "gradients of w1", "dx_w1", "d_w1_out");
    spw_layer_dies(b, "gradients of w1", "x");
    spw_layer_dies(b, "sum of dx", "dx_w1");
}

const spw_experts spw_experts_ragged_dot = {forward, again, gradient, "dx_w0"};
