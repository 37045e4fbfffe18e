#include "sim/memory/tensors/transformers_operations.h"

#include <string.h>

static spw_value clamp(spw_tape *t, spw_value x, uint64_t bytes) {
    return spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                       .input = {x},
                                       .keep = {{x, 0}},
                                       .back = {SPW_TO(0, bytes, 2.0 * (double)bytes)},
                                       .read_bytes = (double)bytes});
}

/* (up + 1) gate sigmoid(a gate) of clamped halves [MiniMaxM3VLExperts._apply_gate] */
static spw_value shifted(spw_tape *t, spw_value gate, spw_value up, uint64_t bytes) {
    const spw_value g = clamp(t, gate, bytes), u = clamp(t, up, bytes),
                    part = spw_hf_scale(t, g, (spw_value){.storage = 0}, bytes),
                    open = spw_hf_keeping_output(t, part, bytes);
    spw_tape_drop(t, part);
    const spw_value act = spw_hf_multiply(t, g, open, bytes);
    spw_tape_drop(t, open);
    const spw_value more =
        spw_tape_apply(t, &(spw_op){.bytes = bytes, .input = {u}, .back = {SPW_TO_PASS(0)}});
    const spw_value out = spw_hf_multiply(t, more, act, bytes);
    const spw_value names[] = {g, u, act, more};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

spw_value spw_hf_gated(spw_hf_model *m, spw_value gate, spw_value up, uint64_t bytes) {
    spw_tape *t = m->tape;
    if (m->shape->gate == SPW_HF_GATE_SHIFTED || m->shape->gate == SPW_HF_GATE_TURNS)
        return shifted(t, gate, up, bytes);
    const bool clamps = m->shape->gate == SPW_HF_GATE_CLAMPED;
    const spw_value g = clamps ? clamp(t, gate, bytes) : spw_tape_hold(t, gate),
                    u = clamps ? clamp(t, up, bytes) : spw_tape_hold(t, up);
    const spw_value act = spw_hf_silu(t, g, bytes), out = spw_hf_multiply(t, act, u, bytes);
    spw_tape_drop(t, act);
    spw_tape_drop(t, g);
    spw_tape_drop(t, u);
    return out;
}

static void add_dense(spw_hf_model *m, spw_hf_layer *l, uint64_t width) {
    const uint64_t hidden = m->shape->model->hidden;
    const bool all = m->shape->adapts_all, one = m->shape->gate == SPW_HF_GATE_SHIFTED;
    if (!m->shape->model->plain_ffn) l->ffn_gate = spw_hf_add_matrix(m, one ? 2 * width : width, hidden, all);
    if (!one) l->ffn_up = spw_hf_add_matrix(m, width, hidden, all);
    l->ffn_down = spw_hf_add_matrix(m, hidden, width, all);
}

/* relu(x)^2. Takes the name of x. */
static spw_value relu_squared(spw_tape *t, spw_value x, uint64_t bytes) {
    const spw_value positive = spw_hf_keeping_output(t, x, bytes);
    spw_tape_drop(t, x);
    const spw_value out = spw_hf_keeping_input(t, positive, bytes);
    spw_tape_drop(t, positive);
    return out;
}

static spw_value plain_dense(spw_hf_model *m, const spw_hf_layer *l, spw_value x, uint64_t width) {
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    const bool all = m->shape->adapts_all;
    const uint16_t kind = spw_tape_kind(m->tape, SPW_HF_FFN);
    const spw_value act = relu_squared(m->tape, spw_hf_linear(m, x, l->ffn_up, rows, all), bytes);
    const spw_value out = spw_hf_linear(m, act, l->ffn_down, rows, all);
    spw_tape_drop(m->tape, act);
    spw_tape_kind(m->tape, kind);
    return out;
}

static spw_value dense(spw_hf_model *m, const spw_hf_layer *l, spw_value x, uint64_t width) {
    spw_tape *t = m->tape;
    if (m->shape->model->plain_ffn) return plain_dense(m, l, x, width);
    const uint64_t rows = m->shape->tokens, bytes = rows * width * m->shape->element_bytes;
    const bool all = m->shape->adapts_all;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_FFN);
    spw_value both;
    if (m->shape->gate == SPW_HF_GATE_SILU) {
        const spw_value gate = spw_hf_linear(m, x, l->ffn_gate, rows, all), act = spw_hf_silu(t, gate, bytes);
        spw_tape_drop(t, gate);
        const spw_value up = spw_hf_linear(m, x, l->ffn_up, rows, all);
        both = spw_hf_multiply(t, act, up, bytes);
        spw_tape_drop(t, act);
        spw_tape_drop(t, up);
    } else if (m->shape->gate == SPW_HF_GATE_SHIFTED) {
        const spw_value made = spw_hf_linear(m, x, l->ffn_gate, rows, all),
                        parts = spw_hf_part(t, made, 2 * bytes);
        both = spw_hf_gated(m, parts, spw_tape_output(parts, 1), bytes);
        spw_tape_drop(t, parts);
        spw_tape_drop(t, made);
    } else {
        const spw_value gate = spw_hf_linear(m, x, l->ffn_gate, rows, all),
                        up = spw_hf_linear(m, x, l->ffn_up, rows, all);
        both = spw_hf_gated(m, gate, up, bytes);
        spw_tape_drop(t, gate);
        spw_tape_drop(t, up);
    }
    const spw_value out = spw_hf_linear(m, both, l->ffn_down, rows, all);
    spw_tape_drop(t, both);
    spw_tape_kind(t, kind);
    return out;
}

