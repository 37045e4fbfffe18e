/* Schemes that receive tokens, not assignments, as XLA runs them: the ring of experts, DeepEP in JAX. The weight gradients
 * come last, so that all their operands live while the gradients of the rows are made: 4 [rows, H] + 3 [rows, F], and the sum
 * over a token's rows. In the loop of a pipeline, and by XLA of JAX 0.11 on, the activation stays too:
 * 4 [rows, F] + 2 [rows, H]. A ragged sort adds its gradient in fp32, and in the forward pass the rows of all choices in fp32. */
#include "sim/schemes/maxtext/xla_layers.h"

typedef struct form {
    bool sorted;   /* by MaxText's ragged sort */
    bool scatters; /* rows are summed by scatters, which no fusion feeds: the weighted rows are kept apart */
    bool masked;   /* ragged_dot */
    bool
        act_kept; /* through the gradients of the rows, whose gathered gradients wait: 4 [rows, F] + 2 [rows, H] */
    bool
        late_y; /* y is made again behind the gradients of the rows: 5 [rows, H], where a layer is unrolled */
    bool dy_fp32; /* a sorted ring's gradients of rows come in fp32 */
    bool
        plain_gradients; /* with gradients of the routing weights a sorted ring runs backward as one that is not */
} form;

static form form_of(const spw_layer_builder *b, const spw_layer_shape *s, form f) {
    const bool apart = spw_layer_flavour(b) == SPW_FLAVOUR_XLA_APART;
    f.act_kept = s->looped || apart;
    f.late_y = apart && s->unrolled_layer;
    f.plain_gradients = !f.sorted || s->routed_gradients;
    f.dy_fp32 = apart && !f.plain_gradients;
    return f;
}

static const spw_tensor x = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y_weighted = {"y_weighted", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};

static void dispatch(spw_layer_builder *b) {
    spw_layer_born(b, "tokens of all ranks", spw_xla_rows("gathered", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, "sort by expert", x);
    spw_layer_dies(b, "sort by expert", "gathered");
}

static void forward(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_FORWARD);
    spw_xla_gather_weights(s, b);
    dispatch(b);
    spw_xla_experts_forward(b, f->masked, y);
    if (f->sorted) {
        const uint64_t choices = (uint64_t)(s->ranks * s->assignments);
        spw_layer_passes(b, "unsort",
                         (spw_tensor){.name = "y_of_all_choices_fp32",
                                      .rows = SPW_ROWS_GIVEN,
                                      .element_bytes = 4,
                                      .dim = {{"R T K", choices}, {"H", s->hidden}}});
    }
    if (f->scatters) spw_layer_passes(b, "weighted sums", y_weighted);
    spw_layer_born(b, "weighted sums", spw_xla_rows("partial_sums", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "weighted sums", "y");
    spw_layer_dies(b, "sums to their ranks", "partial_sums");
}

/* What the other layers of a scan's turn keep until their own backward pass. */
static void wait(const spw_layer_shape *s, spw_layer_builder *b, bool born) {
    const uint8_t times = (uint8_t)s->waiting_layers;
    const spw_tensor tensors[] = {
        {"waiting_x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, times, 0, {{0}}},
        {"waiting_products", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, (uint8_t)(2 * times), 0, {{0}}},
        {"waiting_act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, times, 0, {{0}}},
        {"waiting_y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, times, 0, {{0}}},
        spw_xla_waiting_weights(s),
    };
    if (times > 0) spw_xla_wait(b, tensors, s->looped ? 4 : 5, born);
}

static void recompute(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    wait(s, b, true);
    spw_xla_gather_weights(s, b);
    dispatch(b);
    spw_xla_up(b);
    spw_xla_swiglu(b);
    if (f->late_y) return;
    spw_layer_born(b, "gemm wo", y);
    if (!f->act_kept) spw_layer_dies(b, "gemm wo", "act");
    if (f->scatters) spw_layer_passes(b, "weighted sums", y_weighted);
}

/* From the gradient of the sums to that of the rows. */
static void row_gradients(const form *f, spw_layer_builder *b) {
    const bool waits = spw_layer_flavour(b) == SPW_FLAVOUR_XLA_APART && f->plain_gradients;
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "gradients of all ranks",
                   spw_xla_rows("d_partial_sums", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN));
    spw_tensor dy = spw_xla_rows("dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN);
    if (f->dy_fp32) dy.element_bytes = 4;
    spw_layer_born(b, "sort dy by expert", dy);
    if (!f->late_y) spw_layer_dies(b, "router weight gradient", "y");
    if (!waits) spw_layer_dies(b, "router weight gradient", "d_partial_sums");
    spw_xla_swiglu_gradient(b, f->act_kept);
    if (waits) spw_layer_dies(b, "gradients of all ranks are used", "d_partial_sums");
    if (!f->late_y) spw_layer_dies(b, "gemm wo input gradient", "wo");
    spw_xla_input_gradients(b, f->masked, true);
    if (f->late_y) {
        spw_layer_born(b, "gemm wo again", y);
        spw_layer_dies(b, "gemm wo again", "wo");
        spw_layer_dies(b, "router weight gradient", "y");
    }
    const bool sorts_fp32 = !f->plain_gradients && !f->dy_fp32;
    if (f->dy_fp32) spw_layer_dies(b, "sum of input gradients", "dx1");
    if (sorts_fp32) {
        spw_layer_dies(b, "unsort of gradients", "dx1");
        spw_layer_born(b, "unsort of gradients",
                       (spw_tensor){.name = "dx_unsorted_fp32",
                                    .rows = SPW_ROWS_BUFFER,
                                    .width = SPW_WIDTH_HIDDEN,
                                    .element_bytes = 4});
    }
    spw_layer_born(b, "sum over a token's rows",
                   spw_xla_rows("dx_gathered", SPW_ROWS_GATHERED, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "sum over a token's rows", "dx0");
    if (!f->dy_fp32) spw_layer_dies(b, "sum over a token's rows", sorts_fp32 ? "dx_unsorted_fp32" : "dx1");
}

static void run(form given, const spw_layer_shape *s, spw_layer_builder *b) {
    const form of = form_of(b, s, given), *f = &of;
    forward(f, s, b);
    recompute(f, s, b);
    row_gradients(f, b);
    spw_layer_born(b, "wo weight gradient", spw_xla_weight(s, "d_wo"));
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_layer_dies(b, "wo weight gradient", "dy");
    spw_xla_up_weight_gradients(s, b);
    spw_xla_scatter_gradients(b);
    spw_layer_dies(b, "dx to its ranks", "dx_gathered");
    wait(s, b, false);
}

void spw_xla_ring(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const form f = {.sorted = spw_scheme_option_is(scheme, "ragged_sort", "true") ||
                              spw_scheme_option_value(scheme, "buffer_factor") > 0.0};
    run(f, s, b);
}

void spw_xla_deepep(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const form f = {.scatters = !spw_scheme_option_is(scheme, "fan_in", "gather")};
    run(f, s, b);
}

void spw_xla_ragged_deepep(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const form f = {.masked = true};
    (void)scheme;
    run(f, s, b);
}
