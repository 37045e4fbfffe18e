/* dense as XLA runs it. Three moments compete: the recomputed activations with the gradient of one (4 [D, F]), the row
 * gradients with their transposed copies on the way to an exchange (7 [D, H]; without one 4 and all gathered weights), and the
 * mask's gradient, which is padded by a slot an expert (2 [T, E C] + [T, E (C + 1)]). */
#include "sim/schemes/maxtext/xla_layers.h"

typedef struct form {
    bool gathered; /* all experts' weights come to the tokens: nothing is exchanged */
    bool peeled;   /* the dispatched slots of all GPUs lie in one tensor */
    size_t capacity;
} form;

static const spw_tensor x = {"x", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y = {"y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y_sent = {"y_transposed", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor y_returned = {"y_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN};
static const spw_tensor mask = {"mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS};

static void gather_weights(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    static const char *const names[] = {"wi_0", "wi_1", "wo"};
    if (!f->gathered) {
        spw_xla_gather_weights(s, b);
        return;
    }
    for (int i = 0; i < 3; i++) {
        spw_tensor weight = spw_xla_weight(s, names[i]);
        weight.dim[0] = (spw_dim){"E", s->experts};
        spw_layer_born(b, "all-gather of weights", weight);
    }
}

/* The top-k weights are spread to [T, E] by a scatter that is not sharded: it holds the whole job's batch. */
static void scatter(const spw_layer_shape *s, spw_layer_builder *b) {
    const uint64_t sequences = (uint64_t)(s->gpus * s->sequences);
    const spw_dim batch = {"G p", sequences}, length = {"S", s->sequence_length};
    spw_layer_born(b, "masks",
                   (spw_tensor){.name = "scatter_u32",
                                .rows = SPW_ROWS_GIVEN,
                                .element_bytes = 4,
                                .dim = {batch, length, {"E", s->experts}}});
    spw_layer_born(b, "masks",
                   (spw_tensor){.name = "scatter_indices",
                                .rows = SPW_ROWS_GIVEN,
                                .element_bytes = 4,
                                .dim = {batch, length, {"K", s->top_k}, {"3", 3}}});
}

static void scatter_dies(spw_layer_builder *b, const char *step) {
    spw_layer_dies(b, step, "scatter_u32");
    spw_layer_dies(b, step, "scatter_indices");
}

static void dispatch(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    scatter(s, b);
    spw_layer_born(b, "masks", mask);
    if (f->peeled)
        spw_layer_born(b, "dispatch",
                       (spw_tensor){.name = "dispatched_of_all_gpus",
                                    .rows = SPW_ROWS_GIVEN,
                                    .dim = {{"E", s->experts},
                                            {"G p", (uint64_t)(s->gpus * s->sequences)},
                                            {"C", f->capacity},
                                            {"H", s->hidden}}});
    if (!f->gathered)
        spw_layer_born(b, "dispatch", spw_xla_rows("dispatched", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, f->gathered ? "dispatch" : "all-to-all", x);
    if (!f->gathered) spw_layer_dies(b, "all-to-all", "dispatched");
}

static void forward(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_FORWARD);
    gather_weights(f, s, b);
    dispatch(f, s, b);
    spw_xla_experts_forward(b, false, y);
    spw_layer_born(b, "transpose of y", y_sent);
    spw_layer_dies(b, "transpose of y", "y");
    spw_layer_dies(b, "combine", "y_transposed");
    spw_layer_dies(b, "combine", "mask");
    if (f->peeled) spw_layer_dies(b, "combine", "dispatched_of_all_gpus");
    scatter_dies(b, "combine");
}

/* What the other layers of a scan's turn keep until their own backward pass. */
static void wait(const spw_layer_shape *s, spw_layer_builder *b, bool born) {
    const uint8_t times = (uint8_t)s->waiting_layers;
    const spw_tensor tensors[] = {
        {"waiting_x_and_y", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN, (uint8_t)(2 * times), 0, {{0}}},
        {"waiting_products", SPW_ROWS_BUFFER, SPW_WIDTH_FFN, (uint8_t)(4 * times), 0, {{0}}},
        {"waiting_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS, times, 0, {{0}}},
        {.name = "waiting_scatter_u32",
         .rows = SPW_ROWS_GIVEN,
         .times = times,
         .element_bytes = 4,
         .dim = {{"G p", (uint64_t)(s->gpus * s->sequences)}, {"S", s->sequence_length}, {"E", s->experts}}},
    };
    if (times > 0) spw_xla_wait(b, tensors, 4, born);
}

static void recompute(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    wait(s, b, true);
    gather_weights(f, s, b);
    dispatch(f, s, b);
    spw_xla_up(b);
}

static void pad_mask_gradient(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_layer_born(b, "pad of the mask gradient",
                   (spw_tensor){.name = "d_mask_padded",
                                .rows = SPW_ROWS_GIVEN,
                                .dim = {{"T", s->tokens}, {"E", s->experts}, {"(C + 1)", f->capacity + 1}}});
    spw_layer_dies(b, "pad of the mask gradient", "d_mask");
    spw_layer_dies(b, "router weight gradient", "d_mask_padded");
    scatter_dies(b, "router weight gradient");
}

/* Between the exchanges of dy and of dx. */
static void rows_exchanged(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_xla_swiglu(b);
    spw_layer_born(b, "gemm wo", y);
    spw_xla_swiglu_gradient(b, true);
    spw_layer_dies(b, "gemm wo input gradient", "wo");
    spw_layer_born(b, "gemm w0 input gradient", spw_xla_rows("dx0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w0 input gradient", "wi_0");
    spw_layer_born(b, "transpose of y", y_sent);
    spw_layer_dies(b, "transpose of y", "y");
    spw_layer_born(b, "all-to-all of y", y_returned);
    spw_layer_born(b, "gemm w1 input gradient", spw_xla_rows("dx1", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, "transpose of dx", spw_xla_rows("dx_transposed", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "transpose of dx", "dx0");
    spw_layer_dies(b, "transpose of dx", "dx1");
    spw_layer_dies(b, "transpose of dx", "wi_1");
    spw_layer_dies(b, "all-to-all of y", "y_transposed");
    spw_layer_born(b, "mask gradient", spw_xla_rows("d_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS));
    pad_mask_gradient(f, s, b);
    spw_layer_dies(b, "router weight gradient", "y_returned");
    spw_layer_born(b, "all-to-all of dx", spw_xla_rows("dx_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "all-to-all of dx", "dx_transposed");
}

/* As rows_at_home() by XLA of JAX 0.11 on where F > H: the whole gradients of gate and up come before their reduce-scatters, beside both
 * products and their gradients: 4 [D, F] + 5 [E, H, F]. */
static void wide_rows_at_home(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    static const char *const gradients[] = {"d_wi_0", "d_wi_1"};
    spw_layer_born(b, "gemm wo", y);
    spw_layer_born(b, "mask gradient", spw_xla_rows("d_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS));
    spw_layer_dies(b, "mask gradient", "y");
    spw_layer_born(b, "gemm wo input gradient", spw_xla_rows("d_w0_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_dies(b, "gemm wo input gradient", "dy");
    spw_layer_born(b, "swiglu gradient", spw_xla_rows("d_w1_out", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    for (int i = 0; i < 2; i++) {
        spw_tensor gradient = spw_xla_weight(s, gradients[i]);
        gradient.dim[0] = (spw_dim){"E", s->experts};
        spw_layer_born(b, "weight gradients of gate and up", gradient);
    }
    spw_layer_dies(b, "weight gradients of gate and up", "x");
    pad_mask_gradient(f, s, b);
    spw_layer_dies(b, "reduce-scatter of weight gradients", "d_wi_0");
    spw_layer_born(b, "swiglu", spw_xla_rows("act", SPW_ROWS_BUFFER, SPW_WIDTH_FFN));
    spw_layer_dies(b, "swiglu", "w0_out");
    spw_layer_dies(b, "swiglu", "w1_out");
    spw_layer_dies(b, "reduce-scatter of weight gradients", "d_wi_1");
    spw_layer_dies(b, "wo weight gradient", "act");
    spw_layer_dies(b, "wo weight gradient", "wo");
    spw_layer_born(b, "gemm w0 input gradient", spw_xla_rows("dx0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w0 input gradient", "wi_0");
    spw_layer_dies(b, "gemm w0 input gradient", "d_w0_out");
    spw_layer_born(b, "gemm w1 input gradient",
                   spw_xla_rows("dx_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w1 input gradient", "wi_1");
    spw_layer_dies(b, "gemm w1 input gradient", "d_w1_out");
    spw_layer_dies(b, "gemm w1 input gradient", "dx0");
}

/* The same as rows_exchanged() where the rows never leave the rank. */
static void rows_at_home(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    spw_xla_swiglu(b);
    spw_layer_born(b, "gemm wo", y);
    spw_layer_born(b, "transpose of y", y_sent);
    spw_layer_dies(b, "transpose of y", "y");
    spw_xla_swiglu_gradient(b, true);
    spw_layer_dies(b, "gemm wo input gradient", "wo");
    spw_layer_born(b, "mask gradient", spw_xla_rows("d_mask", SPW_ROWS_TOKENS, SPW_WIDTH_SLOTS));
    spw_layer_dies(b, "mask gradient", "y_transposed");
    pad_mask_gradient(f, s, b);
    spw_layer_born(b, "gemm w0 input gradient", spw_xla_rows("dx0", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w0 input gradient", "wi_0");
    spw_layer_born(b, "gemm w1 input gradient",
                   spw_xla_rows("dx_returned", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_dies(b, "gemm w1 input gradient", "wi_1");
    spw_layer_dies(b, "gemm w1 input gradient", "dx0");
}

static void backward(const form *f, const spw_layer_shape *s, spw_layer_builder *b) {
    const bool wide = f->gathered && s->ffn > s->hidden && spw_layer_flavour(b) == SPW_FLAVOUR_XLA_APART;
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    if (!f->gathered)
        spw_layer_born(b, "combine gradient", spw_xla_rows("dy_sent", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    spw_layer_born(b, f->gathered ? "combine gradient" : "all-to-all of dy",
                   spw_xla_rows("dy", SPW_ROWS_BUFFER, SPW_WIDTH_HIDDEN));
    if (!f->gathered) spw_layer_dies(b, "all-to-all of dy", "dy_sent");
    if (wide)
        wide_rows_at_home(f, s, b);
    else if (f->gathered)
        rows_at_home(f, s, b);
    else
        rows_exchanged(f, s, b);
    if (!wide) {
        spw_layer_born(b, "wo weight gradient", spw_xla_weight(s, "d_wo"));
        spw_layer_dies(b, "wo weight gradient", "dy");
        spw_layer_dies(b, "wo weight gradient", "act");
        spw_xla_up_weight_gradients(s, b);
        spw_xla_scatter_gradients(b);
    }
    spw_layer_dies(b, "dispatch gradient", "dx_returned");
    spw_layer_dies(b, "dispatch gradient", "mask");
    if (f->peeled) spw_layer_dies(b, "dispatch gradient", "dispatched_of_all_gpus");
    wait(s, b, false);
}

void spw_xla_dense(const spw_scheme *scheme, const spw_layer_shape *s, spw_layer_builder *b) {
    const form f = {.gathered = spw_scheme_option_is(scheme, "layout", "gathered"),
                    .peeled = spw_scheme_option_is(scheme, "layout", "peeled"),
                    .capacity = spw_scheme_capacity(scheme, s)};
    forward(&f, s, b);
    recompute(&f, s, b);
    backward(&f, s, b);
}