static spw_value grouped(spw_hf_model *m, spw_value x, spw_value w, uint64_t rows, uint64_t in,
                         uint64_t out) {
    const uint64_t b = m->shape->element_bytes, e = m->shape->model->experts;
    const double flop = 2.0 * (double)rows * (double)in * (double)out;
    return spw_tape_apply(m->tape, &(spw_op){.bytes = rows * out * b,
                                             .input = {x, w},
                                             .keep = {{x, 1}, {w, 0}},
                                             .back = {SPW_TO_PRODUCT(1, e * in * out * b, flop),
                                                      SPW_TO_PRODUCT(0, rows * in * b, flop)},
                                             .flop = flop,
                                             .rate = SPW_HF_GROUPED_PRODUCT});
}

/* Rows of other ranks, masked: by a copy or in place. */
static spw_value clean(spw_hf_model *m, spw_value x, spw_value mask, uint64_t bytes, bool in_place) {
    if (m->shape->unmasked) return spw_tape_hold(m->tape, x);
    return spw_hf_masked(m->tape, x, mask, bytes, in_place);
}

/* out.add_(bias[experts of the rows]). Takes the name of x; *taken: the bias of every row, which has a name as long as the caller's. */
static spw_value biased(spw_hf_model *m, size_t at, spw_value x, spw_value experts_of, uint64_t rows,
                        spw_value *taken) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, width = m->weight[at].columns;
    *taken = spw_hf_take(t, SPW_HF_LEAF(m, at), experts_of, rows, rows * width * b,
                         m->shape->model->experts * width * b);
    const spw_value out = spw_tape_apply(t, &(spw_op){.input = {x, *taken},
                                                      .back = {SPW_TO_PASS(0), SPW_TO_PASS(1)},
                                                      .read_bytes = 2.0 * (double)(rows * width * b)});
    spw_tape_drop(t, x);
    return out;
}

/* Columns in turns: gate and up are two views, each of whose gradients is a whole tensor. Takes the name of both. */
static spw_value in_turns(spw_hf_model *m, spw_value both, uint64_t half) {
    spw_tape *t = m->tape;
    const spw_value gate = spw_hf_part(t, both, 2 * half), up = spw_hf_part(t, both, 2 * half),
                    out = spw_hf_gated(m, gate, up, half);
    const spw_value names[] = {gate, up, both};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* The whole of up() and down for experts with biases. */
static spw_value biased_experts(spw_hf_model *m, const spw_hf_layer *l, spw_value rows_of,
                                spw_value experts_of) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, f = model->expert_ffn, h = model->hidden;
    spw_value first_bias = {.storage = 0}, second_bias = {.storage = 0};
    const spw_value first = grouped(m, rows_of, SPW_HF_LEAF(m, l->gate_up), rows, h, 2 * f),
                    both = biased(m, l->gate_up + 1, first, experts_of, rows, &first_bias),
                    inner = in_turns(m, both, rows * f * m->shape->element_bytes);
    spw_tape_drop(t, first_bias);
    const spw_value second = grouped(m, inner, SPW_HF_LEAF(m, l->down), rows, f, h);
    spw_tape_drop(t, inner);
    const spw_value out = biased(m, l->down + 1, second, experts_of, rows, &second_bias);
    spw_tape_drop(t, second_bias);
    return out;
}

