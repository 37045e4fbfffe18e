#include "sim/memory/tensors/transformers_operations.h"

/* Of a sum over rows: partial sums in fp32, one of 16 rows and 32 columns of threads. */
enum { ROW_SUM = 8 };
/* A radix sort's own: keys and values once more, and some. */
enum { SORT_MORE = 12800 };
uint64_t spw_hf_sort_bytes(uint64_t n) { return (uint64_t)2 * SPW_HF_INDEX * n + SORT_MORE; }

spw_value spw_hf_cast(spw_tape *t, spw_value x, uint64_t n, size_t from, size_t to) {
    if (from == to) return spw_tape_hold(t, x);
    return spw_tape_apply(t, &(spw_op){.bytes = to * n,
                                       .input = {x},
                                       .back = {SPW_TO(0, from * n, (double)(to * n))},
                                       .read_bytes = (double)(from * n)});
}

spw_value spw_hf_add(spw_tape *t, spw_value a, spw_value b, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                                       .read_bytes = 2.0 * (double)bytes});
}

spw_value spw_hf_multiply(spw_tape *t, spw_value a, spw_value b, uint64_t bytes) {
    const double r = 2.0 * (double)bytes;
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .keep = {{b, 0}, {a, 1}},
                                       .back = {SPW_TO(1, bytes, r), SPW_TO(0, bytes, r)},
                                       .read_bytes = r});
}

spw_value spw_hf_silu(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{x, 0}},
                                       .back = {SPW_TO(0, bytes, 2.0 * (double)bytes)},
                                       .read_bytes = (double)bytes});
}

typedef struct sizes {
    uint64_t rows, in, out, bytes; /* of an element */
    bool of_sequences;
    spw_value bias; /* none: the zero value */
} sizes;

static spw_value product_of(spw_hf_model *m, const sizes *s, spw_value x, spw_value w) {
    const bool narrow = w.leaf != 0 && s->bytes < SPW_HF_FP32; /* a parameter of the model's own format */
    const uint64_t gradient = narrow ? spw_hf_gradient_bytes(m) : s->bytes;
    const double flop = 2.0 * (double)s->rows * (double)s->in * (double)s->out;
    const spw_gradient_step to_w = SPW_TO_PRODUCT(1, s->in * s->out * gradient, flop),
                            to_x = {s->of_sequences ? SPW_GRADIENT_VIEW : SPW_GRADIENT_TO, 0,
                                    s->rows * s->in * s->bytes, 0.0, flop};
    const bool biased = s->bias.leaf != 0; /* addmm: of x first; its engine sums the rows of a bias */
    return spw_tape_apply(
        m->tape,
        &(spw_op){.bytes = s->rows * s->out * s->bytes,
                  .input = {x, w, s->bias},
                  .keep = {{x, 1}, {w, 0}}, /* a parameter is no matter of the tape */
                  .back = {biased ? to_x : to_w, biased ? to_w : to_x, SPW_TO_DONE,
                           SPW_TO(2, s->out * gradient, (double)(s->rows * s->out * s->bytes))},
                  .flop = flop,
                  .rate = s->in < 128 || s->out < 128 ? SPW_HF_SMALL_PRODUCT : SPW_HF_DENSE_PRODUCT});
}

spw_value spw_hf_product(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in, uint64_t out,
                         bool of_sequences) {
    return product_of(m, &(sizes){rows, in, out, m->shape->element_bytes, of_sequences, {0}}, x, w);
}

spw_value spw_hf_wide_product(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in,
                              uint64_t out) {
    return product_of(m, &(sizes){rows, in, out, SPW_HF_FP32, false, {0}}, x, w);
}

spw_value spw_hf_biased_product(spw_hf_model *m, spw_value x, spw_value w, size_t bias, uint64_t rows,
                                bool of_sequences) {
    const spw_hf_weight *matrix = &m->weight[bias - 1];
    return product_of(m,
                      &(sizes){rows, matrix->columns, matrix->rows, m->shape->element_bytes, of_sequences,
                               SPW_HF_LEAF(m, bias)},
                      x, w);
}

spw_value spw_hf_keeping_output(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keeps_output = true,
                                       .back = {SPW_TO(0, bytes, 2.0 * (double)bytes)},
                                       .read_bytes = (double)bytes});
}

spw_value spw_hf_softmax(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keeps_output = true,
                                       .back = {SPW_TO(0, bytes, 2.0 * (double)bytes),
                                                {SPW_GRADIENT_WORK, 0, bytes, 2.0 * (double)bytes, 0.0}},
                                       .read_bytes = (double)bytes});
}

spw_value spw_hf_scale(spw_tape *t, spw_value x, spw_value by, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{by, 0}},
                                       .back = {SPW_TO(0, bytes, (double)bytes)},
                                       .read_bytes = (double)bytes});
}

