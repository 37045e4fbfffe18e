#include "sim/schemes/experts.h"
#include "sim/schemes/layer_builder.h"

static void gates(spw_layer_builder *b) {
    spw_layer_born(b, "gemm w0", (spw_tensor){"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_born(b, "gemm w1", (spw_tensor){"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
}

const char *spw_experts_y_name(const spw_layer_builder *b) { return spw_layer_is_cut(b) ? "y_term" : "y"; }
const char *spw_experts_dy_name(const spw_layer_builder *b) {
    return spw_layer_is_cut(b) ? "dy_whole" : "dy";
}

void spw_experts_sum_of_y(spw_layer_builder *b) {
    if (!spw_layer_is_cut(b)) return;
    spw_layer_born(b, "sum of y", (spw_tensor){"y", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "sum of y", "y_term");
}

void spw_experts_gather_of_dy(spw_layer_builder *b) {
    if (!spw_layer_is_cut(b)) return;
    spw_layer_born(b, "gather of dy", (spw_tensor){"dy_whole", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gather of dy", "dy");
}

static void last_product(spw_layer_builder *b) {
    spw_layer_born(b, "gemm wo", (spw_tensor){spw_experts_y_name(b), SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
}

static void forward(spw_layer_builder *b) {
    gates(b);
    spw_layer_dies(b, "gemm w1", "x");
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    last_product(b);
    spw_layer_dies(b, "gemm wo", "act");
    spw_experts_sum_of_y(b);
}

static void again(spw_layer_builder *b) {
    gates(b);
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    last_product(b);
    spw_experts_sum_of_y(b);
}

/* d_act takes the place of act and becomes d_w0_out; d_w1_out stands where w1_out was. */
static void gradient(spw_layer_builder *b) {
    spw_experts_gather_of_dy(b);
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_layer_born(b, "gemm wo input gradient", (spw_tensor){"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "gemm wo input gradient", spw_experts_dy_name(b));
    spw_layer_dies(b, "swiglu gradient", "w1_out");
    spw_layer_born(b, "swiglu gradient", (spw_tensor){"d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu gradient", "w0_out");
    spw_layer_born(b, "gemm w0 input gradient", (spw_tensor){"dx_w0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_born(b, "gemm w1 input gradient", (spw_tensor){"dx_w1", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "w0 w1 weight gradients", "x");
    spw_layer_dies(b, "w0 w1 weight gradients", "d_w0_out");
    spw_layer_dies(b, "w0 w1 weight gradients", "d_w1_out");
    spw_layer_dies(b, "sum of dx", "dx_w1");
}

const spw_experts spw_experts_grouped = {forward, again, gradient, "dx_w0"};