static spw_value up(spw_hf_model *m, spw_value weight, spw_value rows_of, spw_value mask) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   half = rows * model->expert_ffn * b, wide = model->plain_experts ? half : 2 * half;
    const double r = (double)half;
    const spw_value made =
        grouped(m, rows_of, weight, rows, spw_model_routed_width(model), wide / (rows * b));
    const spw_value both = clean(m, made, mask, wide, false);
    spw_tape_drop(t, made);
    if (model->plain_experts) return relu_squared(t, both, half);
    /* chunk(): one node, whose gradient joins those of its two views */
    const spw_value parts = spw_tape_apply(t, &(spw_op){.input = {both}, .back = {SPW_TO(0, wide, 2.0 * r)}});
    const spw_value out = spw_hf_gated(m, parts, spw_tape_output(parts, 1), half);
    spw_tape_drop(t, parts);
    spw_tape_drop(t, both);
    return out;
}

/* Scores of fp32 make the products fp32. */
static spw_value weigh(spw_hf_model *m, spw_value rows_of, spw_value weights) {
    const uint64_t rows = m->shape->tokens * m->shape->model->top_k, b = m->shape->element_bytes,
                   s = m->shape->wide_scores ? SPW_HF_FP32 : b,
                   numbers = rows * spw_model_routed_width(m->shape->model);
    const double r = (double)(s * numbers);
    spw_op op = {.bytes = s * numbers,
                 .input = {rows_of, weights},
                 .keep = {{weights, 0}, {rows_of, 1}},
                 .back = {SPW_TO_TEMP(1, s * numbers, 2.0 * r), SPW_TO(0, b * numbers, r), SPW_TO_DONE,
                          SPW_TO(1, s * rows, r)},
                 .read_bytes = r};
    if (s != b) {
        const spw_gradient_step wide[] = {SPW_TO_TEMP(1, s * numbers, 2.0 * r),
                                          SPW_TO_TEMP(0, s * numbers, r), SPW_TO_DONE,
                                          SPW_TO(0, b * numbers, r), SPW_TO(1, s * rows, r)};
        memcpy(op.back, wide, sizeof wide);
    }
    return spw_tape_apply(m->tape, &op);
}

/* Back to the tokens' order, and the sum of a token's choices, whose gradient is copied for each. *names: the tensor of choices that
 * still has a name. */
static spw_value combine(spw_hf_model *m, spw_value weighted, spw_value back, spw_value *named) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   s = m->shape->wide_scores ? SPW_HF_FP32 : b, width = spw_model_routed_width(model),
                   bytes = rows * width * s, numbers = m->shape->tokens * width;
    const spw_value ordered = spw_hf_take(t, weighted, back, rows, bytes, bytes);
    if (ordered.storage != 0) spw_tape_drop(t, weighted);
    *named = ordered.storage != 0 ? ordered : weighted;
    const spw_value each = spw_tape_apply(t, &(spw_op){.input = {ordered}, .back = {SPW_TO(0, bytes, 0.0)}});
    const spw_value sum = spw_tape_apply(
        t, &(spw_op){
               .bytes = s * numbers, .input = {each}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)bytes});
    spw_tape_drop(t, each);
    const spw_value out = spw_hf_cast(t, sum, numbers, s, b);
    spw_tape_drop(t, sum);
    return out;
}

/* grouped_mm_experts_forward(). */
static spw_value experts(spw_hf_model *m, const spw_hf_layer *l, spw_value x, spw_hf_routes r) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens * model->top_k, b = m->shape->element_bytes,
                   width = spw_model_routed_width(model), tokens = m->shape->tokens * width * b,
                   bytes = rows * width * b;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_EXPERTS);
    spw_hf_try_experts(m);
    const spw_value sorted = spw_tape_tensor(t, SPW_HF_INDEX * rows),
                    order = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    const spw_value keys = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, spw_hf_sort_bytes(rows)));
    spw_tape_drop(t, keys);
    const spw_value token = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    const spw_value gathered = spw_hf_take(t, x, token, rows, bytes, tokens);
    spw_tape_drop(t, token);
    const uint64_t score = m->shape->wide_scores ? SPW_HF_FP32 : b;
    const spw_value weights = spw_hf_take(t, r.weights, order, rows, score * rows, score * rows);
    const spw_value counts = spw_tape_tensor(t, SPW_HF_FP32 * rows),
                    mask = spw_tape_tensor(t, m->shape->unmasked ? 0 : rows);
    const spw_value given = clean(m, gathered, mask, bytes, true);
    spw_value first = {.storage = 0}, second = {.storage = 0}, raw;
    if (m->shape->sinks) {
        raw = biased_experts(m, l, given, sorted);
    } else {
        first = spw_hf_expert_weight(m, l, true);
        const spw_value inner = up(m, first, given, mask);
        second = spw_hf_expert_weight(m, l, false);
        raw = grouped(m, inner, second, rows, model->expert_ffn, width);
        spw_tape_drop(t, inner);
    }
    const spw_value made = clean(m, raw, mask, bytes, false);
    spw_tape_drop(t, raw);
    const spw_value weighted = weigh(m, made, weights);
    const spw_value back = spw_tape_tensor(t, SPW_HF_INDEX * rows);
    spw_tape_drop(t, spw_tape_tensor(t, SPW_HF_INDEX * rows)); /* arange() */
    spw_value ordered = {.storage = 0};
    const spw_value out = combine(m, weighted, back, &ordered);
    const spw_value names[] = {sorted,  order, given,    gathered,  weights,   counts, mask,  made,
                               ordered, back,  r.logits, r.weights, r.choices, first,  second};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    spw_tape_kind(t, kind);
    return out;
}

