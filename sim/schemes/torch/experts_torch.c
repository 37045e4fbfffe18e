#include "sim/schemes/torch/experts_torch.h"

#include "sim/schemes/list.h"

/* --- Product by product --- */

void spw_experts_autograd_gates(spw_layer_builder *b, spw_rows rows) {
    spw_layer_born(b, "gemm w0", (spw_tensor){"w0_out", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "gemm w1", (spw_tensor){"w1_out", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "silu", (spw_tensor){"silu", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "product", (spw_tensor){"act", rows, SPW_WIDTH_FFN});
}

/* Of all experts of a rank. Autograd adds it to what is there at once, or it stays and is what is there. */
static void weight_gradient(spw_layer_builder *b, const spw_layer_shape *s, const char *step,
                            const char *name) {
    if (s->weight_gradients == SPW_WEIGHT_GRADIENTS_UNLISTED) return;
    spw_layer_born(b, step,
                   (spw_tensor){name, SPW_ROWS_GIVEN, .element_bytes = (uint8_t)s->weight_gradient_bytes,
                                .dim = {{"e", s->experts_per_rank}, {"H", s->hidden}, {"F", s->ffn}}});
    if (s->weight_gradients == SPW_WEIGHT_GRADIENTS_ADDED) spw_layer_dies(b, step, name);
}

void spw_experts_weight_gradients_end(spw_layer_builder *b, const spw_layer_shape *s) {
    static const char *const names[] = {"d_wo", "d_w1", "d_w0"};
    for (size_t i = 0; i < SPW_COUNT_OF(names) && s->weight_gradients == SPW_WEIGHT_GRADIENTS_WAIT; i++)
        spw_layer_dies(b, "layer end", names[i]);
}

static void silu_gradient(spw_layer_builder *b, spw_rows rows) {
    spw_layer_born(b, "silu gradient", (spw_tensor){"d_w0_out", rows, SPW_WIDTH_FFN});
    spw_layer_dies(b, "silu gradient", "w0_out");
    spw_layer_dies(b, "silu gradient", "d_silu");
}

static void up_gradient(spw_layer_builder *b, const spw_layer_shape *s, spw_rows rows) {
    weight_gradient(b, s, "gemm w1 gradient", "d_w1");
    spw_layer_born(b, "gemm w1 gradient", (spw_tensor){"dx_w1", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gemm w1 gradient", "d_w1_out");
}

void spw_experts_autograd_gradient(spw_layer_builder *b, const spw_layer_shape *s, spw_rows rows,
                                   spw_autograd_order order) {
    weight_gradient(b, s, "gemm wo gradient", "d_wo");
    spw_layer_born(b, "gemm wo gradient", (spw_tensor){"d_act", rows, SPW_WIDTH_FFN});
    spw_layer_dies(b, "gemm wo gradient", "act");
    spw_layer_dies(b, "gemm wo gradient", "dy");
    spw_layer_born(b, "product gradient", (spw_tensor){"d_silu", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "product gradient", (spw_tensor){"d_w1_out", rows, SPW_WIDTH_FFN});
    spw_layer_dies(b, "product gradient", "silu");
    spw_layer_dies(b, "product gradient", "w1_out");
    spw_layer_dies(b, "product gradient", "d_act");
    if (order == SPW_AUTOGRAD_SILU_LAST) silu_gradient(b, rows);
    up_gradient(b, s, rows);
    if (order == SPW_AUTOGRAD_UP_LAST) silu_gradient(b, rows);
    weight_gradient(b, s, "gemm w0 gradient", "d_w0");
    spw_layer_born(b, "gemm w0 gradient", (spw_tensor){"dx_w0", rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "gemm w0 gradient", "x");
    spw_layer_dies(b, "gemm w0 gradient", "d_w0_out");
    spw_layer_dies(b, "sum of dx", "dx_w0");
}

void spw_experts_up_last(spw_layer_builder *b, spw_rows rows) {
    const bool forward = spw_layer_phase(b) == SPW_PHASE_FORWARD;
    spw_layer_born(b, "gemm w0", (spw_tensor){"w0_out", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "silu", (spw_tensor){"silu", rows, SPW_WIDTH_FFN});
    if (forward) spw_layer_dies(b, "silu", "w0_out");
    spw_layer_born(b, "gemm w1", (spw_tensor){"w1_out", rows, SPW_WIDTH_FFN});
    spw_layer_born(b, "product", (spw_tensor){"act", rows, SPW_WIDTH_FFN});
    if (forward) {
        spw_layer_dies(b, "product", "w1_out");
        spw_layer_dies(b, "product", "silu");
    }
    spw_layer_born(b, "gemm wo", (spw_tensor){"y", rows, SPW_WIDTH_HIDDEN});
    if (forward) spw_layer_dies(b, "gemm wo", "act");
}

/* --- Gate and up in one product --- */

spw_tensor spw_experts_fused_x(spw_experts_fused e, const char *name) {
    return (spw_tensor){name, e.rows, SPW_WIDTH_HIDDEN, .element_bytes = e.fp8 ? 1 : 0};
}

void spw_experts_fused_gates(spw_layer_builder *b, spw_experts_fused e) {
    spw_layer_born(b, "fc1", (spw_tensor){"fc1_out", e.rows, SPW_WIDTH_FFN, .times = 2});
    spw_layer_born(b, "swiglu", (spw_tensor){"act", e.rows, SPW_WIDTH_FFN});
}

void spw_experts_fused_forward(spw_layer_builder *b, spw_experts_fused e) {
    spw_layer_born(b, "fc1", (spw_tensor){"fc1_out", e.rows, SPW_WIDTH_FFN, .times = 2});
    spw_layer_dies(b, "fc1", "x");
    if (e.fp8) spw_layer_dies(b, "fc1", "x_scales");
    spw_layer_born(b, "swiglu", (spw_tensor){"act", e.rows, SPW_WIDTH_FFN});
    spw_layer_dies(b, "swiglu", "fc1_out");
    if (e.weighted) spw_layer_dies(b, "swiglu", "row_weight");
    spw_layer_born(b, "fc2", (spw_tensor){"y", e.rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fc2", "act");
}

void spw_experts_fused_again(spw_layer_builder *b, spw_experts_fused e) {
    spw_experts_fused_gates(b, e);
    spw_layer_born(b, "fc2", (spw_tensor){"y", e.rows, SPW_WIDTH_HIDDEN});
}

void spw_experts_fused_gradient(spw_layer_builder *b, spw_experts_fused e) {
    spw_layer_born(b, "fc2 gradient", (spw_tensor){"d_act", e.rows, SPW_WIDTH_FFN});
    spw_layer_dies(b, "fc2 gradient", "act");
    spw_layer_dies(b, "fc2 gradient", "dy");
    if (e.fp8) spw_layer_dies(b, "fc2 gradient", "dy_scales");
    spw_layer_born(b, "swiglu gradient", (spw_tensor){"d_fc1_out", e.rows, SPW_WIDTH_FFN, .times = 2});
    if (e.weighted)
        spw_layer_born(b, "swiglu gradient",
                       (spw_tensor){"d_row_weight", e.rows, SPW_WIDTH_ONE, .element_bytes = 4});
    spw_layer_dies(b, "swiglu gradient", "d_act");
    spw_layer_dies(b, "swiglu gradient", "fc1_out");
    if (e.weighted) spw_layer_dies(b, "swiglu gradient", "row_weight");
    spw_layer_born(b, "fc1 gradient", (spw_tensor){"dx", e.rows, SPW_WIDTH_HIDDEN});
    spw_layer_dies(b, "fc1 gradient", "x");
    spw_layer_dies(b, "fc1 gradient", "d_fc1_out");
    if (e.fp8) spw_layer_dies(b, "fc1 gradient", "x_scales");
}
