#include "sim/schemes/maxtext/xla_layers.h"

spw_tensor spw_xla_rows(const char *name, spw_rows rows, spw_width width) {
    return (spw_tensor){.name = name, .rows = rows, .width = width};
}

spw_tensor spw_xla_weight(const spw_layer_shape *s, const char *name) {
    return (spw_tensor){.name = name,
                        .rows = SPW_ROWS_GIVEN,
                        .dim = {{"e", s->experts_per_rank}, {"H", s->hidden}, {"F", s->ffn}}};
}

spw_tensor spw_xla_waiting_weights(const spw_layer_shape *s) {
    spw_tensor weights = spw_xla_weight(s, "waiting_weights");
    weights.times = (uint8_t)(3 * s->waiting_layers);
    return weights;
}

void spw_xla_gather_weights(const spw_layer_shape *s, spw_layer_builder *b) {
    static const char *const names[] = {"wi_0", "wi_1", "wo"};
    for (int i = 0; i < 3; i++) {
        spw_tensor weight = spw_xla_weight(s, names[i]);
        if (s->whole_weights) weight.dim[0] = (spw_dim){"0, nothing to gather", 0};
        spw_layer_born(b, "all-gather of weights", weight);
    }
}

void spw_xla_up_weight_gradients(const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_born(b, "w0 weight gradient", spw_xla_weight(s, "d_wi_0"));
    spw_layer_dies(b, "w0 weight gradient", "d_w0_out");
    spw_layer_born(b, "w1 weight gradient", spw_xla_weight(s, "d_wi_1"));
    spw_layer_dies(b, "w1 weight gradient", "d_w1_out");
    spw_layer_dies(b, "w1 weight gradient", "x");
}

void spw_xla_scatter_gradients(spw_layer_builder *b) {
    static const char *const names[] = {"d_wi_0", "d_wi_1", "d_wo"};
    for (int i = 0; i < 3; i++) spw_layer_dies(b, "reduce-scatter of weight gradients", names[i]);
}

void spw_xla_up(spw_layer_builder *b) {
    spw_layer_born(b, "gemm w0", spw_xla_rows("w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_born(b, "gemm w1", spw_xla_rows("w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
}

void spw_xla_swiglu(spw_layer_builder *b) {
    spw_layer_born(b, "swiglu", spw_xla_rows("act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
}

void spw_xla_swiglu_gradient(spw_layer_builder *b, bool act_kept) {
    const char *step = "swiglu gradient";
    spw_layer_born(b, "gemm wo input gradient", spw_xla_rows("d_act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_dies(b, step, "w0_out");
    spw_layer_born(b, step, spw_xla_rows("d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_dies(b, step, "w1_out");
    spw_layer_born(b, step, spw_xla_rows("d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_dies(b, step, "d_act");
    if (!act_kept) spw_xla_swiglu(b);
}

void spw_xla_mask(spw_layer_builder *b, const char *step) {
    const spw_tensor masked[] = {
        {.name = "operand_by_expert", .rows = SPW_ROWS_EXPANDED, .width = SPW_WIDTH_FFN},
        {.name = "result_by_expert", .rows = SPW_ROWS_EXPANDED, .width = SPW_WIDTH_HIDDEN},
        {.name = "x_by_expert", .rows = SPW_ROWS_EXPANDED, .width = SPW_WIDTH_HIDDEN},
    };
    for (size_t i = 0; i < 3; i++) spw_layer_born(b, step, masked[i]);
    for (size_t i = 0; i < 3; i++) spw_layer_dies(b, step, masked[i].name);
}

void spw_xla_input_gradients(spw_layer_builder *b, bool masked, bool kept) {
    spw_layer_born(b, "gemm w0 input gradient", spw_xla_rows("dx0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w0 input gradient", "wi_0");
    if (masked) spw_xla_mask(b, "gemm w1 input gradient");
    if (!kept) spw_layer_dies(b, "gemm w0 input gradient", "d_w0_out");
    spw_layer_born(b, "gemm w1 input gradient", spw_xla_rows("dx1", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w1 input gradient", "wi_1");
    if (!kept) spw_layer_dies(b, "gemm w1 input gradient", "d_w1_out");
}

void spw_xla_wait(spw_layer_builder *b, const spw_tensor *tensor, size_t count, bool born) {
    for (size_t i = 0; i < count; i++) {
        if (born)
            spw_layer_born(b, "other layers of the turn", tensor[i]);
        else
            spw_layer_dies(b, "other layers of the turn", tensor[i].name);
    }
}

void spw_xla_experts_forward(spw_layer_builder *b, bool masked, spw_tensor y) {
    static const char *const used[] = {"act", "wi_0", "wi_1", "wo"};
    spw_xla_up(b);
    if (masked) spw_xla_mask(b, "gemm w1");
    spw_layer_dies(b, "gemm w1", "x");
    spw_xla_swiglu(b);
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    spw_layer_born(b, "gemm wo", y);
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) spw_layer_dies(b, "gemm wo", used[i]);
}