void spw_hf_ffn_weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *model = m->shape->model;
    const uint64_t h = model->hidden, width = spw_model_routed_width(model);
    if (!l->moe) {
        add_dense(m, l, model->dense_ffn);
        return;
    }
    spw_hf_add_experts(m, l);
    m->weight[l->router].wide = m->shape->wide_router;
    if (model->shared_ffn > 0) add_dense(m, l, model->shared_ffn);
    if (model->shared_gate) l->shared_gate = spw_hf_add_weight(m, 1, h, false);
    if (model->latent == 0) return;
    l->latent_in = spw_hf_add_matrix(m, width, h, false);
    l->latent_out = spw_hf_add_matrix(m, h, width, false);
}

/* Rows narrower than the hidden states: into them, and back. */
static spw_value routed(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens;
    const spw_hf_routes r = spw_hf_route(m, l, x);
    if (m->shape->model->latent == 0) return experts(m, l, x, r);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_EXPERTS);
    const spw_value narrow = spw_hf_linear(m, x, l->latent_in, rows, false), made = experts(m, l, narrow, r);
    spw_tape_drop(t, narrow);
    const spw_value out = spw_hf_linear(m, made, l->latent_out, rows, false);
    spw_tape_drop(t, made);
    spw_tape_kind(t, kind);
    return out;
}

/* sigmoid(gate) * shared. Takes the name of shared. */
static spw_value gated(spw_hf_model *m, const spw_hf_layer *l, spw_value x, spw_value shared) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_FFN);
    const spw_value raw =
        spw_hf_product(m, x, SPW_HF_LEAF(m, l->shared_gate), rows, m->shape->model->hidden, 1, false);
    const spw_value gate = spw_hf_keeping_output(t, raw, rows * b);
    spw_tape_drop(t, raw);
    const spw_value out = spw_hf_spread(t, shared, gate, rows * m->shape->model->hidden * b, rows * b);
    spw_tape_drop(t, gate);
    spw_tape_drop(t, shared);
    spw_tape_kind(t, kind);
    return out;
}

/* Of MiniMax-M3: experts' output times a number. Takes the name of x. */
static spw_value scaled(spw_hf_model *m, spw_value x) {
    const spw_value out = spw_hf_scale(m->tape, x, (spw_value){.storage = 0},
                                       m->shape->tokens * m->shape->model->hidden * m->shape->element_bytes);
    spw_tape_drop(m->tape, x);
    return out;
}

spw_value spw_hf_ffn(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    const spw_model *model = m->shape->model;
    spw_value first, second;
    if (!l->moe) return dense(m, l, x, model->dense_ffn);
    const bool early = model->shared_gate || m->shape->blocks;
    if (model->shared_ffn == 0) return routed(m, l, x);
    if (early) {
        const spw_value shared = dense(m, l, x, model->shared_ffn);
        first = m->shape->blocks ? scaled(m, routed(m, l, x)) : routed(m, l, x);
        second = model->shared_gate ? gated(m, l, x, shared) : shared;
    } else {
        first = routed(m, l, x);
        second = dense(m, l, x, model->shared_ffn);
    }
    const uint16_t kind = spw_tape_kind(m->tape, SPW_HF_FFN);
    const spw_value out =
        spw_hf_add(m->tape, first, second, m->shape->tokens * model->hidden * m->shape->element_bytes);
    spw_tape_kind(m->tape, kind);
    spw_tape_drop(m->tape, first);
    spw_tape_drop(m->tape, second);
    return out;
}