spw_value spw_hf_part(spw_tape *t, spw_value x, uint64_t whole) {
    return spw_tape_apply(t, &(spw_op){.input = {x}, .back = {SPW_TO(0, whole, 0.0)}});
}

spw_value spw_hf_join(spw_tape *t, spw_value a, spw_value b, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                                       .read_bytes = (double)bytes});
}

spw_value spw_hf_linear(spw_hf_model *m, spw_value x, size_t at, uint64_t rows, bool adapts) {
    const uint64_t in = m->weight[at].columns, out = m->weight[at].rows, r = m->shape->lora_rank,
                   bytes = rows * out * m->shape->element_bytes;
    const spw_value w = SPW_HF_LEAF(m, at);
    const size_t adapter = at + (m->weight[at].biased ? 2 : 1);
    const spw_value base = m->weight[at].biased ? spw_hf_biased_product(m, x, w, at + 1, rows, true)
                                                : spw_hf_product(m, x, w, rows, in, out, true);
    if (!adapts || r == 0) return base;
    const uint16_t kind = spw_tape_kind(m->tape, SPW_HF_ADAPTERS);
    const spw_value a = spw_hf_product(m, x, SPW_HF_LEAF(m, adapter), rows, in, r, true);
    const spw_value b = spw_hf_product(m, a, SPW_HF_LEAF(m, adapter + 1), rows, r, out, true);
    spw_tape_drop(m->tape, a);
    const spw_value scaled = spw_tape_apply(m->tape, &(spw_op){.bytes = bytes,
                                                               .input = {b},
                                                               .back = {SPW_TO(0, bytes, (double)bytes)},
                                                               .read_bytes = (double)bytes});
    spw_tape_drop(m->tape, b);
    spw_tape_kind(m->tape, kind);
    const spw_value sum = spw_hf_add(m->tape, base, scaled, bytes);
    spw_tape_drop(m->tape, scaled);
    spw_tape_drop(m->tape, base);
    return sum;
}

/* 1 / sqrt(mean of x^2) of x in fp32; *mean keeps a name. */
static spw_value root_of(spw_tape *t, spw_value wide, uint64_t rows, uint64_t width, spw_value *mean) {
    const uint64_t f = SPW_HF_FP32 * rows * width, one = SPW_HF_FP32 * rows;
    const double r = (double)f;
    const spw_value square = spw_tape_apply(
        t, &(spw_op){.bytes = f,
                     .input = {wide},
                     .keep = {{wide, 0}},
                     .back = {SPW_TO_TEMP(0, f, r), SPW_TO_TEMP(0, f, r), SPW_TO(0, f, 2.0 * r)},
                     .read_bytes = r});
    *mean = spw_tape_apply(
        t, &(spw_op){.bytes = one, .input = {square}, .back = {SPW_TO(0, f, 0.0)}, .read_bytes = r});
    spw_tape_drop(t, square);
    const spw_value some =
        spw_tape_apply(t, &(spw_op){.bytes = one, .input = {*mean}, .back = {SPW_TO_PASS(0)}});
    const spw_value root = spw_tape_apply(
        t, &(spw_op){.bytes = one,
                     .input = {some},
                     .keeps_output = true,
                     .back = {SPW_TO_TEMP(0, one, 0.0), SPW_TO_TEMP(0, one, 0.0), SPW_TO(0, one, 0.0)}});
    spw_tape_drop(t, some);
    return root;
}

/* x times a number a row; both of so many bytes an element. */
static spw_value times_root(spw_tape *t, spw_value x, spw_value root, uint64_t bytes, uint64_t of_rows) {
    const double r = (double)bytes;
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x, root},
                                       .keep = {{root, 0}, {x, 1}},
                                       .back = {SPW_TO_TEMP(1, bytes, 2.0 * r), SPW_TO(0, bytes, r),
                                                SPW_TO_DONE, SPW_TO(1, of_rows, r)},
                                       .read_bytes = r});
}

spw_value spw_hf_normalize(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, spw_value *mean) {
    spw_tape *t = m->tape;
    const uint64_t n = rows * width;
    const spw_value wide = spw_hf_cast(t, x, n, m->shape->element_bytes, SPW_HF_FP32),
                    root = root_of(t, wide, rows, width, mean);
    const spw_value scaled = times_root(t, wide, root, SPW_HF_FP32 * n, SPW_HF_FP32 * rows);
    spw_tape_drop(t, root);
    spw_tape_drop(t, wide);
    return scaled;
}

spw_value spw_hf_weigh_narrow(spw_hf_model *m, spw_value scaled, uint64_t rows, uint64_t width, size_t at) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = rows * width;
    const spw_value narrow = spw_hf_cast(t, scaled, n, SPW_HF_FP32, b);
    const double e = (double)(b * n);
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = b * n,
                                    .input = {SPW_HF_LEAF(m, at), narrow},
                                    .keep = {{narrow, 0}},
                                    .back = {SPW_TO(1, b * n, e), SPW_TO_TEMP(0, b * n, 2.0 * e), SPW_TO_DONE,
                                             SPW_TO(0, b * width, e), SPW_TO_WORK(0, ROW_SUM * n)},
                                    .read_bytes = e});
    spw_tape_drop(t, narrow);
    return out;
}

