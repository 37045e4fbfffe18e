#include "sim/schemes/experts.h"

static void gates(spw_layer_builder *b) {
    spw_layer_born(b, "gemm w0", (spw_tensor){"w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_born(b, "gemm w1", (spw_tensor){"w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
}

/* Each GPU of a tensor group has F / TP columns, so its product is one term of a sum over the group, which leaves it a part of H. */
static void last_product(spw_layer_builder *b, bool keeps_act) {
    const bool cut = spw_layer_is_cut(b);
    spw_layer_born(b, "gemm wo", (spw_tensor){cut ? "y_term" : "y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
    if (!keeps_act) spw_layer_dies(b, "gemm wo", "act");
    if (!cut) return;
    spw_layer_born(b, "sum of y", (spw_tensor){"y", SPW_ROWS_BUFFER, SPW_WIDTH_RETURNED});
    spw_layer_dies(b, "sum of y", "y_term");
}

static void forward(spw_layer_builder *b) {
    gates(b);
    spw_layer_dies(b, "gemm w1", "x");
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    last_product(b, false);
}

static void again(spw_layer_builder *b) {
    gates(b);
    spw_layer_born(b, "swiglu", (spw_tensor){"act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    last_product(b, true);
}

/* d_act takes the place of act and becomes d_w0_out; d_w1_out stands where w1_out was. */
static void gradient(spw_layer_builder *b) {
    const bool cut = spw_layer_is_cut(b);
    if (cut) {
        spw_layer_born(b, "gather of dy", (spw_tensor){"dy_whole", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN});
        spw_layer_dies(b, "gather of dy", "dy");
    }
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_layer_born(b, "gemm wo input gradient", (spw_tensor){"d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN});
    spw_layer_dies(b, "gemm wo input gradient", cut ? "dy_whole" : "dy");
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