spw_value spw_hf_weigh_wide(spw_hf_model *m, spw_value scaled, uint64_t rows, uint64_t width, size_t at) {
    spw_tape *t = m->tape;
    const uint64_t n = rows * width, f = SPW_HF_FP32 * n, one = SPW_HF_FP32 * width;
    const double r = (double)f;
    const bool mixed = m->shape->scale == SPW_HF_SCALE_MIXED; /* the product itself reads what is narrow */
    spw_value weight = mixed ? SPW_HF_LEAF(m, at) : spw_hf_widened(m, at);
    if (m->shape->scale == SPW_HF_SCALE_CENTRED) {
        const spw_value raw = weight;
        weight = spw_tape_apply(t, &(spw_op){.bytes = one, .input = {raw}, .back = {SPW_TO_PASS(0)}});
        spw_tape_drop(t, raw);
    }
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {weight, scaled},
                                    .keep = {{scaled, 0}, {weight, 1}},
                                    .back = {SPW_TO(1, f, r), SPW_TO_TEMP(0, f, 2.0 * r), SPW_TO_DONE,
                                             SPW_TO(0, mixed ? m->shape->element_bytes * width : one, r),
                                             SPW_TO_WORK(0, ROW_SUM * n)},
                                    .read_bytes = r});
    spw_tape_drop(t, weight);
    return out;
}

spw_value spw_hf_norm(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, size_t at) {
    spw_tape *t = m->tape;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_NORMS);
    spw_value mean, out;
    const spw_value scaled = spw_hf_normalize(m, x, rows, width, &mean);
    if (m->shape->scale == SPW_HF_SCALE_NARROW) {
        out = spw_hf_weigh_narrow(m, scaled, rows, width, at);
    } else {
        const spw_value wide = spw_hf_weigh_wide(m, scaled, rows, width, at);
        out = spw_hf_cast(t, wide, rows * width, SPW_HF_FP32, m->shape->element_bytes);
        spw_tape_drop(t, wide);
    }
    spw_tape_drop(t, scaled);
    spw_tape_drop(t, mean);
    spw_tape_kind(t, kind);
    return out;
}

spw_value spw_hf_widened(spw_hf_model *m, size_t at) {
    const spw_hf_weight *w = &m->weight[at];
    if (w->wide) return w->leaf;
    return spw_hf_cast(m->tape, w->leaf, w->rows * w->columns, m->shape->element_bytes, SPW_HF_FP32);
}

spw_value spw_hf_keeping_input(spw_tape *t, spw_value x, uint64_t bytes) { return spw_hf_silu(t, x, bytes); }

spw_value spw_hf_copy(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(
        t, &(spw_op){.bytes = bytes, .input = {x}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)bytes});
}

spw_value spw_hf_spread(spw_tape *t, spw_value a, spw_value b, uint64_t bytes, uint64_t b_bytes) {
    const double r = (double)bytes;
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {a, b},
                                       .keep = {{b, 0}, {a, 1}},
                                       .back = {SPW_TO_TEMP(1, bytes, 2.0 * r), SPW_TO(0, bytes, r),
                                                SPW_TO_DONE, SPW_TO(1, b_bytes, r)},
                                       .read_bytes = r});
}

spw_value spw_hf_plain_norm(spw_hf_model *m, spw_value x, uint64_t rows, uint64_t width, uint64_t bytes) {
    spw_tape *t = m->tape;
    spw_value mean;
    const spw_value wide = spw_hf_cast(t, x, rows * width, bytes, SPW_HF_FP32),
                    root = root_of(t, wide, rows, width, &mean);
    spw_tape_drop(t, mean);
    spw_tape_drop(t, wide);
    const spw_value narrow = spw_hf_cast(t, root, rows, SPW_HF_FP32, bytes);
    spw_tape_drop(t, root);
    const spw_value out = times_root(t, x, narrow, bytes * rows * width, bytes * rows);
    spw_tape_drop(t, narrow);
    return out;
}

spw_value spw_hf_masked(spw_tape *t, spw_value x, spw_value mask, uint64_t bytes, bool in_place) {
    return spw_tape_apply(t, &(spw_op){.bytes = in_place ? 0 : bytes,
                                       .input = {x},
                                       .keep = {{mask, 0}},
                                       .back = {SPW_TO(0, bytes, (double)bytes)},
                                       .read_bytes = (double)bytes});
}

spw_value spw_hf_take(spw_tape *t, spw_value x, spw_value index, uint64_t n, uint64_t bytes, uint64_t from) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{index, 0}},
                                       .back = {SPW_TO(0, from, 2.0 * (double)bytes), SPW_TO_SORTED(0, n)},
                                       .read_bytes = (double)bytes});
}
